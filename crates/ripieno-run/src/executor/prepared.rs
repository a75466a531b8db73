//! A call made ready: all that is the same each time that it is made.

use super::{RunError, Schedule};
use crate::call::{Call, HEADER_BYTES, Header, set_sequence};
use crate::recorder::CollectiveRecord;
use crate::reduction::Reduction;
use std::sync::Arc;

/// A call of one communicator, and the schedule that performs it.
#[derive(Clone, Debug)]
pub struct PreparedCall {
    /// Of number 0.
    header: Header,
    /// The same, as it travels.
    encoded: [u8; HEADER_BYTES],
    /// The same, as it is recorded.
    pub(super) record: CollectiveRecord,
    pub(super) schedule: Arc<Schedule>,
    /// Of a plan that reduces.
    pub(super) reduction: Option<&'static Reduction>,
}

impl PreparedCall {
    /// Makes `call` ready; an error if its operation has no meaning on its elements.
    pub fn new(communicator: u32, call: Call, schedule: Arc<Schedule>) -> Result<PreparedCall, RunError> {
        let reduction = schedule.op.map(|op| Reduction::of(call.element, op)).transpose()?;
        let header = Header { communicator, sequence: 0, call };
        let given_bytes = || schedule.buffer_bytes.first().copied().unwrap_or(0) as u64;
        let bytes = call.length_bytes().unwrap_or_else(given_bytes);
        let record = CollectiveRecord::of(&header, bytes, schedule.peer_count);
        Ok(PreparedCall { header, encoded: header.encode(), record, schedule, reduction })
    }

    /// What ranks compare.
    pub fn call(&self) -> &Call {
        &self.header.call
    }

    /// What performs it.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Whether it goes by a few messages of a few bytes.
    pub fn is_brief(&self) -> bool {
        self.schedule.brief.is_some()
    }

    /// Its header when it is made as number `sequence`.
    #[inline]
    pub(super) fn header(&self, sequence: u64) -> Header {
        Header { sequence, ..self.header }
    }

    /// The same, as it travels.
    #[inline]
    pub(super) fn encoded(&self, sequence: u64) -> [u8; HEADER_BYTES] {
        let mut encoded = self.encoded;
        set_sequence(&mut encoded, sequence);
        encoded
    }
}
