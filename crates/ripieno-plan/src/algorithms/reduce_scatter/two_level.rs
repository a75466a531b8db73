//! Two-level reduce-scatter: every rank ends with its chunk of the combination of all vectors.
//!
//! Inside every node the chunks of all ranks are combined, each at one leader; then the leaders of one number
//! combine and scatter their chunks between the nodes. A rank that is no leader gets its chunk from the one that has
//! it.
//!
//! Cost: reduce-scatter inside, of all chunks, then by `l` leaders at once between the nodes, each as chosen.
//! Needs a commutative operation; chunks may be of any sizes, nodes too.

use crate::algorithms::levels::{Levels, theory};
use crate::request::Request;
use crate::{Entry, Group, Op, Plan, PlanFunction, Span};
use alloc::vec::Vec;

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new(
    "two-level",
    PlanFunction::ReduceScatter(plan),
    theory(
        "Ekanayake et al., \"Java thread and process performance for parallel machine learning on multicore HPC \
             clusters\", IEEE Big Data 2016, section III.C; Bayatpour et al., \"Scalable reduction collectives with \
             data partitioning-based multi-leader design\", SC 2017",
    ),
)
.two_levels();

/// This rank's part in a two-level reduce-scatter of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span], op: Op) -> Plan {
    let levels = Levels::of(group);
    let (locals, node_count) = (levels.locals(), levels.members().len());
    let mut plan = Plan::new();
    for round in 0..levels.round_count() {
        // In the order in which a ring sends them.
        for node in (1..=node_count).map(|distance| (levels.node + node_count - distance) % node_count) {
            let chunks = &levels.for_locals(levels.leader_chunks(node, round, chunks))[..];
            plan = plan.then(levels.among_scattered(locals, &Request::ReduceScatter { chunks, op }));
        }
        if let Some(leaders) = levels.co_leaders() {
            let of_nodes = |node| levels.leader_chunks(node, round, chunks)[levels.place];
            let chunks: Vec<Span> = (0..node_count).map(of_nodes).collect();
            plan = plan.then(levels.among_scattered(&leaders, &Request::ReduceScatter { chunks: &chunks, op }));
        }
    }
    for (place, &rank) in locals.iter().enumerate().skip(levels.leader_count()) {
        let holder = locals[place % levels.leader_count()];
        if group.rank() == holder {
            plan.send(rank, chunks[rank]);
        }
        if group.rank() == rank {
            plan.receive(holder, chunks[rank]);
        }
    }
    plan
}
