//! Simulation of sparse reductions with given key sets.

use crate::Cluster;
use crate::plans::{PlanSimulation, SimulationError, simulate};
use ripieno_plan::Op;
use ripieno_plan::sparse::{Configurator, DENSE_ABOVE, Degrees};

/// Simulate a butterfly reduction of rows of `row_bytes` for the keys `0..key_count`.
///
/// Every rank contributes and receives the rows of its set. The keys of a set ascend. The initial exchange of the sets
/// is not simulated.
///
/// # Panics
///
/// Panics unless there is one set per rank, the degrees match the cluster, and the keys of each set ascend.
pub fn simulate_sparse_plans(
    cluster: &Cluster,
    degrees: &Degrees,
    key_count: u64,
    sets: &[Vec<u64>],
    row_bytes: usize,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<PlanSimulation, SimulationError> {
    let p = cluster.topology.size();
    assert!(p == degrees.world_size() && p == sets.len(), "there is one set per rank, and the degrees match");
    let machine = |(rank, keys): (usize, &Vec<u64>)| {
        Configurator::new(rank, degrees, key_count, keys.clone(), keys.clone(), DENSE_ABOVE)
    };
    let machines = sets.iter().enumerate().map(machine).collect();
    let found = Configurator::finish_all(machines).expect("all ranks use the same encoding");
    simulate(cluster, found.iter().map(|(routes, _)| routes.plan(row_bytes, 1, Op::Sum)), is_interrupted)
}
