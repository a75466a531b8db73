//! Tree barrier: no rank continues before all ranks have arrived.
//!
//! Ranks report arrivals up a 4-nomial tree, and the release is sent down: an allreduce of the token. It has the fewest
//! messages in total, `2(p-1)`, so it has the fewest wake-ups if ranks outnumber cores.
//!
//! Cost and source: see [`ENTRY`].

use crate::algorithms::allreduce;
use crate::{Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
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

/// Plan this rank's part in a tree barrier; `token` is one byte of scratch.
pub fn plan(group: &Group, token: Span) -> Plan {
    allreduce::tree::plan(group, token, Op::Or)
}
