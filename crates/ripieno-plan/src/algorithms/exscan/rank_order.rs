//! Rank-order exscan: every rank but the first ends with the combination of the vectors of all ranks before it.
//!
//! What the rank before has for this one comes into scratch, and is copied. This rank's vector is combined into the
//! copy, which the next rank is to have; what came takes the vector's place. All of it goes byte by byte.
//!
//! Combines in the order of the ranks, and has the operands of each combination in this order, so the operation need
//! not be commutative. Scratch: `2n` bytes on all ranks but the first and the last.

use crate::theory::exactly;
use crate::{Buffer, Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new(
    "rank-order",
    PlanFunction::Exscan(plan),
    Theory {
        sent_bytes: |case, rank| if rank + 1 < case.p { case.n } else { 0 },
        hops: |case| exactly(case.p - 1),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::AtMost("(p-2+k)·(alpha + n/k·beta + n/k·gamma)"),
        source: "Blelloch, \"Prefix sums and their applications\", CMU-CS-90-190, 1990, section 1 (the serial scan)",
    },
)
.in_rank_order();

/// This rank's part in a rank-order exscan of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let (rank, last) = (group.rank(), group.size() - 1);
    let mut plan = Plan::new();
    if rank == 0 && last > 0 {
        plan.send(1, vector);
    } else if rank == last && last > 0 {
        plan.receive(rank - 1, vector);
    } else if rank > 0 {
        let before = vector.placed(Buffer::SCRATCH, 0);
        let with_own = vector.placed(Buffer::SCRATCH, vector.length_bytes);
        plan.receive(rank - 1, before);
        plan.copy(before, with_own);
        plan.combine(vector, with_own, op);
        plan.send(rank + 1, with_own);
        plan.copy(before, vector);
    }
    plan
}
