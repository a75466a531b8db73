//! Topologies for tests, and what crosses their nodes and racks.

use ripieno_plan::{Algorithm, Group, Operation, Order, Plan, Request, Topology};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Up to `limit` ranks dealt at random to nodes, and the nodes to racks: uneven, not consecutive, now and then flat.
pub fn random(count: u64, limit: usize) -> impl Iterator<Item = Arc<Topology>> {
    (0..count).map(move |seed| {
        let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |limit: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % limit as u64) as usize
        };
        let (p, node_limit, rack_limit) = (2 + below(limit - 1), 1 + below(limit / 2), 1 + below(5));
        let rack_of: Vec<usize> = (0..node_limit).map(|_| below(rack_limit)).collect();
        let nodes: Vec<usize> = (0..p).map(|_| below(node_limit)).collect();
        let racks = nodes.iter().map(|&node| rack_of[node]).collect();
        Arc::new(Topology::new(nodes, racks))
    })
}

/// `node_count` nodes of `ranks_per_node` ranks each, rank by rank.
pub fn grid(node_count: usize, ranks_per_node: usize) -> Arc<Topology> {
    let nodes: Vec<usize> = (0..node_count * ranks_per_node).map(|rank| rank / ranks_per_node).collect();
    Arc::new(Topology::new(nodes.clone(), vec![0; nodes.len()]))
}

/// All ranks' plans for `requests`.
pub fn plans(algorithm: &Algorithm, topology: &Arc<Topology>, order: Order, requests: &[Request]) -> Vec<Plan> {
    let group = |rank| Group::with_topology(rank, topology.clone()).in_order(order);
    requests.iter().enumerate().map(|(rank, request)| algorithm.plan(&group(rank), request).unwrap()).collect()
}

/// Bytes that go from each place to each other one, where a rank stands at `place`.
pub fn crossings(plans: &[Plan], place: impl Fn(usize) -> usize) -> BTreeMap<(usize, usize), usize> {
    let mut crossings = BTreeMap::new();
    for (rank, plan) in plans.iter().enumerate() {
        for operation in plan.operations() {
            if let Operation::Send { to, span, .. } = *operation
                && place(rank) != place(to)
                && span.length_bytes > 0
            {
                *crossings.entry((place(rank), place(to))).or_default() += span.length_bytes;
            }
        }
    }
    crossings
}
