//! Laws of sparse reductions, for every number of ranks and every factorization of it.

use crate::common::butterflies::{ConfiguredButterfly, CuttingTeam, RankKeys, configured, machines, shapes, take_step};
use ripieno_plan::check::{check, check_rendezvous};
use ripieno_plan::sparse::team::{SingleThread, WorkTeam};
use ripieno_plan::sparse::{Butterfly, Configurator, Degrees, EXAMPLE_COUNT};
use ripieno_plan::{Buffer, Op, Operation, Plan, Promise, Span};
use std::collections::BTreeSet;

const ROW_BYTES: usize = 8;

fn row() -> Span {
    Span::whole(Buffer::MAIN, 2, 4)
}

/// Every ordered factorization of every number of ranks, including numbers with folded ranks.
fn worlds() -> impl Iterator<Item = Degrees> {
    (1..=33).flat_map(|p| {
        let folded = Degrees::all_smooth(p).into_iter().filter(|degrees| degrees.folded() > 0);
        Degrees::all(p).into_iter().chain(folded)
    })
}

fn plans(configured: &ConfiguredButterfly, op: Op) -> Vec<Plan> {
    configured.routes.iter().map(|routes| routes.plan(ROW_BYTES, 4, op)).collect()
}

/// Return the keys that some rank requests and no rank contributes.
fn missing(keys: &RankKeys) -> BTreeSet<u64> {
    let contributed: BTreeSet<u64> = keys.outs.iter().flatten().copied().collect();
    keys.ins.iter().flatten().copied().filter(|key| !contributed.contains(key)).collect()
}

#[test]
fn every_requested_row_gets_every_contribution_once_and_missing_rows_are_zero() {
    for (seed, degrees) in worlds().enumerate() {
        let p = degrees.world_size();
        for (turn, (shape, keys)) in shapes(p, seed as u64).into_iter().enumerate() {
            // Large worlds only run every fourth shape.
            if p > 24 && !(seed + turn).is_multiple_of(4) {
                continue;
            }
            let dense_above = [0.0, 0.5, f64::INFINITY][(seed + turn) % 3];
            let op = [Op::Sum, Op::Min][(seed + turn) % 2];
            let configured = configured(&degrees, &keys, dense_above);
            let plans = plans(&configured, op);
            let promises: Vec<Promise> =
                keys.ins.iter().map(|requested| Promise::sparse(&keys.outs, requested, row(), op)).collect();
            let case_text = || format!("{degrees}, {shape}, dense above {dense_above}: {keys:?}");
            check(&plans, &promises).unwrap_or_else(|fault| panic!("{}: {fault}", case_text()));
            if p <= 16 {
                check_rendezvous(&plans).unwrap_or_else(|fault| panic!("{}: {fault}", case_text()));
            }

            let expected = missing(&keys);
            let count: u64 = configured.missing.iter().map(|missing| missing.count).sum();
            assert_eq!(count, expected.len() as u64, "{}", case_text());
            for missing in &configured.missing {
                assert_eq!(missing.examples.len() as u64, missing.count.min(EXAMPLE_COUNT as u64), "{}", case_text());
                assert!(missing.examples.iter().all(|key| expected.contains(key)), "{}", case_text());
            }
        }
    }
}

#[test]
fn any_team_finds_the_same_routes_and_sends_the_same_bytes() {
    for (seed, degrees) in worlds().filter(|degrees| degrees.world_size() <= 16).enumerate() {
        for (turn, (shape, keys)) in shapes(degrees.world_size(), seed as u64).into_iter().enumerate() {
            // Alternate between keys encoded as bits and keys encoded as lists.
            let keys = if turn % 2 == 0 { keys } else { spread(keys) };
            let dense_above = [0.0, 0.5, f64::INFINITY][(seed + turn) % 3];
            let found = |team: &dyn WorkTeam| {
                let mut machines = machines(&degrees, &keys, dense_above);
                let mut sent = Vec::new();
                for step in 0..machines[0].step_count() {
                    sent.extend(machines.iter().map(|machine| machine.outgoing(step, team)));
                    take_step(&mut machines, step, team);
                }
                let found = machines.into_iter().map(|machine| machine.finish(team));
                let plans = found.map(|(routes, missing)| (routes.plan(ROW_BYTES, 4, Op::Sum), missing));
                (sent, plans.collect::<Vec<_>>())
            };
            let by_one_thread = found(&SingleThread);
            for size in [2, 3, 5] {
                assert!(
                    found(&CuttingTeam(size)) == by_one_thread,
                    "{degrees}, {shape}, dense above {dense_above}, {size}: {keys:?}"
                );
            }
        }
    }
}

