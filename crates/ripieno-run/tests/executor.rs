//! The executor over links that carry a few bytes at a time: results must not depend on the sizes of the pieces.

use crate::common::{RankWorld, worlds};
use ripieno_plan::{Algorithm, Buffer, Collective, Group, Op, Plan, Rows, Span};
use ripieno_run::{
    BufferMemory, Call, CallKind, Element, Executor, Fabric, Header, JobFailure, LinkId, PreparedCall, RunError,
    RunTraffic, Schedule,
};
use std::sync::{Arc, OnceLock};

fn call(collective: Collective, element_count: usize) -> Call {
    let (op, element_count) = (Some(Op::Sum), element_count as u64);
    let kind = CallKind::Catalogued { collective, algorithm: 0, op, root: 0, element_count };
    Call { kind, element: Element::I32, signature: 0 }
}

/// Run the plan of each rank on its vector and return the vectors.
fn run(
    capacity: usize,
    vectors: Vec<Vec<i32>>,
    calls: impl Fn(usize) -> Call + Sync,
    plan: impl Fn(Group) -> Plan + Sync,
) -> Vec<Result<Vec<i32>, RunError>> {
    run_with_chunks(capacity, 7, vectors, calls, plan)
}

/// Like `run`, over links that take at most `chunk_bytes` bytes at a time.
fn run_with_chunks(
    capacity: usize,
    chunk_bytes: usize,
    vectors: Vec<Vec<i32>>,
    calls: impl Fn(usize) -> Call + Sync,
    plan: impl Fn(Group) -> Plan + Sync,
) -> Vec<Result<Vec<i32>, RunError>> {
    let p = vectors.len();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = worlds(p, capacity, chunk_bytes)
            .into_iter()
            .zip(vectors)
            .map(|(mut world, vector)| {
                let (plan, calls) = (&plan, &calls);
                scope.spawn(move || {
                    let mut bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_ne_bytes()).collect();
                    let schedule = Arc::new(Schedule::new(&plan(Group::new(world.rank, p))));
                    let prepared = PreparedCall::new(0, calls(world.rank), schedule)?;
                    let mut executor = Executor::default();
                    executor.run(&mut world, 4, &prepared, &mut [BufferMemory::Write(&mut bytes)])?;
                    Ok(bytes.chunks_exact(4).map(|value| i32::from_ne_bytes(value.try_into().unwrap())).collect())
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Return the plan of a ring allreduce: send and reduce, then send and receive.
fn ring(group: Group, vector: Span) -> Plan {
    let (rank, p) = (group.rank(), group.size());
    let chunk = |i: usize| vector.chunk(i % p, p);
    let mut plan = Plan::new();
    for round in 0..p - 1 {
        plan.send(group.right(), chunk(rank + p - round));
        plan.reduce(group.left(), chunk(rank + 2 * p - round - 1), Op::Sum);
    }
    for round in 0..p - 1 {
        plan.send(group.right(), chunk(rank + 1 + p - round));
        plan.receive(group.left(), chunk(rank + p - round));
    }
    plan
}

#[test]
fn a_ring_allreduce_sums_over_narrow_links() {
    for (p, capacity) in [(2, 64), (3, 71), (5, 100)] {
        let vectors: Vec<Vec<i32>> = (0..p).map(|rank| (0..23).map(|i| rank * 100 + i).collect()).collect();
        let sum: Vec<i32> = (0..23).map(|i| vectors.iter().map(|v| v[i]).sum()).collect();
        let full_span = Span::whole(Buffer::MAIN, 23, 4);
        for result in run(capacity, vectors, |_| call(Collective::Allreduce, 23), |group| ring(group, full_span)) {
            assert_eq!(result.unwrap(), sum, "p={p}");
        }
    }
}

#[test]
fn short_messages_arrive_sent_at_once_in_parts_or_late() {
    // The capacity may or may not fit a message of 44 bytes; the link also delays every third message.
    for (p, capacity, chunk_bytes) in
        [(2, 44, 44), (2, 100, 100), (3, 50, 50), (4, 200, 60), (5, 300, 300), (5, 300, 30)]
    {
        let vectors: Vec<Vec<i32>> = (0..p).map(|rank| vec![1 << rank, 0, 0]).collect();
        let [own, sum, twice] = [0, 1, 2].map(|at| Span::whole(Buffer::MAIN, 3, 4).chunk(at, 3));
        let exchange = |group: Group| {
            let others = || group.ranks().filter(|&peer| peer != group.rank());
            let mut plan = Plan::new();
            plan.copy(own, sum);
            others().for_each(|peer| plan.reduce(peer, sum, Op::Sum));
            others().for_each(|peer| plan.send(peer, own));
            plan.copy(sum, twice);
            plan.combine(sum, twice, Op::Sum);
            plan
        };
        let all = (1 << p) - 1;
        let calls = |_| call(Collective::Allreduce, 3);
        for (rank, result) in run_with_chunks(capacity, chunk_bytes, vectors, calls, exchange).into_iter().enumerate() {
            assert_eq!(result.unwrap(), [1 << rank, all, 2 * all], "p={p} capacity={capacity} at_once={chunk_bytes}");
        }
    }
}

#[test]
fn a_chain_forwards_every_byte() {
    let vectors = vec![(0..1000).collect(), vec![0; 1000], vec![0; 1000], vec![0; 1000]];
    let full_span = Span::whole(Buffer::MAIN, 1000, 4);
    let chain = |group: Group| {
        let mut plan = Plan::new();
        if group.rank() > 0 {
            plan.receive(group.left(), full_span);
        }
        if group.rank() < 3 {
            plan.send(group.right(), full_span);
        }
        plan
    };
    for result in run(70, vectors, |_| call(Collective::Broadcast, 1000), chain) {
        assert_eq!(result.unwrap(), (0..1000).collect::<Vec<i32>>());
    }
}

#[test]
fn the_error_of_different_collectives_names_both_calls() {
    let full_span = Span::whole(Buffer::MAIN, 4, 4);
    let calls = |rank: usize| call(if rank == 0 { Collective::Allreduce } else { Collective::Reduce }, 4);
    for result in run(64, vec![vec![1; 4]; 2], calls, |group| ring(group, full_span)) {
        let Err(RunError::Failed(JobFailure::Mismatch { description })) = result else { panic!("{result:?}") };
        let [first, second] = [Collective::Allreduce, Collective::Reduce]
            .map(|collective| Algorithm::by_index(collective, 0).expect("every collective has an algorithm").name);
        assert_eq!(
            description,
            format!(
                "collective 4: rank 0 called allreduce(int32 × 4, sum, {first}); rank 1 called reduce(int32 × 4, sum, \
                 root 0, {second})"
            )
        );
    }
}

#[test]
fn a_stalled_rank_queries_the_call_of_its_peer() {
    let full_span = Span::whole(Buffer::MAIN, 4, 4);
    let receive_only = |group: Group| {
        let mut plan = Plan::new();
        if group.rank() == 0 {
            plan.receive(1, full_span);
        }
        plan
    };
    let results = run(64, vec![vec![0; 4]; 2], |_| call(Collective::Broadcast, 4), receive_only);
    let Err(RunError::Failed(JobFailure::RankFailed { cause, .. })) = &results[0] else { panic!("{results:?}") };
    assert_eq!(cause, "stalled, waiting for [1]");
}

#[test]
fn copies_move_bytes_inside_a_rank_as_they_arrive() {
    let (first, second) =
        (Span::whole(Buffer::MAIN, 8, 4).elements(0, 4), Span::whole(Buffer::MAIN, 8, 4).elements(4, 4));
    let plan = |group: Group| {
        let mut plan = Plan::new();
        match group.rank() {
            0 => plan.send(1, first),
            _ => {
                plan.receive(0, first);
                plan.copy(first, second);
            }
        }
        plan
    };
    let results = run(64, vec![vec![1, 2, 3, 4, 0, 0, 0, 0], vec![0; 8]], |_| call(Collective::Alltoall, 8), plan);
    assert_eq!(results[1].as_ref().unwrap(), &[1, 2, 3, 4, 1, 2, 3, 4]);
}

#[test]
fn local_steps_wait_for_their_bytes_and_not_for_each_other() {
    // The first copy of rank 0 waits for data that depends on its second local step.
    let part = |index: usize| Span::whole(Buffer::MAIN, 16, 4).elements(4 * index, 4);
    let plan = |group: Group| {
        let mut plan = Plan::new();
        match group.rank() {
            0 => {
                plan.receive(1, part(2));
                plan.copy(part(2), part(3));
                plan.combine(part(0), part(1), Op::Sum);
                plan.send(1, part(1));
            }
            _ => {
                plan.receive(0, part(0));
                plan.send(0, part(0));
            }
        }
        plan
    };
    let vector: Vec<i32> = (0..16).collect();
    let results = run(64, vec![vector, vec![0; 16]], |_| call(Collective::Allreduce, 16), plan);
    assert_eq!(results[0].as_ref().unwrap(), &[0, 1, 2, 3, 4, 6, 8, 10, 4, 6, 8, 10, 4, 6, 8, 10]);
}

#[test]
fn a_rank_of_a_failed_job_neither_sends_nor_continues() {
    let full_span = Span::whole(Buffer::MAIN, 4, 4);
    let failure = JobFailure::Mismatch { description: "reported before".to_string() };
    let mut worlds = worlds(2, 64, 7);
    worlds[1].report(failure.clone());
    let mut plan = Plan::new();
    plan.send(1, full_span);
    let prepared = PreparedCall::new(0, call(Collective::Broadcast, 4), Arc::new(Schedule::new(&plan))).unwrap();
    let result = Executor::default().run(&mut worlds[0], 4, &prepared, &mut [BufferMemory::Write(&mut [0; 16])]);
    assert_eq!(result, Err(RunError::Failed(failure)));
    let link = worlds[1].link(LinkId::collectives(0)).unwrap().unwrap();
    assert_eq!(link.peek(1).unwrap(), [], "bytes of a failed call would count as bytes of an earlier call");
}

#[test]
fn a_plan_that_feeds_itself_by_less_than_a_relay_unit_completes() {
    let full_span = Span::whole(Buffer::MAIN, 5, 4);
    let plan = |group: Group| {
        let mut plan = Plan::new();
        match group.rank() {
            0 => {
                plan.receive(1, full_span.elements(1, 4));
                plan.send(1, full_span.elements(0, 4));
            }
            _ => {
                plan.receive(0, full_span.elements(0, 4));
                plan.send(0, full_span.elements(0, 4));
            }
        }
        plan
    };
    let results = run(64, vec![vec![7, 0, 0, 0, 0], vec![0; 5]], |_| call(Collective::Alltoall, 5), plan);
    assert_eq!(results[0].as_ref().unwrap(), &[7; 5]);
}

#[test]
fn rows_that_feed_themselves_complete() {
    // Rank 0 sends row by row; each returned row is added to the next row to send.
    let full_span = Span::whole(Buffer::MAIN, 9, 4);
    let plan = |group: Group| {
        let mut plan = Plan::new();
        match group.rank() {
            0 => {
                plan.reduce_rows(1, full_span, Rows::new([2, 4, 6, 8].into(), 4), Op::Sum);
                plan.send_rows(1, full_span, Rows::new([0, 2, 4, 6].into(), 4));
            }
            _ => {
                plan.receive(0, full_span.elements(0, 4));
                plan.send(0, full_span.elements(0, 4));
            }
        }
        plan
    };
    let results = run(64, vec![vec![7, 1, 0, 1, 0, 1, 0, 1, 0], vec![9; 9]], |_| call(Collective::Alltoall, 9), plan);
    assert_eq!(results[0].as_ref().unwrap(), &[7, 1, 7, 1, 7, 1, 7, 1, 7]);
}

#[test]
fn elements_may_exceed_the_capacity_of_a_link() {
    let vectors: Vec<Vec<i32>> = (0..3).map(|rank| (0..120).map(|i| rank * 1000 + i).collect()).collect();
    let sum: Vec<i32> = (0..120).map(|i| vectors.iter().map(|vector| vector[i]).sum()).collect();
    let rows_of_forty = Span::whole(Buffer::MAIN, 3, 160);
    for result in run(50, vectors, |_| call(Collective::Allreduce, 120), |group| ring(group, rows_of_forty)) {
        assert_eq!(result.unwrap(), sum);
    }
}

/// Return the header of a message of one element from rank `from` to rank `to`, and its schedule on `rank`.
fn message(rank: usize, from: usize, to: usize, sequence: u64) -> (Header, Arc<Schedule>) {
    let full_span = Span::whole(Buffer::MAIN, 1, 4);
    let mut plan = Plan::new();
    if rank == from {
        plan.send(to, full_span);
    } else {
        plan.receive(from, full_span);
    }
    let kind = CallKind::Message { algorithm: 0, to: to as u32, element_count: 1 };
    let header = Header { communicator: 0, sequence, call: Call { kind, element: Element::I32, signature: 0 } };
    (header, Arc::new(Schedule::new(&plan).for_message()))
}

/// Begin a run on leaked memory. The returned cell receives the result.
fn submit(executor: &mut Executor, world: &mut RankWorld, run: (Header, Arc<Schedule>)) -> ExecutorEnd {
    let ended = ExecutorEnd::default();
    let slot = ended.clone();
    let memory = vec![BufferMemory::Write(vec![0; 4].leak())];
    let end = Box::new(move |result| slot.set(result).unwrap());
    let Header { communicator, sequence, call } = run.0;
    let prepared = PreparedCall::new(communicator, call, run.1).unwrap();
    executor.submit(world, sequence, prepared, memory, end).unwrap();
    ended
}

type ExecutorEnd = Arc<OnceLock<Result<RunTraffic, RunError>>>;

#[test]
fn a_run_overtakes_only_runs_on_other_streams() {
    let mut worlds = worlds(3, 200, 64);
    let mut executors: Vec<Executor> = (0..3).map(|_| Executor::default()).collect();
    let first = submit(&mut executors[0], &mut worlds[0], message(0, 1, 0, 0));
    let behind = submit(&mut executors[0], &mut worlds[0], message(0, 1, 0, 1));
    let parallel = submit(&mut executors[0], &mut worlds[0], message(0, 2, 0, 0));

    submit(&mut executors[2], &mut worlds[2], message(2, 2, 0, 0));
    executors[2].advance(&mut worlds[2]);
    executors[0].advance(&mut worlds[0]);
    assert_eq!([&first, &behind, &parallel].map(|ended| ended.get().is_some()), [false, false, true]);

    submit(&mut executors[1], &mut worlds[1], message(1, 1, 0, 0));
    submit(&mut executors[1], &mut worlds[1], message(1, 1, 0, 1));
    executors[1].advance(&mut worlds[1]);
    executors[0].advance(&mut worlds[0]);
    assert!(matches!([first.get(), behind.get()], [Some(Ok(_)), Some(Ok(_))]));
    assert!(executors.iter().all(Executor::is_idle));
}

/// Return a splitmix64 generator of numbers below `limit`.
fn random(mut state: u64) -> impl FnMut(usize) -> usize {
    move |limit| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

/// A call of a random program.
#[derive(Clone, Copy, Debug)]
enum RandomCall {
    Collective { number: u64 },
    Message { from: usize, to: usize, number: u64 },
}

const ELEMENTS: usize = 30;

/// Return the contribution of `rank` to a collective, or the content of a message.
fn content(begun: RandomCall, rank: usize) -> Vec<i32> {
    let seed = match begun {
        RandomCall::Collective { number } => 7 * number as usize + 1000 * rank,
        RandomCall::Message { from, to, number } => 100_000 + 10 * number as usize + 1000 * from + 100 * to,
    };
    (0..ELEMENTS).map(|position| (seed + position) as i32).collect()
}

/// Begin the call on leaked memory. Return the cell for its result and the memory.
fn begin(executor: &mut Executor, world: &mut RankWorld, begun: RandomCall, p: usize) -> (ExecutorEnd, *const u8) {
    let (rank, full_span) = (world.rank, Span::whole(Buffer::MAIN, ELEMENTS, 4));
    let (sequence, call, schedule, is_sender) = match begun {
        RandomCall::Collective { number } => {
            let schedule = Schedule::new(&ring(Group::new(rank, p), full_span));
            (number, call(Collective::Allreduce, ELEMENTS), schedule, true)
        }
        RandomCall::Message { from, to, number } => {
            let mut plan = Plan::new();
            if rank == from {
                plan.send(to, full_span)
            } else {
                plan.receive(from, full_span)
            };
            let kind = CallKind::Message { algorithm: 0, to: to as u32, element_count: ELEMENTS as u64 };
            let call = Call { kind, element: Element::I32, signature: 0 };
            (number, call, Schedule::new(&plan).for_message(), rank == from)
        }
    };
    let values = if is_sender { content(begun, rank) } else { vec![-1; ELEMENTS] };
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let memory: &'static mut [u8] = bytes.leak();
    let (ended, position) = (ExecutorEnd::default(), memory.as_ptr());
    let slot = ended.clone();
    let prepared = PreparedCall::new(0, call, Arc::new(schedule)).unwrap();
    let end = Box::new(move |result| slot.set(result).unwrap());
    executor.submit(world, sequence, prepared, vec![BufferMemory::Write(memory)], end).unwrap();
    (ended, position)
}

/// Return a random program for each of `p` ranks. All ranks enter the collectives in one order, and each pair of ranks
/// its messages in one order. Each rank interleaves them differently.
fn random_programs(p: usize, random: &mut impl FnMut(usize) -> usize) -> Vec<Vec<RandomCall>> {
    let collectives: Vec<RandomCall> = (0..3).map(|number| RandomCall::Collective { number }).collect();
    let mut messages = Vec::new();
    let mut numbers = vec![0; p * p];
    for _ in 0..4 * p {
        let from = random(p);
        let to = (from + 1 + random(p - 1)) % p;
        messages.push(RandomCall::Message { from, to, number: numbers[from * p + to] });
        numbers[from * p + to] += 1;
    }
    let concerns = |begun: &RandomCall, rank| match *begun {
        RandomCall::Message { from, to, .. } => from == rank || to == rank,
        _ => false,
    };
    let mut program = |rank| {
        let (mut ahead, mut program) = (collectives.iter().peekable(), Vec::new());
        for message in messages.iter().filter(|message| concerns(message, rank)) {
            while ahead.peek().is_some() && random(3) == 0 {
                program.extend(ahead.next().copied());
            }
            program.push(*message);
        }
        program.extend(ahead.copied());
        program
    };
    (0..p).map(&mut program).collect()
}

#[test]
fn messages_and_collectives_complete_in_any_interleaving() {
    for seed in 0..200 {
        let mut random = random(seed);
        let p = 2 + random(3);
        let programs = random_programs(p, &mut random);
        // The capacity may or may not fit a message of 160 bytes.
        let mut worlds = worlds(p, [64, 200, 4000][random(3)], 50);
        let mut executors: Vec<Executor> = (0..p).map(|_| Executor::default()).collect();
        let mut begun: Vec<Vec<(ExecutorEnd, *const u8)>> = vec![vec![]; p];
        let is_blocked = |program: &[RandomCall], begun: &[(ExecutorEnd, *const u8)]| {
            // A rank waits for a collective before it begins another call.
            let latest = program[..begun.len()].last().zip(begun.last());
            latest.is_some_and(|(kind, (ended, _))| {
                matches!(kind, RandomCall::Collective { .. }) && ended.get().is_none()
            })
        };
        let mut rounds = 0;
        loop {
            for rank in 0..p {
                let next = programs[rank].get(begun[rank].len());
                if let Some(&next) = next.filter(|_| !is_blocked(&programs[rank], &begun[rank])) {
                    begun[rank].push(begin(&mut executors[rank], &mut worlds[rank], next, p));
                }
                executors[rank].advance(&mut worlds[rank]);
            }
            let has_all = |rank: usize| begun[rank].len() == programs[rank].len() && executors[rank].is_idle();
            if (0..p).all(has_all) {
                break;
            }
            rounds += 1;
            assert!(rounds < 10_000, "seed {seed}: no progress in {programs:?}");
        }
        for (rank, (program, begun)) in programs.iter().zip(&begun).enumerate() {
            for (&kind, (ended, position)) in program.iter().zip(begun) {
                assert!(matches!(ended.get(), Some(Ok(_))), "seed {seed}, rank {rank}, {kind:?}: {ended:?}");
                let expected: Vec<i32> = match kind {
                    RandomCall::Message { .. } => content(kind, rank),
                    RandomCall::Collective { .. } => {
                        let all: Vec<Vec<i32>> = (0..p).map(|rank| content(kind, rank)).collect();
                        (0..ELEMENTS).map(|position| all.iter().map(|values| values[position]).sum()).collect()
                    }
                };
                // SAFETY: the memory was leaked, and its run has ended.
                let bytes = unsafe { std::slice::from_raw_parts(*position, 4 * ELEMENTS) };
                let got: Vec<i32> = bytes.chunks_exact(4).map(|b| i32::from_ne_bytes(b.try_into().unwrap())).collect();
                assert_eq!(got, expected, "seed {seed}, rank {rank}, {kind:?}");
            }
        }
    }
}

#[test]
fn a_mismatch_in_one_run_ends_all_runs_in_flight() {
    let mut worlds = worlds(3, 64, 64);
    let mut executors: Vec<Executor> = (0..3).map(|_| Executor::default()).collect();
    let parallel = submit(&mut executors[0], &mut worlds[0], message(0, 2, 0, 0));
    let other = submit(&mut executors[0], &mut worlds[0], message(0, 1, 0, 7));
    submit(&mut executors[1], &mut worlds[1], message(1, 1, 0, 8));
    executors[1].advance(&mut worlds[1]);
    executors[0].advance(&mut worlds[0]);
    for ended in [parallel, other] {
        let Some(Err(RunError::Failed(JobFailure::Mismatch { description }))) = ended.get() else {
            panic!("{ended:?}")
        };
        assert!(description.contains("message 7") && description.contains("message 8"), "{description}");
    }
    assert!(executors[0].is_idle());
}

#[test]
fn an_unreported_end_is_dropped_with_the_executor() {
    let mut worlds = worlds(2, 64, 64);
    let mut executor = Executor::default();
    let ended = submit(&mut executor, &mut worlds[0], message(0, 1, 0, 0));
    assert_eq!(Arc::strong_count(&ended), 2);
    drop(executor);
    assert_eq!((Arc::strong_count(&ended), ended.get()), (1, None));
}
