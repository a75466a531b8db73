//! Binomial reduce: the root ends with the combination of all vectors.
//!
//! Vectors go up a binomial tree, the smallest subtree first, and are combined at every node.
//!
//! Cost: `ceil(log2 p)·(alpha + n·beta + n·gamma)`.
//! Needs a commutative operation; the tree fixes the order.
//! Source: Thakur et al., "Optimization of collective communication operations in MPICH", IJHPCA 2005.

use crate::algorithms::tree::Node;
use crate::{Group, Op, Plan, Span};

/// This rank's part in a binomial reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    Node::of(group, root, 2).place().reduce(vector, op)
}
