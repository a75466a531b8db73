//! Two-level barrier: no rank continues before all ranks have arrived.
//!
//! The ranks of every node report to one leader, the leaders synchronize, and each leader releases its node.
//!
//! Cost: a reduce inside a node, a barrier between the nodes and a broadcast inside a node, of one byte each.
//! Source: see [`ENTRY`].

use crate::algorithms::levels::{Levels, theory};
use crate::request::PlanRequest;
use crate::{Entry, Group, Op, Plan, PlanFunction, Span};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "two-level",
    PlanFunction::Barrier(plan),
    theory(
        "Ekanayake et al., \"Java thread and process performance for parallel machine learning on multicore HPC \
             clusters\", IEEE Big Data 2016, section III.C",
    ),
)
.two_levels()
.buffered();

/// Plan this rank's part in a two-level barrier; `token` is one byte of scratch.
pub fn plan(group: &Group, token: Span) -> Plan {
    let levels = Levels::of(group);
    let local_ranks = levels.local_ranks();
    levels
        .plan(local_ranks, &PlanRequest::Reduce { root: 0, vector: token, op: Op::Or })
        .then(levels.plan(&levels.leaders_with(0), &PlanRequest::Barrier { token }))
        .then(levels.plan(local_ranks, &PlanRequest::Broadcast { root: 0, vector: token }))
}
