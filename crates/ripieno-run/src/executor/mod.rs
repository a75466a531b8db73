//! The executor: runs any plan over the links of a fabric. The only code that moves bytes.
//!
//! One non-blocking loop serves all lanes. A step advances to a byte as soon as every earlier step on that byte has passed
//! it, so every plan is pipelined and cut through. A relay sends on in units of [`RELAY_UNIT_BYTES`] while more is to come,
//! because one that forwards every few bytes is unsteady. Waiting spins for a bounded time, then parks.
//!
//! Allocates nothing per run after the first run of the longest schedule.

mod lane;
mod memory;
mod preamble;
mod run;
mod schedule;

pub use memory::Memory;
pub use schedule::Schedule;

use crate::call::Header;
use crate::fabric::{Fabric, Failure, Want};
use crate::reduction::{self, UnsupportedOp};
use std::time::Duration;

/// A relay forwards at least so many bytes at once, unless its span ends.
pub const RELAY_UNIT_BYTES: usize = 32 << 10;
/// A step moves at most so many bytes before the other lanes get their turn: what fits the first-level caches.
pub const SEGMENT_BYTES: usize = 64 << 10;
/// How long a rank with a core of its own spins on memory before it yields.
const SPIN: Duration = Duration::from_micros(2);
/// How long it then offers its core to others before it parks.
const YIELD: Duration = Duration::from_micros(50);
/// How long a rank parks before it looks around once more.
const PARK: Duration = Duration::from_millis(250);
/// How long a rank waits without a byte moving before it asks its peers what they are at.
const STALL: Duration = Duration::from_secs(1);

/// Why a plan did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The job has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The reduction has no meaning.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedOp),
    /// The user does not want to wait any longer; the other ranks have been told.
    #[error("interrupted")]
    Interrupted,
}

/// What a run cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Payload bytes that left this rank.
    pub sent_bytes: u64,
    /// Payload bytes that reached this rank.
    pub received_bytes: u64,
    /// When this rank first looked at the clock because it had nothing to do.
    pub waiting_since: Option<Duration>,
}

/// Asked by a rank each time it has slept: whether the user does not want to wait any longer.
pub type Interrupt = Box<dyn FnMut() -> bool + Send>;

/// Runs schedules. Keeps the memory of a run for the next.
#[derive(Default)]
pub struct Executor {
    /// Asked after each sleep, if there is one.
    pub interrupt: Option<Interrupt>,
    /// Bytes that each step has passed.
    passed: Vec<usize>,
    /// Per lane: how far it is.
    cursors: Vec<Cursor>,
    wants: Vec<Want>,
    waiting_for: Vec<usize>,
}

/// How far a lane is.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// Index into the lane's steps.
    next: usize,
    /// Bytes of the preamble that have left or come.
    preamble_bytes: usize,
    /// The stream itself, not a byte awaited from elsewhere, is what holds the lane up.
    on_stream: bool,
}

impl Executor {
    /// Runs `schedule` as collective `header` over `fabric`, on `buffers` (by number), whose elements are `element`s.
    pub fn run(
        &mut self,
        fabric: &mut dyn Fabric,
        header: Header,
        schedule: &Schedule,
        buffers: &mut [Memory<'_>],
    ) -> Result<Traffic, RunError> {
        for (number, &least) in schedule.buffer_bytes.iter().enumerate() {
            assert!(buffers[number].len() >= least, "a buffer holds the spans of its plan");
        }
        let combine = match schedule.op {
            Some(op) => reduction::combine(header.call.element, op)?,
            None => |_: &mut [u8], _: &[u8]| unreachable!("a plan without reductions"),
        };
        // A call that failed may have left half a message on a link, and what came now would be taken for the rest.
        if let Some(failure) = fabric.has_failed().then(|| fabric.failure()).flatten() {
            return Err(failure.into());
        }
        self.reset(schedule);
        if header.call.concerns_all() {
            fabric.enter(header);
        }
        let mut run = run::Run {
            fabric,
            header,
            schedule,
            buffers,
            combine,
            passed: &mut self.passed,
            cursors: &mut self.cursors,
            traffic: Traffic::default(),
            relay_unit_bytes: RELAY_UNIT_BYTES,
        };
        let mut idle = Idle::default();
        loop {
            let moved = run.progress()?;
            if run.is_complete() {
                return Ok(run.traffic);
            }
            if moved {
                idle = Idle::default();
                run.relay_unit_bytes = RELAY_UNIT_BYTES.min(2 * run.relay_unit_bytes);
                continue;
            }
            if run.fabric.has_failed() {
                return Err(run.failure().into());
            }
            let slept = idle.wait(&mut run, &mut self.wants, &mut self.waiting_for)?;
            if slept && self.interrupt.as_mut().is_some_and(|interrupted| interrupted()) {
                run.interrupt();
                return Err(RunError::Interrupted);
            }
        }
    }

    fn reset(&mut self, schedule: &Schedule) {
        self.passed.clear();
        self.passed.resize(schedule.steps.len(), 0);
        self.cursors.clear();
        self.cursors.resize(schedule.lanes.len(), Cursor::default());
    }
}

/// How long a run has moved nothing.
#[derive(Default)]
struct Idle {
    rounds: u32,
    since: Option<Duration>,
    asked: Option<Duration>,
}

impl Idle {
    /// Rounds between two looks at the clock, which costs as much as some of them.
    const ROUNDS_PER_LOOK: u32 = 8;

    /// Lets time pass; whether this rank has slept.
    fn wait(&mut self, run: &mut run::Run, wants: &mut Vec<Want>, peers: &mut Vec<usize>) -> Result<bool, RunError> {
        self.rounds += 1;
        if !self.rounds.is_multiple_of(Self::ROUNDS_PER_LOOK) {
            std::hint::spin_loop();
            return Ok(false);
        }
        let now = run.fabric.now();
        run.traffic.waiting_since.get_or_insert(now);
        let idle = now - *self.since.get_or_insert(now);
        if run.waits_on_memory()? {
            let spin = if run.fabric.has_core_per_rank() { SPIN } else { Duration::ZERO };
            if idle < spin {
                return Ok(false);
            }
            if idle < spin + YIELD {
                run.fabric.yield_now();
                return Ok(false);
            }
        }
        if idle >= PARK {
            // A plan may need less than a unit to go round before more can come: after a sleep in vain any byte goes.
            run.relay_unit_bytes = 1;
        }
        run.fabric.prepare_park();
        let moved = run.progress();
        let mut slept = false;
        if matches!(moved, Ok(false)) && !run.is_complete() && !run.fabric.has_failed() {
            run.wants(wants);
            if now - *self.asked.get_or_insert(now) >= STALL {
                self.asked = Some(now);
                peers.clear();
                peers.extend(wants.iter().map(|want| want.peer));
                run.fabric.stalled(run.header, peers);
            }
            run.fabric.park(wants, PARK);
            slept = true;
        }
        run.fabric.cancel_park();
        if moved? {
            *self = Idle::default();
        }
        Ok(slept)
    }
}
