//! The k-nomial tree over a group, by distance from its root; the binomial tree where `k` is 2.
//!
//! The parent of distance `d` is `d` with its lowest digit to the base `k` that is not 0 set to 0, so the subtree of `d` is
//! a run of distances: trees of ranks become runs of chunks. Depth is `ceil(log_k p)` at most, and degree `k-1` times that.

use super::Place;
use crate::algorithms::cyclic;
use crate::{Group, Span};
use alloc::vec::Vec;
use core::iter;
use core::ops::Range;

/// The place of one rank in the tree.
pub(crate) struct Node {
    distance: usize,
    size: usize,
    root: usize,
    radix: usize,
}

impl Node {
    /// The place of the group's own rank in the tree of base `radix` below `root`.
    pub(crate) fn of(group: &Group, root: usize, radix: usize) -> Node {
        Node { distance: group.distance_from(root), size: group.size(), root, radix }
    }

    /// The rank above; the root has none.
    pub(crate) fn parent(&self) -> Option<usize> {
        (self.distance != 0).then(|| self.at(self.distance - self.distance % (self.radix * self.span_count())).rank())
    }

    /// The nodes below, the smallest subtree first.
    pub(crate) fn children(&self) -> impl DoubleEndedIterator<Item = Node> + '_ {
        let sizes: Vec<usize> = self.powers().take_while(|&size| size < self.span_count()).collect();
        let distances = sizes.into_iter().flat_map(|size| (1..self.radix).map(move |digit| digit * size));
        let below = distances.map(|further| self.distance + further).filter(|&child| child < self.size);
        below.map(|child| self.at(child))
    }

    /// The place by ranks.
    pub(crate) fn place(&self) -> Place {
        Place { parent: self.parent(), children: self.children().rev().map(|child| child.rank()).collect() }
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
        self.powers().find(is_reached).expect("powers grow beyond every size")
    }

    /// The values of the digits, the lowest first.
    fn powers(&self) -> impl Iterator<Item = usize> + use<> {
        let radix = self.radix;
        iter::successors(Some(1), move |value| Some(value * radix))
    }

    /// The chunks of this node's rank and of all below it: one span, or two where the ranks wrap around.
    pub(crate) fn spans(&self, chunks: &[Span]) -> Vec<Span> {
        cyclic::spans(chunks, self.rank(), self.subtree().len())
    }

    fn at(&self, distance: usize) -> Node {
        Node { distance, ..*self }
    }
}
