//! Rank-order scan: every rank ends with the combination of the vectors of all ranks up to it.
//!
//! What the rank before has comes into scratch. This rank's vector is combined into that, takes its place, and is
//! passed on, all of it byte by byte, so segments are forwarded as they come in.
//!
//! Combines in the order of the ranks, and has the operands of each combination in this order, so the operation need
//! not be commutative. Scratch: `n` bytes on all ranks but the first.

use crate::theory::exactly;
use crate::{Buffer, Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Its entry in the catalogue.
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

/// This rank's part in a rank-order scan of `vector`.
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
