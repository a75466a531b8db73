//! Chain scan: every rank ends with the combination of its own vector and the vectors of all lower ranks.
//!
//! Each rank combines the result of the previous rank into its own vector and sends it to the next rank. The executor
//! forwards segments as they arrive, so the time for long vectors hardly depends on `p`.
//!
//! Combines in rank order.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
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

/// Plan this rank's part in a chain scan of `vector`.
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
