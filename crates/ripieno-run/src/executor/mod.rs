//! Executor: runs any plan over the links of a fabric. It is the only code that moves bytes.
//!
//! One non-blocking loop serves all lanes. A step advances to a byte as soon as every earlier step on that byte has
//! passed it. Every plan is therefore pipelined. A relay forwards in units of [`RELAY_UNIT_BYTES`] while more
//! data follows, because forwarding a few bytes at a time is slow. Rows are gathered one segment at a time. Waiting
//! spins for a bounded time, then parks.
//!
//! Several runs may be in flight. On each direction of each link, their lanes queue, oldest run first. All other work
//! overlaps. A single run is served on the caller's stack.
//!
//! A single run allocates no memory after the first run of the longest schedule.

mod access_index;
mod arrivals;
mod brief;
mod idle;
mod in_flight_runs;
mod local;
mod memory;
mod preamble;
mod prepared;
mod progress;
mod replica_receive;
mod rows;
mod run;
mod schedule;
mod visit;
mod waiting;
mod zero_copy;

pub use in_flight_runs::RunEnd;
pub use memory::BufferMemory;
pub use prepared::PreparedCall;
pub use schedule::Schedule;

use crate::call::HEADER_BYTES;
use crate::fabric::{Fabric, JobFailure, LinkInterest};
use crate::recorder::{CollectiveOutcome, OpenRecord, Recorder};
use crate::reduction::UnsupportedOp;
use idle::Work;
use in_flight_runs::{AllRuns, InFlightRuns};
use progress::RunProgress;
use run::ScheduleRun;
use std::sync::{Arc, OnceLock};

/// Minimum number of bytes that a relay forwards at once, unless its span ends.
pub const RELAY_UNIT_BYTES: usize = 16 << 10;
/// Maximum number of bytes that a step moves before the other lanes are visited. Fits the first-level caches.
pub const SEGMENT_BYTES: usize = 64 << 10;

/// Calls up to this size are not timed unless they wait, because two clock reads would cost more than the call.
const CLOCKED_BYTES: u64 = 8 << 10;

/// The reason why a plan did not complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The job has failed.
    #[error(transparent)]
    Failed(#[from] JobFailure),
    /// The reduction is undefined for the element type.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedOp),
    /// The user interrupted the wait. The other ranks have been notified.
    #[error("interrupted")]
    Interrupted,
}

/// Traffic and duration of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTraffic {
    /// Payload bytes sent by this rank.
    pub sent_bytes: u64,
    /// Part of the sent bytes that the receivers read from the memory of this rank.
    pub zero_copy_bytes: u64,
    /// Payload bytes received by this rank.
    pub received_bytes: u64,
    /// Duration of the run in nanoseconds. For a short call it counts from the first wait, and is 0 without a wait.
    ///
    /// One word, like all fields. A processor that copies a field with a wider load than the preceding store waits
    /// until this store has left the core, and with it the message to the peer.
    pub elapsed_ns: u64,
}

/// Called after each sleep of a rank. Returns whether the user has interrupted the wait.
pub type InterruptCheck = Box<dyn FnMut() -> bool + Send>;

/// Runs the blocking section exactly once. Meanwhile the caller can release resources that other threads need.
pub type BlockingSection<'a> = &'a mut dyn FnMut(&mut (dyn FnMut() + Send));

/// Runs schedules. Reuses the memory of a run for the next.
#[derive(Default)]
pub struct Executor {
    /// Called after each sleep of a waiting caller, if set.
    pub interrupt: Option<InterruptCheck>,
    /// Records of this rank's last runs.
    pub recorder: Recorder,
    /// Progress of the single run.
    progress: RunProgress,
    in_flight: InFlightRuns,
    interests: Vec<LinkInterest>,
}

