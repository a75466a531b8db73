//! Plans of sparse reductions: their cost, and the detection of every removed or changed operation.

use crate::common::butterflies::{RankKeys, configured, random};
use crate::common::world_sizes;
use ripieno_plan::check::check;
use ripieno_plan::simulate::{Model, cost_s, segmented};
use ripieno_plan::sparse::{Butterfly, Degrees, Layer};
use ripieno_plan::{Buffer, Op, Operation, Plan, Promise, Rows, Span};
use std::collections::BTreeSet;

const ELEMENT_BYTES: usize = 4;
/// A union is dense only if it contains its whole range.
const NEVER_DENSE: f64 = f64::INFINITY;

/// Every ordered factorization of the numbers of ranks up to `max_p`.
fn worlds(max_p: usize) -> impl Iterator<Item = Degrees> {
    world_sizes(1, max_p).flat_map(Degrees::all)
}

fn plans(degrees: &Degrees, keys: &RankKeys, row_bytes: usize, op: Op) -> Vec<Plan> {
    let routes = configured(degrees, keys, NEVER_DENSE).routes;
    routes.iter().map(|routes| routes.plan(row_bytes, ELEMENT_BYTES, op)).collect()
}

fn promises(keys: &RankKeys, row_bytes: usize, op: Op) -> Vec<Promise> {
    let row = Span::whole(Buffer::MAIN, row_bytes / ELEMENT_BYTES, ELEMENT_BYTES);
    keys.ins.iter().map(|requested| Promise::sparse(&keys.outs, requested, row, op)).collect()
}

/// Create keys such that every rank holds some keys and requests some. Some rank requests each key, and no rank holds
/// the last key.
fn scattered(p: usize, n: u64, seed: u64) -> RankKeys {
    let mut state = seed;
    let mut sets = |first: usize, n: u64| -> Vec<Vec<u64>> {
        let mut is_member = |rank: usize, key: u64| key as usize % p == rank || random(&mut state, 3) == 0;
        let mut set = |rank: usize| (0..n).filter(|&key| is_member(rank, key)).collect();
        (0..p).map(|rank| set((first + rank) % p)).collect()
    };
    RankKeys { n, outs: sets(1, n - 1), ins: sets(0, n) }
}

/// If every rank has all keys, a sparse reduction sends as much as the best dense algorithm. Each rank sends `2(p-1)/p`
/// of the vector, in `2(d-1)` messages per layer of degree `d`, and no message waits for a busy rank.
#[test]
fn messages_and_rounds_depend_only_on_the_degrees() {
    for degrees in worlds(32) {
        let p = degrees.world_size();
        let all: Vec<u64> = (0..3 * p as u64).collect();
        let keys = RankKeys { n: all.len() as u64, outs: vec![all.clone(); p], ins: vec![all; p] };
        let plans = plans(&degrees, &keys, 8, Op::Sum);
        let report = check(&plans, &promises(&keys, 8, Op::Sum)).unwrap();
        let message_count: usize = degrees.layers().iter().map(|degree| 2 * (degree - 1)).sum();
        for traffic in &report.ranks {
            let bytes = 2 * (p - 1) * 3 * 8;
            assert_eq!((traffic.sent_bytes, traffic.received_bytes), (bytes, bytes), "{degrees}");
            assert_eq!(traffic.reduced_bytes, bytes / 2, "{degrees}");
            assert_eq!((traffic.sent_count, traffic.received_count), (message_count, message_count), "{degrees}");
        }
        assert_eq!(report.round_count, 2 * degrees.layers().len(), "{degrees}");
        assert_eq!(cost_s(&plans, &Model::ROUNDS).unwrap(), message_count as f64, "{degrees}");
    }
}

/// Return the number of rows that a rank sends or receives in one direction when the ranks' sets are merged layer by
/// layer.
fn row_counts(degrees: &Degrees, n: u64, sets: &[Vec<u64>]) -> Vec<usize> {
    let butterflies: Vec<Butterfly> = (0..sets.len()).map(|rank| Butterfly::new(rank, degrees, n)).collect();
    let mut held: Vec<BTreeSet<u64>> = sets.iter().map(|set| set.iter().copied().collect()).collect();
    let mut counts = vec![0; sets.len()];
    for index in 0..butterflies[0].layers().len() {
        let layers = butterflies.iter().map(|butterfly| &butterfly.layers()[index]);
        let union = |layer: &Layer| -> BTreeSet<u64> {
            let of = |&member: &usize| held[member].range(layer.range().clone());
            layer.members.iter().flat_map(of).copied().collect()
        };
        let below = layers.clone().map(union).collect();
        for (rank, layer) in layers.enumerate() {
            counts[rank] += held[rank].len() - held[rank].range(layer.range().clone()).count();
        }
        held = below;
    }
    counts
}

