//! Random plans: whatever overlaps, the executor ends where operations that run one after the other end.

mod common;

use common::worlds;
use ripieno_plan::{Buffer, Collective, Constant, Op, Operation, Plan, Promise, Rows, Span, checker::check};
use ripieno_run::{Call, Element, Executor, Header, Memory, Schedule};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One thing that happens in a world.
#[derive(Clone, Debug)]
enum Happening {
    Message { from: usize, source: Part, to: usize, target: Part, is_reduced: bool },
    Local { rank: usize, source: Part, target: Part, is_combined: bool },
    Fill { rank: usize, target: Part, with: Constant },
}

/// A span, or rows of one.
#[derive(Clone, Debug)]
struct Part {
    span: Span,
    rows: Option<Rows>,
}

/// How large a world is.
#[derive(Clone, Copy, Debug)]
struct Scale {
    rank_count: usize,
    element_count: usize,
    happening_count: usize,
    link_bytes: usize,
    at_once_bytes: usize,
    op: Op,
}

/// Operations that tell their identities from zero, and one that does not.
const OPS: [Op; 4] = [Op::Sum, Op::Prod, Op::Max, Op::And];

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

/// Rows of `element_count` elements in all, or a span of so many.
fn part(seed: &mut u64, scale: Scale, element_count: usize) -> Part {
    let width = 1 + random(seed, 20.min(element_count.max(3)));
    if random(seed, 2) == 0 || !element_count.is_multiple_of(width) {
        return Part { span: span(seed, scale, element_count), rows: None };
    }
    let mut missing = element_count / width;
    let row_count = missing + random(seed, scale.element_count / width - missing + 1);
    let is_chosen = |&row: &u32| {
        let is_chosen = random(seed, row_count - row as usize) < missing;
        missing -= usize::from(is_chosen);
        is_chosen
    };
    let numbers: Arc<[u32]> = (0..row_count as u32).filter(is_chosen).collect();
    Part { span: span(seed, scale, row_count * width), rows: Some(Rows::new(numbers, 4 * width)) }
}

fn happening(seed: &mut u64, scale: Scale) -> Happening {
    let element_count = match random(seed, 4) {
        0 => scale.element_count,
        1 => random(seed, 3.min(scale.element_count)),
        _ => random(seed, scale.element_count + 1),
    };
    let (from, to) = (random(seed, scale.rank_count), random(seed, scale.rank_count));
    let whole = |span| Part { span, rows: None };
    match (from == to, random(seed, 2) == 0) {
        (true, _) if random(seed, 4) == 0 => {
            let with = [Constant::Zero, Constant::Identity(scale.op)][random(seed, 2)];
            Happening::Fill { rank: to, target: part(seed, scale, element_count), with }
        }
        (true, is_combined) => {
            let (one, other) = (part(seed, scale, element_count), whole(span(seed, scale, element_count)));
            let (source, target) = if is_combined { (other, one) } else { (one, other) };
            match source.span.overlaps(&target.span) {
                true => happening(seed, scale),
                false => Happening::Local { rank: from, source, target, is_combined },
            }
        }
        (false, is_reduced) => {
            let source = part(seed, scale, element_count);
            let target =
                if is_reduced { part(seed, scale, element_count) } else { whole(span(seed, scale, element_count)) };
            Happening::Message { from, source, to, target, is_reduced }
        }
    }
}

/// Every rank's plan: its part in what happens, in order.
fn plans(happenings: &[Happening], scale: Scale) -> Vec<Plan> {
    let (mut plans, op) = (vec![Plan::new(); scale.rank_count], scale.op);
    for happening in happenings {
        match happening.clone() {
            Happening::Message { from, source, to, target, is_reduced } => {
                plans[from].push(Operation::Send { to, span: source.span, rows: source.rows });
                plans[to].push(match is_reduced {
                    true => Operation::Reduce { from, span: target.span, rows: target.rows, op },
                    false => Operation::Receive { from, span: target.span },
                });
            }
            Happening::Local { rank, source: Part { span: from, rows }, target, is_combined: false } => {
                plans[rank].push(Operation::Copy { from, to: target.span, rows });
            }
            Happening::Local { rank, source, target: Part { span: to, rows }, is_combined: true } => {
                plans[rank].push(Operation::Combine { from: source.span, to, rows, op });
            }
            Happening::Fill { rank, target: Part { span, rows }, with } => {
                plans[rank].push(Operation::Fill { span, rows, with });
            }
        }
    }
    plans
}

