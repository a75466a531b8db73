//! Chain exscan: every rank but the first ends with the combination of the vectors of all ranks before it.
//!
//! What the rank before has for this one comes into scratch. It is combined into this rank's vector, which so becomes
//! what the next rank is to have, and takes the vector's place when that has left; all of it byte by byte, so segments
//! are forwarded as they come in.
//!
//! The last rank combines nothing.
//! Combines in the order of the ranks. Scratch: `n` bytes on all ranks but the first and the last.

use crate::theory::exactly;
use crate::{Buffer, Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new(
    "chain",
    PlanFunction::Exscan(plan),
    Theory {
        sent_bytes: |case, rank| if rank + 1 < case.p { case.n } else { 0 },
        hops: |case| exactly(case.p - 1),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::AtMost("(p-2+k)·(alpha + n/k·beta + n/k·gamma)"),
        source: "Blelloch, \"Prefix sums and their applications\", CMU-CS-90-190, 1990, section 1 (the serial scan)",
    },
);

/// This rank's part in a chain exscan of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let (rank, last) = (group.rank(), group.size() - 1);
    let before = vector.placed(Buffer::SCRATCH, 0);
    let mut plan = Plan::new();
    if rank == 0 && last > 0 {
        plan.send(1, vector);
    } else if rank == last && last > 0 {
        plan.receive(rank - 1, vector);
    } else if rank > 0 {
        plan.receive(rank - 1, before);
        plan.combine(before, vector, op);
        plan.send(rank + 1, vector);
        plan.copy(before, vector);
    }
    plan
}
