//! Binomial broadcast: every rank ends with the root's vector.
//!
//! The vector goes down a binomial tree, to the largest subtree first, so the number of ranks that have it doubles in
//! every round. Twister calls it MST (minimum spanning tree).
//!
//! Cost: `ceil(log2 p)·(alpha + n·beta)`.
//! Source: Zhang and Qiu, "Clustering social images with MapReduce and high performance collective communication"
//! (Twister), section 4.1, eq. 1.

use crate::algorithms::tree::Node;
use crate::{Group, Plan, Span};

/// This rank's part in a binomial broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    Node::of(group, root, 2).place().broadcast(vector)
}
