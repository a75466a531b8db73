//! Direct reduce-scatter: every rank ends with its chunk of the combination of all vectors. Harp calls it regroup.
//!
//! Every rank sends chunk `j` directly to rank `j`. In round `i` it sends to the rank `i` before it, so the ranks do
//! not all send to the same rank at once. Received chunks are combined in the order of the rounds. No message waits for
//! another: one hop.
//!
//! Requires a commutative operation: chunk `c` is combined in the order `c, c+1, …, c-1`. Uses a link between every
//! pair of ranks.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "direct",
    PlanFunction::ReduceScatter(plan),
    Theory {
        sent_bytes: |case, rank| case.n - case.chunk(rank),
        hops: |case| exactly((case.p - 1).min(1)),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-1)·alpha + (p-1)/p·n·beta + (p-1)/p·n·gamma"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I (regroup)",
    },
);

/// Plan this rank's part in a direct reduce-scatter of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span], op: Op) -> Plan {
    let mut plan = Plan::new();
    for round in 1..group.size() {
        plan.send(group.before(round), chunks[group.before(round)]);
        plan.reduce(group.after(round), chunks[group.rank()], op);
    }
    plan
}
