//! Flat broadcast: every rank ends with the root's vector.
//!
//! The root sends to every other rank.
//!
//! Cost: `(p-1)·(alpha + n·beta)`, all of it at the root; one hop, so the best for `p = 2` and slow readers.
//! Source: Zhang and Qiu, "Clustering social images with MapReduce and high performance collective communication"
//! (Twister), section 4.1 ("send the data to all the nodes one by one").

use crate::{Group, Plan, Span};

/// This rank's part in a flat broadcast of `vector` from `root`.
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
