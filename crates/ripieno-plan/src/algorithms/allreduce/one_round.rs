//! One-round allreduce: every rank ends with the combination of all vectors.
//!
//! In round `i` every rank sends its vector to the rank `i` after it. Received vectors are stored in scratch. A rank
//! first combines the vectors of all lower ranks. It then adds its own vector, and finally the vectors of the higher
//! ranks. It combines each vector once all vectors before it in this order have arrived.
//!
//! One hop, the minimum, which suits few ranks and short vectors.
//! Requires a commutative operation. All ranks combine in rank order, so the result has the same bits on every rank.
//! Uses a link between every pair of ranks. Scratch: `(p-1)·n` bytes.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Buffer, Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "one-round",
    PlanFunction::Allreduce(plan),
    Theory {
        sent_bytes: |case, _| (case.p - 1) * case.n,
        hops: |case| exactly((case.p - 1).min(1)),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::AtMost("(p-1)·(alpha + n·beta + n·gamma)"),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I (direct sending)",
    },
);

/// Plan this rank's part in a one-round allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let (rank, p) = (group.rank(), group.size());
    let slot = |from: usize| {
        let number = if from < rank { from } else { from - 1 };
        vector.placed(Buffer::SCRATCH, number * vector.length_bytes)
    };
    let mut plan = Plan::new();
    for round in 1..p {
        plan.send(group.after(round), vector);
        plan.receive(group.before(round), slot(group.before(round)));
    }
    for before in 1..rank {
        plan.combine(slot(before), slot(0), op);
    }
    if rank > 0 {
        plan.combine(slot(0), vector, op);
    }
    for after in rank + 1..p {
        plan.combine(slot(after), vector, op);
    }
    plan
}
