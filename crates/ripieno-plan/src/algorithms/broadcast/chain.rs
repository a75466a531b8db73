//! Chain broadcast: every rank ends with the root's vector.
//!
//! Each rank forwards the vector from its left to its right neighbor, starting at the root. The executor forwards
//! segments as they arrive, so all links are busy at once and the time hardly depends on `p`.
//!
//! Cost for long vectors: `n·beta`.
//! General cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "chain",
    PlanFunction::Broadcast(plan),
    Theory {
        sent_bytes: |case, rank| if case.distance(rank) + 1 < case.p { case.n } else { 0 },
        hops: |case| exactly(case.p - 1),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-2+k)·(alpha + n/k·beta)"),
        source: "Zhang and Qiu, \"Clustering social images with MapReduce and high performance collective \
                 communication\" (Twister), section 4.4, eq. 3; Zhang, Ruan, Qiu, \"Harp: collective communication \
                 on Hadoop\", IC2E 2015, table I",
    },
)
.ordered();

/// Plan this rank's part in a chain broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    let distance = group.distance_from(root);
    let mut plan = Plan::new();
    if distance > 0 {
        plan.receive(group.left(), vector);
    }
    if distance + 1 < group.size() {
        plan.send(group.right(), vector);
    }
    plan
}
