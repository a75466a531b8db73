//! k-nomial reduce: the root ends with the combination of all vectors.
//!
//! Vectors move up a 4-nomial tree and are combined at every node. The tree has half the hops of a binomial tree, and
//! three messages instead of two.
//!
//! Requires a commutative operation; the tree fixes the order.
//! Cost and source: see [`ENTRY`].

use crate::algorithms::tree::{self, NomialNode, RADIX};
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "k-nomial",
    PlanFunction::Reduce(plan),
    Theory {
        sent_bytes: |case, rank| if rank == case.root { 0 } else { case.n },
        hops: |case| exactly(tree::depth(RADIX, case.p)),
        rounds: |case| ceil_log2(case.p)..=3 * ceil_log2(case.p).div_ceil(2),
        cost: Cost::AtMost("3·ceil(log4 p)·(alpha + n·beta + n·gamma)"),
        source: "Bar-Noy and Kipnis, \"Designing broadcasting algorithms in the postal model for message-passing \
                 systems\", SPAA 1992, reversed",
    },
)
.ordered();

/// Plan this rank's part in a k-nomial reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    NomialNode::of(group, root, RADIX).position().reduce(vector, op)
}
