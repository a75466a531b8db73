//! Topologies: the assignment of ranks to nodes, and of nodes to racks.
//!
//! Ranks of one node share its memory and its network link. Nodes of one rack share the rack's uplink. Both are
//! numbered by first appearance, so ranks with the same information agree on the numbers.

use alloc::vec::Vec;

/// Placement of every rank of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topology {
    size: usize,
    /// Location per rank. Empty if every rank is on its own node and all are in one rack.
    locations: Vec<Location>,
    node_count: usize,
    rack_count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Location {
    node: usize,
    rack: usize,
}

impl Topology {
    /// Create a topology with every rank on its own node, all in one rack.
    pub fn flat(size: usize) -> Topology {
        Topology { size, locations: Vec::new(), node_count: size, rack_count: size.min(1) }
    }

    /// Create the topology with the `i`-th rank on node `nodes[i]` in rack `racks[i]`. Any numbers are allowed.
    pub fn new(nodes: Vec<usize>, racks: Vec<usize>) -> Topology {
        assert_eq!(nodes.len(), racks.len(), "every rank has a node and a rack");
        let ((nodes, node_count), (racks, rack_count)) = (renumbered(&nodes), renumbered(&racks));
        if node_count == nodes.len() && rack_count <= 1 {
            return Topology::flat(node_count);
        }
        let locations: Vec<Location> =
            nodes.into_iter().zip(racks).map(|(node, rack)| Location { node, rack }).collect();
        Topology { size: locations.len(), locations, node_count, rack_count }
    }

    /// Return the number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Return the node of `rank`, 0 … [`node_count`](Topology::node_count) - 1.
    pub fn node(&self, rank: usize) -> usize {
        self.locations.get(rank).map_or(rank, |location| location.node)
    }

    /// Return the rack of `rank`, 0 … [`rack_count`](Topology::rack_count) - 1.
    pub fn rack(&self, rank: usize) -> usize {
        self.locations.get(rank).map_or(0, |location| location.rack)
    }

    /// Return the node of every rank.
    pub fn nodes(&self) -> Vec<usize> {
        (0..self.size).map(|rank| self.node(rank)).collect()
    }

    /// Return the rack of every rank.
    pub fn racks(&self) -> Vec<usize> {
        (0..self.size).map(|rank| self.rack(rank)).collect()
    }

    /// Return the number of nodes.
    pub fn node_count(&self) -> usize {
        self.node_count
    }

    /// Return the number of racks.
    pub fn rack_count(&self) -> usize {
        self.rack_count
    }

    /// Return the ranks of every node, ascending.
    pub fn ranks_by_node(&self) -> Vec<Vec<usize>> {
        let mut ranks = alloc::vec![Vec::new(); self.node_count];
        (0..self.size).for_each(|rank| ranks[self.node(rank)].push(rank));
        ranks
    }

    /// Return the topology of a subset: the `i`-th rank is at the location of `ranks[i]`.
    pub fn of(&self, ranks: &[usize]) -> Topology {
        let location = |of: fn(&Topology, usize) -> usize| ranks.iter().map(|&rank| of(self, rank)).collect();
        Topology::new(location(Topology::node), location(Topology::rack))
    }
}

/// Renumber labels from 0 by first appearance. Return the numbers and their count.
fn renumbered(labels: &[usize]) -> (Vec<usize>, usize) {
    let mut numbers = alloc::collections::BTreeMap::new();
    let number = |label: &usize| {
        let next = numbers.len();
        *numbers.entry(*label).or_insert(next)
    };
    let renumbered = labels.iter().map(number).collect();
    (renumbered, numbers.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn nodes_and_racks_are_numbered_by_first_appearance() {
        let topology = Topology::new(vec![9, 4, 9, 7], vec![1, 0, 1, 0]);
        assert_eq!((topology.nodes(), topology.racks()), (vec![0, 1, 0, 2], vec![0, 1, 0, 1]));
        assert_eq!((topology.size(), topology.node_count(), topology.rack_count()), (4, 3, 2));
        assert_eq!(topology.ranks_by_node(), [vec![0, 2], vec![1], vec![3]]);
    }

    #[test]
    fn some_ranks_keep_their_positions() {
        let topology = Topology::new(vec![0, 1, 0, 2], vec![0, 1, 0, 1]);
        assert_eq!(topology.of(&[3, 1]), Topology::flat(2));
        assert_eq!(topology.of(&[2, 3, 0]), Topology::new(vec![0, 1, 0], vec![0, 1, 0]));
    }

    #[test]
    fn one_rank_per_node_in_one_rack_is_flat() {
        assert_eq!(Topology::new(vec![5, 3, 8], vec![2, 2, 2]), Topology::flat(3));
        assert_ne!(Topology::new(vec![5, 3, 8], vec![2, 1, 2]), Topology::flat(3));
        assert_eq!(
            (Topology::flat(3).ranks_by_node(), Topology::flat(0).rack_count()),
            (vec![vec![0], vec![1], vec![2]], 0)
        );
    }
}
