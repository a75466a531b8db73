//! One run of a schedule: a round of progress visits every lane once.

use super::memory::{self, Memory};
use super::schedule::{Schedule, Stream};
use super::{Cursor, RELAY_UNIT_BYTES, RunError, SEGMENT_BYTES, Traffic};
use crate::call::{HEADER_BYTES, Header};
use crate::fabric::{Fabric, Failure, Want};
use crate::link::{Link, LinkError};
use crate::membership::describe;
use crate::reduction::Combine;
use ripieno_plan::{Operation, Span};
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
}

/// What a visit to a lane moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moved {
    Nothing,
    Something,
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
                Stream::To(peer) => self.on_link(lane, peer, Self::send)?,
                Stream::From(peer) => self.on_link(lane, peer, Self::take)?,
                Stream::Local => self.copy(lane),
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

    fn send(lane: &mut Lane<'_, '_>) -> Result<Moved, LaneError> {
        lane.send()
    }

    fn take(lane: &mut Lane<'_, '_>) -> Result<Moved, LaneError> {
        lane.take()
    }

    fn copy(&mut self, lane: usize) -> bool {
        let mut moved = false;
        while let Some(&index) = self.schedule.lanes[lane].steps.get(self.cursors[lane].next) {
            let (done, limit) = (self.passed[index], limit(self.schedule, self.passed, index));
            let Operation::Copy { from, to } = self.schedule.steps[index].operation else {
                unreachable!("the local lane holds copies")
            };
            memory::copy(self.buffers, from, to, done, limit);
            self.passed[index] = limit;
            moved |= limit > done;
            if limit < self.schedule.steps[index].length_bytes {
                break;
            }
            self.cursors[lane].next += 1;
            moved = true;
        }
        moved
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

/// Bytes of a [`Preamble`].
const PREAMBLE_BYTES: usize = HEADER_BYTES + size_of::<u64>();

/// What travels ahead of the data of one collective on one link: the header, and how many bytes of data follow.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Preamble([u8; PREAMBLE_BYTES]);

impl Preamble {
    fn new(header: Header, payload_bytes: usize) -> Preamble {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        bytes[HEADER_BYTES..].copy_from_slice(&(payload_bytes as u64).to_le_bytes());
        Preamble(bytes)
    }

    fn header(&self) -> Option<Header> {
        Header::decode(self.0.first_chunk().expect("a preamble begins with a header"))
    }

    fn payload_bytes(&self) -> u64 {
        u64::from_le_bytes(*self.0.last_chunk().expect("a preamble ends with a length"))
    }
}

/// Why a lane stopped for good.
enum LaneError {
    Link(LinkError),
    /// The peer's preamble is another one than expected.
    Other(Preamble),
}

impl From<LinkError> for LaneError {
    fn from(error: LinkError) -> LaneError {
        LaneError::Link(error)
    }
}

/// One lane during one visit.
struct Lane<'a, 'b> {
    link: &'a mut dyn Link,
    schedule: &'a Schedule,
    steps: &'a [usize],
    cursor: &'a mut Cursor,
    passed: &'a mut [usize],
    buffers: &'a mut [Memory<'b>],
    preamble: Preamble,
    combine: Combine,
    traffic: &'a mut Traffic,
}

impl Lane<'_, '_> {
    /// Sends until the link is full, a byte is not there yet, or a segment has gone.
    fn send(&mut self) -> Result<Moved, LaneError> {
        let mut moved = Moved::Nothing;
        let mut sent_bytes = 0;
        while let Some(&index) = self.steps.get(self.cursor.next) {
            let Operation::Send { span, .. } = self.schedule.steps[index].operation else {
                unreachable!("an outgoing lane holds sends")
            };
            let done = self.passed[index];
            let ready = sendable(done, limit(self.schedule, self.passed, index), span.length_bytes);
            let head = &self.preamble.0[self.cursor.preamble_bytes..];
            if head.is_empty() && ready == done && done < span.length_bytes {
                self.cursor.on_stream = false;
                break;
            }
            let body = &self.buffers[span.buffer.0 as usize].bytes()[memory::range(span, done, ready)];
            let offered = head.len() + body.len();
            let taken = if offered == 0 { 0 } else { self.link.send(&[head, body])? };
            let of_head = taken.min(head.len());
            self.cursor.preamble_bytes += of_head;
            self.passed[index] += taken - of_head;
            sent_bytes += taken - of_head;
            if taken > 0 {
                moved = Moved::Something;
            }
            if taken < offered {
                self.cursor.on_stream = true;
                break;
            }
            if self.passed[index] == span.length_bytes {
                self.cursor.next += 1;
                moved = Moved::Something;
            }
            if sent_bytes >= SEGMENT_BYTES {
                break;
            }
        }
        self.traffic.sent_bytes += sent_bytes as u64;
        Ok(moved)
    }

