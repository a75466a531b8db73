//! The k-nomial tree over a group, by distance from its root; the binomial tree where `k` is 2.
//!
//! The parent of distance `d` is `d` with its lowest digit to the base `k` that is not 0 set to 0, so the subtree of
//! `d` is a run of distances: trees of ranks become runs of chunks. Depth is `ceil(log_k p)` at most, and degree `k-1`
//! times that.

use super::TreePosition;
use crate::algorithms::cyclic;
use crate::{Group, Span};
use alloc::vec::Vec;
use core::iter;
use core::ops::Range;

/// The place of one rank in the tree.
pub(crate) struct NomialNode {
    distance: usize,
    size: usize,
    root: usize,
    radix: usize,
}

impl NomialNode {
    /// The place of the group's own rank in the tree of base `radix` below `root`.
    pub(crate) fn of(group: &Group, root: usize, radix: usize) -> NomialNode {
        NomialNode { distance: group.distance_from(root), size: group.size(), root, radix }
    }

    /// The rank above; the root has none.
    pub(crate) fn parent(&self) -> Option<usize> {
        (self.distance != 0).then(|| self.at(self.distance - self.distance % (self.radix * self.span_count())).rank())
    }

    /// The nodes below, the smallest subtree first.
    pub(crate) fn children(&self) -> impl DoubleEndedIterator<Item = NomialNode> + '_ {
        let sizes: Vec<usize> = powers(self.radix).take_while(|&size| size < self.span_count()).collect();
        let distances = sizes.into_iter().flat_map(|size| (1..self.radix).map(move |digit| digit * size));
        let below = distances.map(|further| self.distance + further).filter(|&child| child < self.size);
        below.map(|child| self.at(child))
    }

    /// The place by ranks.
    pub(crate) fn place(&self) -> TreePosition {
        TreePosition { parent: self.parent(), children: self.children().rev().map(|child| child.rank()).collect() }
    }

    /// The rank that stands here.
    pub(crate) fn rank(&self) -> usize {
        (self.root + self.distance) % self.size
    }

    /// The distances of this node and all below it.
    pub(crate) fn subtree(&self) -> Range<usize> {
        self.distance..self.size.min(self.distance + self.span_count())
    }

    /// How many distances the subtree spans where the tree is full: the value of the lowest digit that is not 0.
    fn span_count(&self) -> usize {
        let is_reached = |&value: &usize| match self.distance {
            0 => value >= self.size,
            distance => !distance.is_multiple_of(value * self.radix),
        };
        powers(self.radix).find(is_reached).expect("powers grow beyond every size")
    }

    /// The chunks of this node's rank and of all below it: one span, or two where the ranks wrap around.
    pub(crate) fn spans(&self, chunks: &[Span]) -> Vec<Span> {
        cyclic::spans(chunks, self.rank(), self.subtree().len())
    }

    fn at(&self, distance: usize) -> NomialNode {
        NomialNode { distance, ..*self }
    }
}

/// How many nodes are right below distance `distance`.
pub(crate) fn degree(radix: usize, distance: usize, size: usize) -> usize {
    let farthest = size - 1 - distance;
    let is_below = |&value: &usize| value <= farthest && distance.is_multiple_of(value * radix);
    powers(radix).take_while(is_below).map(|value| (farthest / value).min(radix - 1)).sum()
}

/// How many hops the farthest of `size` nodes is away: the most digits that are not 0 in a number below `size`. The
/// least number with `i` of them has `i` ones.
pub(crate) fn depth(radix: usize, size: usize) -> usize {
    iter::successors(Some(1), |ones| Some(ones * radix + 1)).take_while(|&ones| ones < size).count()
}

/// How many nodes the subtree of `distance` has in the binomial tree.
pub(crate) fn subtree_size(distance: usize, size: usize) -> usize {
    match distance {
        0 => size,
        _ => (size - distance).min(1 << distance.trailing_zeros()),
    }
}

/// The values of the digits of a number to the base `radix`, the lowest first.
fn powers(radix: usize) -> impl Iterator<Item = usize> {
    iter::successors(Some(1), move |value| Some(value * radix))
}
