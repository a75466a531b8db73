//! Binomial gather: the root ends with every rank's chunk.
//!
//! Chunks move up a binomial tree, smallest subtree first. The chunks of a subtree are one span. If its ranks wrap
//! around, they are two spans and need a second message.
//!
//! Requires each rank's own chunk in place, and the whole layout as scratch on every rank.
//! Cost and source: see [`ENTRY`].

use crate::algorithms::tree::{self, NomialNode};
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory, TheoryCase};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "binomial",
    PlanFunction::Gather(plan),
    Theory {
        sent_bytes,
        hops: |case| tree::hops_of_runs(case),
        rounds: |case| tree::rounds_of_runs(case),
        cost: Cost::Exactly("ceil(log2 p)·alpha + (p-1)/p·n·beta"),
        source: "Thakur et al., \"Optimization of collective communication operations in MPICH\", IJHPCA 2005",
    },
)
.joining();

/// Plan this rank's part in a binomial gather of `chunks`, one per rank, to `root`.
pub fn plan(group: &Group, root: usize, chunks: &[Span]) -> Plan {
    let node = NomialNode::of(group, root, 2);
    let mut plan = Plan::new();
    for child in node.children() {
        child.spans(chunks).into_iter().for_each(|span| plan.receive(child.rank(), span));
    }
    if let Some(parent) = node.parent() {
        node.spans(chunks).into_iter().for_each(|span| plan.send(parent, span));
    }
    plan
}

fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    if rank == case.root { 0 } else { case.chunks(rank, tree::subtree_size(case.distance(rank), case.p)) }
}
