//! Laws of orders: promises are kept in every order, and the rack order minimizes the uplink traffic.

use crate::common::{DataLayout, is_exhaustive, roots, topologies};
use ripieno_plan::catalogue::ALGORITHMS;
use ripieno_plan::check::check;
use ripieno_plan::{Algorithm, Collective, Op, Order, PlacementUse, promises};

const ORDERS: [Order; 4] = [Order::Racks, Order::Given, Order::Random(1), Order::Random(2)];

#[test]
fn every_promise_is_kept_in_every_order() {
    for topology in topologies::random(if is_exhaustive() { 60 } else { 20 }, 24) {
        let p = topology.size();
        let layout = DataLayout::uneven(&(0..p).map(|rank| rank % 4).collect::<Vec<_>>(), |_, _| 1);
        for algorithm in ALGORITHMS.iter().filter(|algorithm| algorithm.placement == PlacementUse::Ordered) {
            let collective = algorithm.collective();
            for (order, root) in
                ORDERS.into_iter().flat_map(|order| roots(collective, p).map(move |root| (order, root)))
            {
                let requests = layout.requests(collective, root, 0, Op::Sum);
                let plans = topologies::plans(algorithm, &topology, order, &requests);
                if let Err(fault) = check(&plans, &promises(&requests)) {
                    panic!("{} {} {order:?} {topology:?}: {fault}", collective.name(), algorithm.name);
                }
            }
        }
    }
}

/// A chain over `r` racks crosses between racks `r - 1` times, each time with the whole vector; likewise for nodes.
#[test]
fn chains_enter_every_rack_and_every_node_once() {
    for topology in topologies::random(80, 24) {
        let layout = DataLayout::even(topology.size(), 50);
        for collective in [Collective::Broadcast, Collective::Reduce] {
            let chain = Algorithm::by_name(collective, "chain").unwrap();
            for root in 0..topology.size() {
                let requests = layout.requests(collective, root, 0, Op::Sum);
                let plans = topologies::plans(chain, &topology, Order::Racks, &requests);
                let racks = topologies::crossings(&plans, |rank| topology.rack(rank));
                assert_eq!(racks.len(), topology.rack_count() - 1, "{topology:?}, root {root}");
                let nodes = topologies::crossings(&plans, |rank| topology.node(rank));
                assert_eq!(nodes.len(), topology.node_count() - 1, "{topology:?}, root {root}");
                assert!(racks.values().chain(nodes.values()).all(|&bytes| bytes == layout.vector.length_bytes));
            }
        }
    }
}

/// A ring over `r > 1` racks crosses between racks `r` times; likewise for nodes. Every uplink carries the bytes that
/// one rank sends.
#[test]
fn rings_enter_and_leave_every_rack_and_every_node_once() {
    for topology in topologies::random(80, 24) {
        let layout = DataLayout::even(topology.size(), 3 * topology.size());
        for (collective, pass_count) in
            [(Collective::Allreduce, 2), (Collective::Allgather, 1), (Collective::ReduceScatter, 1)]
        {
            let requests = layout.requests(collective, 0, 0, Op::Sum);
            let ring = Algorithm::by_name(collective, "ring").unwrap();
            let plans = topologies::plans(ring, &topology, Order::Racks, &requests);
            let sent_bytes = pass_count * (topology.size() - 1) * layout.chunks[0].length_bytes;
            let closed = |count: usize| if count > 1 { count } else { 0 };
            let racks = topologies::crossings(&plans, |rank| topology.rack(rank));
            assert_eq!(racks.len(), closed(topology.rack_count()), "{topology:?}");
            let nodes = topologies::crossings(&plans, |rank| topology.node(rank));
            assert_eq!(nodes.len(), closed(topology.node_count()), "{topology:?}");
            assert!(racks.values().chain(nodes.values()).all(|&bytes| bytes == sent_bytes), "{nodes:?}");
        }
    }
}

/// Figure 6 of the Twister paper: in a random order the same chain loads the uplinks several times as much.
#[test]
fn a_random_chain_loads_uplinks_more_than_four_times_as_much_as_a_rack_order_chain() {
    let topology =
        std::sync::Arc::new(ripieno_plan::Topology::new((0..32).collect(), (0..32).map(|rank| rank / 8).collect()));
    let layout = DataLayout::even(32, 32);
    let chain = Algorithm::by_name(Collective::Broadcast, "chain").unwrap();
    let requests = layout.requests(Collective::Broadcast, 0, 0, Op::Sum);
    let busiest = |order| {
        let plans = topologies::plans(chain, &topology, order, &requests);
        let crossings = topologies::crossings(&plans, |rank| topology.rack(rank));
        let leaving = |rack| crossings.iter().filter(|((from, _), _)| *from == rack).map(|(_, bytes)| bytes).sum();
        (0..4).map(leaving).max().unwrap_or(0usize)
    };
    assert_eq!(busiest(Order::Racks), layout.vector.length_bytes);
    let mean = (0..5).map(|seed| busiest(Order::Random(seed))).sum::<usize>() / 5;
    assert!(mean > 4 * busiest(Order::Racks), "{mean}");
}
