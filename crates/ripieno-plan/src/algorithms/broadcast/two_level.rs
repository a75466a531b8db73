//! Two-level broadcast: every rank ends with the root's vector.
//!
//! One rank of every node gets the vector from the root's node and hands it on inside its node, segment by segment as
//! it comes in.
//!
//! Cost: that of the broadcast chosen among `q` nodes, then that of the one chosen inside a node.

use crate::algorithms::levels::{Levels, theory};
use crate::request::Request;
use crate::{Entry, Group, Plan, PlanFunction, Span};

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new(
    "two-level",
    PlanFunction::Broadcast(plan),
    theory(
        "Ekanayake et al., \"Java thread and process performance for parallel machine learning on multicore HPC \
             clusters\", IEEE Big Data 2016, section III.C",
    ),
)
.two_levels();

/// This rank's part in a two-level broadcast of `vector` from `root`.
pub fn plan(group: &Group, root: usize, vector: Span) -> Plan {
    let levels = Levels::of(group);
    let leaders = levels.leaders_with(root);
    let between = Request::Broadcast { root: group.topology().node(root), vector };
    let locals = levels.locals();
    let leader = locals.partition_point(|&rank| rank < leaders[levels.node]);
    let inside = Request::Broadcast { root: leader, vector };
    levels.among(&leaders, &between).then(levels.among(locals, &inside))
}
