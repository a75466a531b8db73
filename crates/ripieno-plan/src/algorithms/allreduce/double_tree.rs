//! Double-tree allreduce: every rank ends with the combination of all vectors.
//!
//! A double-tree reduce to rank 0, then a double-tree broadcast from it. The executor forwards segments as they come in, down
//! the trees while others still go up.
//!
//! Cost: about `(4·log2 p + 2k)·(alpha + n/k·beta) + (2·log2 p + k)·n/k·gamma` in `k` segments; `2·n·beta + n·gamma` for long
//! vectors.
//! Needs a commutative operation. Rank 0 finishes the vector, so the result is the same bits on every rank.
//! Source: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
//! Computing 2009.

use crate::algorithms::{broadcast, reduce};
use crate::{Group, Op, Plan, Span};

/// This rank's part in a double-tree allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    reduce::double_tree::plan(group, 0, vector, op).then(broadcast::double_tree::plan(group, 0, vector))
}
