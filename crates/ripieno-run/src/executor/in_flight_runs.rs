//! Runs in flight: several runs share the same links, and each ends independently.
//!
//! A link is a byte stream. The lanes of the runs therefore queue per direction, oldest run first. A lane starts after
//! its predecessor has ended. If all ranks begin the same runs in the same order, an earlier run never waits for a
//! later one. Runs that do not share a stream overlap.

use super::idle::{self, Work};
use super::memory::BufferMemory;
use super::progress::RunProgress;
use super::run::ScheduleRun;
use super::schedule::LaneSteps;
use super::{PreparedCall, RunError, RunTraffic};
use crate::fabric::{Blocking, Fabric, LinkId, LinkInterest};
use crate::recorder::{OpenRecord, Recorder};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Called once with the outcome of a run. Dropped without a call if the executor is dropped.
pub type RunEnd = Box<dyn FnOnce(Result<RunTraffic, RunError>) + Send>;

/// A run in flight, or the trailing receives of a finished run. Fields drop in order: the buffers come before `end`,
/// which may own their memory.
struct InFlightRun {
    sequence: u64,
    prepared: PreparedCall,
    buffers: Vec<BufferMemory<'static>>,
    progress: RunProgress,
    /// `None` after the run has ended. Then some lanes of replica races still have to discard bytes that other replicas
    /// already delivered.
    end: Option<RunEnd>,
}

/// The runs in flight by number, oldest first.
#[derive(Default)]
pub(super) struct InFlightRuns {
    runs: BTreeMap<u64, InFlightRun>,
    next_number: u64,
    /// Lanes that use each stream: the first is active, the others queue.
    streams: BTreeMap<LaneSteps, VecDeque<QueuedLane>>,
    spare: Vec<RunProgress>,
}

/// A lane of a run.
#[derive(Clone, Copy)]
struct QueuedLane {
    number: u64,
    lane: usize,
}

impl InFlightRuns {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Return whether only trailing receives of finished runs are left, and at least one.
    pub fn has_only_trailing_receives(&self) -> bool {
        !self.is_empty() && self.has_no_unfinished_run()
    }

    /// Return whether no unfinished run is in flight.
    pub fn has_no_unfinished_run(&self) -> bool {
        self.runs.values().all(|entry| entry.end.is_none())
    }

    /// Return whether a run still has to receive bytes from a link.
    pub fn reads_from(&self, link: LinkId) -> bool {
        self.streams.get(&LaneSteps::From(link)).is_some_and(|queue| !queue.is_empty())
    }

    /// Add a run after all others.
    pub fn add(
        &mut self,
        sequence: u64,
        prepared: PreparedCall,
        buffers: Vec<BufferMemory<'static>>,
        end: RunEnd,
        ticket: OpenRecord,
    ) {
        let number = self.next_number;
        self.next_number += 1;
        let mut progress = self.spare.pop().unwrap_or_default();
        progress.begin(&prepared, sequence, ticket);
        progress.reset(&prepared.schedule);
        for (lane, known) in
            prepared.schedule.lanes.iter().enumerate().filter(|(_, lane)| lane.stream != LaneSteps::Local)
        {
            let queue = self.streams.entry(known.stream).or_default();
            progress.cursors[lane].is_queued = !queue.is_empty();
            queue.push_back(QueuedLane { number, lane });
        }
        self.runs.insert(number, InFlightRun { sequence, prepared, buffers, progress, end: Some(end) });
    }

    /// Keep the trailing receives of a finished run. No other run is in flight.
    pub fn add_trailing_receives(&mut self, sequence: u64, prepared: PreparedCall, progress: RunProgress) {
        let number = self.next_number;
        self.next_number += 1;
        for (lane, known) in prepared.schedule.lanes.iter().enumerate() {
            let cursor = &progress.cursors[lane];
            if cursor.next < known.steps.len() && !cursor.has_dropped_out {
                self.streams.entry(known.stream).or_default().push_back(QueuedLane { number, lane });
            }
        }
        let entry = InFlightRun { sequence, prepared, buffers: vec![], progress, end: None };
        self.runs.insert(number, entry);
    }

    /// Return the ticket of the oldest unfinished run.
    pub fn first(&mut self) -> Option<OpenRecord> {
        self.unfinished().next().map(|entry| entry.progress.ticket)
    }

    /// Return the unfinished runs.
    fn unfinished(&mut self) -> impl DoubleEndedIterator<Item = &mut InFlightRun> {
        self.runs.values_mut().filter(|entry| entry.end.is_some())
    }

    /// Pass the streams of finished lanes to the next queued lanes.
    fn release_streams(&mut self, number: u64) {
        let schedule = self.runs[&number].prepared.schedule.clone();
        for (lane, known) in schedule.lanes.iter().enumerate() {
            let cursor = self.runs[&number].progress.cursors[lane];
            let Some(queue) = self.streams.get_mut(&known.stream) else { continue };
            let has_ended = cursor.next == known.steps.len() || cursor.has_dropped_out;
            if !has_ended || queue.front().is_none_or(|next_lane| next_lane.number != number) {
                continue;
            }
            queue.pop_front();
            if let Some(&next_lane) = queue.front() {
                let next = self.runs.get_mut(&next_lane.number).expect("a run ends after its lanes");
                next.progress.cursors[next_lane.lane].is_queued = false;
            }
        }
    }

