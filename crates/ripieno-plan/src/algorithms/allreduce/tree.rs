//! Tree allreduce: every rank ends with the combination of all vectors.
//!
//! A 4-nomial reduce to rank 0, then a 4-nomial broadcast from it. The fewest messages in all, `2(p-1)`: where ranks
//! outnumber cores, each message less is a wake-up less.
//!
//! Cost: `2·ceil(log4 p)` hops; `3·ceil(log4 p)·(2·alpha + 2·n·beta + n·gamma)` at most where a rank sends one message and
//! receives one at a time.
//! Needs a commutative operation. Rank 0 finishes the vector, so the result is the same bits on every rank.
//! Source: Bar-Noy and Kipnis, "Designing broadcasting algorithms in the postal model for message-passing systems", SPAA
//! 1992, there and back.

use crate::algorithms::{broadcast, reduce};
use crate::{Group, Op, Plan, Span};

/// This rank's part in a tree allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    reduce::knomial::plan(group, 0, vector, op).then(broadcast::knomial::plan(group, 0, vector))
}
