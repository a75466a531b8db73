//! Groups: who takes part in a collective, seen from one rank.

use crate::order::Order;
use crate::topology::Topology;
use alloc::sync::Arc;

/// One rank's view of the ranks that run a collective together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    rank: usize,
    size: usize,
    topology: Arc<Topology>,
    order: Order,
}

impl Group {
    /// The group of `size` ranks as `rank` sees it; every rank is a node of its own.
    pub fn new(rank: usize, size: usize) -> Group {
        Group::with_topology(rank, Arc::new(Topology::flat(size)))
    }

    /// The group of the ranks of `topology` as `rank` sees it.
    pub fn with_topology(rank: usize, topology: Arc<Topology>) -> Group {
        assert!(rank < topology.size(), "a rank is a member of its group");
        Group { rank, size: topology.size(), topology, order: Order::default() }
    }

    /// The same group, whose chains and rings run in `order`.
    pub fn in_order(&self, order: Order) -> Group {
        Group { order, ..self.clone() }
    }

    /// The same group as `rank` sees it.
    pub fn seen_by(&self, rank: usize) -> Group {
        assert!(rank < self.size, "a rank is a member of its group");
        Group { rank, ..self.clone() }
    }

    /// Where the ranks stand.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// In which order chains and rings run.
    pub fn order(&self) -> Order {
        self.order
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks: `p` in the formulae.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The rank `distance` after this one, around the ring.
    pub fn after(&self, distance: usize) -> usize {
        (self.rank + distance) % self.size
    }

    /// The rank `distance` before this one, around the ring.
    pub fn before(&self, distance: usize) -> usize {
        (self.rank + self.size - distance % self.size) % self.size
    }

    /// The next rank of the ring.
    pub fn right(&self) -> usize {
        self.after(1)
    }

    /// The previous rank of the ring.
    pub fn left(&self) -> usize {
        self.before(1)
    }

    /// How far this rank stands behind `root`, around the ring.
    pub fn distance_from(&self, root: usize) -> usize {
        (self.rank + self.size - root) % self.size
    }

    /// The rank that stands `distance` behind `root`, around the ring.
    pub fn at_distance(&self, root: usize, distance: usize) -> usize {
        (root + distance) % self.size
    }

    /// All ranks, in order.
    pub fn ranks(&self) -> core::ops::Range<usize> {
        0..self.size
    }
}
