//! Binary-tree reduce: the root ends with the combination of all vectors.
//!
//! Vectors go up a binary tree and are combined at every node. The executor forwards segments as they come in, so the
//! depth costs segments, not vectors; every inner rank receives and combines all bytes twice.
//!
//! Cost: `2(floor(log2 p) - 1 + k)·(alpha + n/k·beta + n/k·gamma)` in `k` segments at most.
//! Needs a commutative operation; the tree fixes the order.
//! Source: Pješivac-Grbović et al., "Performance analysis of MPI collective operations", Cluster Computing 2007 (binary
//! tree).

use crate::algorithms::tree::binary;
use crate::{Group, Op, Plan, Span};

/// This rank's part in a binary-tree reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    binary(group, root).reduce(vector, op)
}
