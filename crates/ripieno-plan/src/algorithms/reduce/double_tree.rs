//! Double-tree reduce: the root ends with the combination of all vectors.
//!
//! One half of the vectors goes up one binary tree, the other half up another in which the inner ranks are the leaves of
//! the first: no rank receives more than two halves but the root's two children, and all links are busy at once. The
//! executor forwards segments as they come in.
//!
//! Cost: about `(2·log2 p + k)·(alpha + n/k·beta + n/k·gamma)` in `k` segments; `n·(beta + gamma)` for long vectors.
//! Needs a commutative operation; the trees fix the order.
//! Source: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
//! Computing 2009.

use crate::algorithms::tree::double;
use crate::{Group, Op, Plan, Span};

/// This rank's part in a double-tree reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    let [first, second] = double(group, root);
    first.reduce(vector.chunk(0, 2), op).then(second.reduce(vector.chunk(1, 2), op))
}
