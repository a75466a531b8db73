//! The search for a block size: which one is the fastest on the cluster at hand.

use super::{Casting, Uncast, swarm_unless};
use crate::cluster::Cluster;
use ripieno_plan::swarm::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};

/// Each size that was tried, and what the first value took in blocks of it, from 4 MiB down by halves; unless it is
/// interrupted, which is asked from time to time.
///
/// Source: Chowdhury et al., the report on broadcast in Spark, figure 6.
pub fn search_block_bytes(
    cluster: &Cluster,
    asked: &Casting,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Vec<(usize, f64)>, Uncast> {
    let sizes = std::iter::successors(Some(BLOCK_BYTES_MAX), |size| Some(size / 2));
    let mut tried = Vec::new();
    for size in sizes.take_while(|&size| size >= BLOCK_BYTES_MIN) {
        let mut asked = asked.clone();
        asked.casts.iter_mut().for_each(|cast| cast.block_bytes = Some(size));
        tried.push((size, swarm_unless(cluster, &asked, is_interrupted)?.time_s(0)));
    }
    Ok(tried)
}
