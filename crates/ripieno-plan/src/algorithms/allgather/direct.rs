//! Direct allgather: every rank ends with every rank's chunk.
//!
//! In round `i` every rank sends its chunk to the rank `i` after it, so the ranks do not all send to the same rank at
//! once. No message waits for another: one hop.
//!
//! Requires each rank's own chunk in place. Uses a link between every pair of ranks.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "direct",
    PlanFunction::Allgather(plan),
    Theory {
        sent_bytes: |case, rank| (case.p - 1) * case.chunk(rank),
        hops: |case| exactly((case.p - 1).min(1)),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-1)·alpha + (p-1)/p·n·beta"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I (direct sending)",
    },
);

/// Plan this rank's part in a direct allgather of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span]) -> Plan {
    let mut plan = Plan::new();
    for round in 1..group.size() {
        plan.send(group.after(round), chunks[group.rank()]);
        plan.receive(group.before(round), chunks[group.before(round)]);
    }
    plan
}
