//! One run of a schedule. A round of progress visits every lane once.

use super::idle::{self, Work};
use super::memory::BufferMemory;
use super::preamble::Preamble;
use super::progress::RunProgress;
use super::schedule::{LaneSteps, Schedule};
use super::visit::{LaneVisit, VisitError, VisitProgress};
use super::{PreparedCall, RunError};
use crate::call::Header;
use crate::fabric::{Blocking, Fabric, JobFailure, LinkId, LinkInterest};
use crate::link::LinkError;
use crate::recorder::Recorder;
use std::time::Duration;

/// One run of a schedule, while a caller makes progress on it.
pub(super) struct ScheduleRun<'a, 'b> {
    pub fabric: &'a mut dyn Fabric,
    pub sequence: u64,
    pub prepared: &'a PreparedCall,
    /// The schedule of `prepared`.
    pub schedule: &'a Schedule,
    pub buffers: &'a mut [BufferMemory<'b>],
    pub recorder: &'a mut Recorder,
    pub progress: &'a mut RunProgress,
}

impl Work for ScheduleRun<'_, '_> {
    fn progress(&mut self) -> Result<bool, RunError> {
        let mut moved = false;
        for lane in 0..self.schedule.lanes.len() {
            if self.is_inactive(lane) {
                continue;
            }
            moved |= match self.schedule.lanes[lane].stream {
                LaneSteps::To(link) => self.on_link(lane, link, |visit| visit.send())?,
                LaneSteps::From(link) if self.schedule.is_replicated => {
                    self.on_link(lane, link, |visit| visit.receive_racing())?
                }
                LaneSteps::From(link) => self.on_link(lane, link, |visit| visit.receive_or_reduce())?,
                LaneSteps::Local => self.local(lane),
            };
        }
        if moved {
            self.end_wait();
        }
        Ok(moved)
    }

    /// Return whether every step has passed all its bytes.
    fn is_over(&self) -> bool {
        if self.schedule.is_replicated {
            return self.is_race_over();
        }
        let mut lanes = self.progress.cursors.iter().zip(&self.schedule.lanes);
        lanes.all(|(cursor, lane)| cursor.next == lane.steps.len())
    }

    fn failure(&mut self) -> Option<RunError> {
        idle::failure(self.fabric, !self.schedule.is_replicated)
    }

    fn fabric(&mut self) -> &mut dyn Fabric {
        self.fabric
    }

    fn interests(&mut self, interests: &mut Vec<LinkInterest>) {
        interests.clear();
        self.add_interests(interests);
    }

