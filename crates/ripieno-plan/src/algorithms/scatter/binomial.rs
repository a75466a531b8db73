//! Binomial scatter: every rank ends with its chunk of the root's vector.
//!
//! Chunks go down a binomial tree, the largest subtree first. The chunks of a subtree are one span, or two where its
//! ranks wrap around.
//!
//! Cost: `ceil(log2 p)·alpha + (p-1)/p·n·beta`, one `alpha` more where a subtree wraps around.
//! Needs the whole layout as scratch on every rank.
//! Source: Thakur et al., "Optimization of collective communication operations in MPICH", IJHPCA 2005.

use crate::algorithms::tree::Node;
use crate::{Group, Plan, Span};

/// This rank's part in a binomial scatter of `chunks`, one per rank, from `root`.
pub fn plan(group: &Group, root: usize, chunks: &[Span]) -> Plan {
    let node = Node::of(group, root, 2);
    let mut plan = Plan::new();
    if let Some(parent) = node.parent() {
        node.spans(chunks).into_iter().for_each(|span| plan.receive(parent, span));
    }
    for child in node.children().rev() {
        child.spans(chunks).into_iter().for_each(|span| plan.send(child.rank(), span));
    }
    plan
}
