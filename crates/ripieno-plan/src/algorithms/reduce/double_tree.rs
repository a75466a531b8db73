//! Double-tree reduce: the root ends with the combination of all vectors.
//!
//! The first half of each vector moves up one binary tree, and the second half up another one. The inner ranks of the
//! second tree are the leaves of the first. So no rank below the root receives more than two halves, and all links are
//! busy at once. The executor forwards segments as they arrive.
//!
//! Cost for long vectors: `n·(beta + gamma)`.
//! Requires a commutative operation; the trees fix the order.
//! General cost and source: see [`ENTRY`].

use crate::algorithms::tree::{self, double};
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "double-tree",
    PlanFunction::Reduce(plan),
    Theory {
        sent_bytes: |case, rank| if rank == case.root { 0 } else { case.n },
        hops: |case| exactly(tree::double_depth(case.p)),
        rounds: |case| ceil_log2(case.p)..=2 * ceil_log2(case.p) + 1,
        cost: Cost::About("(2·ceil(log2 p) + k)·(alpha + n/k·beta + n/k·gamma)"),
        source: "Sanders, Speck, Träff, \"Two-tree algorithms for full bandwidth broadcast, reduction and scan\", \
                 Parallel Computing 2009",
    },
)
.ordered();

/// Plan this rank's part in a double-tree reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    let [first, second] = double(group, root);
    first.reduce(vector.chunk(0, 2), op).then(second.reduce(vector.chunk(1, 2), op))
}
