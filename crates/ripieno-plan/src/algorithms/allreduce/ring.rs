//! Ring allreduce: every rank ends with the combination of all vectors.
//!
//! This is a ring reduce-scatter of `p` equal chunks, then a ring allgather of the results.
//!
//! Requires a commutative operation. One rank completes each chunk, so the result has the same bits on every rank.
//! Cost and source: see [`ENTRY`].

use crate::algorithms::{allgather, reduce_scatter};
use crate::theory::exactly;
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "ring",
    PlanFunction::Allreduce(plan),
    Theory {
        sent_bytes: |case, rank| 2 * case.n - case.chunk(rank) - case.chunk(rank + 1),
        hops: |case| exactly(2 * (case.p - 1)),
        rounds: |case| exactly(2 * (case.p - 1)),
        cost: Cost::Exactly("2(p-1)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma"),
        source: "Patarasuk and Yuan, \"Bandwidth optimal all-reduce algorithms for clusters of workstations\", JPDC \
                 2009",
    },
)
.ordered();

/// Plan this rank's part in a ring allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let chunks = vector.chunks(group.size());
    reduce_scatter::ring::plan(group, &chunks, op).then(allgather::ring::plan(group, &chunks))
}
