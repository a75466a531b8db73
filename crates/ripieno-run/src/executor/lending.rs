//! Lending: a long send whose bytes the receiver reads where they are, instead of through the link's own memory.
//!
//! A lent send passes a byte when the receiver has taken it, as if the link held nothing. Schedules of plans that are
//! known to run over such links lend all that they send ([`super::Schedule::lending`]); messages lend nothing
//! ([`super::Schedule::copying`]), so that a send can end before its receiver comes; others lend sends that no later
//! step of their rank waits for: those hold nobody up but the later sends of their lane, until the receiver has taken
//! what comes before them, which it does in any case before it looks at them.

use super::memory;
use super::run::ScheduleRun;
use super::schedule::LaneSteps;
use super::visit::{LaneVisit, VisitError, VisitProgress, limit};
use ripieno_plan::Span;

/// Shorter sends are copied: that a loan is returned takes time of its own.
pub(super) const LEND_BYTES: usize = 64 << 10;

impl LaneVisit<'_, '_> {
    /// Whether step `index`, a send of `span`, is lent. A step that began otherwise ends so, and one that began so too.
    pub fn is_lent(&self, index: usize, span: Span) -> bool {
        let is_begun = self.passed[index] > 0 || self.cursor.lent_bytes > 0;
        self.schedule.steps[index].is_lendable
            && span.length_bytes >= LEND_BYTES
            && (self.cursor.lent_bytes > 0
                || !is_begun
                    && self.link.lends(
                        &self.buffers[span.buffer.0 as usize].bytes()[memory::range(span, 0, span.length_bytes)],
                    ))
    }

    /// Lends what is there of `span` and was not lent yet, and notes what was returned.
    pub fn lend(&mut self, index: usize, span: Span) -> Result<VisitProgress, VisitError> {
        let mut moved = VisitProgress::Nothing;
        let lent = self.cursor.lent_bytes;
        let before = std::mem::replace(&mut self.passed[index], lent - self.link.lent_bytes()?);
        if self.passed[index] > before {
            moved = VisitProgress::Something;
        }
        let there = limit(self.schedule, self.passed, index);
        let is_all = there == span.length_bytes;
        let ready = if is_all { there } else { there / span.element_bytes * span.element_bytes };
        if ready > lent && (is_all || ready - lent >= self.relay_unit_bytes) {
            let head = &self.preamble.0[self.cursor.preamble_bytes..];
            let sent = if head.is_empty() { 0 } else { self.link.send(&[head])? };
            self.cursor.preamble_bytes += sent;
            if sent > 0 {
                moved = VisitProgress::Something;
            }
            let body = &self.buffers[span.buffer.0 as usize].bytes()[memory::range(span, lent, ready)];
            if sent == head.len() && self.link.lend(body)? {
                self.cursor.lent_bytes = ready;
                self.traffic.sent_bytes += body.len() as u64;
                self.traffic.lent_bytes += body.len() as u64;
                moved = VisitProgress::Something;
            }
            self.cursor.on_stream = true;
        } else {
            self.cursor.on_stream = lent > self.passed[index];
        }
        if self.passed[index] == span.length_bytes {
            self.cursor.next += 1;
            self.cursor.lent_bytes = 0;
            moved = VisitProgress::Something;
        }
        Ok(moved)
    }
}

impl ScheduleRun<'_, '_> {
    /// Takes back what this run has lent, for its memory may be gone when it has ended too early.
    pub fn recall(&mut self) {
        for (lane, cursor) in self.schedule.lanes.iter().zip(&self.progress.cursors) {
            let LaneSteps::To(link) = lane.stream else { continue };
            if cursor.lent_bytes > 0
                && let Ok(Some(link)) = self.fabric.link(link)
            {
                link.recall();
            }
        }
    }
}
