//! Pulled exchange: every block arrives, no circular wait occurs, and the number of large blocks in flight to a rank is
//! bounded.

use crate::common::butterflies::random;
use ripieno_plan::check::{RankTraffic, check, check_rendezvous};
use ripieno_plan::regroup::{ExchangeBlocks, plan};
use ripieno_plan::simulate::{Model, cost_s, segmented, timeline};
use ripieno_plan::{Buffer, Group, Operation, Plan, Promise};

const EAGER_BYTES: usize = 8;

/// Bytes that every rank sends to every other rank.
type ExchangeSizes = Vec<Vec<usize>>;

fn sizes(p: usize, size: impl FnMut(usize, usize) -> usize) -> ExchangeSizes {
    let mut size = size;
    (0..p).map(|from| (0..p).map(|to| if from == to { 0 } else { size(from, to) }).collect()).collect()
}

/// Draw sizes of zero, one, the eager limit, the limit plus one, and more.
fn scattered(p: usize, seed: u64) -> ExchangeSizes {
    let mut state = seed;
    sizes(p, |_, _| [0, 1, EAGER_BYTES, EAGER_BYTES + 1, 40][random(&mut state, 5) as usize])
}

fn blocks(sizes: &ExchangeSizes, rank: usize) -> (ExchangeBlocks, ExchangeBlocks) {
    let into: Vec<usize> = sizes.iter().map(|row| row[rank]).collect();
    (
        ExchangeBlocks::new(Buffer::MAIN, &sizes[rank], EAGER_BYTES),
        ExchangeBlocks::new(Buffer::OUTPUT, &into, EAGER_BYTES),
    )
}

fn plans(sizes: &ExchangeSizes, pulls: usize) -> Vec<Plan> {
    let p = sizes.len();
    let of = |rank: usize| {
        let (out, into) = blocks(sizes, rank);
        plan(&Group::new(rank, p), &out, &into, pulls)
    };
    (0..p).map(of).collect()
}

fn promises(sizes: &ExchangeSizes) -> Vec<Promise> {
    let p = sizes.len();
    let copy = |rank: usize, from: usize| {
        Promise::copy(blocks(sizes, rank).1.span(from), from, blocks(sizes, from).0.span(rank))
    };
    (0..p).map(|rank| (0..p).map(|from| copy(rank, from)).fold(Promise::nothing(), Promise::and)).collect()
}

fn pulled_count(sizes: impl Iterator<Item = usize>) -> usize {
    sizes.filter(|&size| size > EAGER_BYTES).count()
}

#[test]
fn every_block_arrives_and_a_grant_costs_one_byte_each_way() {
    for p in 1..=33 {
        for (seed, pulls) in [1, 2, 3, 40].into_iter().enumerate() {
            let sizes = scattered(p, (p * 10 + seed) as u64);
            let plans = plans(&sizes, pulls);
            let report = check(&plans, &promises(&sizes)).unwrap_or_else(|fault| panic!("p={p}, {pulls}: {fault}"));
            for (rank, traffic) in report.ranks.iter().enumerate() {
                let (out, into) = (sizes[rank].iter().copied(), sizes.iter().map(|row| row[rank]));
                let grants = pulled_count(out.clone()) + pulled_count(into.clone());
                let count = |sizes: &mut dyn Iterator<Item = usize>| sizes.filter(|&size| size > 0).count();
                let expected = RankTraffic {
                    sent_bytes: out.clone().sum::<usize>() + grants,
                    received_bytes: into.clone().sum::<usize>() + grants,
                    reduced_bytes: 0,
                    sent_count: count(&mut out.clone()) + pulled_count(into.clone()),
                    received_count: count(&mut into.clone()) + pulled_count(out.clone()),
                };
                assert_eq!(*traffic, expected, "p={p}, rank {rank}, {pulls} pulls");
            }
        }
    }
}

#[test]
fn no_deadlock_occurs_over_unbuffered_links() {
    for p in 1..=33 {
        let all_large = sizes(p, |_, _| EAGER_BYTES + 3);
        for (seed, sizes) in [all_large, scattered(p, p as u64)].iter().enumerate() {
            for pulls in 1..=3 {
                let plans = plans(sizes, pulls);
                check_rendezvous(&plans).unwrap_or_else(|fault| panic!("p={p}, {pulls} pulls, case {seed}: {fault}"));
            }
        }
    }
}

#[test]
fn blocks_can_be_segmented_at_any_byte() {
    for p in 2..=9 {
        let sizes = scattered(p, p as u64 + 100);
        for segment_bytes in [1, 3, 7] {
            check(&segmented(&plans(&sizes, 2), segment_bytes), &promises(&sizes)).unwrap();
        }
    }
}

/// Return the largest number of large blocks in flight to one rank at a time.
fn max_in_flight(plans: &[Plan]) -> usize {
    // Sending takes almost no time compared with receiving a block, and the receiver receives blocks one after the
    // other.
    let model = Model { alpha_s: 1e-3, beta_s_per_byte: 1.0, gamma_s_per_byte: 0.0 };
    let transfers = timeline(plans, &model).unwrap();
    let large: Vec<_> = transfers.iter().filter(|transfer| transfer.length_bytes > EAGER_BYTES).collect();
    let in_flight = |at: f64, to: usize| {
        large.iter().filter(|other| other.receiver == to && other.start_s <= at && at < other.end_s).count()
    };
    large.iter().map(|transfer| in_flight(transfer.start_s, transfer.receiver)).max().unwrap_or(0)
}

#[test]
fn the_number_of_large_blocks_in_flight_to_a_rank_is_limited() {
    for p in [3, 4, 9, 17, 32] {
        let to_one = sizes(p, |_, to| if to == 0 { 100 } else { 0 });
        let to_all = sizes(p, |_, _| 100);
        for pulls in 1..=4 {
            assert_eq!(max_in_flight(&plans(&to_one, pulls)), pulls.min(p - 1), "p={p}");
            assert!(max_in_flight(&plans(&to_all, pulls)) <= pulls, "p={p}");
        }
        // Without a bound all blocks arrive at once.
        assert_eq!(max_in_flight(&plans(&to_one, p)), p - 1);
    }
}

/// Pulling costs only the grants: a receiver that pulls two blocks at a time is never idle while a grant is in flight.
#[test]
fn pulling_two_blocks_at_a_time_is_as_fast_as_sending_all_at_once() {
    let model = Model { alpha_s: 1.0, beta_s_per_byte: 1.0, gamma_s_per_byte: 0.0 };
    let to_one = sizes(17, |_, to| if to == 0 { 1000 } else { 0 });
    let [one, two, all] = [1, 2, 16].map(|pulls| cost_s(&plans(&to_one, pulls), &model).unwrap());
    assert!(two < 1.01 * all && one < 1.03 * all, "{one}, {two}, {all}");
}

#[test]
fn removing_any_operation_is_found() {
    let sizes = sizes(5, |_, _| EAGER_BYTES + 1);
    let (plans, promises) = (plans(&sizes, 2), promises(&sizes));
    for rank in 0..5 {
        for index in 0..plans[rank].operations().len() {
            let mut broken = plans.clone();
            let mut rest = Plan::new();
            let remains = |at: &usize| *at != index;
            (0..plans[rank].operations().len())
                .filter(remains)
                .for_each(|at| rest.push(plans[rank].operations()[at].clone()));
            broken[rank] = rest;
            let removed: &Operation = &plans[rank].operations()[index];
            assert!(check(&broken, &promises).is_err(), "rank {rank} without {removed:?}");
        }
    }
}
