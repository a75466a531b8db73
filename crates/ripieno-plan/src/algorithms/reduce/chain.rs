//! Chain reduce: the root ends with the combination of all vectors.
//!
//! This is the reversed chain broadcast: each rank combines the vector from its right neighbor into its own and sends
//! the result to its left neighbor. The executor forwards segments as they arrive, so the time hardly depends on `p`.
//!
//! Requires a commutative operation: vectors are combined by distance from the root, farthest first.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "chain",
    PlanFunction::Reduce(plan),
    Theory {
        sent_bytes: |case, rank| if rank == case.root { 0 } else { case.n },
        hops: |case| exactly(case.p - 1),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-2+k)·(alpha + n/k·beta + n/k·gamma)"),
        source: "Zhang and Qiu, \"Clustering social images with MapReduce and high performance collective \
                 communication\" (Twister), section 4.4, eq. 3, reversed",
    },
)
.ordered();

/// Plan this rank's part in a chain reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    let distance = group.distance_from(root);
    let mut plan = Plan::new();
    if distance + 1 < group.size() {
        plan.reduce(group.right(), vector, op);
    }
    if distance > 0 {
        plan.send(group.left(), vector);
    }
    plan
}
