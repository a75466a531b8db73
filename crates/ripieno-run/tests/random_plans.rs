//! Random plans: whatever overlaps, the executor ends where operations that run one after the other end.

mod common;

use common::worlds;
use ripieno_plan::{Buffer, Collective, Op, Plan, Promise, Span, checker::check};
use ripieno_run::{Call, Element, Executor, Header, Memory, Schedule};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One thing that happens in a world.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Message { from: usize, source: Span, to: usize, target: Span, is_reduced: bool },
    Local { rank: usize, source: Span, target: Span, is_combined: bool },
}

/// How large a world is.
#[derive(Clone, Copy, Debug)]
struct Scale {
    rank_count: usize,
    element_count: usize,
    happening_count: usize,
    link_bytes: usize,
    at_once_bytes: usize,
}

const BUFFER_COUNT: usize = 2;

/// What each buffer of each rank holds.
type State = Vec<Vec<Vec<i32>>>;

/// The next number of a sequence that `state` starts: splitmix64.
fn random(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % below as u64) as usize
}

fn span(seed: &mut u64, scale: Scale, element_count: usize) -> Span {
    let buffer = Buffer(random(seed, BUFFER_COUNT) as u16);
    Span::whole(buffer, scale.element_count, 4)
        .elements(random(seed, scale.element_count - element_count + 1), element_count)
}

fn happening(seed: &mut u64, scale: Scale) -> Happening {
    let element_count = match random(seed, 4) {
        0 => scale.element_count,
        1 => random(seed, 3.min(scale.element_count)),
        _ => random(seed, scale.element_count + 1),
    };
    let from = random(seed, scale.rank_count);
    let to = random(seed, scale.rank_count);
    let (source, target) = (span(seed, scale, element_count), span(seed, scale, element_count));
    match from == to {
        true if source.overlaps(&target) => happening(seed, scale),
        true => Happening::Local { rank: from, source, target, is_combined: random(seed, 2) == 0 },
        false => Happening::Message { from, source, to, target, is_reduced: random(seed, 2) == 0 },
    }
}

/// Every rank's plan: its part in what happens, in order.
fn plans(happenings: &[Happening], rank_count: usize) -> Vec<Plan> {
    let mut plans = vec![Plan::new(); rank_count];
    for happening in happenings {
        match *happening {
            Happening::Message { from, source, to, target, is_reduced } => {
                plans[from].send(to, source);
                match is_reduced {
                    true => plans[to].reduce(from, target, Op::Sum),
                    false => plans[to].receive(from, target),
                }
            }
            Happening::Local { rank, source, target, is_combined } => match is_combined {
                true => plans[rank].combine(source, target, Op::Sum),
                false => plans[rank].copy(source, target),
            },
        }
    }
    plans
}

fn elements(state: &mut State, rank: usize, span: Span) -> &mut [i32] {
    let first = span.start_bytes / 4;
    &mut state[rank][span.buffer.0 as usize][first..first + span.element_count()]
}

/// One happening after the other.
fn serially(happenings: &[Happening], mut state: State) -> State {
    for happening in happenings {
        let (from, source, to, target, is_reduced) = match *happening {
            Happening::Message { from, source, to, target, is_reduced } => (from, source, to, target, is_reduced),
            Happening::Local { rank, source, target, is_combined } => (rank, source, rank, target, is_combined),
        };
        let values = elements(&mut state, from, source).to_vec();
        for (place, value) in elements(&mut state, to, target).iter_mut().zip(values) {
            *place = if is_reduced { place.wrapping_add(value) } else { value };
        }
    }
    state
}

