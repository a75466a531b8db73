//! Two-level allgather: every rank ends with every rank's chunk.
//!
//! The ranks of a node gather their own chunks. Then every leader gathers its share of the chunks of each other node,
//! and the received chunks are gathered inside the node. Each chunk enters a node once.
//!
//! Cost: an allgather inside, one between the nodes by `l` leaders at once, and one inside for all received chunks,
//! each by the default algorithm.
//! Requires each rank's own chunk in place. Chunks and nodes may have any sizes.
//! Source: see [`ENTRY`].

use crate::algorithms::levels::{Levels, theory};
use crate::request::PlanRequest;
use crate::{Entry, Group, Plan, PlanFunction, Span};
use alloc::vec::Vec;

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "two-level",
    PlanFunction::Allgather(plan),
    theory(
        "Ekanayake et al., \"Java thread and process performance for parallel machine learning on multicore HPC \
             clusters\", IEEE Big Data 2016, section III.C; Mamidala et al., \"MPI collectives on modern multicore \
             clusters\", CCGrid 2008",
    ),
)
.two_levels();

/// Plan this rank's part in a two-level allgather of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span]) -> Plan {
    let levels = Levels::of(group);
    let (local_ranks, node_count) = (levels.local_ranks(), levels.nodes().len());
    let own: Vec<Span> = local_ranks.iter().map(|&rank| chunks[rank]).collect();
    let mut plan = levels.plan_scattered(local_ranks, &PlanRequest::Allgather { chunks: &own });
    for round in 0..levels.round_count() {
        if let Some(leaders) = levels.co_leaders() {
            let node_chunk = |node| levels.leader_chunks(node, round, chunks)[levels.local_rank];
            let chunks: Vec<Span> = (0..node_count).map(node_chunk).collect();
            plan = plan.then(levels.plan_scattered(&leaders, &PlanRequest::Allgather { chunks: &chunks }));
        }
        // In the delivery order of a ring.
        for node in (1..node_count).map(|distance| (levels.node + node_count - distance) % node_count) {
            let chunks = &levels.pad_to_local_ranks(levels.leader_chunks(node, round, chunks))[..];
            plan = plan.then(levels.plan_scattered(local_ranks, &PlanRequest::Allgather { chunks }));
        }
    }
    plan
}
