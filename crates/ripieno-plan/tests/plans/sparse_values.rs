//! Sparse reductions of numbers, executed directly: compared with sums over all ranks, and in one pass with the
//! configuration.

use crate::common::butterflies::{CuttingTeam, RankKeys, machines, random, take_step};
use crate::common::interpreter::{RankMemory, combined, identity, interpreted};
use ripieno_plan::Op;
use ripieno_plan::sparse::{Configurator, Degrees, Routes, RowMap};

const WIDTH: usize = 3;

/// Larger sets than the checker can process: `p` ranks with up to `count` of the keys `0..n`, some common and some
/// rare.
fn keys(p: usize, n: u64, count: usize, state: &mut u64) -> RankKeys {
    let mut set = |_| {
        let draw_count = random(state, count as u64 + 1);
        let mut skewed = || {
            let halvings = random(state, n.ilog2().into());
            random(state, n >> halvings)
        };
        let mut keys: Vec<u64> = (0..draw_count).map(|_| skewed()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    };
    RankKeys { n, outs: (0..p).map(&mut set).collect(), ins: (0..p).map(&mut set).collect() }
}

/// Return integers up to 1000, with exact sums in any order, or fractions with sums that depend on the order.
fn values(keys: &RankKeys, unit: f32, state: &mut u64) -> Vec<Vec<f32>> {
    let rank =
        |outs: &Vec<u64>| (0..outs.len() * WIDTH).map(|_| (random(state, 2001) as f32 - 1000.0) * unit).collect();
    keys.outs.iter().map(rank).collect()
}

fn memory(values: &[f32], in_count: usize, scratch: Vec<f32>) -> RankMemory {
    [values.to_vec(), vec![f32::NAN; in_count * WIDTH], scratch]
}

/// Return the output of each rank's plan.
fn reduced(routes: &[Routes], keys: &RankKeys, values: &[Vec<f32>], op: Op) -> Vec<Vec<f32>> {
    let plans: Vec<_> = routes.iter().map(|routes| routes.plan(4 * WIDTH, 4, op)).collect();
    let ranks = values.iter().zip(&keys.ins);
    let mut memories: Vec<RankMemory> = ranks.map(|(values, ins)| memory(values, ins.len(), Vec::new())).collect();
    interpreted(&plans, &mut memories);
    memories
        .into_iter()
        .zip(values)
        .map(|([main, output, _], values)| {
            assert_eq!(main, *values, "the contributed values are unchanged");
            output
        })
        .collect()
}

fn worlds() -> impl Iterator<Item = (usize, Degrees)> {
    (1..=33)
        .chain([48, 60, 64])
        .flat_map(|p| [Degrees::direct(p), Degrees::smooth(p)].into_iter().chain(Degrees::all(p).into_iter().next()))
        .enumerate()
}

#[test]
fn every_rank_gets_the_sum_over_all_ranks() {
    for (seed, degrees) in worlds() {
        let (mut state, op) = (seed as u64, [Op::Sum, Op::Min][seed % 2]);
        let team = CuttingTeam(1 + seed % 4);
        let n = [100, 3000, 1 << 40][seed % 3];
        let keys = keys(degrees.world_size(), n, 400, &mut state);
        let values = values(&keys, 1.0, &mut state);
        let mut machines = machines(&degrees, &keys, [0.9, 0.3, f64::INFINITY][seed / 3 % 3]);
        (0..machines[0].step_count()).for_each(|step| take_step(&mut machines, step, &team));
        let routes: Vec<Routes> = machines.into_iter().map(|machine| machine.finish(&team).0).collect();
        for (requested, found) in keys.ins.iter().zip(reduced(&routes, &keys, &values, op)) {
            for (key, found) in requested.iter().zip(found.chunks(WIDTH)) {
                let mut expected = [None; WIDTH];
                for (outs, values) in keys.outs.iter().zip(&values) {
                    let Ok(row) = outs.binary_search(key) else { continue };
                    for (expected, &value) in expected.iter_mut().zip(&values[row * WIDTH..]) {
                        *expected = Some(expected.map_or(value, |before| combined(op, before, value)));
                    }
                }
                assert_eq!(found, expected.map(Option::unwrap_or_default), "{degrees}, key {key}");
            }
        }
    }
}

/// Return the next values of a rank from its own current values and the values that arrived with the keys.
fn values_below(
    machine: &Configurator,
    step: usize,
    current: &[f32],
    arrived: &[(usize, Vec<f32>)],
    op: Op,
) -> Vec<f32> {
    let maps = machine.down_maps(step);
    let rows = |map: &RowMap| -> Vec<usize> {
        match map {
            RowMap::Run(run) => run.clone().collect(),
            RowMap::Rows(rows) => rows.iter().map(|&row| row as usize).collect(),
        }
    };
    let (own_rows, own_map) = maps.own;
    let own = &current[own_rows.start * WIDTH..own_rows.end * WIDTH];
    if own_map.len() == maps.row_count && maps.arrivals.is_empty() {
        return own.to_vec();
    }
    let mut next = vec![identity(op); maps.row_count * WIDTH];
    let mut combine = |map: &RowMap, values: &[f32]| {
        for (row, values) in rows(map).into_iter().zip(values.chunks(WIDTH)) {
            for (next, &value) in next[row * WIDTH..].iter_mut().zip(values) {
                *next = combined(op, *next, value);
            }
        }
    };
    combine(own_map, own);
    for (peer, map) in maps.arrivals {
        let (_, values) = arrived.iter().find(|(from, _)| *from == peer).expect("every peer sends values");
        assert_eq!(values.len(), map.len() * WIDTH, "there is one value per element of the rows");
        combine(map, values);
    }
    next
}

#[test]
fn values_sent_with_keys_and_values_sent_later_produce_the_same_bits() {
    for (seed, degrees) in worlds() {
        let (mut state, op, team) = (seed as u64, Op::Sum, CuttingTeam(1 + seed % 4));
        let keys = keys(degrees.world_size(), [50, 600, 1 << 40][seed % 3], 100, &mut state);
        // Thirds, so that a different order of sums is visible.
        let values = values(&keys, 1.0 / 3.0, &mut state);
        let mut machines = machines(&degrees, &keys, 0.5);
        let mut current = values.clone();
        for step in 0..machines[0].step_count() {
            let mut arrived = vec![Vec::new(); machines.len()];
            for (rank, machine) in machines.iter().enumerate() {
                for (to, rows) in machine.outgoing_rows(step) {
                    arrived[to].push((rank, current[rank][rows.start * WIDTH..rows.end * WIDTH].to_vec()));
                }
            }
            take_step(&mut machines, step, &team);
            for (rank, machine) in machines.iter().enumerate() {
                current[rank] = values_below(machine, step, &current[rank], &arrived[rank], op);
            }
        }
        let routes: Vec<Routes> = machines.into_iter().map(|machine| machine.finish(&team).0).collect();
        let plans: Vec<_> = routes.iter().map(|routes| routes.up_plan(4 * WIDTH, 4, op)).collect();
        let ranks = current.into_iter().zip(&keys.ins);
        let mut memories: Vec<RankMemory> = ranks.map(|(values, ins)| memory(&[], ins.len(), values)).collect();
        interpreted(&plans, &mut memories);

        let later = reduced(&routes, &keys, &values, op);
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        for ([_, output, _], later) in memories.iter().zip(&later) {
            assert_eq!(bits(output), bits(later), "{degrees}");
        }
    }
}
