//! Rank-order scan: every rank ends with the combination of its own vector and the vectors of all lower ranks.
//!
//! A rank receives the result of the previous rank into scratch and combines its own vector into it. The combination
//! replaces its vector and is sent to the next rank. All steps are pipelined: segments are forwarded as they arrive.
//!
//! Combines in rank order with the operands of each combination in this order, so the operation need not be
//! commutative. Scratch: `n` bytes on all ranks except the first.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Buffer, Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "rank-order",
    PlanFunction::Scan(plan),
    Theory {
        sent_bytes: |case, rank| if rank + 1 < case.p { case.n } else { 0 },
        hops: |case| exactly(case.p - 1),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::AtMost("(p-2+k)·(alpha + n/k·beta + n/k·gamma)"),
        source: "Blelloch, \"Prefix sums and their applications\", CMU-CS-90-190, 1990, section 1 (the serial scan)",
    },
)
.in_rank_order();

/// Plan this rank's part in a rank-order scan of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let rank = group.rank();
    let mut plan = Plan::new();
    if rank > 0 {
        let before = vector.placed(Buffer::SCRATCH, 0);
        plan.receive(rank - 1, before);
        plan.combine(vector, before, op);
        plan.copy(before, vector);
    }
    if rank + 1 < group.size() {
        plan.send(rank + 1, vector);
    }
    plan
}
