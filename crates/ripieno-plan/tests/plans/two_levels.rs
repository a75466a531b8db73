//! Laws of two levels: promises are kept on any grid of ranks per node, and a node carries no more bytes than a single
//! rank would.

use crate::common::{DataLayout, ELEMENT_BYTES, roots, topologies};
use ripieno_plan::check::check;
use ripieno_plan::{
    Algorithm, Buffer, Collective, Group, Op, Order, PlacementUse, Plan, PlanRequest, Span, Topology, choose, promises,
};
use std::sync::Arc;

const COLLECTIVES: [Collective; 6] = [
    Collective::Broadcast,
    Collective::Reduce,
    Collective::Allreduce,
    Collective::Allgather,
    Collective::ReduceScatter,
    Collective::Barrier,
];

/// Number of elements of a vector that is long enough to be combined by all leaders of a node.
const LONG_ELEMENT_COUNT: usize = 1 << 20;

fn two_level(collective: Collective) -> &'static Algorithm {
    Algorithm::of(collective).find(|algorithm| algorithm.placement == PlacementUse::TwoLevels).unwrap()
}

/// Return the plans for a layout, after a check of their promises.
fn checked_plans(
    topology: &Arc<Topology>,
    order: Order,
    layout: &DataLayout,
    collective: Collective,
    root: usize,
) -> Vec<Plan> {
    let requests = layout.requests(collective, root, 0, Op::Sum);
    let plans = topologies::plans(two_level(collective), topology, order, &requests);
    if let Err(fault) = check(&plans, &promises(&requests)) {
        panic!("{}, root {root}, {topology:?}: {fault}", collective.name());
    }
    plans
}

#[test]
fn every_promise_is_kept_on_any_topology_for_every_root() {
    for topology in topologies::random(120, 24) {
        let p = topology.size();
        let layouts = [
            DataLayout::even(p, 2 * p + 3),
            DataLayout::uneven(&(0..p).map(|rank| rank % 4).collect::<Vec<_>>(), |_, _| 1),
        ];
        for (layout, order) in layouts.iter().zip([Order::Racks, Order::Random(5)]) {
            for collective in COLLECTIVES {
                for root in roots(collective, p) {
                    checked_plans(&topology, order, layout, collective, root);
                }
            }
        }
    }
}

#[test]
fn every_promise_is_kept_for_long_vectors_of_several_leaders() {
    for topology in topologies::random(60, 24) {
        for collective in COLLECTIVES {
            checked_plans(
                &topology,
                Order::Racks,
                &DataLayout::even(topology.size(), LONG_ELEMENT_COUNT),
                collective,
                0,
            );
        }
    }
}

#[test]
fn without_two_levels_the_one_level_choice_is_used() {
    let one_node = |p: usize| Arc::new(Topology::new(vec![0; p], vec![0; p]));
    for p in 1..=17 {
        for (topology, element_count) in [one_node(p), Arc::new(Topology::flat(p))]
            .into_iter()
            .flat_map(|topology| [(topology.clone(), 40), (topology, LONG_ELEMENT_COUNT)])
        {
            let layout = DataLayout::even(p, element_count);
            for collective in [Collective::Broadcast, Collective::Reduce, Collective::Allgather] {
                let requests = layout.requests(collective, p - 1, 0, Op::Sum);
                let chosen = choose(collective, &Group::with_topology(0, topology.clone()), layout.vector.length_bytes);
                assert_ne!(chosen.placement, PlacementUse::TwoLevels);
                assert_eq!(
                    topologies::plans(two_level(collective), &topology, Order::Racks, &requests),
                    topologies::plans(chosen, &topology, Order::Racks, &requests),
                    "{} {topology:?}",
                    collective.name()
                );
            }
        }
    }
}

#[test]
fn a_group_with_several_ranks_per_node_uses_two_levels() {
    for collective in COLLECTIVES {
        let chosen = choose(collective, &Group::with_topology(0, topologies::grid(2, 2)), 8);
        assert_eq!(chosen.placement, PlacementUse::TwoLevels, "{}", collective.name());
    }
    assert_eq!(choose(Collective::Gather, &Group::with_topology(0, topologies::grid(2, 2)), 8).name, "binomial");
}