    /// Receives or reduces until nothing is there, an earlier step is in the way, or a segment has come.
    fn take(&mut self) -> Result<Moved, LaneError> {
        if self.cursor.preamble_bytes == 0 && !self.take_preamble()? {
            self.cursor.on_stream = true;
            return Ok(Moved::Nothing);
        }
        let mut moved = Moved::Nothing;
        let mut taken_bytes = 0;
        while let Some(&index) = self.steps.get(self.cursor.next) {
            let length_bytes = self.schedule.steps[index].length_bytes;
            let done = self.passed[index];
            let limit = limit(self.schedule, self.passed, index).min(done + SEGMENT_BYTES);
            if limit == done && done < length_bytes {
                self.cursor.on_stream = false;
                break;
            }
            let taken = match self.schedule.steps[index].operation {
                Operation::Receive { span, .. } => self.receive(span, done, limit)?,
                Operation::Reduce { span, .. } => self.reduce(span, done, limit)?,
                Operation::Send { .. } | Operation::Copy { .. } => unreachable!("an incoming lane only takes"),
            };
            self.passed[index] += taken;
            taken_bytes += taken;
            if taken > 0 {
                moved = Moved::Something;
            }
            if self.passed[index] == length_bytes {
                self.cursor.next += 1;
                moved = Moved::Something;
            } else if done + taken < limit {
                self.cursor.on_stream = true;
                break;
            }
            if taken_bytes >= SEGMENT_BYTES {
                break;
            }
        }
        self.traffic.received_bytes += taken_bytes as u64;
        Ok(moved)
    }

    /// Takes the peer's preamble, if it is there, and compares it with this rank's.
    fn take_preamble(&mut self) -> Result<bool, LaneError> {
        let there = self.link.peek(PREAMBLE_BYTES)?;
        let Some(theirs) = there.first_chunk().map(|bytes| Preamble(*bytes)) else { return Ok(false) };
        if theirs != self.preamble {
            return Err(LaneError::Other(theirs));
        }
        self.link.consume(PREAMBLE_BYTES);
        self.cursor.preamble_bytes = PREAMBLE_BYTES;
        Ok(true)
    }

    fn receive(&mut self, span: Span, done: usize, limit: usize) -> Result<usize, LaneError> {
        if limit == done {
            return Ok(0);
        }
        let into = &mut self.buffers[span.buffer.0 as usize].bytes_mut()[memory::range(span, done, limit)];
        Ok(self.link.receive(into)?)
    }

    fn reduce(&mut self, span: Span, done: usize, limit: usize) -> Result<usize, LaneError> {
        let mut taken = 0;
        while done + taken < limit {
            let there = self.link.peek(span.element_bytes)?;
            let whole = there.len().min(limit - done - taken) / span.element_bytes * span.element_bytes;
            if whole == 0 {
                break;
            }
            let place = memory::range(span, done + taken, done + taken + whole);
            (self.combine)(&mut self.buffers[span.buffer.0 as usize].bytes_mut()[place], &there[..whole]);
            self.link.consume(whole);
            taken += whole;
        }
        Ok(taken)
    }
}

/// How far step `index` may go now: in front of every byte that an earlier step has still to pass.
fn limit(schedule: &Schedule, passed: &[usize], index: usize) -> usize {
    let step = &schedule.steps[index];
    let mut limit = step.length_bytes;
    for dependency in &schedule.dependencies[step.dependencies.clone()] {
        let reached = passed[dependency.on] as isize + dependency.shift;
        if reached < dependency.high as isize {
            limit = limit.min(reached.max(dependency.low as isize) as usize);
        }
    }
    limit
}

/// How far a send that stands at `done` goes when `limit` bytes are there: to the end, or in whole relay units.
fn sendable(done: usize, limit: usize, length_bytes: usize) -> usize {
    let all_there = limit == length_bytes;
    if all_there || limit - done >= RELAY_UNIT_BYTES { limit.min(done + SEGMENT_BYTES) } else { done }
}
