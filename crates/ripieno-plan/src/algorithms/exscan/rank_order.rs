//! Rank-order exscan: every rank except the first ends with the combination of the vectors of all lower ranks.
//!
//! A rank receives the combination of the lower ranks into scratch and copies it. It combines its own vector into the
//! copy, which is the message to the next rank. The received combination then replaces the vector. All steps are
//! pipelined: a segment is forwarded before the whole vector has arrived.
//!
//! Combines in rank order with the operands of each combination in this order, so the operation need not be
//! commutative. Scratch: `2n` bytes on all ranks except the first and the last.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Buffer, Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
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

/// Plan this rank's part in a rank-order exscan of `vector`.
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
