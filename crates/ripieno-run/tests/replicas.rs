//! Replica tests: after any replica dies at any byte, the other replicas get unchanged results.

#[path = "../../ripieno-plan/tests/common/butterflies.rs"]
#[allow(dead_code)]
mod butterflies;

use crate::common::{RankWorld, SendBudget, worlds};
use butterflies::{RankKeys, configured};
use ripieno_plan::sparse::Degrees;
use ripieno_plan::{Algorithm, Buffer, Collective, Group, Op, Plan, PlanRequest, Span};
use ripieno_run::{
    BufferMemory, Call, CallKind, Element, Executor, JobFailure, PreparedCall, Replicas, RunError, Schedule,
};
use std::sync::{Arc, Mutex};

const ELEMENT_COUNT: usize = 5;
const ELEMENT_BYTES: usize = 4;

/// Upper bound of the visits that a run needs.
const VISITS_MAX: usize = 200_000;

type ReplicaValues = Vec<i32>;
type ReplicaEnd = Arc<Mutex<Vec<Result<(), RunError>>>>;

/// A call of all logical ranks, with the contribution and the expected result of each.
struct ScheduledCall {
    call: Call,
    plans: Vec<Plan>,
    inputs: Vec<ReplicaValues>,
    /// Whether results go to a separate output buffer, not in place.
    has_output: bool,
    expected: Vec<ReplicaValues>,
    name: String,
}

/// A rank, its run in flight and the memory of the run.
struct ReplicaRank {
    world: RankWorld,
    executor: Executor,
    ended: ReplicaEnd,
    memory: Vec<*mut [u8]>,
    /// Index of the buffer with the result.
    result: usize,
    results: Vec<ReplicaValues>,
    /// The rank is visited once in this number of rounds.
    steps_per_turn: usize,
}

impl ScheduledCall {
    /// Return all algorithms of three collectives for `m` ranks, and two sparse reductions.
    fn all(m: usize) -> Vec<ScheduledCall> {
        let of = |collective| {
            Algorithm::of(collective).filter_map(move |algorithm| ScheduledCall::dense(collective, algorithm, m))
        };
        let collectives = [Collective::Allreduce, Collective::Broadcast, Collective::Allgather];
        let sparse = [0.0, 2.0].map(|dense_above| ScheduledCall::sparse(m, dense_above));
        collectives.into_iter().flat_map(of).chain(sparse).collect()
    }

    /// Return the call, or `None` if the algorithm does not support such groups.
    fn dense(collective: Collective, algorithm: &Algorithm, m: usize) -> Option<ScheduledCall> {
        let vector = Span::whole(Buffer::MAIN, ELEMENT_COUNT, ELEMENT_BYTES);
        let chunks: Vec<Span> = (0..m).map(|rank| vector.chunk(rank, m)).collect();
        let request = match collective {
            Collective::Allreduce => PlanRequest::Allreduce { vector, op: Op::Sum },
            Collective::Broadcast => PlanRequest::Broadcast { root: m - 1, vector },
            _ => PlanRequest::Allgather { chunks: &chunks },
        };
        let plans = (0..m).map(|rank| algorithm.plan(&Group::new(rank, m), &request));
        let plans = plans.collect::<Result<Vec<_>, _>>().ok()?;
        let inputs: Vec<ReplicaValues> =
            (0..m).map(|rank| (0..ELEMENT_COUNT).map(|index| (1000 * (rank + 1) + index) as i32).collect()).collect();
        let owner = |index: usize| chunks.iter().position(|chunk| chunk.end_bytes() > index * ELEMENT_BYTES).unwrap();
        let value = |index: usize| match collective {
            Collective::Allreduce => inputs.iter().map(|values| values[index]).sum(),
            Collective::Broadcast => inputs[m - 1][index],
            _ => inputs[owner(index)][index],
        };
        let expected = vec![(0..ELEMENT_COUNT).map(value).collect(); m];
        let (call, name) = (call(collective, algorithm.index), algorithm.name.to_string());
        Some(ScheduledCall { call, plans, inputs, has_output: false, expected, name })
    }

