//! Ring reduce-scatter: every rank ends with its chunk of the combination of all vectors.
//!
//! Each chunk moves around the ring, from the rank after its owner to its owner, and is combined at every rank.
//!
//! Requires a commutative operation: chunk `c` is combined in the order `c+1, c+2, …, c`.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "ring",
    PlanFunction::ReduceScatter(plan),
    Theory {
        sent_bytes: |case, rank| case.n - case.chunk(rank),
        hops: |case| exactly(case.p - 1),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-1)·alpha + (p-1)/p·n·beta + (p-1)/p·n·gamma"),
        source: "Patarasuk and Yuan, \"Bandwidth optimal all-reduce algorithms for clusters of workstations\", JPDC \
                 2009",
    },
)
.ordered();

/// Plan this rank's part in a ring reduce-scatter of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span], op: Op) -> Plan {
    let mut plan = Plan::new();
    for round in 1..group.size() {
        plan.send(group.right(), chunks[group.before(round)]);
        plan.reduce(group.left(), chunks[group.before(round + 1)], op);
    }
    plan
}