    fn waits_on_memory(&mut self) -> Result<bool, RunError> {
        for lane in 0..self.schedule.lanes.len() {
            if self.is_inactive(lane) {
                continue;
            }
            let (LaneSteps::To(id) | LaneSteps::From(id)) = self.schedule.lanes[lane].stream else { continue };
            let is_memory = match self.fabric.link(id) {
                Ok(link) => link.is_some_and(|link| link.is_memory()),
                // The lane leaves the race at its next visit.
                Err(_) if self.schedule.is_replicated => true,
                Err(error) => return Err(self.closed(id.peer, error)),
            };
            if !is_memory {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn waits_since(&mut self, now: Duration) {
        self.begin_wait(now);
    }

    fn set_relay_unit_bytes(&mut self, change: fn(usize) -> usize) {
        self.progress.relay_unit_bytes = change(self.progress.relay_unit_bytes);
    }

    fn query_peers(&mut self) {
        self.report_stall(Blocking::All);
    }

    fn interrupt(&mut self) -> RunError {
        let rank = self.fabric.rank();
        self.fabric.report(JobFailure::RankFailed {
            rank,
            host: String::new(),
            cause: format!("interrupted in {}", self.header()),
            traceback: String::new(),
        });
        RunError::Interrupted
    }
}

impl ScheduleRun<'_, '_> {
    fn header(&self) -> Header {
        self.prepared.header(self.sequence)
    }

    /// Query the peers that this run waits for. `blocking` is the condition under which the rank continues.
    pub fn report_stall(&mut self, blocking: Blocking) {
        let mut interests = Vec::new();
        self.add_interests(&mut interests);
        let peers: Vec<usize> = interests.iter().map(|interest| interest.link.peer).collect();
        self.fabric.stalled(self.header(), &peers, blocking);
    }

    /// Add the links that could make progress.
    pub fn add_interests(&self, interests: &mut Vec<LinkInterest>) {
        for (lane, cursor) in self.progress.cursors.iter().enumerate() {
            if self.is_inactive(lane) || !cursor.on_stream {
                continue;
            }
            match self.schedule.lanes[lane].stream {
                LaneSteps::To(link) => interests.push(LinkInterest { link, readable: false, writable: true }),
                LaneSteps::From(link) => interests.push(LinkInterest { link, readable: true, writable: false }),
                LaneSteps::Local => {}
            }
        }
    }

    /// Return whether a lane is inactive: it has ended or still queues for its stream.
    fn is_inactive(&self, lane: usize) -> bool {
        self.has_ended(lane) || self.progress.cursors[lane].is_queued
    }

    /// Return whether a lane needs no more data.
    pub fn has_ended(&self, lane: usize) -> bool {
        self.is_finished(lane) || self.progress.cursors[lane].has_dropped_out
    }

    /// Return whether all steps of a lane are complete.
    pub fn is_finished(&self, lane: usize) -> bool {
        self.progress.cursors[lane].next == self.schedule.lanes[lane].steps.len()
    }

    fn on_link(
        &mut self,
        lane: usize,
        id: LinkId,
        visit: fn(&mut LaneVisit<'_, '_>) -> Result<VisitProgress, VisitError>,
    ) -> Result<bool, RunError> {
        let has_own_core = self.fabric.has_core_per_rank();
        let link = match self.fabric.link(id) {
            Ok(Some(link)) => link,
            Ok(None) => {
                self.progress.cursors[lane].on_stream = true;
                return Ok(false);
            }
            Err(error) => return self.drop_out(lane, id.peer, error),
        };
        let mut visited = LaneVisit {
            link,
            schedule: self.schedule,
            number: lane,
            steps: &self.schedule.lanes[lane].steps,
            cursor: &mut self.progress.cursors[lane],
            passed: &mut self.progress.passed,
            buffers: self.buffers,
            preamble: Preamble::new(&self.progress.header, self.schedule.lanes[lane].length_bytes),
            staging: &mut self.progress.staging,
            reduction: self.prepared.reduction,
            traffic: &mut self.progress.traffic,
            relay_unit_bytes: self.progress.relay_unit_bytes,
            has_own_core,
        };
        let moved = visit(&mut visited).and_then(|moved| {
            if moved == VisitProgress::Something {
                visited.link.flush()?;
            }
            Ok(moved)
        });
        match moved {
            Ok(moved) => Ok(moved == VisitProgress::Something),
            Err(VisitError::Link(error)) => self.drop_out(lane, id.peer, error),
            Err(VisitError::Mismatch(theirs)) => Err(self.mismatch(lane, id.peer, theirs)),
        }
    }

    pub fn closed(&mut self, peer: usize, error: LinkError) -> RunError {
        let missing = match error {
            LinkError::Closed { cause } => return self.fabric.peer_failure(peer, &cause).into(),
            LinkError::MissingResource { cause } => cause,
        };
        let rank = self.fabric.rank();
        let cause = format!("its link to rank {peer} cannot be used: {missing}");
        self.fabric.report(JobFailure::RankFailed { rank, host: String::new(), cause, traceback: String::new() });
        self.fabric.failure().expect("a fabric has failed after a report").into()
    }

    fn mismatch(&mut self, lane: usize, peer: usize, theirs: Preamble) -> RunError {
        let (mine, rank) = (self.header(), self.fabric.rank());
        let description = match theirs.header() {
            None => format!("rank {rank} called {mine}; rank {peer} sent bytes that are not a header of this version"),
            Some(header) if header == mine => format!(
                "rank {rank} called {mine} and expects {} bytes of rank {peer}, which sends {}",
                self.schedule.lanes[lane].length_bytes,
                theirs.payload_bytes()
            ),
            Some(header) => {
                self.fabric.differs(mine, peer, header);
                return self.fabric.failure().expect("a fabric has failed after a report").into();
            }
        };
        self.fabric.report(JobFailure::Mismatch { description });
        self.fabric.failure().expect("a fabric has failed after a report").into()
    }
}