/// A plan only moves rows of keys that some rank has or requests, and sends each row once to a member.
#[test]
fn each_row_is_sent_once_to_a_member_that_needs_it() {
    let folded = (1..=16).flat_map(Degrees::all_smooth).filter(|degrees| degrees.folded() > 0);
    for (seed, degrees) in worlds(16).chain(folded).enumerate() {
        let p = degrees.world_size();
        let keys = scattered(p, 6 * p as u64, seed as u64);
        let report = check(&plans(&degrees, &keys, 4, Op::Sum), &promises(&keys, 4, Op::Sum)).unwrap();
        let (out_counts, in_counts) =
            (row_counts(&degrees, keys.n, &keys.outs), row_counts(&degrees, keys.n, &keys.ins));
        let bytes = |counts: &[usize]| 4 * counts.iter().sum::<usize>();
        let sent: usize = report.ranks.iter().map(|rank| rank.sent_bytes).sum();
        assert_eq!(sent, bytes(&out_counts) + bytes(&in_counts), "{degrees}");
        let reduced: usize = report.ranks.iter().map(|rank| rank.reduced_bytes).sum();
        assert_eq!(reduced, bytes(&out_counts), "{degrees}");
        for (rank, traffic) in report.ranks.iter().enumerate() {
            let received_back = traffic.received_bytes - traffic.reduced_bytes;
            assert_eq!(received_back, 4 * in_counts[rank], "{degrees}, rank {rank}");
        }
    }
}

/// Rows of any width, and messages cut between any two elements.
#[test]
fn promises_are_kept_for_rows_of_any_width_in_segments() {
    for (seed, degrees) in worlds(12).enumerate() {
        let p = degrees.world_size();
        let keys = scattered(p, 3 * p as u64 + 1, seed as u64);
        let row_bytes = ELEMENT_BYTES * [1, 3, 5][seed % 3];
        let plans = segmented(&plans(&degrees, &keys, row_bytes, Op::Sum), [4, 8, 32][seed / 3 % 3]);
        check(&plans, &promises(&keys, row_bytes, Op::Sum))
            .unwrap_or_else(|fault| panic!("{degrees}, {keys:?}: {fault}"));
    }
}

#[test]
fn removing_an_operation_or_changing_a_row_is_found() {
    // A product distinguishes duplicate contributions, and ones from zeros.
    for (seed, degrees) in worlds(8).enumerate() {
        let p = degrees.world_size();
        let keys = scattered(p, 4 * p as u64, seed as u64);
        let (plans, promises) = (plans(&degrees, &keys, 4, Op::Prod), promises(&keys, 4, Op::Prod));
        check(&plans, &promises).unwrap();
        let assert_rejected = |rank: usize, changed: Plan, change_text: &dyn Fn() -> String| {
            let mut broken = plans.clone();
            broken[rank] = changed;
            assert!(check(&broken, &promises).is_err(), "{degrees}, rank {rank}, {}: {keys:?}", change_text());
        };
        for (rank, plan) in plans.iter().enumerate() {
            for (index, operation) in plan.operations().iter().enumerate() {
                assert_rejected(rank, with(plan, index, None), &|| format!("without {operation:?}"));
                for other in variants(operation) {
                    assert_rejected(rank, with(plan, index, Some(other.clone())), &|| {
                        format!("{operation:?} -> {other:?}")
                    });
                }
            }
        }
    }
}

/// Return `plan` with the operation at `index` replaced or removed.
fn with(plan: &Plan, index: usize, other: Option<Operation>) -> Plan {
    let mut changed = Plan::new();
    let (before, after) = plan.operations().split_at(index);
    before.iter().cloned().chain(other).chain(after[1..].iter().cloned()).for_each(|operation| changed.push(operation));
    changed
}

/// Return variants of the operation with one row moved to the next position, for each row that can move.
fn variants(operation: &Operation) -> Vec<Operation> {
    let moved = |rows: &Rows| {
        let numbers = rows.numbers().to_vec();
        let can_move = |&position: &usize| numbers.get(position + 1).is_none_or(|next| *next > numbers[position] + 1);
        let positions: Vec<usize> = (0..numbers.len()).filter(can_move).collect();
        let row_bytes = rows.row_bytes();
        positions.into_iter().map(move |position| {
            let mut numbers = numbers.clone();
            numbers[position] += 1;
            Rows::new(numbers.into(), row_bytes)
        })
    };
    let replaced = |new: Rows| {
        let mut operation = operation.clone();
        if let Operation::Send { rows, .. }
        | Operation::Reduce { rows, .. }
        | Operation::Copy { rows, .. }
        | Operation::Combine { rows, .. }
        | Operation::Fill { rows, .. } = &mut operation
        {
            *rows = Some(new);
        }
        operation
    };
    operation.rows().map_or_else(Vec::new, |rows| moved(rows).map(replaced).collect())
}
