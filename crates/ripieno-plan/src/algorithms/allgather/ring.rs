//! Ring (bucket) allgather: every rank ends with every rank's chunk.
//!
//! In each of `p-1` rounds a rank sends the chunk that it received last to its right neighbor. If the sizes differ,
//! the largest chunk determines the time.
//!
//! Requires each rank's own chunk in place.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "ring",
    PlanFunction::Allgather(plan),
    Theory {
        sent_bytes: |case, rank| case.n - case.chunk(rank + 1),
        hops: |case| exactly(case.p - 1),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-1)·alpha + (p-1)/p·n·beta"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I (bucket)",
    },
)
.ordered();

/// Plan this rank's part in a ring allgather of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span]) -> Plan {
    let mut plan = Plan::new();
    for round in 0..group.size() - 1 {
        plan.send(group.right(), chunks[group.before(round)]);
        plan.receive(group.left(), chunks[group.before(round + 1)]);
    }
    plan
}
