//! One-round allreduce: every rank ends with the combination of all vectors.
//!
//! Every rank sends its vector to every other; in round `i` to the rank `i` after it. What comes goes into scratch and
//! is combined in the order of the ranks once all before it is there: the vectors of the ranks before this one among
//! themselves, they with its own, and that with those of the ranks after it.
//!
//! One hop, the least for a few ranks and bytes.
//! Needs a commutative operation. All combine in the order of the ranks, so the result is the same bits on every rank.
//! Uses a link between every two ranks. Scratch: `(p-1)·n` bytes.

use crate::theory::exactly;
use crate::{Buffer, Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Its entry in the catalogue.
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

/// This rank's part in a one-round allreduce of `vector`.
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
