//! Reduce-scatter-gather reduce (Rabenseifner): the root ends with the combination of all vectors.
//!
//! A halving reduce-scatter of `p` equal chunks, then a binomial gather of the finished ones. Chunk `i` belongs to the rank at
//! distance `i` from the root, so a subtree's chunks are one span whatever the root.
//!
//! Cost: `2·ceil(log2 p)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma`; up to `ceil(log2 p)·alpha` more if `p` is no power of
//! two.
//! Needs a commutative operation; the rounds fix the order.
//! Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.

use crate::algorithms::{gather, reduce_scatter};
use crate::{Group, Op, Plan, Span};

/// This rank's part in a reduce-scatter-gather reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    // In the group as seen from the root every rank's number is its distance.
    let seen = Group::new(group.distance_from(root), group.size());
    let chunks = vector.chunks(group.size());
    let scattered = reduce_scatter::halving::plan(&seen, &chunks, op);
    scattered.then(gather::binomial::plan(&seen, 0, &chunks)).with_peers(|distance| group.at_distance(root, distance))
}
