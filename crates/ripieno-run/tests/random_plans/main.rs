//! Random plans: overlapping operations produce the same result as sequential ones.

#[path = "../common/mod.rs"]
mod common;
mod random_step;

use common::worlds;
use random_step::{
    BUFFER_COUNT, BufferContents, OPS, PlanScale, PlanStep, plans, random, random_step, run_sequentially, without_zeros,
};
use ripieno_plan::{Collective, Plan, Promise, check::check};
use ripieno_run::{BufferMemory, Call, CallKind, Element, Executor, PreparedCall, Replicas, Schedule};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Execute the runs on all ranks at once, over narrow links. Each rank submits all runs but the last, advances them a
/// little, and waits in the last one. Return the values of each run at each replica of each rank.
fn executed(runs: &[Vec<Plan>], scale: PlanScale, states: &[BufferContents]) -> Vec<BufferContents> {
    let element_count = scale.element_count as u64;
    let (collective, element, op) = (Collective::Allreduce, Element::I32, Some(scale.op));
    let kind = CallKind::Catalogued { collective, algorithm: 0, op, root: 0, element_count };
    let call = Call { kind, element, signature: 0 };
    let replicas = Replicas::new(scale.rank_count * scale.replicas, scale.replicas);
    let worlds = worlds(scale.rank_count * scale.replicas, scale.link_bytes, scale.chunk_bytes);
    let by_rank: Vec<Vec<Vec<Vec<i32>>>> = std::thread::scope(|scope| {
        let rank = |mut world: common::RankWorld| {
            scope.spawn(move || {
                let rank = replicas.logical(world.rank);
                let mut executor = Executor::default();
                let mut memory: Vec<Vec<&'static mut [u8]>> =
                    states.iter().map(|state| state[rank].iter().map(|buffer| leak(buffer)).collect()).collect();
                let ended = Arc::new(AtomicUsize::new(0));
                let last = runs.len() - 1;
                let positions: Vec<Vec<(*mut u8, usize)>> = memory
                    .iter_mut()
                    .map(|buffers| buffers.iter_mut().map(|bytes| (bytes.as_mut_ptr(), bytes.len())).collect())
                    .collect();
                for (number, mut buffers) in memory.into_iter().enumerate() {
                    let plan = &runs[number][rank];
                    let schedule = Arc::new(match scale.replicas {
                        1 => Schedule::new(plan),
                        _ => Schedule::replicated(plan, replicas, world.rank),
                    });
                    let (prepared, sequence) = (PreparedCall::new(0, call, schedule).unwrap(), number as u64);
                    let buffers: Vec<BufferMemory<'static>> = buffers.drain(..).map(BufferMemory::Write).collect();
                    if number < last {
                        let ended = ended.clone();
                        let end = Box::new(move |result: Result<_, _>| {
                            result.unwrap();
                            ended.fetch_add(1, Ordering::Relaxed);
                        });
                        executor.submit(&mut world, sequence, prepared, buffers, end).unwrap();
                        executor.advance(&mut world);
                    } else {
                        let mut buffers = buffers;
                        executor.run(&mut world, sequence, &prepared, &mut buffers).unwrap();
                    }
                }
                executor.drive(&mut world, false, &|| false).unwrap();
                assert!(executor.is_idle());
                assert_eq!(ended.load(Ordering::Relaxed), last, "the end of every run is reported once");
                positions.into_iter().map(|buffers| buffers.into_iter().map(reclaim).collect()).collect()
            })
        };
        let ranks: Vec<_> = worlds.into_iter().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    (0..runs.len()).map(|run| by_rank.iter().map(|runs| runs[run].clone()).collect()).collect()
}

/// Leak the bytes of `values`, so that a run in flight can use them at any time.
fn leak(values: &[i32]) -> &'static mut [u8] {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>().leak()
}

/// Reclaim leaked bytes that no run uses, and return their values.
fn reclaim((start, length_bytes): (*mut u8, usize)) -> Vec<i32> {
    // SAFETY: a boxed slice of this length was leaked there, and its run has ended.
    let bytes = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, length_bytes)) };
    bytes.chunks_exact(4).map(|value| i32::from_ne_bytes(value.try_into().unwrap())).collect()
}