/// The same plan for the checker, which takes a zero for no contribution to any operation: here it is a number like others.
fn without_zeros(plan: &Plan, op: Op) -> Plan {
    let mut same = Plan::new();
    for operation in plan.operations() {
        match *operation {
            Operation::Fill { span, .. } => same.fill(span, Constant::Identity(op)),
            _ => same.push(operation.clone()),
        }
    }
    same
}

/// Which elements of its buffer a part has, in order.
fn elements(part: &Part) -> Vec<usize> {
    let first = part.span.start_bytes / 4;
    match &part.rows {
        None => (first..first + part.span.element_count()).collect(),
        Some(rows) => {
            let width = rows.row_bytes() / 4;
            let row = |&number: &u32| first + number as usize * width..first + (number as usize + 1) * width;
            rows.numbers().iter().flat_map(row).collect()
        }
    }
}

fn combined(op: Op, a: i32, b: i32) -> i32 {
    match op {
        Op::Sum => a.wrapping_add(b),
        Op::Prod => a.wrapping_mul(b),
        Op::Max => a.max(b),
        Op::And => a & b,
        Op::Min | Op::Or | Op::Xor => unreachable!("no world reduces so"),
    }
}

fn constant(with: Constant) -> i32 {
    match with {
        Constant::Zero | Constant::Identity(Op::Sum) => 0,
        Constant::Identity(Op::Prod) => 1,
        Constant::Identity(Op::Max) => i32::MIN,
        Constant::Identity(Op::And) => -1,
        Constant::Identity(Op::Min | Op::Or | Op::Xor) => unreachable!("no world reduces so"),
    }
}

/// One happening after the other.
fn serially(happenings: &[Happening], op: Op, mut state: State) -> State {
    for happening in happenings {
        let (from, source, to, target, is_reduced) = match happening {
            Happening::Message { from, source, to, target, is_reduced } => (from, source, to, target, is_reduced),
            Happening::Local { rank, source, target, is_combined } => (rank, source, rank, target, is_combined),
            Happening::Fill { rank, target, with } => {
                let buffer = &mut state[*rank][target.span.buffer.0 as usize];
                elements(target).iter().for_each(|&i| buffer[i] = constant(*with));
                continue;
            }
        };
        let read = |buffers: &Vec<Vec<i32>>, part: &Part| -> Vec<i32> {
            elements(part).iter().map(|&i| buffers[part.span.buffer.0 as usize][i]).collect()
        };
        let values = read(&state[*from], source);
        let places = elements(target);
        assert_eq!(values.len(), places.len(), "as many values come as there are places");
        let buffer = &mut state[*to][target.span.buffer.0 as usize];
        for (place, value) in places.into_iter().zip(values) {
            buffer[place] = if *is_reduced { combined(op, buffer[place], value) } else { value };
        }
    }
    state
}

/// All ranks at once, over narrow links; each rank begins every run but the last, moves them on a little, and waits in the
/// last one. The values of each run.
fn executed(runs: &[Vec<Plan>], scale: Scale, states: &[State]) -> Vec<State> {
    let element_count = scale.element_count as u64;
    let (collective, element, op) = (Collective::Allreduce, Element::I32, Some(scale.op));
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
    let plans: Vec<Vec<Plan>> = runs.iter().map(|happenings| plans(happenings, scale)).collect();
    let mut vector = || (0..scale.element_count).map(|_| random(&mut draws, 1 << 20) as i32).collect();
    let mut state = || (0..scale.rank_count).map(|_| (0..BUFFER_COUNT).map(|_| vector()).collect()).collect();
    let states: Vec<State> = (0..run_count).map(|_| state()).collect();

    let nothing_promised = vec![Promise::nothing(); scale.rank_count];
    for plans in &plans {
        let plans: Vec<Plan> = plans.iter().map(|plan| without_zeros(plan, scale.op)).collect();
        check(&plans, &nothing_promised).unwrap_or_else(|fault| panic!("seed {seed}: {fault:?}"));
    }
    let found = executed(&plans, scale, &states);

    for ((happenings, state), found) in runs.iter().zip(states).zip(found) {
        assert!(found == serially(happenings, scale.op, state), "seed {seed}, {scale:?}: {happenings:?}");
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
            op: OPS[random(&mut draws, OPS.len())],
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
            op: OPS[random(&mut draws, OPS.len())],
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
            op: OPS[seed as usize],
        };
        holds(seed, scale, 1);
    }
}
