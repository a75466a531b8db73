//! Recursive-doubling allgather: every rank ends with every rank's chunk.
//!
//! In round `i` pairs of ranks that differ in bit `i` of their numbers exchange the `2^i` chunks that they hold. Each
//! message is one span, and each pair uses one link in both directions. If `p` is not a power of two, Bruck's allgather
//! is used, with other peers.
//!
//! Requires each rank's own chunk in place.
//! Cost and source: see [`ENTRY`].

use super::bruck;
use crate::algorithms::cyclic;
use crate::{Cost, Entry, Group, Plan, PlanFunction, Span, Theory, TheoryCase};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "recursive-doubling",
    PlanFunction::Allgather(plan),
    Theory {
        sent_bytes,
        hops: |case| cyclic::hops(1, case.p),
        rounds: |case| cyclic::rounds(1, case.p),
        cost: Cost::ForPowersOfTwo("ceil(log2 p)·alpha + (p-1)/p·n·beta"),
        source: "Thakur et al., \"Optimization of collective communication operations in MPICH\", IJHPCA 2005, \
                 section 4.1",
    },
)
.joining();

/// Plan this rank's part in a recursive-doubling allgather of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span]) -> Plan {
    let (rank, p) = (group.rank(), group.size());
    if !p.is_power_of_two() {
        return bruck::plan(group, chunks);
    }
    let mut plan = Plan::new();
    for bit in 0..p.ilog2() {
        let (peer, count) = (rank ^ (1 << bit), 1 << bit);
        let chunks_of = |rank: usize| Span::joined(&chunks[rank / count * count..][..count]);
        plan.send(peer, chunks_of(rank));
        plan.receive(peer, chunks_of(peer));
    }
    plan
}

fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    if !case.p.is_power_of_two() {
        return (bruck::ENTRY.theory.sent_bytes)(case, rank);
    }
    let counts = (0..case.p.ilog2()).map(|bit| 1 << bit);
    counts.map(|count| case.chunks(rank / count * count, count)).sum()
}
