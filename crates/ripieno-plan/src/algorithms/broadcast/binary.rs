//! Binary-tree broadcast: every rank ends with the root's vector.
//!
//! The vector goes down a binary tree. The executor forwards segments as they come in, so the depth costs segments, not
//! vectors; every inner rank sends all bytes twice.
//!
//! Cost: `2(floor(log2 p) - 1 + k)·(alpha + n/k·beta)` in `k` segments at most; `2·n·beta` for long vectors.
//! Source: Pješivac-Grbović et al., "Performance analysis of MPI collective operations", Cluster Computing 2007 (binary
//! tree).

use crate::algorithms::tree::binary;
use crate::{Group, Plan, Span};

/// This rank's part in a binary-tree broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    binary(group, root).broadcast(vector)
}
