//! Two-level allreduce: every rank ends with the combination of all vectors.
//!
//! Short vectors are reduced to one rank of every node, combined between these, and broadcast inside the nodes. Of long
//! ones every lane takes a chunk: it is combined inside the nodes by its local rank, then along the lane, then gathered
//! inside the nodes. However many lanes there are, a node sends and receives as much as one rank would.
//!
//! Cost: short: reduce inside, allreduce between, broadcast inside, each as chosen. Long: reduce-scatter inside,
//! allreduce of `n/l` bytes in each of `l` lanes at once, allgather inside.
//! Needs a commutative operation. Every chunk is finished by an allreduce between nodes, which gives all of them the
//! same bits.

use crate::algorithms::levels::{Levels, theory};
use crate::choice::ONE_LEADER_BYTES;
use crate::request::Request;
use crate::{Entry, Group, Op, Plan, Planner, Span};

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new(
    "two-level",
    Planner::Allreduce(plan),
    theory(
        "Ekanayake et al., \"Java thread and process performance for parallel machine learning on multicore HPC \
             clusters\", IEEE Big Data 2016, section III.C; Bayatpour et al., \"Scalable reduction collectives with \
             data partitioning-based multi-leader design\", SC 2017",
    ),
)
.two_levels()
.buffered();

/// This rank's part in a two-level allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let levels = Levels::of(group);
    match vector.length_bytes <= ONE_LEADER_BYTES || levels.lane_count() == 1 {
        true => by_leaders(&levels, vector, op),
        false => by_lanes(&levels, vector, op),
    }
}

fn by_leaders(levels: &Levels, vector: Span, op: Op) -> Plan {
    let leaders = levels.leaders(0);
    levels
        .among(levels.locals(), &Request::Reduce { root: 0, vector, op })
        .then(levels.among(&leaders, &Request::Allreduce { vector, op }))
        .then(levels.among(levels.locals(), &Request::Broadcast { root: 0, vector }))
}

fn by_lanes(levels: &Levels, vector: Span, op: Op) -> Plan {
    let of_lanes = vector.chunks(levels.lane_count());
    let between = levels.lane().map(|lane| {
        let vector = of_lanes[levels.place];
        levels.among(&lane, &Request::Allreduce { vector, op })
    });
    let chunks = &levels.for_locals(of_lanes)[..];
    levels
        .among(levels.locals(), &Request::ReduceScatter { chunks, op })
        .then(between.unwrap_or_default())
        .then(levels.among(levels.locals(), &Request::Allgather { chunks }))
}
