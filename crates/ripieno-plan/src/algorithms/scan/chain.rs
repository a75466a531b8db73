//! Chain scan: every rank ends with the combination of the vectors of all ranks up to it.
//!
//! Each rank combines what the rank before it has into its own vector and passes it on. The executor forwards segments
//! as they come in, so the time for long vectors hardly depends on `p`.
//!
//! Combines in the order of the ranks.

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new(
    "chain",
    PlanFunction::Scan(plan),
    Theory {
        sent_bytes: |case, rank| if rank + 1 < case.p { case.n } else { 0 },
        hops: |case| exactly(case.p - 1),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-2+k)·(alpha + n/k·beta + n/k·gamma)"),
        source: "Blelloch, \"Prefix sums and their applications\", CMU-CS-90-190, 1990, section 1 (the serial scan)",
    },
);

/// This rank's part in a chain scan of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let rank = group.rank();
    let mut plan = Plan::new();
    if rank > 0 {
        plan.reduce(rank - 1, vector, op);
    }
    if rank + 1 < group.size() {
        plan.send(rank + 1, vector);
    }
    plan
}