/// Return the same sets with larger distances between keys.
fn spread(keys: RankKeys) -> RankKeys {
    let sets =
        |sets: Vec<Vec<u64>>| sets.into_iter().map(|set| set.into_iter().map(|key| 1000 * key).collect()).collect();
    RankKeys { n: 1000 * keys.n, outs: sets(keys.outs), ins: sets(keys.ins) }
}

/// Return the ranks that contribute to the rows of each rank after each step, with the rank itself first.
fn contributors(degrees: &Degrees) -> Vec<Vec<Vec<usize>>> {
    let p = degrees.world_size();
    let butterflies: Vec<Butterfly> = (0..p).map(|rank| Butterfly::new(rank, degrees, 0)).collect();
    let mut by_step = vec![(0..p).map(|rank| vec![rank]).collect::<Vec<_>>()];
    for step in 0..butterflies[0].layers().len() {
        let below = |butterfly: &Butterfly| {
            butterfly.layers()[step].members.iter().flat_map(|&member| by_step[step][member].clone()).collect()
        };
        by_step.push(butterflies.iter().map(below).collect());
    }
    by_step
}

#[test]
fn a_rank_holds_the_union_of_the_keys_of_k_ranks_in_its_range() {
    for (seed, degrees) in worlds().enumerate() {
        let contributors = contributors(&degrees);
        for (shape, keys) in shapes(degrees.world_size(), seed as u64) {
            let routes = configured(&degrees, &keys, f64::INFINITY).routes;
            for (rank, routes) in routes.iter().enumerate() {
                let butterfly = Butterfly::new(rank, &degrees, keys.n);
                let ranges =
                    core::iter::once(0..keys.n).chain(butterfly.layers().iter().map(|layer| layer.range().clone()));
                assert_eq!(routes.volumes().len(), butterfly.layers().len() + 1);
                for (step, (volume, range)) in routes.volumes().iter().zip(ranges).enumerate() {
                    let union = |sets: &[Vec<u64>]| {
                        let members = contributors[step][rank].iter().flat_map(|&member| &sets[member]);
                        members.filter(|key| range.contains(key)).collect::<BTreeSet<_>>().len()
                    };
                    assert_eq!(volume.range, range.end - range.start);
                    let (outs, ins) = (union(&keys.outs), union(&keys.ins));
                    assert_eq!(volume.in_rows, ins, "{degrees}, {shape}, rank {rank}");
                    // If all keys are requested, the last layer has a row for every key.
                    let is_last_layer = step > 0 && step + 1 == contributors.len() && ins as u64 == volume.range;
                    let outs = if is_last_layer { ins } else { outs };
                    assert_eq!(volume.out_rows, outs, "{degrees}, {shape}, rank {rank}");
                }
            }
        }
    }
}

#[test]
fn k_different_ranks_contribute_to_each_row_after_a_layer() {
    for degrees in worlds().filter(|degrees| degrees.folded() == 0) {
        let mut product = 1;
        for (layer, above) in contributors(&degrees).iter().enumerate() {
            product *= if layer > 0 { degrees.layers()[layer - 1] } else { 1 };
            for ranks in above {
                assert_eq!(ranks.iter().collect::<BTreeSet<_>>().len(), product, "{degrees}: K_i different ranks");
                assert_eq!(ranks.len(), product, "{degrees}: each once");
            }
        }
    }
}

