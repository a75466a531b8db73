//! Binomial gather: the root ends with every rank's chunk.
//!
//! Chunks go up a binomial tree, the smallest subtree first. The chunks of a subtree are one span, or two where its
//! ranks wrap around.
//!
//! Cost: `ceil(log2 p)·alpha + (p-1)/p·n·beta`, one `alpha` more where a subtree wraps around.
//! Needs each rank's own chunk in place, and the whole layout as scratch on every rank.
//! Source: Thakur et al., "Optimization of collective communication operations in MPICH", IJHPCA 2005.

use crate::algorithms::tree::Node;
use crate::{Group, Plan, Span};

/// This rank's part in a binomial gather of `chunks`, one per rank, to `root`.
pub fn plan(group: &Group, root: usize, chunks: &[Span]) -> Plan {
    let node = Node::of(group, root, 2);
    let mut plan = Plan::new();
    for child in node.children() {
        child.spans(chunks).into_iter().for_each(|span| plan.receive(child.rank(), span));
    }
    if let Some(parent) = node.parent() {
        node.spans(chunks).into_iter().for_each(|span| plan.send(parent, span));
    }
    plan
}
