//! Direct scatter: every rank ends with its chunk of the root's vector.
//!
//! The root sends every rank its chunk.
//!
//! Cost: `(p-1)·alpha + (p-1)/p·n·beta`, all of it at the root.
//! Source: Thakur et al., "Optimization of collective communication operations in MPICH", IJHPCA 2005.

use crate::{Group, Plan, Span};

/// This rank's part in a direct scatter of `chunks`, one per rank, from `root`.
pub fn plan(group: &Group, root: usize, chunks: &[Span]) -> Plan {
    let mut plan = Plan::new();
    if group.rank() != root {
        plan.receive(root, chunks[group.rank()]);
        return plan;
    }
    for distance in 1..group.size() {
        plan.send(group.after(distance), chunks[group.after(distance)]);
    }
    plan
}