#[test]
fn one_layer_sends_every_row_to_its_owner_and_every_requested_row_back() {
    for p in 1..=33 {
        let degrees = Degrees::direct(p);
        for (shape, keys) in shapes(p, p as u64) {
            let owner = |key: u64| (0..p).find(|&rank| key < keys.n * (rank as u64 + 1) / p as u64).unwrap();
            let between = |sets: &[Vec<u64>], from: usize, to: usize| match from == to {
                true => 0,
                false => sets[from].iter().filter(|&&key| owner(key) == to).count(),
            };
            let plans = plans(&configured(&degrees, &keys, f64::INFINITY), Op::Sum);
            let report = check(&plans, &vec![Promise::nothing(); p]).unwrap();
            for (rank, traffic) in report.ranks.iter().enumerate() {
                let sent_rows = |peer| between(&keys.outs, rank, peer) + between(&keys.ins, peer, rank);
                let rows: usize = (0..p).map(sent_rows).sum();
                assert_eq!(traffic.sent_bytes, rows * ROW_BYTES, "{shape}, {p}");
            }
        }
    }
}

#[test]
fn only_the_first_of_dense_layers_needs_maps() {
    for degrees in worlds().filter(|degrees| degrees.layers().len() > 1 && degrees.folded() == 0) {
        let (_, keys) = shapes(degrees.world_size(), 1).swap_remove(0);
        for routes in configured(&degrees, &keys, 0.0).routes {
            assert!(routes.volumes()[1..].iter().all(|volume| volume.out_rows as u64 == volume.range));
            let plan = routes.plan(ROW_BYTES, 4, Op::Sum);
            // Fills select the rows of missing keys to clear them.
            let selects_rows =
                |operation: &&Operation| operation.rows().is_some() && !matches!(operation, Operation::Fill { .. });
            let count = plan.operations().iter().filter(selects_rows).count();
            assert!(count <= 2 * degrees.layers()[0], "{degrees}: {count}");
        }
    }
}

#[test]
fn malformed_messages_are_rejected_and_change_nothing() {
    let (degrees, keys) = ("3".parse().unwrap(), shapes(3, 5).swap_remove(0).1);
    let mut machines = machines(&degrees, &keys, 0.5);
    let message =
        |from: usize| machines[from].outgoing(0, &SingleThread).into_iter().find(|(to, _)| *to == 0).unwrap().1;
    let good: Vec<(usize, Vec<u8>)> = vec![(1, message(1)), (2, message(2))];
    let machine = &mut machines[0];
    let mut rejected = |messages: &[(usize, Vec<u8>)], peer: usize| {
        let error = machine.absorb(0, messages, &SingleThread).unwrap_err();
        assert!(error.to_string().contains(&format!("rank {peer} ")), "{error}");
    };
    rejected(&good[..1], 2);
    rejected(&[good[0].clone(), good[1].clone(), good[1].clone()], 2);
    rejected(&[(1, good[0].1[1..].to_vec()), good[1].clone()], 1);
    rejected(&[(1, [&good[0].1[..], &[0]].concat()), good[1].clone()], 1);
    rejected(&[(1, vec![]), good[1].clone()], 1);
    machine.absorb(0, &good, &SingleThread).unwrap();
}

#[test]
fn a_malformed_message_is_reported_by_its_first_fault() {
    let reason = |message: &[u8]| {
        let mut machine = Configurator::new(0, &Degrees::direct(2), 20, vec![1, 12], vec![2], 2.0);
        machine.absorb(0, &[(1, message)], &SingleThread).unwrap_err().reason
    };
    // The encoding of a set of all keys is a single zero.
    assert_eq!(reason(&[9, 0, 0]), "unknown form of key sets");
    assert_eq!(reason(&[0, 9, 0]), "unknown form of key sets");
    assert_eq!(reason(&[0]), "too few bytes");
    assert_eq!(reason(&[0, 0, 0]), "bytes after the last set");
}