/// All ranks at once, over narrow links; each rank begins every run but the last, moves them on a little, and waits in the
/// last one. The values of each run.
fn executed(runs: &[Vec<Plan>], scale: Scale, states: &[State]) -> Vec<State> {
    let element_count = scale.element_count as u64;
    let (collective, element, op) = (Collective::Allreduce, Element::I32, Some(Op::Sum));
    let call = Call { collective, algorithm: 0, element, op, root: 0, element_count, counts_hash: 0 };
    let worlds = worlds(scale.rank_count, scale.link_bytes, scale.at_once_bytes);
    let by_rank: Vec<Vec<Vec<Vec<i32>>>> = std::thread::scope(|scope| {
        let rank = |mut world: common::World| {
            scope.spawn(move || {
                let rank = world.rank;
                let mut executor = Executor::default();
                let mut memory: Vec<Vec<&'static mut [u8]>> =
                    states.iter().map(|state| state[rank].iter().map(|buffer| leaked(buffer)).collect()).collect();
                let ended = Arc::new(AtomicUsize::new(0));
                let last = runs.len() - 1;
                let places: Vec<Vec<(*mut u8, usize)>> = memory
                    .iter_mut()
                    .map(|buffers| buffers.iter_mut().map(|bytes| (bytes.as_mut_ptr(), bytes.len())).collect())
                    .collect();
                for (number, mut buffers) in memory.into_iter().enumerate() {
                    let schedule = Arc::new(Schedule::new(&runs[number][rank]));
                    let header = Header { communicator: 0, sequence: number as u64, call };
                    let buffers: Vec<Memory<'static>> = buffers.drain(..).map(Memory::Write).collect();
                    if number < last {
                        let ended = ended.clone();
                        let end = Box::new(move |result: Result<_, _>| {
                            result.unwrap();
                            ended.fetch_add(1, Ordering::Relaxed);
                        });
                        executor.submit(&mut world, header, schedule, buffers, end).unwrap();
                        executor.advance(&mut world);
                    } else {
                        let mut buffers = buffers;
                        executor.run(&mut world, header, &schedule, &mut buffers).unwrap();
                    }
                }
                executor.drive(&mut world, false, &|| false).unwrap();
                assert!(executor.is_idle());
                assert_eq!(ended.load(Ordering::Relaxed), last, "every run is told of once");
                places.into_iter().map(|buffers| buffers.into_iter().map(reclaimed).collect()).collect()
            })
        };
        let ranks: Vec<_> = worlds.into_iter().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    (0..runs.len()).map(|run| by_rank.iter().map(|runs| runs[run].clone()).collect()).collect()
}

/// The bytes of `values`, for as long as a run in flight may need them.
fn leaked(values: &[i32]) -> &'static mut [u8] {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>().leak()
}

/// The values of bytes that were leaked and that no run uses any more.
fn reclaimed((start, length_bytes): (*mut u8, usize)) -> Vec<i32> {
    // SAFETY: a boxed slice of this length was leaked there, and the run that held it has let it go.
    let bytes = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, length_bytes)) };
    bytes.chunks_exact(4).map(|value| i32::from_ne_bytes(value.try_into().unwrap())).collect()
}

/// Draws `run_count` runs, and compares what the executor makes of all of them, in flight at once, with one happening after
/// the other.
fn holds(seed: u64, scale: Scale, run_count: usize) {
    let mut draws = seed;
    let runs: Vec<Vec<Happening>> =
        (0..run_count).map(|_| (0..scale.happening_count).map(|_| happening(&mut draws, scale)).collect()).collect();
    let plans: Vec<Vec<Plan>> = runs.iter().map(|happenings| plans(happenings, scale.rank_count)).collect();
    let mut vector = || (0..scale.element_count).map(|_| random(&mut draws, 1 << 20) as i32).collect();
    let mut state = || (0..scale.rank_count).map(|_| (0..BUFFER_COUNT).map(|_| vector()).collect()).collect();
    let states: Vec<State> = (0..run_count).map(|_| state()).collect();

    let nothing_promised = vec![Promise::nothing(); scale.rank_count];
    for plans in &plans {
        check(plans, &nothing_promised).unwrap_or_else(|fault| panic!("seed {seed}: {fault:?}"));
    }
    let found = executed(&plans, scale, &states);

    for ((happenings, state), found) in runs.iter().zip(states).zip(found) {
        assert!(found == serially(happenings, state), "seed {seed}, {scale:?}: {happenings:?}");
    }
}

#[test]
fn overlapping_operations_end_as_if_one_came_after_the_other() {
    for seed in 0..400 {
        let mut draws = seed;
        let scale = Scale {
            rank_count: 2 + random(&mut draws, 3),
            element_count: 1 + random(&mut draws, 24),
            happening_count: 1 + random(&mut draws, 16),
            link_bytes: 40 + random(&mut draws, 80),
            at_once_bytes: 1 + random(&mut draws, 12),
        };
        holds(seed, scale, 1);
    }
}

#[test]
fn runs_in_flight_end_as_if_one_came_after_the_other() {
    for seed in 1000..1200 {
        let mut draws = seed;
        let scale = Scale {
            rank_count: 2 + random(&mut draws, 3),
            element_count: 1 + random(&mut draws, 24),
            happening_count: 1 + random(&mut draws, 8),
            link_bytes: 40 + random(&mut draws, 80),
            at_once_bytes: 1 + random(&mut draws, 12),
        };
        holds(seed, scale, 2 + random(&mut draws, 5));
    }
}

#[test]
fn they_do_so_in_segments_and_relay_units() {
    for seed in 0..3 {
        let scale = Scale {
            rank_count: 3,
            element_count: 25_000,
            happening_count: 8,
            link_bytes: 40_000,
            at_once_bytes: 10_000,
        };
        holds(seed, scale, 1);
    }
}
