//! Groups: who takes part in a collective, seen from one rank.

/// One rank's view of the ranks that run a collective together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    rank: usize,
    size: usize,
}

impl Group {
    /// The group of `size` ranks as `rank` sees it.
    pub fn new(rank: usize, size: usize) -> Group {
        assert!(rank < size, "a rank is a member of its group");
        Group { rank, size }
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
