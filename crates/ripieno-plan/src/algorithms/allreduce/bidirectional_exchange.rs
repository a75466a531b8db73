//! Bidirectional-exchange allreduce (recursive doubling): every rank ends with the combination of all vectors.
//!
//! In round `i` pairs of ranks that differ in bit `i` of their numbers exchange their vectors and combine them. Ranks
//! beyond the largest power of two send their vector to a partner before the rounds and receive the result afterwards.
//!
//! Requires a commutative operation: both ranks of a pair combine the same two operands, so the result has the same
//! bits on every rank.
//! Cost and source: see [`ENTRY`].

use crate::theory::exactly;
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory, TheoryCase};
use core::ops::RangeInclusive;

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "bidirectional-exchange",
    PlanFunction::Allreduce(plan),
    Theory {
        sent_bytes,
        hops,
        rounds,
        cost: Cost::Exactly(
            "floor(log2 p)·(alpha + n·beta + n·gamma) + (ceil(log2 p) - floor(log2 p))·(2·alpha + 2·n·beta + n·gamma)",
        ),
        source: "Zhang, Ruan, Qiu, \"Harp: collective communication on Hadoop\", IC2E 2015, table I (bi-directional \
                 exchange); Thakur et al., \"Optimization of collective communication operations in MPICH\", IJHPCA \
                 2005",
    },
)
.ordered()
.buffered();

/// Plan this rank's part in a bidirectional-exchange allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let (rank, p) = (group.rank(), group.size());
    let core_size = 1 << p.ilog2();

    let mut plan = Plan::new();
    if rank >= core_size {
        plan.send(rank - core_size, vector);
        plan.receive(rank - core_size, vector);
        return plan;
    }
    let surplus = Some(rank + core_size).filter(|&surplus| surplus < p);
    if let Some(surplus) = surplus {
        plan.reduce(surplus, vector, op);
    }
    for bit in 0..p.ilog2() {
        plan.send(rank ^ (1 << bit), vector);
        plan.reduce(rank ^ (1 << bit), vector, op);
    }
    if let Some(surplus) = surplus {
        plan.send(surplus, vector);
    }
    plan
}

fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    let core_size = 1 << case.p.ilog2();
    match rank < core_size {
        true => case.n * (case.p.ilog2() as usize + usize::from(rank + core_size < case.p)),
        false => case.n,
    }
}

fn hops(case: &TheoryCase) -> RangeInclusive<usize> {
    let log2 = case.p.ilog2() as usize;
    // A folded vector and the first exchanged vector may arrive at the same time.
    if case.p.is_power_of_two() { exactly(log2) } else { log2 + 1..=log2 + 2 }
}

fn rounds(case: &TheoryCase) -> RangeInclusive<usize> {
    exactly(case.p.ilog2() as usize + if case.p.is_power_of_two() { 0 } else { 2 })
}
