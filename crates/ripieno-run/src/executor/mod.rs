//! The executor: runs any plan over the links of a fabric. The only code that moves bytes.
//!
//! One non-blocking loop serves all lanes. A step advances to a byte as soon as every earlier step on that byte has
//! passed it, so every plan is pipelined and cut through. A relay sends on in units of [`RELAY_UNIT_BYTES`] while more
//! is to come, because one that forwards every few bytes is unsteady. Rows are gathered for a link a segment at a time.
//! Waiting spins for a bounded time, then parks.
//!
//! Several runs may be in flight: on each direction of each link the lanes follow each other in the order in which the
//! runs began, everything else overlaps. A run that is alone is served on the caller's stack.
//!
//! A run that is alone allocates nothing after the first run of the longest schedule.

mod access_index;
mod arrivals;
mod brief;
mod idle;
mod in_flight_runs;
mod lending;
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

pub use in_flight_runs::RunEnd;
pub use memory::BufferMemory;
pub use prepared::PreparedCall;
pub use schedule::Schedule;

use crate::call::HEADER_BYTES;
use crate::fabric::{Fabric, JobFailure, Want};
use crate::recorder::{CollectiveOutcome, OpenRecord, Recorder};
use crate::reduction::UnsupportedOp;
use idle::Work;
use in_flight_runs::{Everyone, InFlightRuns};
use progress::RunProgress;
use run::ScheduleRun;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A relay forwards at least so many bytes at once, unless its span ends.
pub const RELAY_UNIT_BYTES: usize = 16 << 10;
/// A step moves at most so many bytes before the other lanes get their turn: what fits the first-level caches.
pub const SEGMENT_BYTES: usize = 64 << 10;

/// Up to so many bytes a call takes less than looking at the clock twice would add, unless it waits.
const CLOCKED_BYTES: u64 = 8 << 10;

/// Why a plan did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The job has failed.
    #[error(transparent)]
    Failed(#[from] JobFailure),
    /// The reduction has no meaning.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedOp),
    /// The user does not want to wait any longer; the other ranks have been told.
    #[error("interrupted")]
    Interrupted,
}

/// What a run cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTraffic {
    /// Payload bytes that left this rank.
    pub sent_bytes: u64,
    /// Those of them that the receivers read where they are.
    pub lent_bytes: u64,
    /// Payload bytes that reached this rank.
    pub received_bytes: u64,
    /// How long it took; of a short call, since it first waited, and `None` if it never did.
    pub elapsed: Option<Duration>,
}

/// Asked by a rank each time it has slept: whether the user does not want to wait any longer.
pub type InterruptCheck = Box<dyn FnMut() -> bool + Send>;

/// Runs, once, what may wait: a caller can let go meanwhile of what other threads need.
pub type Apart<'a> = &'a mut dyn FnMut(&mut (dyn FnMut() + Send));

/// Runs schedules. Keeps the memory of a run for the next.
#[derive(Default)]
pub struct Executor {
    /// Asked after each sleep of a caller that waits, if there is one.
    pub interrupt: Option<InterruptCheck>,
    /// What this rank's last runs were.
    pub recorder: Recorder,
    /// Of the run that is alone.
    progress: RunProgress,
    flights: InFlightRuns,
    wants: Vec<Want>,
}

