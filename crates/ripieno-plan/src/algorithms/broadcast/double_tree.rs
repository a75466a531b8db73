//! Double-tree broadcast: every rank ends with the root's vector.
//!
//! One half of the vector moves down one binary tree, the other half down a second one. The inner ranks of the second
//! tree are the leaves of the first, so no rank sends more than the vector. The executor forwards segments as they
//! arrive. Long vectors take the time of a chain, and short vectors the time of a tree.
//!
//! Cost for long vectors: `n·beta`.
//! General cost and source: see [`ENTRY`].

use crate::algorithms::tree::{self, double};
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory, TheoryCase};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "double-tree",
    PlanFunction::Broadcast(plan),
    Theory {
        sent_bytes,
        hops: |case| exactly(tree::double_depth(case.p)),
        rounds: |case| ceil_log2(case.p)..=2 * ceil_log2(case.p) + 1,
        cost: Cost::About("(2·ceil(log2 p) + k)·(alpha + n/k·beta)"),
        source: "Sanders, Speck, Träff, \"Two-tree algorithms for full bandwidth broadcast, reduction and scan\", \
                 Parallel Computing 2009",
    },
)
.ordered();

/// Plan this rank's part in a double-tree broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    let [first, second] = double(group, root);
    first.broadcast(vector.chunk(0, 2)).then(second.broadcast(vector.chunk(1, 2)))
}

fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    let [first, second] = tree::double_degrees(case.distance(rank), case.p);
    first * case.part(0, 2) + second * case.part(1, 2)
}
