//! k-nomial broadcast: every rank ends with the root's vector.
//!
//! The vector moves down a 4-nomial tree. It has half the hops of a binomial tree, and three messages instead of two.
//! This is faster if the latency of a message is much longer than the time that it occupies its sender.
//!
//! Cost and source: see [`ENTRY`].

use crate::algorithms::tree::{self, NomialNode, RADIX};
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "k-nomial",
    PlanFunction::Broadcast(plan),
    Theory {
        sent_bytes: |case, rank| case.n * tree::degree(RADIX, case.distance(rank), case.p),
        hops: |case| exactly(tree::depth(RADIX, case.p)),
        rounds: |case| ceil_log2(case.p)..=3 * ceil_log2(case.p).div_ceil(2),
        cost: Cost::AtMost("3·ceil(log4 p)·(alpha + n·beta)"),
        source: "Bar-Noy and Kipnis, \"Designing broadcasting algorithms in the postal model for message-passing \
                 systems\", SPAA 1992 (the best degree grows with the latency)",
    },
)
.ordered();

/// Plan this rank's part in a k-nomial broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    NomialNode::of(group, root, RADIX).position().broadcast(vector)
}
