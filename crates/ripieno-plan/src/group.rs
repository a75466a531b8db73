//! Groups: the participants of a collective from the view of one rank.

use crate::order::Order;
use crate::topology::Topology;
use alloc::sync::Arc;

/// One rank's view of the ranks in a collective.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    rank: usize,
    size: usize,
    topology: Arc<Topology>,
    order: Order,
}

impl Group {
    /// Create the group of `size` ranks from the view of `rank`, with every rank on its own node.
    pub fn new(rank: usize, size: usize) -> Group {
        Group::with_topology(rank, Arc::new(Topology::flat(size)))
    }

    /// Create the group of the ranks of `topology` from the view of `rank`.
    pub fn with_topology(rank: usize, topology: Arc<Topology>) -> Group {
        assert!(rank < topology.size(), "a rank is a member of its group");
        Group { rank, size: topology.size(), topology, order: Order::default() }
    }

    /// Return the same group with chains and rings in `order`.
    pub fn in_order(&self, order: Order) -> Group {
        Group { order, ..self.clone() }
    }

    /// Return the same group from the view of `rank`.
    pub fn for_rank(&self, rank: usize) -> Group {
        assert!(rank < self.size, "a rank is a member of its group");
        Group { rank, ..self.clone() }
    }

    /// Return the placement of the ranks.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Return the order of chains and rings.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Return this rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Return the number of ranks: `p` in the formulas.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Return the rank `distance` after this one on the ring.
    pub fn after(&self, distance: usize) -> usize {
        (self.rank + distance) % self.size
    }

    /// Return the rank `distance` before this one on the ring.
    pub fn before(&self, distance: usize) -> usize {
        (self.rank + self.size - distance % self.size) % self.size
    }

    /// Return the next rank on the ring.
    pub fn right(&self) -> usize {
        self.after(1)
    }

    /// Return the previous rank on the ring.
    pub fn left(&self) -> usize {
        self.before(1)
    }

    /// Return the ring distance from `root` to this rank.
    pub fn distance_from(&self, root: usize) -> usize {
        (self.rank + self.size - root) % self.size
    }

    /// Return the rank `distance` after `root` on the ring.
    pub fn at_distance(&self, root: usize, distance: usize) -> usize {
        (root + distance) % self.size
    }

    /// Return all ranks in order.
    pub fn ranks(&self) -> core::ops::Range<usize> {
        0..self.size
    }
}