impl Executor {
    /// Runs `prepared` as number `sequence` over `fabric`, on `buffers` (by number), to its end. Moves the runs in
    /// flight on meanwhile.
    pub fn run(
        &mut self,
        fabric: &mut dyn Fabric,
        sequence: u64,
        prepared: &PreparedCall,
        buffers: &mut [BufferMemory<'_>],
    ) -> Result<RunTraffic, RunError> {
        self.run_apart(fabric, sequence, prepared, buffers, &mut |rest| rest())
    }

    /// As [`Executor::run`], but what may wait is run by `apart`.
    #[inline]
    pub fn run_apart(
        &mut self,
        fabric: &mut dyn Fabric,
        sequence: u64,
        prepared: &PreparedCall,
        buffers: &mut [BufferMemory<'_>],
        apart: Apart<'_>,
    ) -> Result<RunTraffic, RunError> {
        // They are mostly gone by now, and a run that is alone costs less. Before the checks, which see whether it
        // failed.
        if self.flights.has_only_rests() {
            self.advance(fabric);
        }
        let encoded = prepared.encoded(sequence);
        let ticket = begin(&mut self.recorder, fabric, sequence, prepared, &encoded, buffers)?;
        if self.flights.is_empty() {
            self.progress.begin(encoded, ticket);
            self.recorder.enter(ticket, None);
            if let Some(brief) = &prepared.schedule.brief {
                let (recorder, progress) = (&mut self.recorder, &mut self.progress);
                let schedule = &*prepared.schedule;
                let mut run = ScheduleRun { fabric, sequence, prepared, schedule, buffers, recorder, progress };
                if run.run_briefly(brief) {
                    let traffic = run.end_well();
                    run.recorder.leave(|| run.fabric.now());
                    return Ok(traffic);
                }
            }
        }
        let mut ended = None;
        apart(&mut || ended = Some(self.run_on(fabric, sequence, prepared, buffers, ticket)));
        ended.expect("what is run apart is run")
    }

    /// Runs what has begun to its end, alone or among others, however long it waits.
    fn run_on(
        &mut self,
        fabric: &mut dyn Fabric,
        sequence: u64,
        prepared: &PreparedCall,
        buffers: &mut [BufferMemory<'_>],
        ticket: OpenRecord,
    ) -> Result<RunTraffic, RunError> {
        if !self.flights.is_empty() {
            return self.run_among_others(fabric, sequence, prepared, buffers, ticket);
        }
        if prepared.schedule.brief.is_none() {
            self.progress.reset(&prepared.schedule);
        }
        let (recorder, progress) = (&mut self.recorder, &mut self.progress);
        let mut run =
            ScheduleRun { fabric, sequence, prepared, schedule: &prepared.schedule, buffers, recorder, progress };
        let finished = idle::finish(&mut run, &mut self.wants, &mut self.interrupt);
        let ended = run.end(finished);
        run.recorder.leave(|| run.fabric.now());
        if prepared.schedule.is_replicated && ended.is_ok() && !run.is_settled() {
            self.flights.add_rest(sequence, prepared.clone(), std::mem::take(&mut self.progress));
        }
        ended
    }

    /// Begins a run that goes on whenever [`Executor::run`] or [`Executor::drive`] is called, and calls `end` when it
    /// is over. The memory is let go before that.
    pub fn submit(
        &mut self,
        fabric: &mut dyn Fabric,
        sequence: u64,
        prepared: PreparedCall,
        buffers: Vec<BufferMemory<'static>>,
        end: RunEnd,
    ) -> Result<(), RunError> {
        let encoded = prepared.encoded(sequence);
        let ticket = begin(&mut self.recorder, fabric, sequence, &prepared, &encoded, &buffers)?;
        self.flights.add(sequence, prepared, buffers, end, ticket);
        Ok(())
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// Moves all runs in flight on once, without waiting. When one fails all have failed, and their ends know why.
    pub fn advance(&mut self, fabric: &mut dyn Fabric) {
        let guard = NoneLeft { executor: self, fabric };
        let Executor { flights, recorder, .. } = &mut *guard.executor;
        let (fabric, until) = (&mut *guard.fabric, &|| false);
        let moved = Everyone { fabric, recorder, flights, until, is_awaited: false }.progress();
        if let Err(error) = moved {
            flights.fail(&error, recorder, guard.fabric);
        }
        std::mem::forget(guard);
    }

    /// Moves all runs in flight on until nothing is, or `until` says so; it is asked before each sleep too. When the
    /// program itself waits for that (`is_awaited`), [`Executor::interrupt`] is asked as well. When a run fails all
    /// have failed, and their ends know why.
    pub fn drive(
        &mut self,
        fabric: &mut dyn Fabric,
        is_awaited: bool,
        until: &dyn Fn() -> bool,
    ) -> Result<(), RunError> {
        let guard = NoneLeft { executor: self, fabric };
        let Executor { flights, recorder, wants, interrupt, .. } = &mut *guard.executor;
        let mut nobody = None;
        let interrupt = if is_awaited { interrupt } else { &mut nobody };
        if is_awaited && let Some(ticket) = flights.first() {
            recorder.enter(ticket, Some(guard.fabric.now()));
        }
        let mut everyone = Everyone { fabric: &mut *guard.fabric, recorder, flights, until, is_awaited };
        let finished = idle::finish(&mut everyone, wants, interrupt);
        if is_awaited {
            recorder.leave(|| guard.fabric.now());
        }
        if let Err(error) = &finished {
            // Whoever was interrupted is told that; the others that the job has failed.
            let failure = guard.fabric.failure().map_or_else(|| error.clone(), RunError::Failed);
            flights.fail(&failure, recorder, guard.fabric);
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
        let noted = ended.clone();
        let end = Box::new(move |result| {
            let _ = noted.set(result);
        });
        // SAFETY: the memory outlives this call. When it returns the run is over and has let its buffers go; if
        // anything panics in `drive`, that lets go of all runs.
        let buffers = buffers.iter_mut().map(|buffer| unsafe { buffer.prolonged() }).collect();
        self.flights.add(sequence, prepared.clone(), buffers, end, ticket);
        self.drive(fabric, true, &|| ended.get().is_some())?;
        ended.get().expect("a run is over when nothing is in flight").clone()
    }
}

/// What comes ahead of every run: the checks, and the notes of what this rank enters.
#[inline(always)]
fn begin(
    recorder: &mut Recorder,
    fabric: &mut dyn Fabric,
    sequence: u64,
    PreparedCall { record, schedule, .. }: &PreparedCall,
    encoded: &[u8; HEADER_BYTES],
    buffers: &[BufferMemory<'_>],
) -> Result<OpenRecord, RunError> {
    for (number, &least) in schedule.buffer_bytes.iter().enumerate() {
        assert!(buffers[number].len() >= least, "a buffer holds the spans of its plan");
    }
    let start = (recorder.is_clocked || record.bytes > CLOCKED_BYTES).then(|| fabric.now());
    let ticket = recorder.begin(record, sequence, start);
    // A call that failed may have left half a message on a link, and what came now would be taken for the rest.
    if let Some(failure) = fabric.has_failed().then(|| fabric.failure()).flatten() {
        recorder.end(ticket, CollectiveOutcome::Failed, || fabric.now());
        return Err(failure.into());
    }
    if !schedule.is_replicated && fabric.has_losses() {
        let loss = fabric.losses().into_iter().next().expect("a fabric that has losses knows them");
        recorder.end(ticket, CollectiveOutcome::Failed, || fabric.now());
        return Err(loss.into());
    }
    if record.concerns_all() {
        fabric.enter(record.communicator, encoded);
    }
    Ok(ticket)
}

/// Ends every run in flight when it is dropped: forgotten unless something panics.
struct NoneLeft<'a> {
    executor: &'a mut Executor,
    fabric: &'a mut dyn Fabric,
}

impl Drop for NoneLeft<'_> {
    fn drop(&mut self) {
        self.executor.flights.abandon(&mut self.executor.recorder, self.fabric);
    }
}
