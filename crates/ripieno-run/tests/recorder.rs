//! Records of the executor, on a clock that advances only while the rank yields or sleeps.

use crate::common::{RankWorld, worlds};
use ripieno_plan::{Buffer, Collective, Plan, Span};
use ripieno_run::recorder::{CollectiveOutcome, CollectiveRecord};
use ripieno_run::{
    Blocking, BufferMemory, Call, CallKind, Element, Executor, Fabric, HEADER_BYTES, Header, JobFailure, Link,
    LinkError, LinkId, LinkInterest, PreparedCall, Remote, RunError, Schedule, Topology,
};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const YIELD: Duration = Duration::from_millis(1);
const SLEEP: Duration = Duration::from_millis(99);
const BYTES: usize = 8;

/// Rank 0's world; each of its sleeps triggers the next event.
struct ScriptedFabric {
    world: RankWorld,
    events: VecDeque<RecorderEvent>,
    now: Cell<Duration>,
}

enum RecorderEvent {
    /// A peer arrives and sends its data.
    Arrives(RankWorld),
    /// The job fails.
    Fails,
}

impl Fabric for ScriptedFabric {
    fn rank(&self) -> usize {
        self.world.rank()
    }
    fn world_size(&self) -> usize {
        self.world.world_size()
    }
    fn topology(&self) -> Arc<Topology> {
        self.world.topology()
    }
    fn link(&mut self, id: LinkId) -> Result<Option<&mut dyn Link>, LinkError> {
        self.world.link(id)
    }
    fn has_failed(&self) -> bool {
        self.world.has_failed()
    }
    fn failure(&self) -> Option<JobFailure> {
        self.world.failure()
    }
    fn report(&mut self, failure: JobFailure) {
        self.world.report(failure);
    }
    fn peer_failure(&mut self, peer: usize, cause: &str) -> JobFailure {
        self.world.peer_failure(peer, cause)
    }
    fn now(&self) -> Duration {
        self.now.get()
    }
    fn yield_now(&self) {
        self.now.set(self.now.get() + YIELD);
    }
    fn has_core_per_rank(&self) -> bool {
        false
    }
    fn enter(&mut self, _communicator: u32, _header: &[u8; HEADER_BYTES]) {}
    fn stalled(&mut self, _header: Header, peers: &[usize], _blocking: Blocking) {
        panic!("no rank waits for {peers:?} for so long");
    }
    fn remote(&self) -> Arc<dyn Remote> {
        self.world.remote()
    }
    fn prepare_park(&mut self) {}
    fn park(&mut self, _interests: &[LinkInterest], _timeout: Duration) {
        self.now.set(self.now.get() + SLEEP);
        match self.events.pop_front().expect("an event ends each sleep") {
            RecorderEvent::Arrives(mut peer) => {
                let mut send = Plan::new();
                send.send(0, full_span());
                run(&mut Executor::default(), &mut peer, &send).expect("the link has space for all bytes");
            }
            RecorderEvent::Fails => self.world.report(failure()),
        }
    }
    fn cancel_park(&mut self) {}
}

fn failure() -> JobFailure {
    JobFailure::Mismatch { description: "made up".into() }
}

fn full_span() -> Span {
    Span::whole(Buffer::MAIN, BYTES, 1)
}

fn prepared(plan: &Plan) -> PreparedCall {
    let (collective, element_count) = (Collective::Gather, BYTES as u64);
    let kind = CallKind::Catalogued { collective, algorithm: 0, op: None, root: 0, element_count };
    PreparedCall::new(0, Call { kind, element: Element::U8, signature: 0 }, Arc::new(Schedule::new(plan))).unwrap()
}

fn run(executor: &mut Executor, fabric: &mut dyn Fabric, plan: &Plan) -> Result<(), RunError> {
    let mut memory = vec![0; 3 * BYTES];
    executor.run(fabric, 0, &prepared(plan), &mut [BufferMemory::Write(&mut memory)]).map(|_| ())
}

/// Let rank 0 receive from ranks 1 and 2, in two parts each, so the call is not a brief one. The `events` occur while
/// it sleeps.
fn receive(
    events: impl FnOnce(RankWorld, RankWorld) -> Vec<RecorderEvent>,
) -> (Executor, Result<(), RunError>, Duration) {
    let mut plan = Plan::new();
    for peer in [1, 2] {
        let span = Span { start_bytes: peer * BYTES, ..full_span() };
        (0..2).for_each(|part| plan.receive(peer, span.chunk(part, 2)));
    }
    receive_by(&plan, events)
}

