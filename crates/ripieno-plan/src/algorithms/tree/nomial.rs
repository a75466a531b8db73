//! k-nomial tree over a group by distance from its root; a binomial tree for `k = 2`.
//!
//! The parent of distance `d` is `d` with its lowest nonzero digit to base `k` set to 0. So the subtree of `d` is a run
//! of distances, and subtrees correspond to runs of chunks. The depth is at most `ceil(log_k p)`, and the degree at
//! most `k-1` times the depth.

use super::TreePosition;
use crate::algorithms::cyclic;
use crate::{Group, Span};
use alloc::vec::Vec;
use core::iter;
use core::ops::Range;

/// The position of one rank in the tree.
pub(crate) struct NomialNode {
    distance: usize,
    size: usize,
    root: usize,
    radix: usize,
}

impl NomialNode {
    /// Return the position of the group's own rank in the tree of base `radix` below `root`.
    pub(crate) fn of(group: &Group, root: usize, radix: usize) -> NomialNode {
        NomialNode { distance: group.distance_from(root), size: group.size(), root, radix }
    }

    /// Return the parent; `None` for the root.
    pub(crate) fn parent(&self) -> Option<usize> {
        (self.distance != 0).then(|| self.at(self.distance - self.distance % (self.radix * self.span_count())).rank())
    }

    /// Iterate over the children, smallest subtree first.
    pub(crate) fn children(&self) -> impl DoubleEndedIterator<Item = NomialNode> + '_ {
        let sizes: Vec<usize> = powers(self.radix).take_while(|&size| size < self.span_count()).collect();
        let distances = sizes.into_iter().flat_map(|size| (1..self.radix).map(move |digit| digit * size));
        let children = distances.map(|offset| self.distance + offset).filter(|&child| child < self.size);
        children.map(|child| self.at(child))
    }

    /// Return the position as rank numbers.
    pub(crate) fn position(&self) -> TreePosition {
        TreePosition { parent: self.parent(), children: self.children().rev().map(|child| child.rank()).collect() }
    }

    /// Return the rank at this position.
    pub(crate) fn rank(&self) -> usize {
        (self.root + self.distance) % self.size
    }

    /// Return the distances of this node and its descendants.
    pub(crate) fn subtree(&self) -> Range<usize> {
        self.distance..self.size.min(self.distance + self.span_count())
    }

    /// Return the number of distances in the subtree of a full tree: the value of the lowest nonzero digit.
    fn span_count(&self) -> usize {
        let is_reached = |&value: &usize| match self.distance {
            0 => value >= self.size,
            distance => !distance.is_multiple_of(value * self.radix),
        };
        powers(self.radix).find(is_reached).expect("powers grow beyond every size")
    }

    /// Return the chunks of this node's rank and its descendants: one span, or two if the ranks wrap around.
    pub(crate) fn spans(&self, chunks: &[Span]) -> Vec<Span> {
        cyclic::spans(chunks, self.rank(), self.subtree().len())
    }

    fn at(&self, distance: usize) -> NomialNode {
        NomialNode { distance, ..*self }
    }
}

/// Return the number of children of the node at `distance`.
pub(crate) fn degree(radix: usize, distance: usize, size: usize) -> usize {
    let farthest = size - 1 - distance;
    let is_below = |&value: &usize| value <= farthest && distance.is_multiple_of(value * radix);
    powers(radix).take_while(is_below).map(|value| (farthest / value).min(radix - 1)).sum()
}

/// Return the number of hops to the farthest of `size` nodes: the largest count of nonzero digits in a number below
/// `size`. The smallest number with `i` nonzero digits consists of `i` ones.
pub(crate) fn depth(radix: usize, size: usize) -> usize {
    iter::successors(Some(1), |ones| Some(ones * radix + 1)).take_while(|&ones| ones < size).count()
}

/// Return the number of nodes in the subtree of `distance` in the binomial tree.
pub(crate) fn subtree_size(distance: usize, size: usize) -> usize {
    match distance {
        0 => size,
        _ => (size - distance).min(1 << distance.trailing_zeros()),
    }
}

/// Iterate over the digit values to base `radix`, lowest first.
fn powers(radix: usize) -> impl Iterator<Item = usize> {
    iter::successors(Some(1), move |value| Some(value * radix))
}
