//! Double-tree broadcast: every rank ends with the root's vector.
//!
//! One half of the vector goes down one binary tree, the other half down another in which the inner ranks are the
//! leaves of the first: no rank sends more than the vector. The executor forwards segments as they come in, so the time
//! is that of a chain for long vectors, and that of a tree for short ones.
//!
//! Cost for long vectors: `n·beta`.

use crate::algorithms::tree::{self, double};
use crate::theory::{ceil_log2, exactly};
use crate::{TheoryCase, Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Its entry in the catalogue.
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

/// This rank's part in a double-tree broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    let [first, second] = double(group, root);
    first.broadcast(vector.chunk(0, 2)).then(second.broadcast(vector.chunk(1, 2)))
}

fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    let [first, second] = tree::double_degrees(case.distance(rank), case.p);
    first * case.part(0, 2) + second * case.part(1, 2)
}