fn receive_by(
    plan: &Plan,
    events: impl FnOnce(RankWorld, RankWorld) -> Vec<RecorderEvent>,
) -> (Executor, Result<(), RunError>, Duration) {
    let mut worlds = worlds(3, 1 << 10, 1 << 10).into_iter();
    let mut next = || worlds.next().expect("there are three");
    let (world, first, second) = (next(), next(), next());
    let mut fabric = ScriptedFabric { world, events: events(first, second).into(), now: Cell::default() };
    let mut executor = Executor::default();
    let ended = run(&mut executor, &mut fabric, plan);
    (executor, ended, fabric.now())
}

fn only(executor: &Executor, now: Duration) -> CollectiveRecord {
    executor.recorder.latest(1, now).next().expect("there is a record").1
}

#[test]
fn the_wait_is_attributed_to_the_last_peer() {
    let (executor, ended, now) =
        receive(|first, second| vec![RecorderEvent::Arrives(first), RecorderEvent::Arrives(second)]);
    ended.unwrap();

    let (record, pause) = (only(&executor, now), YIELD + SLEEP);
    assert_eq!((record.outcome, record.peer_count, record.waited_for()), (CollectiveOutcome::Done, 2, Some(2)));
    assert_eq!(
        (record.waiting(), record.elapsed(), record.moving()),
        (2 * pause, Some(2 * pause), Some(Duration::ZERO))
    );
    // It waits for both peers at first, then for one.
    assert_eq!(executor.recorder.waited_for(), [Duration::ZERO, pause / 2, pause / 2 + pause]);
    let waits: Vec<_> = executor.recorder.waits().map(|wait| (wait.peer, wait.peer_count, wait.since)).collect();
    assert_eq!(waits, [(1, 2, Duration::ZERO), (2, 1, pause)]);
}

#[test]
fn the_wait_of_a_brief_run_starts_at_its_first_yield() {
    let mut plan = Plan::new();
    plan.receive(1, full_span());
    let (executor, ended, now) = receive_by(&plan, |first, _| vec![RecorderEvent::Arrives(first)]);
    ended.unwrap();

    let record = only(&executor, now);
    assert!(now > YIELD + SLEEP, "it has yielded its core several times");
    assert_eq!((record.start(), record.end(), record.waiting()), (Some(Duration::ZERO), Some(now), now));
    assert_eq!(executor.recorder.waited_for(), [Duration::ZERO, now]);
}

#[test]
fn a_failed_run_records_the_awaited_peers() {
    let (executor, ended, now) = receive(|_, second| vec![RecorderEvent::Arrives(second), RecorderEvent::Fails]);
    assert_eq!(ended, Err(RunError::Failed(failure())));

    let record = only(&executor, now);
    assert_eq!((record.outcome, record.waited_for()), (CollectiveOutcome::Failed, Some(1)));
    assert_eq!(record.to_string(), "in gather #0 (direct, uint8 × 8), waiting 200.0 ms for rank 1");
}

#[test]
fn a_run_that_never_waits_reads_no_clock() {
    let [mut world, mut peer, _]: [RankWorld; 3] =
        worlds(3, 1 << 10, 1 << 10).try_into().ok().expect("there are three");
    let (mut send, mut receive) = (Plan::new(), Plan::new());
    send.send(0, full_span());
    receive.receive(1, full_span());
    run(&mut Executor::default(), &mut peer, &send).unwrap();
    let mut executor = Executor::default();
    run(&mut executor, &mut world, &receive).unwrap();

    let record = only(&executor, Duration::ZERO);
    assert_eq!((record.outcome, record.elapsed(), record.waited_for()), (CollectiveOutcome::Done, None, None));
}

#[test]
fn runs_in_flight_are_recorded_as_in_flight() {
    let [mut world, mut peer, _]: [RankWorld; 3] =
        worlds(3, 1 << 10, 1 << 10).try_into().ok().expect("there are three");
    let (mut send, mut receive) = (Plan::new(), Plan::new());
    send.send(0, full_span());
    receive.receive(1, full_span());
    let memory = vec![BufferMemory::Write(Box::leak(Box::new([0; BYTES])))];
    let mut executor = Executor::default();
    executor.submit(&mut world, 0, prepared(&receive), memory, Box::new(|_| {})).unwrap();
    executor.advance(&mut world);
    assert_eq!(only(&executor, Duration::ZERO).outcome, CollectiveOutcome::InFlight);

    run(&mut Executor::default(), &mut peer, &send).unwrap();
    executor.advance(&mut world);
    assert_eq!(only(&executor, Duration::ZERO).outcome, CollectiveOutcome::Done);
}

#[test]
fn a_call_after_the_failure_is_recorded_as_failed() {
    let mut world = worlds(3, 1 << 10, 1 << 10).remove(0);
    world.report(failure());
    let mut executor = Executor::default();
    let mut receive = Plan::new();
    receive.receive(1, full_span());
    assert_eq!(run(&mut executor, &mut world, &receive), Err(RunError::Failed(failure())));
    assert_eq!(only(&executor, Duration::ZERO).to_string(), "in gather #0 (direct, uint8 × 8)");
}
