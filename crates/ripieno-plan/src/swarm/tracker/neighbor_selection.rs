//! Neighbor selection: gives every member the same number of neighbors, independent of its join time.
//!
//! Used by the disciplines in which members choose their sources themselves.
//!
//! A new member is inserted between pairs of neighbors: it replaces the edge of each pair by two edges to itself. The
//! random graph thus stays regular. If a new member were only connected to earlier members, the first of 64 members
//! would have three times as many neighbors as the last. All its neighbors would request blocks from it, while other
//! links are idle.
//!
//! Source: Bourassa and Holt, "SWAN: small-world wide area networks", SSGRR 2003.

use crate::next_random;
use crate::swarm::NeighborOffer;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Maximum number of drawn pairs per required neighbor. A draw fails if one of its members is already offered.
const DRAW_COUNT_MAX: usize = 8;

/// The members and the pairs of neighbors.
#[derive(Debug, Default)]
pub(super) struct NeighborGraph {
    members: BTreeSet<usize>,
    pairs: Vec<[usize; 2]>,
}

impl NeighborGraph {
    /// Add a member and return about `degree` neighbors for it, or all others if there are no more.
    pub(super) fn join(&mut self, rank: usize, degree: usize, random: &mut u64) -> Vec<NeighborOffer> {
        if !self.members.insert(rank) {
            return Vec::new();
        }
        if self.members.len() <= degree + 1 {
            let others = self.members.iter().copied().filter(|&other| other != rank);
            let offers: Vec<NeighborOffer> =
                others.map(|neighbor| NeighborOffer { neighbor, replaces: None }).collect();
            self.pairs.extend(offers.iter().map(|offer| [offer.neighbor, rank]));
            return offers;
        }
        let mut offers: Vec<NeighborOffer> = Vec::with_capacity(degree);
        for _ in 0..DRAW_COUNT_MAX * degree {
            if offers.len() + 1 >= degree || self.pairs.is_empty() {
                break;
            }
            let index = next_random(random) as usize % self.pairs.len();
            let [left, right] = self.pairs[index];
            let is_offered = |rank: usize| offers.iter().any(|offer| offer.neighbor == rank);
            if rank != left && rank != right && !is_offered(left) && !is_offered(right) {
                self.pairs[index] = [left, rank];
                self.pairs.push([right, rank]);
                offers.push(NeighborOffer { neighbor: left, replaces: Some(right) });
                offers.push(NeighborOffer { neighbor: right, replaces: Some(left) });
            }
        }
        offers
    }

    /// Remove a lost member.
    pub(super) fn remove(&mut self, rank: usize) {
        if self.members.remove(&rank) {
            self.pairs.retain(|pair| !pair.contains(&rank));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec;

    #[test]
    fn all_members_have_the_same_number_of_neighbors() {
        let (mut neighbor_graph, mut random) = (NeighborGraph::default(), 1);
        let mut neighbors: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for rank in 0..200 {
            for NeighborOffer { neighbor, replaces } in neighbor_graph.join(rank, 16, &mut random) {
                neighbors.entry(rank).or_default().insert(neighbor);
                let theirs = neighbors.entry(neighbor).or_default();
                assert!(
                    replaces.is_none_or(|replaced| theirs.remove(&replaced)),
                    "{replaces:?} is not a neighbor of {neighbor}"
                );
                assert!(theirs.insert(rank));
            }
            let counts: BTreeSet<usize> = neighbors.values().map(BTreeSet::len).collect();
            let expected = if rank == 0 { BTreeSet::new() } else { BTreeSet::from([rank.min(16)]) };
            assert_eq!(counts, expected, "after {rank}");
        }
    }

    #[test]
    fn lost_ranks_are_not_offered_as_neighbors() {
        let (mut neighbor_graph, mut random) = (NeighborGraph::default(), 1);
        (0..9).for_each(|rank| _ = neighbor_graph.join(rank, 4, &mut random));
        (0..6).for_each(|rank| neighbor_graph.remove(rank));
        let offers = (9..30).flat_map(|rank| neighbor_graph.join(rank, 4, &mut random));
        assert!(
            offers.into_iter().all(|offer| offer.neighbor >= 6 && offer.replaces.is_none_or(|replaced| replaced >= 6))
        );
        assert_eq!(neighbor_graph.join(29, 4, &mut random), vec![], "a member does not join twice");
    }
}