/// Draw `run_count` runs. Compare their concurrent execution with a sequential one.
fn check_seed(seed: u64, scale: PlanScale, run_count: usize) {
    let mut draws = seed;
    let runs: Vec<Vec<PlanStep>> =
        (0..run_count).map(|_| (0..scale.step_count).map(|_| random_step(&mut draws, scale)).collect()).collect();
    let plans: Vec<Vec<Plan>> = runs.iter().map(|steps| plans(steps, scale)).collect();
    let mut vector = || (0..scale.element_count).map(|_| random(&mut draws, 1 << 20) as i32).collect();
    let mut state = || (0..scale.rank_count).map(|_| (0..BUFFER_COUNT).map(|_| vector()).collect()).collect();
    let states: Vec<BufferContents> = (0..run_count).map(|_| state()).collect();

    let nothing_promised = vec![Promise::nothing(); scale.rank_count];
    for plans in &plans {
        let plans: Vec<Plan> = plans.iter().map(|plan| without_zeros(plan, scale.op)).collect();
        check(&plans, &nothing_promised).unwrap_or_else(|fault| panic!("seed {seed}: {fault:?}"));
    }
    let found = executed(&plans, scale, &states);

    for ((steps, state), found) in runs.iter().zip(states).zip(found) {
        let expected = run_sequentially(steps, scale.op, state);
        let is_found = found.chunks(scale.rank_count).all(|ranks| ranks == expected);
        assert!(is_found, "seed {seed}, {scale:?}: {steps:?}");
    }
}

#[test]
fn overlapping_operations_have_the_result_of_sequential_ones() {
    for seed in 0..400 {
        let mut draws = seed;
        let scale = PlanScale {
            rank_count: 2 + random(&mut draws, 3),
            replicas: 1,
            element_count: 1 + random(&mut draws, 24),
            step_count: 1 + random(&mut draws, 16),
            link_bytes: 40 + random(&mut draws, 80),
            chunk_bytes: 1 + random(&mut draws, 12),
            op: OPS[random(&mut draws, OPS.len())],
        };
        check_seed(seed, scale, 1);
    }
}

#[test]
fn runs_in_flight_have_the_result_of_sequential_ones() {
    for seed in 1000..1200 {
        let mut draws = seed;
        let scale = PlanScale {
            rank_count: 2 + random(&mut draws, 3),
            replicas: 1,
            element_count: 1 + random(&mut draws, 24),
            step_count: 1 + random(&mut draws, 8),
            link_bytes: 40 + random(&mut draws, 80),
            chunk_bytes: 1 + random(&mut draws, 12),
            op: OPS[random(&mut draws, OPS.len())],
        };
        check_seed(seed, scale, 2 + random(&mut draws, 5));
    }
}

#[test]
fn racing_replicas_have_the_result_of_sequential_steps() {
    for seed in 2000..2100 {
        let mut draws = seed;
        let scale = PlanScale {
            rank_count: 2 + random(&mut draws, 2),
            replicas: 2,
            element_count: 1 + random(&mut draws, 24),
            step_count: 1 + random(&mut draws, 12),
            link_bytes: 40 + random(&mut draws, 80),
            chunk_bytes: 1 + random(&mut draws, 12),
            op: OPS[random(&mut draws, OPS.len())],
        };
        check_seed(seed, scale, 1 + random(&mut draws, 2));
    }
}

#[test]
fn plans_of_several_segments_have_the_result_of_sequential_ones() {
    for seed in 0..8 {
        let scale = PlanScale {
            rank_count: 3,
            replicas: 1 + seed as usize / OPS.len(),
            element_count: 25_000,
            step_count: 8,
            link_bytes: 40_000,
            chunk_bytes: 10_000,
            op: OPS[seed as usize % OPS.len()],
        };
        check_seed(seed, scale, 1);
    }
}