    /// Report the end of a finished run. Remove the run once no trailing receives are left.
    fn complete(&mut self, number: u64, recorder: &mut Recorder, fabric: &mut dyn Fabric) {
        let Some(entry) = self.runs.get_mut(&number) else { return };
        let reported = entry.end.take().map(|end| (end, entry.run(fabric, recorder).end(Ok(()))));
        entry.buffers.clear();
        if entry.run(fabric, recorder).have_all_lanes_ended()
            && let Some(entry) = self.runs.remove(&number)
        {
            self.spare.push(entry.progress);
        }
        if let Some((end, ended)) = reported {
            end(ended);
        }
    }

    /// End all runs with `error`.
    pub fn fail(&mut self, error: &RunError, recorder: &mut Recorder, fabric: &mut dyn Fabric) {
        let runs = std::mem::take(&mut self.runs);
        self.streams.clear();
        for mut entry in runs.into_values() {
            let Some(end) = entry.end.take() else { continue };
            let ended = entry.run(fabric, recorder).end(Err(error.clone()));
            drop(entry.buffers);
            end(ended);
        }
    }

    /// End all runs without reporting their ends.
    pub fn abandon(&mut self, recorder: &mut Recorder, fabric: &mut dyn Fabric) {
        self.runs.values_mut().for_each(|entry| entry.run(fabric, recorder).revoke_zero_copy());
        self.runs.clear();
        self.streams.clear();
    }
}

impl InFlightRun {
    fn run<'a>(&'a mut self, fabric: &'a mut dyn Fabric, recorder: &'a mut Recorder) -> ScheduleRun<'a, 'static> {
        ScheduleRun {
            fabric,
            sequence: self.sequence,
            prepared: &self.prepared,
            schedule: &self.prepared.schedule,
            buffers: &mut self.buffers,
            recorder,
            progress: &mut self.progress,
        }
    }
}

/// All runs in flight, while a caller makes progress on them.
pub(super) struct AllRuns<'a> {
    pub fabric: &'a mut dyn Fabric,
    pub recorder: &'a mut Recorder,
    pub in_flight: &'a mut InFlightRuns,
    /// Returns whether the caller has requested to stop.
    pub until: &'a dyn Fn() -> bool,
    /// Whether the program itself waits for the runs.
    pub is_awaited: bool,
}

impl Work for AllRuns<'_> {
    fn progress(&mut self) -> Result<bool, RunError> {
        let mut moved = false;
        let mut next = 0;
        while let Some((&number, entry)) = self.in_flight.runs.range_mut(next..).next() {
            next = number + 1;
            let is_unfinished = entry.end.is_some();
            let mut run = entry.run(self.fabric, self.recorder);
            let (run_moved, is_over) = (run.progress()?, run.is_over());
            moved |= run_moved;
            let is_due = is_over && (run_moved || is_unfinished);
            if run_moved || is_due {
                self.in_flight.release_streams(number);
            }
            if is_due {
                self.in_flight.complete(number, self.recorder, self.fabric);
            }
        }
        Ok(moved)
    }

    fn is_over(&self) -> bool {
        self.in_flight.is_empty() || (self.until)()
    }

    fn failure(&mut self) -> Option<RunError> {
        let needs_all = self.in_flight.runs.values().any(|entry| !entry.prepared.schedule.is_replicated);
        idle::failure(self.fabric, needs_all)
    }

    fn fabric(&mut self) -> &mut dyn Fabric {
        self.fabric
    }

    fn interests(&mut self, interests: &mut Vec<LinkInterest>) {
        interests.clear();
        self.in_flight
            .runs
            .values_mut()
            .for_each(|entry| entry.run(self.fabric, self.recorder).add_interests(interests));
    }

    fn waits_on_memory(&mut self) -> Result<bool, RunError> {
        for entry in self.in_flight.unfinished() {
            if !entry.run(self.fabric, self.recorder).waits_on_memory()? {
                return Ok(false);
            }
        }
        // No caller waits for trailing receives of finished runs.
        Ok(true)
    }

    fn waits_since(&mut self, now: Duration) {
        self.in_flight.unfinished().for_each(|entry| entry.run(self.fabric, self.recorder).waits_since(now));
    }

    fn set_relay_unit_bytes(&mut self, change: fn(usize) -> usize) {
        self.in_flight
            .runs
            .values_mut()
            .for_each(|entry| entry.run(self.fabric, self.recorder).set_relay_unit_bytes(change));
    }

    fn query_peers(&mut self) {
        let is_alone = self.is_awaited && self.in_flight.unfinished().count() == 1;
        let blocking = if is_alone { Blocking::All } else { Blocking::Nothing };
        self.in_flight.unfinished().for_each(|entry| entry.run(self.fabric, self.recorder).report_stall(blocking));
    }

    fn interrupt(&mut self) -> RunError {
        match self.in_flight.unfinished().next_back() {
            Some(latest) => latest.run(self.fabric, self.recorder).interrupt(),
            None => RunError::Interrupted,
        }
    }
}
