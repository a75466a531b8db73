//! Direct alltoall: every rank ends with the chunk that each rank had for it.
//!
//! In round `i` every rank sends to the rank `i` after it, so the ranks do not all send to the same rank at once. A
//! rank's own chunk is copied. No message waits for another: one hop.
//!
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "direct",
    PlanFunction::Alltoall(plan),
    Theory {
        sent_bytes: |case, rank| case.out_bytes(rank),
        hops: |case| exactly((case.p - 1).min(1)),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-1)·alpha + (p-1)/p·n·beta"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I (direct sending)",
    },
);

/// Plan this rank's part in a direct alltoall from `out_chunks` (for each rank) to `in_chunks` (from each rank).
pub fn plan(group: &Group, out_chunks: &[Span], in_chunks: &[Span]) -> Plan {
    let mut plan = Plan::new();
    plan.copy(out_chunks[group.rank()], in_chunks[group.rank()]);
    for round in 1..group.size() {
        plan.send(group.after(round), out_chunks[group.after(round)]);
        plan.receive(group.before(round), in_chunks[group.before(round)]);
    }
    plan
}
