//! One run of a schedule: a round of progress visits every lane once.

use super::lane::{Lane, LaneError, Moved, limit};
use super::memory::{self, Memory};
use super::preamble::Preamble;
use super::schedule::{Schedule, Stream};
use super::{Cursor, RunError, SEGMENT_BYTES, Traffic};
use crate::call::Header;
use crate::fabric::{Fabric, Failure, Want};
use crate::link::LinkError;
use crate::membership::describe;
use crate::reduction::Combine;
use ripieno_plan::Operation;
use std::collections::BTreeMap;

pub(super) struct Run<'a, 'b> {
    pub fabric: &'a mut dyn Fabric,
    pub header: Header,
    pub schedule: &'a Schedule,
    pub buffers: &'a mut [Memory<'b>],
    pub combine: Combine,
    pub passed: &'a mut Vec<usize>,
    pub cursors: &'a mut Vec<Cursor>,
    pub traffic: Traffic,
    /// What a relay has at least before it sends on.
    pub relay_unit_bytes: usize,
}

impl Run<'_, '_> {
    /// Moves what can be moved now; whether anything did.
    pub fn progress(&mut self) -> Result<bool, RunError> {
        let mut moved = false;
        for lane in 0..self.schedule.lanes.len() {
            if self.cursors[lane].next == self.schedule.lanes[lane].steps.len() {
                continue;
            }
            moved |= match self.schedule.lanes[lane].stream {
                Stream::To(peer) => self.on_link(lane, peer, |lane| lane.send())?,
                Stream::From(peer) => self.on_link(lane, peer, |lane| lane.take())?,
                Stream::Local => self.local(lane),
            };
        }
        Ok(moved)
    }

    /// Whether every step has passed all its bytes.
    pub fn is_complete(&self) -> bool {
        let mut lanes = self.cursors.iter().zip(&self.schedule.lanes);
        lanes.all(|(cursor, lane)| cursor.next == lane.steps.len())
    }

    /// Which links could move a lane on.
    pub fn wants(&self, wants: &mut Vec<Want>) {
        wants.clear();
        for (cursor, lane) in self.cursors.iter().zip(&self.schedule.lanes) {
            if cursor.next == lane.steps.len() || !cursor.on_stream {
                continue;
            }
            match lane.stream {
                Stream::To(peer) => wants.push(Want { peer, readable: false, writable: true }),
                Stream::From(peer) => wants.push(Want { peer, readable: true, writable: false }),
                Stream::Local => {}
            }
        }
    }

    /// Whether news can come through memory alone: no lane waits for a link that needs the system, or has none yet.
    pub fn waits_on_memory(&mut self) -> Result<bool, RunError> {
        for lane in 0..self.schedule.lanes.len() {
            if self.cursors[lane].next == self.schedule.lanes[lane].steps.len() {
                continue;
            }
            let (Stream::To(peer) | Stream::From(peer)) = self.schedule.lanes[lane].stream else { continue };
            let is_memory = match self.fabric.link(peer) {
                Ok(link) => link.is_some_and(|link| link.is_memory()),
                Err(error) => return Err(self.closed(peer, error)),
            };
            if !is_memory {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Why the job has failed.
    pub fn failure(&self) -> Failure {
        self.fabric.failure().expect("a fabric that has failed knows how")
    }

    /// Tells the other ranks that this one goes no further.
    pub fn interrupt(&mut self) {
        let rank = self.fabric.rank();
        self.fabric.report(Failure::RankFailed {
            rank,
            host: String::new(),
            cause: format!("interrupted in {}", self.header),
            traceback: String::new(),
        });
    }

    fn on_link(
        &mut self,
        lane: usize,
        peer: usize,
        visit: fn(&mut Lane<'_, '_>) -> Result<Moved, LaneError>,
    ) -> Result<bool, RunError> {
        let link = match self.fabric.link(peer) {
            Ok(Some(link)) => link,
            Ok(None) => {
                self.cursors[lane].on_stream = true;
                return Ok(false);
            }
            Err(error) => return Err(self.closed(peer, error)),
        };
        let mut visited = Lane {
            link,
            schedule: self.schedule,
            steps: &self.schedule.lanes[lane].steps,
            cursor: &mut self.cursors[lane],
            passed: self.passed,
            buffers: self.buffers,
            preamble: Preamble::new(self.header, self.schedule.lanes[lane].length_bytes),
            combine: self.combine,
            traffic: &mut self.traffic,
            relay_unit_bytes: self.relay_unit_bytes,
        };
        let moved = visit(&mut visited).and_then(|moved| {
            if moved == Moved::Something {
                visited.link.flush()?;
            }
            Ok(moved)
        });
        match moved {
            Ok(moved) => Ok(moved == Moved::Something),
            Err(LaneError::Link(error)) => Err(self.closed(peer, error)),
            Err(LaneError::Other(theirs)) => Err(self.mismatch(lane, peer, theirs)),
        }
    }

    /// Copies and combines what is there, a segment of each step at most. Local steps share no stream, so none queues
    /// behind another.
    fn local(&mut self, lane: usize) -> bool {
        let (schedule, mut moved) = (self.schedule, false);
        let steps = &schedule.lanes[lane].steps;
        for &index in &steps[self.cursors[lane].next..] {
            let done = self.passed[index];
            let end = limit(schedule, self.passed, index).min(done + SEGMENT_BYTES);
            self.passed[index] = match schedule.steps[index].operation {
                Operation::Copy { from, to } if end > done => {
                    memory::copy(self.buffers, from, to, done, end);
                    end
                }
                Operation::Combine { from, to, .. } if end > done => {
                    let whole = end / to.element_bytes * to.element_bytes;
                    memory::combine(self.buffers, from, to, done, whole, self.combine);
                    whole
                }
                _ => done,
            };
            moved |= self.passed[index] > done;
        }
        let is_done = |&&index: &&usize| self.passed[index] == schedule.steps[index].length_bytes;
        let done_count = steps[self.cursors[lane].next..].iter().take_while(is_done).count();
        self.cursors[lane].next += done_count;
        moved || done_count > 0
    }

    fn closed(&mut self, peer: usize, error: LinkError) -> RunError {
        let LinkError::Closed { cause } = error;
        self.fabric.blame(peer, &cause).into()
    }

    fn mismatch(&mut self, lane: usize, peer: usize, theirs: Preamble) -> RunError {
        let (mine, rank) = (self.header, self.fabric.rank());
        let description = match theirs.header() {
            None => format!("rank {rank} called {mine}; what rank {peer} sent is no header of this version"),
            Some(header) if header == mine => format!(
                "rank {rank} called {mine} and expects {} bytes of rank {peer}, which sends {}",
                self.schedule.lanes[lane].length_bytes,
                theirs.payload_bytes()
            ),
            Some(header) if header.sequence == mine.sequence => {
                describe(mine.sequence, &BTreeMap::from([(rank, mine.call), (peer, header.call)]))
            }
            Some(header) => format!("rank {rank} called {mine}; rank {peer} called {header}"),
        };
        self.fabric.report(Failure::Mismatch { description });
        self.failure().into()
    }
}
