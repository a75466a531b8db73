//! Trees over a group, and what flows up and down them.

mod binary;
mod double;
mod nomial;
mod stripes;

pub(crate) use binary::{binary, binary_degree};
pub(crate) use double::{double, double_degrees, double_depth};
pub(crate) use nomial::{NomialNode, degree, depth, subtree_size};
pub(crate) use stripes::{stripe_count, stripe_degree, stripe_depth, stripe_parent, stripe_tree};

use crate::theory::ceil_log2;
use crate::{Op, Plan, Span, TheoryCase};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// The radix of the k-nomial trees: a rank hands its bytes to three others at a time, so that half as many hops lead to
/// the farthest as in a binomial tree.
pub(crate) const RADIX: usize = 4;

/// The position of one rank in a tree, by ranks.
pub(crate) struct TreePosition {
    /// The rank above; the root has none.
    pub(crate) parent: Option<usize>,
    /// The ranks below, those that take longest to serve first.
    pub(crate) children: Vec<usize>,
}

impl TreePosition {
    /// This rank's part when `vector` flows down from the root.
    pub(crate) fn broadcast(&self, vector: Span) -> Plan {
        let mut plan = Plan::new();
        if let Some(parent) = self.parent {
            plan.receive(parent, vector);
        }
        self.children.iter().for_each(|&child| plan.send(child, vector));
        plan
    }

    /// This rank's part when vectors flow up to the root and are combined at every node, the quickest subtree first.
    pub(crate) fn reduce(&self, vector: Span, op: Op) -> Plan {
        let mut plan = Plan::new();
        self.children.iter().rev().for_each(|&child| plan.reduce(child, vector, op));
        if let Some(parent) = self.parent {
            plan.send(parent, vector);
        }
        plan
    }
}

/// Hops where chunks of whole subtrees go down or up the binomial tree. From another root than 0 the ranks of a subtree
/// may wrap around, which makes a second message on its link.
pub(crate) fn hops_of_runs(case: &TheoryCase) -> RangeInclusive<usize> {
    let floor_log2 = case.p.ilog2() as usize;
    floor_log2..=floor_log2 + case.root.min(1)
}

/// Rounds of the same: the messages of one link leave one after the other.
pub(crate) fn rounds_of_runs(case: &TheoryCase) -> RangeInclusive<usize> {
    ceil_log2(case.p)..=ceil_log2(case.p) * (1 + case.root.min(1))
}
