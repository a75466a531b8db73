//! Rendezvous: an entry states whether its algorithm runs over unbuffered links. Then a receiver may read the sender's
//! memory without a copy.

use crate::common::{DataLayout, roots, topologies};
use ripieno_plan::catalogue::ALGORITHMS;
use ripieno_plan::check::check_rendezvous;
use ripieno_plan::{Algorithm, Op, Order, PlacementUse, Plan};

#[test]
fn an_algorithm_runs_over_unbuffered_links_if_its_entry_says_so() {
    let found = |algorithm: &'static Algorithm| worlds(algorithm).try_for_each(|plans| check_rendezvous(&plans));
    let wrong: Vec<String> = ALGORITHMS
        .iter()
        .map(|algorithm| (algorithm, found(algorithm)))
        .filter(|(algorithm, found)| found.is_ok() != algorithm.rendezvous)
        .map(|(algorithm, found)| format!("{} {}: {found:?}", algorithm.collective().name(), algorithm.name))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Return all ranks' plans for every world size up to 32 and every root; for two-level algorithms with one to four
/// ranks per node.
fn worlds(algorithm: &'static Algorithm) -> Box<dyn Iterator<Item = Vec<Plan>>> {
    let collective = algorithm.collective();
    if algorithm.placement == PlacementUse::TwoLevels {
        let grids = (1..=6).flat_map(|nodes| (1..=4).map(move |ranks| topologies::grid(nodes, ranks)));
        return Box::new(grids.flat_map(move |topology| {
            let layout = DataLayout::even(topology.size(), 2 * topology.size() + 3);
            let plans = |root| {
                let requests = layout.requests(collective, root, 0, Op::Sum);
                topologies::plans(algorithm, &topology, Order::Racks, &requests)
            };
            roots(collective, topology.size()).map(plans).collect::<Vec<_>>()
        }));
    }
    Box::new((1..=32).flat_map(move |p| [2 * p + 3, p / 2].map(|element_count| (p, element_count))).flat_map(
        move |(p, element_count)| {
            let layout = DataLayout::for_algorithm(algorithm, p, element_count);
            let plans = |root| algorithm.plans(&layout.requests(collective, root, (root + 1) % p, Op::Sum)).ok();
            roots(collective, p).filter_map(plans).collect::<Vec<_>>()
        },
    ))
}
