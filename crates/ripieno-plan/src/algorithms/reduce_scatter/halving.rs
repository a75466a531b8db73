//! Recursive-halving reduce-scatter: every rank ends with its chunk of the combination of all vectors.
//!
//! If `p` is a power of two, pairs of ranks that differ in one bit exchange halves of their remaining chunks and
//! combine them, starting with the highest bit. Otherwise it is a reversed Bruck allgather. Let `s` be the largest
//! power of two below the number of remaining chunks. Every rank sends the chunks of all ranks at distance `s` or more
//! after it to the rank `s` after it.
//!
//! Requires a commutative operation; the rounds fix the order.
//! Cost and source: see [`ENTRY`].

use crate::algorithms::cyclic;
use crate::theory::ceil_log2;
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory, TheoryCase};

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "halving",
    PlanFunction::ReduceScatter(plan),
    Theory {
        sent_bytes,
        hops: |case| cyclic::hops(1, case.p),
        rounds: |case| cyclic::rounds(1, case.p),
        cost: Cost::ForPowersOfTwo("ceil(log2 p)·alpha + (p-1)/p·n·beta + (p-1)/p·n·gamma"),
        source: "Thakur et al., \"Optimization of collective communication operations in MPICH\", IJHPCA 2005, \
                 section 4.4; Bruck et al., \"Efficient algorithms for all-to-all communications in multiport \
                 message-passing systems\", TPDS 1997, section 4, reversed",
    },
)
.joining();

/// Plan this rank's part in a recursive-halving reduce-scatter of `chunks`, one per rank.
pub fn plan(group: &Group, chunks: &[Span], op: Op) -> Plan {
    let (rank, p) = (group.rank(), group.size());
    let mut plan = Plan::new();
    if p.is_power_of_two() {
        for bit in (0..p.ilog2()).rev() {
            let (peer, count) = (rank ^ (1 << bit), 1 << bit);
            let half_of = |rank: usize| Span::joined(&chunks[rank / count * count..][..count]);
            plan.send(peer, half_of(peer));
            plan.reduce(peer, half_of(rank), op);
        }
        return plan;
    }
    let mut count = p;
    while count > 1 {
        let distance = count.next_power_of_two() / 2;
        let (to, from) = (group.after(distance), group.before(distance));
        cyclic::spans(chunks, to, count - distance).into_iter().for_each(|span| plan.send(to, span));
        cyclic::spans(chunks, rank, count - distance).into_iter().for_each(|span| plan.reduce(from, span, op));
        count = distance;
    }
    plan
}

fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    let p = case.p;
    let distances = (0..ceil_log2(p)).map(|bit| 1 << bit);
    match p.is_power_of_two() {
        true => distances.map(|half| case.chunks((rank ^ half) / half * half, half)).sum(),
        false => distances.map(|distance| case.chunks(rank + distance, distance.min(p - distance))).sum(),
    }
}
