//! Recursive-multiplying allreduce: every rank ends with the combination of all vectors.
//!
//! The core has as many ranks as the largest number up to `p` that is a product of the factors 4, 3 and 2. There is one
//! step for each factor `f`. Groups of `f` ranks that differ only in this digit exchange their vectors and combine
//! them: recursive doubling, with `f` in place of 2. The other ranks send their vector to a partner before the steps
//! and receive the result afterwards.
//!
//! There is one hop per factor, with `f-1` messages each.
//! Requires a commutative operation. A group combines in rank order, so the result has the same bits on every rank.
//! Scratch: `3n` bytes.
//! Cost and source: see [`ENTRY`].

use super::one_round;
use crate::theory::exactly;
use crate::{Cost, Entry, Group, Op, Plan, PlanFunction, Span, Theory, TheoryCase};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// Catalogue entry with the predicted cost and the source.
pub const ENTRY: Entry = Entry::new(
    "recursive-multiplying",
    PlanFunction::Allreduce(plan),
    Theory {
        sent_bytes,
        hops,
        rounds: |case| exactly(message_count(case.p) + 2 * usize::from(has_surplus(case.p))),
        cost: Cost::AtMost("(3·ceil(log4 p) + 2)·(alpha + n·beta + n·gamma)"),
        source: "Ruefenacht, Bull, Booth, \"Generalisation of recursive doubling for AllReduce: Now with simulation\", \
                 Parallel Computing 2017",
    },
)
.ordered();

/// Plan this rank's part in a recursive-multiplying allreduce of `vector`.
pub fn plan(group: &Group, vector: Span, op: Op) -> Plan {
    let (rank, factors) = (group.rank(), factors(group.size()));
    let core_size: usize = factors.iter().product();

    let mut plan = Plan::new();
    if rank >= core_size {
        plan.send(rank - core_size, vector);
        plan.receive(rank - core_size, vector);
        return plan;
    }
    let surplus = Some(rank + core_size).filter(|&surplus| surplus < group.size());
    if let Some(surplus) = surplus {
        plan.reduce(surplus, vector, op);
    }
    let mut stride = 1;
    for factor in factors {
        let digit = rank / stride % factor;
        let exchange = one_round::plan(&Group::new(digit, factor), vector, op);
        plan = plan.then(exchange.with_peers(|other| rank + other * stride - digit * stride));
        stride *= factor;
    }
    if let Some(surplus) = surplus {
        plan.send(surplus, vector);
    }
    plan
}

/// Return the factors of the largest number up to `p` that is a product of 4, 3 and 2 only.
fn factors(p: usize) -> Vec<usize> {
    let factored = |mut size: usize| {
        let mut factors = Vec::new();
        for factor in [4, 3, 2] {
            while size.is_multiple_of(factor) {
                factors.push(factor);
                size /= factor;
            }
        }
        (size == 1).then_some(factors)
    };
    (1..=p).rev().find_map(factored).expect("1 is the product of no factors")
}

fn has_surplus(p: usize) -> bool {
    factors(p).iter().product::<usize>() < p
}

/// Return the number of messages that a rank sends in the exchanges.
fn message_count(p: usize) -> usize {
    factors(p).iter().map(|factor| factor - 1).sum()
}

fn sent_bytes(case: &TheoryCase, rank: usize) -> usize {
    let core_size = factors(case.p).iter().product::<usize>();
    match rank < core_size {
        true => case.n * (message_count(case.p) + usize::from(rank + core_size < case.p)),
        false => case.n,
    }
}

fn hops(case: &TheoryCase) -> RangeInclusive<usize> {
    let count = factors(case.p).len();
    // A folded vector and the first exchanged vector may arrive at the same time.
    if has_surplus(case.p) { count + 1..=count + 2 } else { exactly(count) }
}