impl Executor {
    /// Run `prepared` as number `sequence` over `fabric` on `buffers` (by number) until it ends. Runs in flight
    /// progress meanwhile.
    pub fn run(
        &mut self,
        fabric: &mut dyn Fabric,
        sequence: u64,
        prepared: &PreparedCall,
        buffers: &mut [BufferMemory<'_>],
    ) -> Result<RunTraffic, RunError> {
        self.run_with_section(fabric, sequence, prepared, buffers, &mut |section| section())
    }

    /// Run `prepared` like [`Executor::run`], with the blocking section inside `run_section`.
    #[inline]
    pub fn run_with_section(
        &mut self,
        fabric: &mut dyn Fabric,
        sequence: u64,
        prepared: &PreparedCall,
        buffers: &mut [BufferMemory<'_>],
        run_section: BlockingSection<'_>,
    ) -> Result<RunTraffic, RunError> {
        // Trailing receives are usually complete by now, and a single run is faster without them. This precedes the
        // checks, which detect a failure here.
        if self.in_flight.has_only_trailing_receives() {
            self.advance(fabric);
        }
        let ticket = begin(&mut self.recorder, fabric, sequence, prepared, buffers)?;
        if self.in_flight.is_empty() {
            self.progress.begin(prepared, sequence, ticket);
            self.recorder.enter(ticket, None);
            if let Some(brief) = &prepared.schedule.brief {
                let (recorder, progress) = (&mut self.recorder, &mut self.progress);
                let schedule = &*prepared.schedule;
                let mut run = ScheduleRun { fabric, sequence, prepared, schedule, buffers, recorder, progress };
                if run.run_briefly(brief) {
                    let traffic = run.end_successfully(brief.traffic);
                    run.recorder.leave(|| run.fabric.now());
                    return Ok(traffic);
                }
            }
        }
        let mut ended = None;
        run_section(&mut || ended = Some(self.run_to_end(fabric, sequence, prepared, buffers, ticket)));
        ended.expect("the caller runs the blocking section")
    }

    /// Complete a run that has begun, alone or among other runs. The wait has no limit.
    fn run_to_end(
        &mut self,
        fabric: &mut dyn Fabric,
        sequence: u64,
        prepared: &PreparedCall,
        buffers: &mut [BufferMemory<'_>],
        ticket: OpenRecord,
    ) -> Result<RunTraffic, RunError> {
        if !self.in_flight.is_empty() {
            return self.run_among_others(fabric, sequence, prepared, buffers, ticket);
        }
        if prepared.schedule.brief.is_none() {
            self.progress.reset(&prepared.schedule);
        }
        let (recorder, progress) = (&mut self.recorder, &mut self.progress);
        let mut run =
            ScheduleRun { fabric, sequence, prepared, schedule: &prepared.schedule, buffers, recorder, progress };
        let finished = idle::finish(&mut run, &mut self.interests, &mut self.interrupt);
        let ended = run.end(finished);
        run.recorder.leave(|| run.fabric.now());
        if prepared.schedule.is_replicated && ended.is_ok() && !run.have_all_lanes_ended() {
            self.in_flight.add_trailing_receives(sequence, prepared.clone(), std::mem::take(&mut self.progress));
        }
        ended
    }

    /// Begin a run that progresses during [`Executor::run`] and [`Executor::drive`]. Calls `end` after the run has
    /// ended and released its memory.
    pub fn submit(
        &mut self,
        fabric: &mut dyn Fabric,
        sequence: u64,
        prepared: PreparedCall,
        buffers: Vec<BufferMemory<'static>>,
        end: RunEnd,
    ) -> Result<(), RunError> {
        let ticket = begin(&mut self.recorder, fabric, sequence, &prepared, &buffers)?;
        self.in_flight.add(sequence, prepared, buffers, end, ticket);
        Ok(())
    }

    /// Return whether no run is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Advance all runs in flight once, without waiting. If one run fails, all fail, and each `end` receives the cause.
    pub fn advance(&mut self, fabric: &mut dyn Fabric) {
        let guard = AbandonOnPanic { executor: self, fabric };
        let Executor { in_flight, recorder, .. } = &mut *guard.executor;
        let (fabric, until) = (&mut *guard.fabric, &|| false);
        let moved = AllRuns { fabric, recorder, in_flight, until, is_awaited: false }.progress();
        if let Err(error) = moved {
            in_flight.fail(&error, recorder, guard.fabric);
        }
        std::mem::forget(guard);
    }

    /// Advance all runs in flight until none is left or `until` returns true. `until` is also checked before each
    /// sleep. If the program itself waits (`is_awaited`), [`Executor::interrupt`] is checked as well. If one run fails,
    /// all fail, and each `end` receives the cause.
    pub fn drive(
        &mut self,
        fabric: &mut dyn Fabric,
        is_awaited: bool,
        until: &dyn Fn() -> bool,
    ) -> Result<(), RunError> {
        let guard = AbandonOnPanic { executor: self, fabric };
        let Executor { in_flight, recorder, interests, interrupt, .. } = &mut *guard.executor;
        let mut no_interrupt = None;
        let interrupt = if is_awaited { interrupt } else { &mut no_interrupt };
        if is_awaited && let Some(ticket) = in_flight.first() {
            recorder.enter(ticket, Some(guard.fabric.now()));
        }
        let mut all_runs = AllRuns { fabric: &mut *guard.fabric, recorder, in_flight, until, is_awaited };
        let finished = idle::finish(&mut all_runs, interests, interrupt);
        if is_awaited {
            recorder.leave(|| guard.fabric.now());
        }
        if let Err(error) = &finished {
            // The interrupted caller receives the interrupt; all other runs receive the failure of the job.
            let failure = guard.fabric.failure().map_or_else(|| error.clone(), RunError::Failed);
            in_flight.fail(&failure, recorder, guard.fabric);
        }
        std::mem::forget(guard);
        finished
    }

    fn run_among_others(
        &mut self,
        fabric: &mut dyn Fabric,
        sequence: u64,
        prepared: &PreparedCall,
        buffers: &mut [BufferMemory<'_>],
        ticket: OpenRecord,
    ) -> Result<RunTraffic, RunError> {
        let ended = Arc::new(OnceLock::new());
        let slot = ended.clone();
        let end = Box::new(move |result| {
            let _ = slot.set(result);
        });
        // SAFETY: the memory outlives this call. When the call returns, the run has ended and released its buffers. If
        // `drive` panics, it releases the buffers of all runs.
        let buffers = buffers.iter_mut().map(|buffer| unsafe { buffer.extend_lifetime() }).collect();
        self.in_flight.add(sequence, prepared.clone(), buffers, end, ticket);
        self.drive(fabric, true, &|| ended.get().is_some())?;
        ended.get().expect("a run is over when nothing is in flight").clone()
    }
}

/// Begin a run: make the checks and record the call.
#[inline(always)]
fn begin(
    recorder: &mut Recorder,
    fabric: &mut dyn Fabric,
    sequence: u64,
    prepared: &PreparedCall,
    buffers: &[BufferMemory<'_>],
) -> Result<OpenRecord, RunError> {
    let PreparedCall { record, schedule, .. } = prepared;
    for (number, &least) in schedule.buffer_bytes.iter().enumerate() {
        assert!(buffers[number].len() >= least, "a buffer holds the spans of its plan");
    }
    let start = (recorder.is_clocked || record.bytes > CLOCKED_BYTES).then(|| fabric.now());
    let ticket = recorder.begin(record, sequence, start);
    // A failed call may have left a partial message on a link. The peer would interpret later bytes as the rest of it.
    if let Some(failure) = fabric.has_failed().then(|| fabric.failure()).flatten() {
        recorder.end(ticket, CollectiveOutcome::Failed, || fabric.now());
        return Err(failure.into());
    }
    if !schedule.is_replicated && fabric.has_losses() {
        let loss = fabric.losses().into_iter().next().expect("a fabric with losses returns them");
        recorder.end(ticket, CollectiveOutcome::Failed, || fabric.now());
        return Err(loss.into());
    }
    if record.concerns_all() {
        let mut header = [0; HEADER_BYTES];
        prepared.encode(sequence, &mut header);
        fabric.enter(record.communicator, &header);
    }
    Ok(ticket)
}

/// Ends every run in flight when dropped. Forgotten unless a panic occurs.
struct AbandonOnPanic<'a> {
    executor: &'a mut Executor,
    fabric: &'a mut dyn Fabric,
}

impl Drop for AbandonOnPanic<'_> {
    fn drop(&mut self) {
        self.executor.in_flight.abandon(&mut self.executor.recorder, self.fabric);
    }
}
