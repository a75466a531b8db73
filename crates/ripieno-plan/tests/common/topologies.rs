//! Topologies for tests, and the traffic between their nodes and racks.

use ripieno_plan::{Algorithm, Group, Operation, Order, Plan, PlanRequest, Topology};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Generate `count` topologies of up to `limit` ranks. Ranks are assigned to nodes, and nodes to racks, at random:
/// uneven, not consecutive, sometimes flat.
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

/// Create `node_count` nodes of `ranks_per_node` ranks each, in rank order.
pub fn grid(node_count: usize, ranks_per_node: usize) -> Arc<Topology> {
    let nodes: Vec<usize> = (0..node_count * ranks_per_node).map(|rank| rank / ranks_per_node).collect();
    Arc::new(Topology::new(nodes.clone(), vec![0; nodes.len()]))
}

/// Return all ranks' plans for `requests`.
pub fn plans(algorithm: &Algorithm, topology: &Arc<Topology>, order: Order, requests: &[PlanRequest]) -> Vec<Plan> {
    let group = |rank| Group::with_topology(rank, topology.clone()).in_order(order);
    requests.iter().enumerate().map(|(rank, request)| algorithm.plan(&group(rank), request).unwrap()).collect()
}

/// Return the bytes sent between each pair of locations; `location` maps a rank to its node or rack.
pub fn crossings(plans: &[Plan], location: impl Fn(usize) -> usize) -> BTreeMap<(usize, usize), usize> {
    let mut crossings = BTreeMap::new();
    for (rank, plan) in plans.iter().enumerate() {
        for operation in plan.operations() {
            if let Operation::Send { to, span, .. } = *operation
                && location(rank) != location(to)
                && span.length_bytes > 0
            {
                *crossings.entry((location(rank), location(to))).or_default() += span.length_bytes;
            }
        }
    }
    crossings
}
