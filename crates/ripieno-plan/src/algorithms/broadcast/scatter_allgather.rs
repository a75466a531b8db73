//! Scatter-allgather broadcast: every rank ends with the root's vector.
//!
//! The vector is cut into `p` chunks, scattered down a binomial tree and gathered around the ring. Chunk `i` belongs to
//! the rank at distance `i` from the root, so a subtree's chunks are one span whatever the root.
//!
//! Cost: `(ceil(log2 p) + p-1)·alpha + 2(p-1)/p·n·beta`.
//! Source: Zhang et al., Twister social image clustering, section 4.1, eq. 2.

use crate::algorithms::{allgather, scatter};
use crate::{Group, Plan, Span};

/// This rank's part in a scatter-allgather broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    // In the group as seen from the root every rank's number is its distance.
    let chunks = vector.chunks(group.size());
    let from_root = Group::new(group.distance_from(root), group.size());
    let scattered = scatter::binomial::plan(&from_root, 0, &chunks);
    let gathered = allgather::ring::plan(&from_root, &chunks);
    scattered.then(gathered).with_peers(|distance| group.at_distance(root, distance))
}
