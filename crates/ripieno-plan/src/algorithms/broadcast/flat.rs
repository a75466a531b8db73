//! Flat broadcast: every rank ends with the root's vector.
//!
//! The root sends the vector to every other rank, in one hop. This is best for `p = 2` and for slow receivers.
//!
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "flat",
    PlanFunction::Broadcast(plan),
    Theory {
        sent_bytes: |case, rank| if rank == case.root { (case.p - 1) * case.n } else { 0 },
        hops: |case| exactly((case.p - 1).min(1)),
        rounds: |case| exactly(case.p - 1),
        cost: Cost::Exactly("(p-1)·(alpha + n·beta)"),
        source: "Zhang and Qiu, \"Clustering social images with MapReduce and high performance collective \
                 communication\" (Twister), section 4.1 (\"send the data to all the nodes one by one\")",
    },
);

/// Plan this rank's part in a flat broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    let mut plan = Plan::new();
    if group.rank() != root {
        plan.receive(root, vector);
        return plan;
    }
    for distance in 1..group.size() {
        plan.send(group.after(distance), vector);
    }
    plan
}
