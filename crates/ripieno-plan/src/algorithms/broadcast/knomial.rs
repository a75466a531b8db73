//! k-nomial broadcast: every rank ends with the root's vector.
//!
//! The vector goes down a 4-nomial tree: half as many hops as down a binomial one, for three messages where that has
//! two. Where a message takes much longer on its way than it keeps its sender, that is less time.

use crate::algorithms::tree::{self, NomialNode, RADIX};
use crate::theory::{ceil_log2, exactly};
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory};

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new(
    "k-nomial",
    PlanFunction::Broadcast(plan),
    Theory {
        sent_bytes: |case, rank| case.n * tree::degree(RADIX, case.distance(rank), case.p),
        hops: |case| exactly(tree::depth(RADIX, case.p)),
        rounds: |case| ceil_log2(case.p)..=3 * ceil_log2(case.p).div_ceil(2),
        cost: Cost::AtMost("3·ceil(log4 p)·(alpha + n·beta)"),
        source: "Bar-Noy and Kipnis, \"Designing broadcasting algorithms in the postal model for message-passing \
                 systems\", SPAA 1992 (the degree that is best grows with the latency)",
    },
)
.ordered();

/// This rank's part in a k-nomial broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    NomialNode::of(group, root, RADIX).place().broadcast(vector)
}
