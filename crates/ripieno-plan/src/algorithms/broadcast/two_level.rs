//! Two-level broadcast: every rank ends with the root's vector.
//!
//! One rank of every node gets the vector from the root's node and forwards it inside its node, segment by segment as
//! it arrives.
//!
//! Cost: the default broadcast among `q` nodes, plus the default broadcast inside a node.
//! Source: see [`ENTRY`].

use crate::algorithms::levels::{Levels, theory};
use crate::request::PlanRequest;
use crate::{Entry, Group, Plan, PlanFunction, Span};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "two-level",
    PlanFunction::Broadcast(plan),
    theory(
        "Ekanayake et al., \"Java thread and process performance for parallel machine learning on multicore HPC \
             clusters\", IEEE Big Data 2016, section III.C",
    ),
)
.two_levels();

/// Plan this rank's part in a two-level broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    let levels = Levels::of(group);
    let leaders = levels.leaders_with(root);
    let between = PlanRequest::Broadcast { root: group.topology().node(root), vector };
    let local_ranks = levels.local_ranks();
    let leader = local_ranks.partition_point(|&rank| rank < leaders[levels.node]);
    let inside = PlanRequest::Broadcast { root: leader, vector };
    levels.plan(&leaders, &between).then(levels.plan(local_ranks, &inside))
}
