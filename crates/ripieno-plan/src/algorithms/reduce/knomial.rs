//! k-nomial reduce: the root ends with the combination of all vectors.
//!
//! Vectors go up a 4-nomial tree and are combined at every node: half as many hops as up a binomial one, for three
//! messages where that has two.
//!
//! Cost: `ceil(log4 p)` hops; `3·ceil(log4 p)·(alpha + n·beta + n·gamma)` at most where a rank receives one message at a
//! time.
//! Needs a commutative operation; the tree fixes the order.
//! Source: Bar-Noy and Kipnis, "Designing broadcasting algorithms in the postal model for message-passing systems", SPAA
//! 1992, reversed.

use crate::algorithms::tree::{Node, RADIX};
use crate::{Group, Op, Plan, Span};

/// This rank's part in a k-nomial reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    Node::of(group, root, RADIX).place().reduce(vector, op)
}
