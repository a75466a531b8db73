//! Search for the fastest block size on a given cluster.

use super::{SwarmError, SwarmRequest, swarm_interruptible};
use crate::cluster::Cluster;
use ripieno_plan::swarm::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};

/// Simulate block sizes from 4 MiB downwards, halving each time. Return each size with the time of the first value.
/// `is_interrupted` is called from time to time and stops the search if it returns true.
///
/// Source: Chowdhury et al., the report on broadcast in Spark, figure 6.
pub fn search_block_bytes(
    cluster: &Cluster,
    request: &SwarmRequest,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Vec<(usize, f64)>, SwarmError> {
    let sizes = std::iter::successors(Some(BLOCK_BYTES_MAX), |size| Some(size / 2));
    let mut tried = Vec::new();
    for size in sizes.take_while(|&size| size >= BLOCK_BYTES_MIN) {
        let mut request = request.clone();
        request.broadcasts.iter_mut().for_each(|broadcast| broadcast.block_bytes = Some(size));
        tried.push((size, swarm_interruptible(cluster, &request, is_interrupted)?.time_s(0)));
    }
    Ok(tried)
}
