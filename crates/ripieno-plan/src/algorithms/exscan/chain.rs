//! Chain exscan: every rank except the first ends with the combination of the vectors of all lower ranks.
//!
//! A rank receives the combination of the lower ranks into scratch. It combines this into its own vector, which is the
//! message to the next rank. After the message is sent, the scratch contents replace the vector. All steps work byte by
//! byte, so the executor forwards segments as they arrive. The last rank combines nothing.
//!
//! Combines in rank order. Scratch: `n` bytes on all ranks except the first and the last.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Buffer, Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
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

/// Plan this rank's part in a chain exscan of `vector`.
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
