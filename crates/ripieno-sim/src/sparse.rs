//! Sparse reductions played: the plans that configured ranks run, whose sets of keys are given.

use crate::Cluster;
use crate::play::{Played, Unplayable, play};
use ripieno_plan::Op;
use ripieno_plan::sparse::{Configuring, DENSE_ABOVE, Degrees};

/// Plays a reduction of rows of `row_bytes` for the keys `0..key_count` by a butterfly.
///
/// Every rank contributes and wants the rows of its set, whose keys ascend. That the ranks tell each other their sets,
/// once, is not played.
///
/// # Panics
///
/// If there is not one set for each rank of the cluster and the degrees, or keys of one do not ascend.
pub fn play_sparse(
    cluster: &Cluster,
    degrees: &Degrees,
    key_count: u64,
    sets: &[Vec<u64>],
    row_bytes: usize,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Played, Unplayable> {
    let p = cluster.topology.size();
    assert!(p == degrees.world_size() && p == sets.len(), "a set for each rank");
    let machine = |(rank, keys): (usize, &Vec<u64>)| {
        Configuring::new(rank, degrees, key_count, keys.clone(), keys.clone(), DENSE_ABOVE)
    };
    let machines = sets.iter().enumerate().map(machine).collect();
    let found = Configuring::finish_all(machines).expect("machines understand each other");
    play(cluster, found.iter().map(|(routes, _)| routes.plan(row_bytes, 1, Op::Sum)), is_interrupted)
}
