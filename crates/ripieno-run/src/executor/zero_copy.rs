//! Zero-copy sends: the receiver reads the bytes of a long send from the memory of the sender, instead of through the
//! memory of the link.
//!
//! A byte of a zero-copy send counts as sent when the receiver has consumed it, as if the link had no buffer. Schedules
//! that are built for such links send all bytes without a copy ([`super::Schedule::with_zero_copy`]). A message that
//! fits the memory of a link is copied ([`super::Schedule::for_message`]), so that its send can end before its receiver
//! starts.
//!
//! Other schedules use a zero-copy send if no later step of the rank waits for it. It only delays the later sends of
//! its lane, and the receiver consumes their bytes later in any case.

use super::memory;
use super::run::ScheduleRun;
use super::schedule::LaneSteps;
use super::visit::{LaneVisit, VisitError, VisitProgress, limit};
use crate::link::SendFlow;
use ripieno_plan::Span;

/// Minimum size of a zero-copy send in bytes. For shorter sends, releasing the memory costs more than a copy.
const MIN_ZERO_COPY_BYTES: usize = 64 << 10;
/// The same in an exchange, where both cores would copy twice.
const MIN_EXCHANGED_BYTES: usize = 16 << 10;
/// Maximum size in bytes of a message that is always copied: a link holds this many bytes. The sender of a longer
/// message waits for its receiver in any case.
pub(super) const BUFFERED_BYTES: usize = 1 << 20;

impl LaneVisit<'_, '_> {
    /// Return whether step `index`, a send of `span`, is zero-copy. The decision does not change once the step has
    /// begun.
    pub fn is_zero_copy(&mut self, index: usize, span: Span) -> bool {
        let step = &self.schedule.steps[index];
        if !step.may_be_zero_copy || self.cursor.zero_copy_bytes > 0 {
            return step.may_be_zero_copy;
        }
        let reduces = || self.preamble.header().is_some_and(|header| header.call.reduces());
        let flow = if !step.dependencies.is_empty() || !self.has_own_core {
            SendFlow::Gradual
        } else if self.schedule.op.is_some() || reduces() {
            SendFlow::Reduction
        } else if self.schedule.only_receives {
            SendFlow::Exchange
        } else {
            SendFlow::OneWay
        };
        let min_bytes = if flow == SendFlow::Exchange { MIN_EXCHANGED_BYTES } else { MIN_ZERO_COPY_BYTES };
        let bytes = || &self.buffers[span.buffer.0 as usize].bytes()[memory::range(span, 0, span.length_bytes)];
        self.passed[index] == 0 && span.length_bytes >= min_bytes && self.link.can_send_zero_copy(bytes(), flow)
    }

    /// Send the ready bytes of `span` without a copy, and record the bytes that the peer has released.
    pub fn send_zero_copy(&mut self, index: usize, span: Span) -> Result<VisitProgress, VisitError> {
        let mut moved = VisitProgress::Nothing;
        let sent_bytes = self.cursor.zero_copy_bytes;
        let before = std::mem::replace(&mut self.passed[index], sent_bytes - self.link.unreleased_bytes()?);
        if self.passed[index] > before {
            moved = VisitProgress::Something;
        }
        let available = limit(self.schedule, self.passed, index);
        let is_all = available == span.length_bytes;
        let ready = if is_all { available } else { available / span.element_bytes * span.element_bytes };
        if ready > sent_bytes && (is_all || ready - sent_bytes >= self.relay_unit_bytes) {
            let head = &self.preamble.0[self.cursor.preamble_bytes..];
            let head_bytes = if head.is_empty() { 0 } else { self.link.send(&[head])? };
            self.cursor.preamble_bytes += head_bytes;
            if head_bytes > 0 {
                moved = VisitProgress::Something;
            }
            let body = &self.buffers[span.buffer.0 as usize].bytes()[memory::range(span, sent_bytes, ready)];
            if head_bytes == head.len() && self.link.send_zero_copy(body)? {
                self.cursor.zero_copy_bytes = ready;
                self.traffic.sent_bytes += body.len() as u64;
                self.traffic.zero_copy_bytes += body.len() as u64;
                moved = VisitProgress::Something;
            }
            self.cursor.on_stream = true;
        } else {
            self.cursor.on_stream = sent_bytes > self.passed[index];
        }
        if self.passed[index] == span.length_bytes {
            self.cursor.next += 1;
            self.cursor.zero_copy_bytes = 0;
            moved = VisitProgress::Something;
        }
        Ok(moved)
    }
}

impl ScheduleRun<'_, '_> {
    /// Revoke the zero-copy sends of this run, because its memory may be freed after an early end.
    pub fn revoke_zero_copy(&mut self) {
        for (lane, cursor) in self.schedule.lanes.iter().zip(&self.progress.cursors) {
            let LaneSteps::To(link) = lane.stream else { continue };
            if cursor.zero_copy_bytes > 0
                && let Ok(Some(link)) = self.fabric.link(link)
            {
                link.revoke_zero_copy();
            }
        }
    }
}
