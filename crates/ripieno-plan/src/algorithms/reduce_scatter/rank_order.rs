//! Rank-order reduce-scatter: every rank ends with its chunk of the combination of all vectors.
//!
//! Every rank sends chunk `j` directly to rank `j`. In round `i` rank `r` sends to rank `r-i` (modulo `p`), so the
//! ranks do not all send to the same rank at once. Received chunks are stored in scratch, and each is combined once all
//! chunks of lower ranks have arrived. No message waits for another: one hop.
//!
//! Combines in rank order, so the operation need not be commutative. Uses a link between every pair of ranks. Scratch:
//! `p-1` chunks.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Buffer, Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "rank-order",
    PlanFunction::ReduceScatter(plan),
    Theory {
        sent_bytes: |case, rank| case.n - case.chunk(rank),
        hops: |case| exactly((case.p - 1).min(1)),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::AtMost("(p-1)·alpha + (p-1)/p·n·beta + (p-1)/p·n·gamma"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I (regroup)",
    },
)
.in_rank_order();

/// Plan this rank's part in a rank-order reduce-scatter of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span], op: Op) -> Plan {
    let (rank, p) = (group.rank(), group.size());
    let own = chunks[rank];
    let slot = |from: usize| {
        let number = if from < rank { from } else { from - 1 };
        own.placed(Buffer::SCRATCH, number * own.length_bytes)
    };
    let mut plan = Plan::new();
    for round in 1..p {
        plan.send(group.before(round), chunks[group.before(round)]);
        plan.receive(group.after(round), slot(group.after(round)));
    }
    let combined = if rank == 0 { own } else { slot(0) };
    for from in 1..p {
        plan.combine(if from == rank { own } else { slot(from) }, combined, op);
    }
    if rank > 0 {
        plan.copy(combined, own);
    }
    plan
}
