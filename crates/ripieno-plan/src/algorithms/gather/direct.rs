//! Direct gather: the root ends with every rank's chunk.
//!
//! Every rank sends its chunk to the root.
//!
//! Cost: `(p-1)·alpha + (p-1)/p·n·beta`, all of it at the root.
//! Needs each rank's own chunk in place.
//! Source: Thakur et al., "Optimization of collective communication operations in MPICH", IJHPCA 2005.

use crate::{Group, Plan, Span};

/// This rank's part in a direct gather of `chunks`, one per rank, to `root`.
pub fn plan(group: &Group, root: usize, chunks: &[Span]) -> Plan {
    let mut plan = Plan::new();
    if group.rank() != root {
        plan.send(root, chunks[group.rank()]);
        return plan;
    }
    for distance in 1..group.size() {
        plan.receive(group.after(distance), chunks[group.after(distance)]);
    }
    plan
}