    /// A sparse reduction: rank `r` contributes `10 (r + 1) + key` for some keys and requests other keys.
    fn sparse(m: usize, dense_above: f64) -> ScheduledCall {
        let n = 9;
        let part = |rank: usize, step: u64| {
            (0..n).filter(|key| !(key + rank as u64).is_multiple_of(step)).collect::<Vec<u64>>()
        };
        let outs: Vec<Vec<u64>> = (0..m).map(|rank| part(rank, 3)).collect();
        let ins: Vec<Vec<u64>> = (0..m).map(|rank| part(rank, 2)).collect();
        let keys = RankKeys { n, outs: outs.clone(), ins: ins.clone() };
        let routes = configured(&Degrees::direct(m), &keys, dense_above).routes;
        let value = |rank: usize, key: u64| 10 * (rank as i32 + 1) + key as i32;
        let sum = |key: &u64| (0..m).filter(|&rank| outs[rank].contains(key)).map(|rank| value(rank, *key)).sum();
        ScheduledCall {
            call: of_kind(CallKind::Sparse { configuration: 1, op: Op::Sum, width: 1 }),
            plans: routes.iter().map(|routes| routes.plan(ELEMENT_BYTES, ELEMENT_BYTES, Op::Sum)).collect(),
            inputs: (0..m).map(|rank| outs[rank].iter().map(|&key| value(rank, key)).collect()).collect(),
            has_output: true,
            expected: ins.iter().map(|keys| keys.iter().map(sum).collect()).collect(),
            name: format!("sparse above {dense_above}"),
        }
    }

    /// Return whether each rank needs data from all other ranks.
    fn is_symmetric(&self) -> bool {
        self.call.collective() != Collective::Broadcast
    }
}

fn call(collective: Collective, algorithm: u8) -> Call {
    let element_count = ELEMENT_COUNT as u64;
    of_kind(CallKind::Catalogued { collective, algorithm, op: Some(Op::Sum), root: 0, element_count })
}

fn of_kind(kind: CallKind) -> Call {
    Call { kind, element: Element::I32, signature: 0 }
}

impl ReplicaRank {
    fn new(world: RankWorld, steps_per_turn: usize) -> ReplicaRank {
        let (ended, memory, results) = (ReplicaEnd::default(), vec![], vec![]);
        ReplicaRank { world, executor: Executor::default(), ended, memory, result: 0, results, steps_per_turn }
    }

    /// Begin a run. [`ReplicaRank::finish`] frees its memory.
    fn begin(&mut self, call: &ScheduledCall, sequence: u64, replicas: Replicas) {
        let rank = self.world.rank;
        let logical = replicas.logical(rank);
        let schedule = Arc::new(Schedule::replicated(&call.plans[logical], replicas, rank));
        let main: Vec<u8> = call.inputs[logical].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let output = vec![0; if call.has_output { call.expected[logical].len() * ELEMENT_BYTES } else { 0 }];
        self.result = usize::from(call.has_output);
        let buffers = [main, output, vec![0; schedule.scratch_bytes()]];
        self.memory = buffers.into_iter().map(|buffer| Box::into_raw(buffer.into_boxed_slice())).collect();
        // SAFETY: the memory is valid until `finish` or `drop` reclaims it, after the run has ended.
        let buffers = self.memory.iter().map(|&memory| BufferMemory::Write(unsafe { &mut *memory })).collect();
        let ended = self.ended.clone();
        let end = Box::new(move |result: Result<_, _>| ended.lock().unwrap().push(result.map(|_| ())));
        let prepared = PreparedCall::new(1, call.call, schedule).unwrap();
        self.executor.submit(&mut self.world, sequence, prepared, buffers, end).unwrap();
    }

    /// Return the result of the run, if it has ended.
    fn finish(&mut self) -> Option<Result<(), RunError>> {
        let ended = self.ended.lock().unwrap().pop()?;
        let mut buffers = self.take_memory();
        let values = buffers.swap_remove(self.result);
        let value = |bytes: &[u8]| i32::from_ne_bytes(bytes.try_into().unwrap());
        self.results.push(values.chunks_exact(ELEMENT_BYTES).map(value).collect());
        Some(ended)
    }

    fn take_memory(&mut self) -> Vec<Box<[u8]>> {
        // SAFETY: `Box::into_raw` made each pointer; it is reclaimed once, and no run uses it.
        self.memory.drain(..).map(|memory| unsafe { Box::from_raw(memory) }).collect()
    }
}

impl Drop for ReplicaRank {
    fn drop(&mut self) {
        // Drop the executor first: its runs release the memory.
        self.executor = Executor::default();
        self.take_memory();
    }
}

