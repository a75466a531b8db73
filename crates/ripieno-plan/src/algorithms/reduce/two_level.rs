//! Two-level reduce: the root ends with the combination of all vectors.
//!
//! This is the reversed two-level broadcast: first a reduce inside every node, then a reduce between one rank of each
//! node.
//!
//! Cost: the default reduce inside a node, plus the default reduce among the nodes.
//! Requires a commutative operation.
//! Source: see [`ENTRY`].

use crate::algorithms::levels::{Levels, theory};
use crate::request::PlanRequest;
use crate::{Entry, Group, Op, Plan, PlanFunction, Span};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "two-level",
    PlanFunction::Reduce(plan),
    theory(
        "Ekanayake et al., \"Java thread and process performance for parallel machine learning on multicore HPC \
             clusters\", IEEE Big Data 2016, section III.C",
    ),
)
.two_levels();

/// Plan this rank's part in a two-level reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    let levels = Levels::of(group);
    let leaders = levels.leaders_with(root);
    let between = PlanRequest::Reduce { root: group.topology().node(root), vector, op };
    let local_ranks = levels.local_ranks();
    let leader = local_ranks.partition_point(|&rank| rank < leaders[levels.node]);
    let inside = PlanRequest::Reduce { root: leader, vector, op };
    levels.plan(local_ranks, &inside).then(levels.plan(&leaders, &between))
}
