//! Two-level reduce: the root ends with the combination of all vectors.
//!
//! The two-level broadcast backwards: inside every node first, then between one rank of each.
//!
//! Cost: that of the reduce chosen inside a node, then that of the one chosen among the nodes.
//! Needs a commutative operation.

use crate::algorithms::levels::{Levels, theory};
use crate::request::Request;
use crate::{Entry, Group, Op, Plan, PlanFunction, Span};

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new(
    "two-level",
    PlanFunction::Reduce(plan),
    theory(
        "Ekanayake et al., \"Java thread and process performance for parallel machine learning on multicore HPC \
             clusters\", IEEE Big Data 2016, section III.C",
    ),
)
.two_levels();

/// This rank's part in a two-level reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    let levels = Levels::of(group);
    let leaders = levels.leaders_with(root);
    let between = Request::Reduce { root: group.topology().node(root), vector, op };
    let locals = levels.locals();
    let leader = locals.partition_point(|&rank| rank < leaders[levels.node]);
    let inside = Request::Reduce { root: leader, vector, op };
    levels.among(locals, &inside).then(levels.among(&leaders, &between))
}
