//! Tree barrier: no rank goes on before all have come.
//!
//! Ranks report up a 4-nomial tree, and word that all have come goes down it: an allreduce of the token. The fewest
//! messages in all, `2(p-1)`, so the fewest wake-ups where ranks outnumber cores.

use crate::algorithms::allreduce;
use crate::{Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new(
    "tree",
    PlanFunction::Barrier(plan),
    Theory {
        sent_bytes: |case, rank| (allreduce::tree::ENTRY.theory.sent_bytes)(case, rank),
        hops: |case| (allreduce::tree::ENTRY.theory.hops)(case),
        rounds: |case| (allreduce::tree::ENTRY.theory.rounds)(case),
        cost: allreduce::tree::ENTRY.theory.cost,
        source: "Mellor-Crummey and Scott, \"Algorithms for scalable synchronization on shared-memory \
                 multiprocessors\", TOCS 1991 (the tree barrier, arrivals by fours)",
    },
);

/// This rank's part in a tree barrier; `token` is one byte of scratch.
pub fn plan(group: &Group, token: Span) -> Plan {
    allreduce::tree::plan(group, token, Op::Or)
}
