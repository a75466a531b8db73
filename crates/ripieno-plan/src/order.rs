//! Orders: the sequence of the ranks in a chain or a ring.
//!
//! In rack order, a chain crosses uplinks once less than the number of racks, and a ring as often as the number of
//! racks.
//!
//! Source: Zhang and Qiu, "Clustering social images with MapReduce and high performance collective communication"
//! (Twister), section 4.5, figure 6.

use crate::topology::Topology;
use alloc::vec::Vec;

/// The order of the ranks in chains and rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Rack by rack, and node by node within a rack. Crosses uplinks and network links as rarely as possible.
    #[default]
    Racks,
    /// By rank number, regardless of placement.
    Given,
    /// Shuffled with this seed, in the same way on every rank.
    Random(u64),
}

impl Order {
    /// Parse the name of an order: `racks`, `given`, `random` (the same as `random:0`) or `random:SEED`.
    pub fn parse(name: &str) -> Option<Order> {
        match name.split_once(':') {
            None if name == "racks" => Some(Order::Racks),
            None if name == "given" => Some(Order::Given),
            None if name == "random" => Some(Order::Random(0)),
            Some(("random", seed)) => seed.parse().ok().map(Order::Random),
            _ => None,
        }
    }

    /// Return all ranks of `topology` in this order, starting with `first`.
    pub fn ranks(self, topology: &Topology, first: usize) -> Vec<usize> {
        let p = topology.size();
        let ring_distance = |number: usize, first: usize, count: usize| (number + count - first) % count;
        let mut ranks: Vec<usize> = (0..p).map(|distance| (first + distance) % p).collect();
        match self {
            Order::Given => {}
            Order::Racks => ranks.sort_by_key(|&rank| {
                let rack = ring_distance(topology.rack(rank), topology.rack(first), topology.rack_count());
                let node = ring_distance(topology.node(rank), topology.node(first), topology.node_count());
                // The sort is stable: ranks of a node stay in order.
                (rack, node)
            }),
            Order::Random(seed) => shuffle(&mut ranks[1..], seed),
        }
        ranks
    }

    /// Whether this order equals the order of the rank numbers, for any first rank.
    pub fn is_given(self, topology: &Topology) -> bool {
        match self {
            Order::Given => true,
            Order::Racks => topology.rack_count() <= 1 && [1, topology.size()].contains(&topology.node_count()),
            Order::Random(_) => topology.size() <= 2,
        }
    }
}

/// Fisher–Yates shuffle.
fn shuffle(ranks: &mut [usize], seed: u64) {
    let mut state = seed;
    for end in (1..ranks.len()).rev() {
        ranks.swap(end, (next_random(&mut state) % (end as u64 + 1)) as usize);
    }
}

/// Return the next number of splitmix64.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
pub fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Count the neighbors at different locations, for a chain and for the closed ring.
    fn crossings(ranks: &[usize], location: impl Fn(usize) -> usize) -> (usize, usize) {
        let differ = |a: usize, b: usize| usize::from(location(a) != location(b));
        let chain = ranks.windows(2).map(|pair| differ(pair[0], pair[1])).sum();
        (chain, chain + differ(ranks[ranks.len() - 1], ranks[0]))
    }

    /// Generate topologies of up to 24 ranks, with ranks assigned to nodes and nodes to racks at random. Their sizes
    /// are uneven.
    fn topologies() -> impl Iterator<Item = Topology> {
        (0..200).map(|seed| {
            let mut state = seed;
            let mut below = |limit: usize| (next_random(&mut state) % limit as u64) as usize;
            let (p, node_limit, rack_limit) = (1 + below(24), 1 + below(12), 1 + below(5));
            let rack_of: Vec<usize> = (0..node_limit).map(|_| below(rack_limit)).collect();
            let nodes: Vec<usize> = (0..p).map(|_| below(node_limit)).collect();
            let racks = nodes.iter().map(|&node| rack_of[node]).collect();
            Topology::new(nodes, racks)
        })
    }

    #[test]
    fn chains_and_rings_cross_racks_and_nodes_as_rarely_as_possible() {
        for topology in topologies() {
            let closed = |count: usize| if count > 1 { count } else { 0 };
            for first in 0..topology.size() {
                let ranks = Order::Racks.ranks(&topology, first);
                // Every rack except the first must be entered, and a ring must return, so this is the minimum.
                let racks = topology.rack_count();
                assert_eq!(crossings(&ranks, |rank| topology.rack(rank)), (racks - 1, closed(racks)));
                let nodes = topology.node_count();
                assert_eq!(crossings(&ranks, |rank| topology.node(rank)), (nodes - 1, closed(nodes)));
            }
        }
    }

    #[test]
    fn every_order_starts_with_the_first_rank_and_contains_each_rank_once() {
        for topology in topologies() {
            for order in [Order::Racks, Order::Given, Order::Random(3)] {
                for first in 0..topology.size() {
                    let mut ranks = order.ranks(&topology, first);
                    assert_eq!(ranks[0], first);
                    ranks.sort_unstable();
                    assert!(ranks.into_iter().eq(0..topology.size()), "{order:?}");
                }
            }
        }
    }

    #[test]
    fn random_orders_differ_by_seed_and_cross_uplinks_more_often() {
        let topology = Topology::new((0..32).collect(), (0..32).map(|rank| rank / 8).collect());
        let crossed = |seed| crossings(&Order::Random(seed).ranks(&topology, 0), |rank| topology.rack(rank)).0;
        assert_ne!(Order::Random(1).ranks(&topology, 0), Order::Random(2).ranks(&topology, 0));
        assert!((0..5).all(|seed| crossed(seed) > 10));
    }

    #[test]
    fn the_given_order_is_the_order_of_numbers() {
        for topology in topologies() {
            for order in [Order::Racks, Order::Given, Order::Random(7)] {
                if order.is_given(&topology) {
                    (0..topology.size()).for_each(|first| {
                        assert_eq!(order.ranks(&topology, first), Order::Given.ranks(&topology, first));
                    });
                }
            }
        }
    }
}
