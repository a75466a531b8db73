//! Rank-order allreduce: every rank ends with the combination of all vectors.
//!
//! This is a rank-order reduce-scatter of `p` equal chunks, then a direct allgather.
//!
//! The algorithm combines in rank order, so the operation need not be commutative. One rank completes each chunk, so
//! the result has the same bits on every rank. Uses a link between every pair of ranks. Scratch: `(p-1)/p·n` bytes.
//! Cost and source: see [`ENTRY`].

use crate::algorithms::{allgather, reduce_scatter};
use crate::theory::exactly;
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "rank-order",
    PlanFunction::Allreduce(plan),
    Theory {
        sent_bytes: |case, rank| case.n - case.chunk(rank) + (case.p - 1) * case.chunk(rank),
        hops: |case| exactly(2 * (case.p - 1).min(1)),
        rounds: |case| exactly(2 * (case.p - 1)),
        cost: Cost::AtMost("2(p-1)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I \
                 (regroup-allgather)",
    },
)
.in_rank_order();

/// Plan this rank's part in a rank-order allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let chunks = vector.chunks(group.size());
    reduce_scatter::rank_order::plan(group, &chunks, op).then(allgather::direct::plan(group, &chunks))
}
