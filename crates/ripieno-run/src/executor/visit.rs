//! Lane visits: advance the steps that share one direction of one link as far as possible.

use super::memory::{self, BufferMemory};
use super::preamble::{PREAMBLE_BYTES, Preamble};
use super::progress::LaneCursor;
use super::rows::{self, Staging};
use super::schedule::Schedule;
use super::{RunTraffic, SEGMENT_BYTES};
use crate::link::{Link, LinkError};
use crate::reduction::Reduction;
use ripieno_plan::{Operation, Rows, Span};

/// Whether a visit moved any bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum VisitProgress {
    Nothing,
    Something,
}

/// The reason why a lane stopped permanently.
pub(super) enum VisitError {
    Link(LinkError),
    /// The peer's preamble differs from the expected one.
    Mismatch(Preamble),
}

impl From<LinkError> for VisitError {
    fn from(error: LinkError) -> VisitError {
        VisitError::Link(error)
    }
}

/// One visit to one lane.
pub(super) struct LaneVisit<'a, 'b> {
    pub link: &'a mut dyn Link,
    pub schedule: &'a Schedule,
    pub number: usize,
    pub steps: &'a [usize],
    pub cursor: &'a mut LaneCursor,
    pub passed: &'a mut [usize],
    pub buffers: &'a mut [BufferMemory<'b>],
    pub preamble: Preamble,
    pub staging: &'a mut Staging,
    pub reduction: Option<&'static Reduction>,
    pub traffic: &'a mut RunTraffic,
    pub relay_unit_bytes: usize,
    /// Whether every rank of this host can have its own core.
    pub has_own_core: bool,
}

impl LaneVisit<'_, '_> {
    /// Send until the link is full, the next byte is not ready, or a segment is sent.
    pub fn send(&mut self) -> Result<VisitProgress, VisitError> {
        let mut moved = VisitProgress::Nothing;
        let mut sent_bytes = 0;
        while let Some(&index) = self.steps.get(self.cursor.next) {
            let step = &self.schedule.steps[index];
            let Operation::Send { span, ref rows, .. } = step.operation else {
                unreachable!("an outgoing lane holds sends")
            };
            if self.is_zero_copy(index, span) {
                if self.send_zero_copy(index, span)? == VisitProgress::Nothing {
                    break;
                }
                moved = VisitProgress::Something;
                continue;
            }
            let done = self.passed[index];
            let ready = self.sendable(done, limit(self.schedule, self.passed, index), step.length_bytes);
            let head = &self.preamble.0[self.cursor.preamble_bytes..];
            // The preamble is sent with the first bytes rather than in a packet of its own.
            if ready == done && done < step.length_bytes {
                self.cursor.on_stream = false;
                break;
            }
            let bytes = self.buffers[span.buffer.0 as usize].bytes();
            let body = match rows {
                None => &bytes[memory::range(span, done, ready)],
                Some(rows) => {
                    let table = &bytes[memory::range(span, 0, span.length_bytes)];
                    self.staging.gathered(self.number, table, rows, done, ready)
                }
            };
            let offered = head.len() + body.len();
            let accepted = if offered == 0 { 0 } else { self.link.send(&[head, body])? };
            let of_head = accepted.min(head.len());
            self.cursor.preamble_bytes += of_head;
            self.passed[index] += accepted - of_head;
            sent_bytes += accepted - of_head;
            if accepted > 0 {
                moved = VisitProgress::Something;
            }
            if accepted < offered {
                self.cursor.on_stream = true;
                break;
            }
            if rows.is_some() {
                self.staging.release(self.number);
            }
            if self.passed[index] == step.length_bytes {
                self.cursor.next += 1;
                moved = VisitProgress::Something;
            }
            if sent_bytes >= SEGMENT_BYTES {
                break;
            }
        }
        self.traffic.sent_bytes += sent_bytes as u64;
        Ok(moved)
    }

    /// Return the limit of a send at `done` when bytes up to `limit` are ready: the end, or whole relay units.
    fn sendable(&self, done: usize, limit: usize, length_bytes: usize) -> usize {
        let is_sendable = limit == length_bytes || limit - done >= self.relay_unit_bytes;
        if is_sendable { limit.min(done + SEGMENT_BYTES) } else { done }
    }

