//! k-nomial broadcast: every rank ends with the root's vector.
//!
//! The vector goes down a 4-nomial tree: half as many hops as down a binomial one, for three messages where that has two.
//! Where a message takes much longer on its way than it keeps its sender, that is less time.
//!
//! Cost: `ceil(log4 p)` hops; `3·ceil(log4 p)·(alpha + n·beta)` at most where a rank sends one message at a time.
//! Source: Bar-Noy and Kipnis, "Designing broadcasting algorithms in the postal model for message-passing systems", SPAA
//! 1992 (the degree that is best grows with the latency).

use crate::algorithms::tree::{Node, RADIX};
use crate::{Group, Plan, Span};

/// This rank's part in a k-nomial broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    Node::of(group, root, RADIX).place().broadcast(vector)
}
