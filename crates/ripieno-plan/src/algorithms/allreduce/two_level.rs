//! Two-level allreduce: every rank ends with the combination of all vectors.
//!
//! A short vector is reduced to one rank of every node, combined between these ranks, and broadcast inside the nodes. A
//! long vector is divided into one chunk per leader. Chunks are combined inside the nodes, then between leaders of
//! equal number, and finally gathered inside the nodes. For any number of leaders, a node sends and receives as much as
//! a single rank would.
//!
//! Cost: short: reduce inside, allreduce between, broadcast inside, each by the default algorithm. Long: reduce-scatter
//! inside, allreduce of `n/l` bytes by each of `l` leaders at once, allgather inside.
//! Requires a commutative operation. An allreduce between the nodes completes every chunk, so all nodes get the same
//! bits.
//! Source: see [`ENTRY`].

use crate::algorithms::levels::{Levels, theory};
use crate::choice::ONE_LEADER_BYTES;
use crate::request::PlanRequest;
use crate::{Entry, Group, Op, Plan, PlanFunction, Span};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "two-level",
    PlanFunction::Allreduce(plan),
    theory(
        "Ekanayake et al., \"Java thread and process performance for parallel machine learning on multicore HPC \
             clusters\", IEEE Big Data 2016, section III.C; Bayatpour et al., \"Scalable reduction collectives with \
             data partitioning-based multi-leader design\", SC 2017",
    ),
)
.two_levels()
.buffered();

/// Plan this rank's part in a two-level allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let levels = Levels::of(group);
    match vector.length_bytes <= ONE_LEADER_BYTES || levels.leader_count == 1 {
        true => by_one_leader(&levels, vector, op),
        false => by_all_leaders(&levels, vector, op),
    }
}

fn by_one_leader(levels: &Levels, vector: Span, op: Op) -> Plan {
    let leaders = levels.leaders_with(0);
    levels
        .plan(levels.local_ranks(), &PlanRequest::Reduce { root: 0, vector, op })
        .then(levels.plan(&leaders, &PlanRequest::Allreduce { vector, op }))
        .then(levels.plan(levels.local_ranks(), &PlanRequest::Broadcast { root: 0, vector }))
}

fn by_all_leaders(levels: &Levels, vector: Span, op: Op) -> Plan {
    let leader_chunks = vector.chunks(levels.leader_count);
    let between = levels.co_leaders().map(|leaders| {
        let vector = leader_chunks[levels.local_rank];
        levels.plan(&leaders, &PlanRequest::Allreduce { vector, op })
    });
    let chunks = &levels.pad_to_local_ranks(leader_chunks)[..];
    levels
        .plan(levels.local_ranks(), &PlanRequest::ReduceScatter { chunks, op })
        .then(between.unwrap_or_default())
        .then(levels.plan(levels.local_ranks(), &PlanRequest::Allgather { chunks }))
}