    /// Receive or reduce until no bytes are available, an earlier step blocks, or a segment has arrived.
    pub fn receive_or_reduce(&mut self) -> Result<VisitProgress, VisitError> {
        let mut moved = VisitProgress::Nothing;
        let mut received_bytes = 0;
        while let Some(&index) = self.steps.get(self.cursor.next) {
            let length_bytes = self.schedule.steps[index].length_bytes;
            let done = self.passed[index];
            let limit = limit(self.schedule, self.passed, index).min(done + self.link.receive_bytes_max());
            if limit == done && done < length_bytes {
                self.cursor.on_stream = false;
                break;
            }
            if self.cursor.preamble_bytes == 0 && !self.receive_preamble()? {
                self.cursor.on_stream = true;
                self.link.expect(1);
                break;
            }
            let consumed = match self.schedule.steps[index].operation {
                Operation::Receive { span, .. } => self.receive(span, done, limit)?,
                Operation::Reduce { span, ref rows, .. } => self.reduce(span, rows.as_ref(), done, limit)?,
                Operation::Send { .. }
                | Operation::Copy { .. }
                | Operation::Combine { .. }
                | Operation::Fill { .. } => {
                    unreachable!("an incoming lane holds receives and reductions")
                }
            };
            self.passed[index] += consumed;
            received_bytes += consumed;
            if consumed > 0 {
                moved = VisitProgress::Something;
            }
            if self.passed[index] == length_bytes {
                self.cursor.next += 1;
                moved = VisitProgress::Something;
            } else if done + consumed < limit {
                self.cursor.on_stream = true;
                self.link.expect(self.relay_unit_bytes.min(limit - done - consumed));
                break;
            }
            if received_bytes >= SEGMENT_BYTES {
                break;
            }
        }
        self.traffic.received_bytes += received_bytes as u64;
        Ok(moved)
    }

    /// Consume the peer's preamble if it has arrived, and compare it with this rank's preamble.
    pub fn receive_preamble(&mut self) -> Result<bool, VisitError> {
        let available = self.link.peek(PREAMBLE_BYTES)?;
        let Some(theirs) = available.first_chunk().map(|bytes| Preamble(*bytes)) else { return Ok(false) };
        if theirs != self.preamble {
            return Err(VisitError::Mismatch(theirs));
        }
        self.link.consume(PREAMBLE_BYTES);
        self.cursor.preamble_bytes = PREAMBLE_BYTES;
        Ok(true)
    }

    fn receive(&mut self, span: Span, done: usize, limit: usize) -> Result<usize, VisitError> {
        if limit == done {
            return Ok(0);
        }
        let into = &mut self.buffers[span.buffer.0 as usize].bytes_mut()[memory::range(span, done, limit)];
        Ok(self.link.receive(into)?)
    }

    fn reduce(&mut self, span: Span, rows: Option<&Rows>, done: usize, limit: usize) -> Result<usize, VisitError> {
        let reduction = self.reduction.expect("a plan that reduces has a reduction");
        let mut consumed = 0;
        while done + consumed < limit {
            let available = match self.link.peek(reduction.element_bytes) {
                // The combined bytes must count, because a replica of the peer would deliver them again. The error
                // recurs at the next visit.
                Err(_) if consumed > 0 => break,
                available => available?,
            };
            let whole_bytes = memory::round_down(available.len().min(limit - done - consumed), reduction.element_bytes);
            if whole_bytes == 0 {
                break;
            }
            let (available, bytes) = (&available[..whole_bytes], self.buffers[span.buffer.0 as usize].bytes_mut());
            match rows {
                None => (reduction.combine)(
                    &mut bytes[memory::range(span, done + consumed, done + consumed + whole_bytes)],
                    available,
                ),
                Some(rows) => {
                    let table = &mut bytes[memory::range(span, 0, span.length_bytes)];
                    rows::combine(table, available, rows, done + consumed, reduction);
                }
            }
            self.link.consume(whole_bytes);
            consumed += whole_bytes;
        }
        Ok(consumed)
    }
}

/// Return the limit of step `index`: before every byte that an earlier step has yet to pass.
pub(super) fn limit(schedule: &Schedule, passed: &[usize], index: usize) -> usize {
    let step = &schedule.steps[index];
    if step.involves_rows {
        return rows::limit(schedule, passed, index);
    }
    let mut limit = step.length_bytes;
    for dependency in &schedule.dependencies[step.dependencies.clone()] {
        let reached = passed[dependency.on] as isize + dependency.shift;
        if reached < dependency.high as isize {
            limit = limit.min(reached.max(dependency.low as isize) as usize);
        }
    }
    limit
}
