//! Double-tree allreduce: every rank ends with the combination of all vectors.
//!
//! This is a double-tree reduce to rank 0, then a double-tree broadcast from rank 0. The executor forwards segments as
//! they arrive, so segments move down the trees while others still move up.
//!
//! Cost for long vectors: `2·n·beta + n·gamma`.
//! Requires a commutative operation. Rank 0 completes the vector, so the result has the same bits on every rank.
//! General cost and source: see [`ENTRY`].

use crate::algorithms::{broadcast, reduce, tree};
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory, TheoryCase};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "double-tree",
    PlanFunction::Allreduce(plan),
    Theory {
        sent_bytes,
        hops: |case| exactly(2 * tree::double_depth(case.p) - usize::from(case.p == 2)),
        rounds: |case| 2 * ceil_log2(case.p)..=4 * ceil_log2(case.p) + 2,
        cost: Cost::About("(4·ceil(log2 p) + 2·k)·(alpha + n/k·beta) + (2·ceil(log2 p) + k)·n/k·gamma"),
        source: "Sanders, Speck, Träff, \"Two-tree algorithms for full bandwidth broadcast, reduction and scan\", \
                 Parallel Computing 2009",
    },
)
.ordered();

/// Plan this rank's part in a double-tree allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    reduce::double_tree::plan(group, 0, vector, op).then(broadcast::double_tree::plan(group, 0, vector))
}

fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    (reduce::double_tree::ENTRY.theory.sent_bytes)(case, rank)
        + (broadcast::double_tree::ENTRY.theory.sent_bytes)(case, rank)
}
