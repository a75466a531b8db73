//! Reduce-scatter-gather reduce (Rabenseifner): the root ends with the combination of all vectors.
//!
//! This is a halving reduce-scatter of `p` equal chunks, then a binomial gather of the results. Chunk `i` belongs to
//! the rank at distance `i` from the root, so the chunks of a subtree are one span for any root.
//!
//! Requires a commutative operation; the rounds fix the order.
//! Cost and source: see [`ENTRY`].

use crate::algorithms::{cyclic, gather, reduce_scatter, tree};
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory, TheoryCase};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "reduce-scatter-gather",
    PlanFunction::Reduce(plan),
    Theory {
        sent_bytes,
        hops: |case| cyclic::hops(2, case.p),
        rounds: |case| cyclic::rounds(2, case.p),
        cost: Cost::ForPowersOfTwo("2·ceil(log2 p)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma"),
        source: "Rabenseifner, \"Optimization of collective reduction operations\", ICCS 2004",
    },
)
.ordered();

/// Plan this rank's part in a reduce-scatter-gather reduce of `vector` to `root`.
pub fn plan(group: &Group, root: usize, vector: Span, op: Op) -> Plan {
    // In this group every rank's number equals its distance from the root.
    let from_root = Group::new(group.distance_from(root), group.size());
    let chunks = vector.chunks(group.size());
    let scattered = reduce_scatter::halving::plan(&from_root, &chunks, op);
    scattered
        .then(gather::binomial::plan(&from_root, 0, &chunks))
        .with_peers(|distance| group.at_distance(root, distance))
}

fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    let distance = case.distance(rank);
    let gathered = if distance == 0 { 0 } else { case.chunks(distance, tree::subtree_size(distance, case.p)) };
    (reduce_scatter::halving::ENTRY.theory.sent_bytes)(case, distance) + gathered
}