/// Return the largest number of bytes that leave, and that enter, a node.
fn busiest(plans: &[Plan], topology: &Topology) -> (usize, usize) {
    let crossings = topologies::crossings(plans, |rank| topology.node(rank));
    let sum = |node: usize, end: fn(&(usize, usize)) -> usize| {
        crossings.iter().filter(|(pair, _)| end(pair) == node).map(|(_, bytes)| bytes).sum::<usize>()
    };
    let max_sum =
        |end: fn(&(usize, usize)) -> usize| (0..topology.node_count()).map(|node| sum(node, end)).max().unwrap();
    (max_sum(|pair| pair.0), max_sum(|pair| pair.1))
}

/// Grids of nodes and ranks per node that divide a vector evenly, so that the theoretical byte counts are exact.
fn grids() -> impl Iterator<Item = (usize, usize)> {
    (2..=6).flat_map(|nodes| (2..=4).map(move |ranks_per_node| (nodes, ranks_per_node)))
}

#[test]
fn a_node_sends_and_receives_as_much_as_a_single_rank_would() {
    for (nodes, ranks_per_node) in grids() {
        let topology = topologies::grid(nodes, ranks_per_node);
        let layout = DataLayout::even(nodes * ranks_per_node, 72_000 * nodes * ranks_per_node);
        let n = layout.vector.length_bytes;
        let share = (nodes - 1) * n / nodes;
        for (collective, expected) in [
            (Collective::Allreduce, (2 * share, 2 * share)),
            (Collective::Allgather, (share, share)),
            (Collective::ReduceScatter, (share, share)),
        ] {
            let plans = checked_plans(&topology, Order::Racks, &layout, collective, 0);
            assert_eq!(busiest(&plans, &topology), expected, "{} {nodes} x {ranks_per_node}", collective.name());
        }
        for root in [0, nodes * ranks_per_node - 1] {
            let plans = checked_plans(
                &topology,
                Order::Racks,
                &DataLayout::even(nodes * ranks_per_node, LONG_ELEMENT_COUNT),
                Collective::Broadcast,
                root,
            );
            assert_eq!(
                busiest(&plans, &topology),
                (LONG_ELEMENT_COUNT * ELEMENT_BYTES, LONG_ELEMENT_COUNT * ELEMENT_BYTES),
                "{nodes} x {ranks_per_node}"
            );
            let plans = checked_plans(
                &topology,
                Order::Racks,
                &DataLayout::even(nodes * ranks_per_node, LONG_ELEMENT_COUNT),
                Collective::Reduce,
                root,
            );
            assert_eq!(
                busiest(&plans, &topology),
                (LONG_ELEMENT_COUNT * ELEMENT_BYTES, LONG_ELEMENT_COUNT * ELEMENT_BYTES),
                "{nodes} x {ranks_per_node}"
            );
        }
    }
}

/// For any assignment of ranks to nodes, a chunk enters every other node once.
#[test]
fn a_chunk_enters_a_node_once() {
    for topology in topologies::random(60, 24) {
        let layout = DataLayout::even(topology.size(), 6 * topology.size());
        let plans = checked_plans(&topology, Order::Racks, &layout, Collective::Allgather, 0);
        let crossings = topologies::crossings(&plans, |rank| topology.node(rank));
        for node in 0..topology.node_count() {
            let own = topology.ranks_by_node()[node].len() * layout.chunks[0].length_bytes;
            let entered: usize = crossings.iter().filter(|(pair, _)| pair.1 == node).map(|(_, bytes)| bytes).sum();
            assert_eq!(entered, layout.vector.length_bytes - own, "{topology:?}");
        }
    }
}

#[test]
fn every_leader_sends_an_equal_part_of_a_long_allreduce() {
    let topology = topologies::grid(4, 3);
    let vector = Span::whole(Buffer::MAIN, 72_000 * 12, ELEMENT_BYTES);
    let requests = [PlanRequest::Allreduce { vector, op: Op::Sum }; 12];
    let plans = topologies::plans(two_level(Collective::Allreduce), &topology, Order::Racks, &requests);
    // The identity counts the bytes between any two ranks. Only bytes between different nodes are summed below.
    let between = topologies::crossings(&plans, |rank| rank);
    let sent = |rank: usize| -> usize {
        between
            .iter()
            .filter(|((from, to), _)| *from == rank && topology.node(*from) != topology.node(*to))
            .map(|(_, bytes)| bytes)
            .sum()
    };
    for rank in 0..12 {
        assert_eq!(sent(rank), 2 * 3 * vector.length_bytes / 4 / 3, "rank {rank}");
    }
}
