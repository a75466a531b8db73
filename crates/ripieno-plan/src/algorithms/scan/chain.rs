//! Chain scan: every rank ends with the combination of the vectors of all ranks up to it.
//!
//! Each rank combines what the rank before it has into its own vector and passes it on. The executor forwards segments as
//! they come in, so the time for long vectors hardly depends on `p`.
//!
//! Cost: `(p-2+k)·(alpha + n/k·beta + n/k·gamma)` in `k` segments.
//! Combines in the order of the ranks.
//! Source: Blelloch, "Prefix sums and their applications", CMU-CS-90-190, 1990, section 1 (the serial scan).

use crate::{Group, Op, Plan, Span};

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
