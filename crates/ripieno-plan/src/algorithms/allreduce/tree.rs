//! Tree allreduce: every rank ends with the combination of all vectors.
//!
//! This is a 4-nomial reduce to rank 0, then a 4-nomial broadcast from rank 0. It sends the fewest messages in total,
//! `2(p-1)`. If ranks outnumber cores, fewer messages mean fewer wake-ups.
//!
//! Requires a commutative operation. Rank 0 completes the vector, so the result has the same bits on every rank.
//! Cost and source: see [`ENTRY`].

use crate::algorithms::{
    broadcast, reduce,
    tree::{self, RADIX},
};
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory, TheoryCase};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "tree",
    PlanFunction::Allreduce(plan),
    Theory {
        sent_bytes,
        hops: |case| exactly(2 * tree::depth(RADIX, case.p)),
        rounds: |case| 2 * ceil_log2(case.p)..=6 * ceil_log2(case.p).div_ceil(2),
        cost: Cost::AtMost("3·ceil(log4 p)·(2·alpha + 2·n·beta + n·gamma)"),
        source: "Bar-Noy and Kipnis, \"Designing broadcasting algorithms in the postal model for message-passing \
                 systems\", SPAA 1992, applied to reduce and broadcast",
    },
)
.ordered();

/// Plan this rank's part in a tree allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    reduce::knomial::plan(group, 0, vector, op).then(broadcast::knomial::plan(group, 0, vector))
}

/// A rank sends its vector to its parent, if it has one, and the result to each of its children.
fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    case.n * (rank.min(1) + tree::degree(RADIX, rank, case.p))
}
