//! Random plans: whatever overlaps, the executor ends where operations that run one after the other end.

mod common;

use common::worlds;
use ripieno_plan::{Buffer, Collective, Op, Plan, Promise, Span, checker::check};
use ripieno_run::{Call, Element, Executor, Header, Memory, Schedule};

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

/// All ranks at once, over narrow links.
fn executed(plans: &[Plan], scale: Scale, state: State) -> State {
    let element_count = scale.element_count as u64;
    let (collective, element, op) = (Collective::Allreduce, Element::I32, Some(Op::Sum));
    let call = Call { collective, algorithm: 0, element, op, root: 0, element_count, counts_hash: 0 };
    let worlds = worlds(plans.len(), scale.link_bytes, scale.at_once_bytes);
    std::thread::scope(|scope| {
        let rank = |((mut world, plan), buffers): ((common::World, &Plan), Vec<Vec<i32>>)| {
            let schedule = Schedule::new(plan);
            scope.spawn(move || {
                let mut bytes: Vec<Vec<u8>> = buffers
                    .iter()
                    .map(|buffer| buffer.iter().flat_map(|value| value.to_ne_bytes()).collect())
                    .collect();
                let mut memory: Vec<Memory<'_>> = bytes.iter_mut().map(|buffer| Memory::Write(buffer)).collect();
                let header = Header { sequence: 0, call };
                Executor::default().run(&mut world, header, &schedule, &mut memory).unwrap();
                let values = |buffer: &Vec<u8>| {
                    buffer.chunks_exact(4).map(|value| i32::from_ne_bytes(value.try_into().unwrap())).collect()
                };
                bytes.iter().map(values).collect()
            })
        };
        let ranks: Vec<_> = worlds.into_iter().zip(plans).zip(state).map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn holds(seed: u64, scale: Scale) {
    let mut draws = seed;
    let happenings: Vec<Happening> = (0..scale.happening_count).map(|_| happening(&mut draws, scale)).collect();
    let plans = plans(&happenings, scale.rank_count);
    let mut vector = || (0..scale.element_count).map(|_| random(&mut draws, 1 << 20) as i32).collect();
    let state: State = (0..scale.rank_count).map(|_| (0..BUFFER_COUNT).map(|_| vector()).collect()).collect();

    let nothing_promised = vec![Promise::nothing(); scale.rank_count];
    check(&plans, &nothing_promised).unwrap_or_else(|fault| panic!("seed {seed}: {fault:?}"));
    let found = executed(&plans, scale, state.clone());

    assert!(found == serially(&happenings, state), "seed {seed}, {scale:?}: {happenings:?}");
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
        holds(seed, scale);
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
        holds(seed, scale);
    }
}
