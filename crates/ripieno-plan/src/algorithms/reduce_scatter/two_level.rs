//! Two-level reduce-scatter: every rank ends with its chunk of the combination of all vectors.
//!
//! Inside every node each leader combines its share of the chunks of all ranks. Then the leaders of equal number
//! combine and scatter their chunks between the nodes. Finally the leaders send the chunks of the other ranks to them.
//!
//! Cost: a reduce-scatter of all chunks inside, plus one between the nodes by `l` leaders at once, each by the default
//! algorithm.
//! Requires a commutative operation. Chunks and nodes may have any sizes.
//! Source: see [`ENTRY`].

use crate::algorithms::levels::{Levels, theory};
use crate::request::PlanRequest;
use crate::{Entry, Group, Op, Plan, PlanFunction, Span};
use alloc::vec::Vec;

/// Catalogue entry with the predicted cost and the source.
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

/// Plan this rank's part in a two-level reduce-scatter of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span], op: Op) -> Plan {
    let levels = Levels::of(group);
    let (local_ranks, node_count) = (levels.local_ranks(), levels.nodes().len());
    let mut plan = Plan::new();
    for round in 0..levels.round_count() {
        // In the sending order of a ring.
        for node in (1..=node_count).map(|distance| (levels.node + node_count - distance) % node_count) {
            let chunks = &levels.pad_to_local_ranks(levels.leader_chunks(node, round, chunks))[..];
            plan = plan.then(levels.plan_scattered(local_ranks, &PlanRequest::ReduceScatter { chunks, op }));
        }
        if let Some(leaders) = levels.co_leaders() {
            let node_chunk = |node| levels.leader_chunks(node, round, chunks)[levels.local_rank];
            let chunks: Vec<Span> = (0..node_count).map(node_chunk).collect();
            plan = plan.then(levels.plan_scattered(&leaders, &PlanRequest::ReduceScatter { chunks: &chunks, op }));
        }
    }
    for (local_rank, &rank) in local_ranks.iter().enumerate().skip(levels.leader_count) {
        let holder = local_ranks[local_rank % levels.leader_count];
        if group.rank() == holder {
            plan.send(rank, chunks[rank]);
        }
        if group.rank() == rank {
            plan.receive(holder, chunks[rank]);
        }
    }
    plan
}
