//! Trees over a group, and the plans of data that moves up or down a tree.

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

/// Radix of the k-nomial trees: a rank sends to three children per digit, so the farthest rank has half the hops of a
/// binomial tree.
pub(crate) const RADIX: usize = 4;

/// The position of one rank in a tree, as rank numbers.
pub(crate) struct TreePosition {
    /// The parent; `None` for the root.
    pub(crate) parent: Option<usize>,
    /// The children, starting with the child with the slowest subtree.
    pub(crate) children: Vec<usize>,
}

impl TreePosition {
    /// Plan this rank's part in sending `vector` down from the root.
    pub(crate) fn broadcast(&self, vector: Span) -> Plan {
        let mut plan = Plan::new();
        if let Some(parent) = self.parent {
            plan.receive(parent, vector);
        }
        self.children.iter().for_each(|&child| plan.send(child, vector));
        plan
    }

    /// Plan this rank's part in reducing vectors up to the root, with a combination at every node, fastest subtree
    /// first.
    pub(crate) fn reduce(&self, vector: Span, op: Op) -> Plan {
        let mut plan = Plan::new();
        self.children.iter().rev().for_each(|&child| plan.reduce(child, vector, op));
        if let Some(parent) = self.parent {
            plan.send(parent, vector);
        }
        plan
    }
}

/// Return the hops of moving the chunks of whole subtrees along the binomial tree. For a root other than 0 the ranks of
/// a subtree may wrap around, which needs a second message on its link.
pub(crate) fn hops_of_runs(case: &TheoryCase) -> RangeInclusive<usize> {
    let floor_log2 = case.p.ilog2() as usize;
    floor_log2..=floor_log2 + case.root.min(1)
}

/// Return the rounds of these messages: the messages of a link are sent one after the other.
pub(crate) fn rounds_of_runs(case: &TheoryCase) -> RangeInclusive<usize> {
    ceil_log2(case.p)..=ceil_log2(case.p) * (1 + case.root.min(1))
}
