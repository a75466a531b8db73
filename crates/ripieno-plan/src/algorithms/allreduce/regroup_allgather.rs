//! Regroup-allgather allreduce: every rank ends with the combination of all vectors.
//!
//! This is a direct reduce-scatter (Harp's regroup) of `p` equal chunks, then a direct allgather. The allgather is
//! direct because the links are already open. It sends as many bytes as a ring, and a late chunk delays no other chunk.
//!
//! Requires a commutative operation. One rank completes each chunk, so the result has the same bits on every rank.
//! Cost and source: see [`ENTRY`].

use crate::algorithms::{allgather, reduce_scatter};
use crate::theory::exactly;
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "regroup-allgather",
    PlanFunction::Allreduce(plan),
    Theory {
        sent_bytes: |case, rank| case.n - case.chunk(rank) + (case.p - 1) * case.chunk(rank),
        hops: |case| exactly(2 * (case.p - 1).min(1)),
        rounds: |case| exactly(2 * (case.p - 1)),
        cost: Cost::Exactly("2(p-1)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I \
                 (regroup-allgather)",
    },
);

/// Plan this rank's part in a regroup-allgather allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let chunks = vector.chunks(group.size());
    reduce_scatter::direct::plan(group, &chunks, op).then(allgather::direct::plan(group, &chunks))
}