/// Execute all `calls` in a world of `replicas`, and check the results of each surviving rank. Each victim dies after
/// it has sent its number of bytes.
///
/// Return the number of bytes that each rank sent, or the failure of the job.
fn run_calls(
    replicas: Replicas,
    calls: &[&ScheduledCall],
    victims: &[(usize, usize)],
    steps_per_turn: usize,
) -> Result<Vec<usize>, JobFailure> {
    let p = replicas.count() * replicas.logical_count();
    // Replicas of a rank are visited at different rates, and different logical ranks have different fastest replicas.
    let steps_of = |rank: usize| 1 + (rank * 7 + steps_per_turn) % 3 * steps_per_turn;
    let mut ranks: Vec<ReplicaRank> = worlds(p, 40, 7).into_iter().map(|world| ReplicaRank::new(world, 1)).collect();
    let states: Vec<SendBudget> = ranks.iter().map(|rank_state| rank_state.world.state.clone()).collect();
    victims.iter().for_each(|&(rank, bytes)| states[rank].end_after(bytes));
    ranks.retain(|rank_state| !rank_state.world.state.is_over());
    ranks.iter_mut().for_each(|rank_state| {
        rank_state.steps_per_turn = steps_of(rank_state.world.rank);
        rank_state.begin(calls[0], 0, replicas);
    });
    for visit in 0..VISITS_MAX {
        for rank_state in ranks.iter_mut().filter(|rank_state| visit % rank_state.steps_per_turn == 0) {
            rank_state.executor.advance(&mut rank_state.world);
            let Some(ended) = rank_state.finish().filter(|_| !rank_state.world.state.is_over()) else { continue };
            if let Err(RunError::Failed(failure)) = ended {
                return Err(failure);
            }
            ended.unwrap();
            if let Some(&next) = calls.get(rank_state.results.len()) {
                rank_state.begin(next, rank_state.results.len() as u64, replicas);
            }
        }
        ranks.retain(|rank_state| !rank_state.world.state.is_over());
        // Late messages of slower replicas are discarded, so nothing is in flight at the end.
        if ranks.iter().all(|rank_state| rank_state.results.len() == calls.len() && rank_state.executor.is_idle()) {
            for rank_state in &ranks {
                let (rank, names) = (rank_state.world.rank, calls.iter().map(|call| &call.name).collect::<Vec<_>>());
                let expected = calls.iter().map(|call| &call.expected[replicas.logical(rank)]);
                let context = format!("{names:?}: rank {rank} of {replicas:?}, {victims:?}, pace {steps_per_turn}");
                assert!(rank_state.results.iter().eq(expected.clone()), "{context}: {:?}", rank_state.results);
            }
            return Ok(states.iter().map(|state| usize::MAX - state.left_bytes()).collect());
        }
    }
    panic!("{replicas:?} with {victims:?} at pace {steps_per_turn} does not end")
}

#[test]
fn racing_replicas_get_equal_results() {
    for (m, s) in [(1, 2), (2, 2), (3, 2), (2, 3), (4, 2), (3, 3)] {
        let all = ScheduledCall::all(m);
        let calls: Vec<&ScheduledCall> = all.iter().flat_map(|call| [call, call]).collect();
        for steps_per_turn in 0..8 {
            run_calls(Replicas::new(m * s, s), &calls, &[], steps_per_turn).unwrap();
        }
    }
}

#[test]
fn a_replica_may_die_at_every_byte_of_every_algorithm() {
    for m in 2..=3 {
        let replicas = Replicas::new(2 * m, 2);
        for (number, call) in ScheduledCall::all(m).into_iter().enumerate() {
            let calls = [&call, &call];
            let sent = run_calls(replicas, &calls, &[], number).unwrap();
            for bytes in 0..*sent.iter().max().unwrap() {
                let victim = (bytes + number) % (2 * m);
                run_calls(replicas, &calls, &[(victim, bytes)], bytes % 5).unwrap();
            }
        }
    }
}

#[test]
fn one_live_replica_of_each_rank_suffices() {
    let (m, s) = (2, 3);
    let replicas = Replicas::new(m * s, s);
    for (number, call) in ScheduledCall::all(m).into_iter().enumerate() {
        let sent = run_calls(replicas, &[&call, &call], &[], number).unwrap();
        for round in 0..40 {
            // One replica of each logical rank survives, a different one each time.
            let is_survivor = |rank: usize| rank / m == (round + rank % m * (1 + round / s)) % s;
            let bytes = |rank: usize| (round * 37 + rank * 101 + number * 13) % sent[rank].max(1);
            let victims: Vec<(usize, usize)> =
                (0..m * s).filter(|&rank| !is_survivor(rank)).map(|rank| (rank, bytes(rank))).collect();
            assert_eq!(victims.len(), m * (s - 1));
            run_calls(replicas, &[&call, &call], &victims, round % 5).unwrap();
        }
    }
}

#[test]
fn the_death_of_the_last_replica_fails_every_run_that_needs_it() {
    let replicas = Replicas::new(4, 2);
    for (number, call) in ScheduledCall::all(2).into_iter().enumerate().filter(|(_, call)| call.is_symmetric()) {
        for round in 0..20 {
            let victims = [(0, (round * 7 + number) % 40), (2, (round * 3 + number) % 40)];
            let Err(JobFailure::RankFailed { rank, cause, .. }) = run_calls(replicas, &[&call], &victims, round % 5)
            else {
                panic!("{} ended though both replicas of rank 0 sent half a preamble", call.name)
            };
            assert!((rank == 0 || rank == 2) && cause == "the peer has died", "{rank}: {cause}");
        }
    }
}
