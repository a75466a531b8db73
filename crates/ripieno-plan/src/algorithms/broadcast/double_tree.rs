//! Double-tree broadcast: every rank ends with the root's vector.
//!
//! One half of the vector goes down one binary tree, the other half down another in which the inner ranks are the leaves
//! of the first: no rank sends more than the vector. The executor forwards segments as they come in, so the time is that
//! of a chain for long vectors, and that of a tree for short ones.
//!
//! Cost: about `(2·log2 p + k)·(alpha + n/k·beta)` in `k` segments; `n·beta` for long vectors.
//! Source: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
//! Computing 2009.

use crate::algorithms::tree::double;
use crate::{Group, Plan, Span};

/// This rank's part in a double-tree broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    let [first, second] = double(group, root);
    first.broadcast(vector.chunk(0, 2)).then(second.broadcast(vector.chunk(1, 2)))
}
