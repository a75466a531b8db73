//! The binomial tree over a group, by distance from its root.
//!
//! The parent of distance `d` is `d` without its lowest set bit, so the subtree of `d` is a run of distances: trees of
//! ranks become runs of chunks. Depth and degree are `ceil(log2 p)` at most.

use crate::{Group, Span};
use alloc::vec::Vec;
use core::ops::Range;

/// The place of one rank in the tree.
pub(crate) struct Node {
    distance: usize,
    size: usize,
    root: usize,
}

impl Node {
    /// The place of the group's own rank in the tree below `root`.
    pub(crate) fn of(group: &Group, root: usize) -> Node {
        Node { distance: group.distance_from(root), size: group.size(), root }
    }

    /// The rank above; the root has none.
    pub(crate) fn parent(&self) -> Option<usize> {
        let distance = self.distance & self.distance.wrapping_sub(1);
        (self.distance != 0).then(|| self.at(distance).rank())
    }

    /// The nodes below, the smallest subtree first.
    pub(crate) fn children(&self) -> impl DoubleEndedIterator<Item = Node> + '_ {
        let count = match self.distance {
            0 => self.size.next_power_of_two().trailing_zeros(),
            distance => distance.trailing_zeros(),
        };
        (0..count).map(|bit| self.distance + (1 << bit)).filter(|&child| child < self.size).map(|child| self.at(child))
    }

    /// The rank that stands here.
    pub(crate) fn rank(&self) -> usize {
        (self.root + self.distance) % self.size
    }

    /// The distances of this node and all below it.
    pub(crate) fn subtree(&self) -> Range<usize> {
        let end = match self.distance {
            0 => self.size,
            distance => self.size.min(distance + (1 << distance.trailing_zeros())),
        };
        self.distance..end
    }

    /// The chunks of this node's rank and of all below it: one span, or two where the ranks wrap around.
    pub(crate) fn spans(&self, chunks: &[Span]) -> Vec<Span> {
        let Range { start, end } = self.subtree();
        let (first, count) = (self.rank(), end - start);
        let before_wrap = count.min(self.size - first);
        let runs = [first..first + before_wrap, 0..count - before_wrap];
        runs.into_iter().filter(|run| !run.is_empty()).map(|run| Span::joined(&chunks[run])).collect()
    }

    fn at(&self, distance: usize) -> Node {
        Node { distance, ..*self }
    }
}
