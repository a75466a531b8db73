//! Tree barrier: no rank goes on before all have come.
//!
//! Ranks report up a 4-nomial tree, and word that all have come goes down it: an allreduce of the token. The fewest messages
//! in all, `2(p-1)`, so the fewest wake-ups where ranks outnumber cores.
//!
//! Cost: `2·ceil(log4 p)` hops.
//! Source: Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory multiprocessors", TOCS
//! 1991 (the tree barrier, arrivals by fours).

use crate::algorithms::allreduce;
use crate::{Group, Op, Plan, Span};

/// This rank's part in a tree barrier; `token` is one byte of scratch.
pub fn plan(group: &Group, token: Span) -> Plan {
    allreduce::tree::plan(group, token, Op::Or)
}
