//! Prepared calls: everything that is equal for each repetition of a call.

use super::{RunError, Schedule};
use crate::call::{Call, HEADER_BYTES, Header, set_sequence};
use crate::recorder::CollectiveRecord;
use crate::reduction::Reduction;
use std::sync::Arc;

/// A call of one communicator and its schedule.
#[derive(Clone, Debug)]
pub struct PreparedCall {
    /// Header with sequence number 0.
    header: Header,
    /// The encoded header.
    encoded: [u8; HEADER_BYTES],
    /// The flight record of the call.
    pub(super) record: CollectiveRecord,
    pub(super) schedule: Arc<Schedule>,
    /// Set if the plan reduces.
    pub(super) reduction: Option<&'static Reduction>,
}

impl PreparedCall {
    /// Prepare `call`. Return an error if its operation is undefined for its elements.
    pub fn new(communicator: u32, call: Call, schedule: Arc<Schedule>) -> Result<PreparedCall, RunError> {
        let reduction = schedule.op.map(|op| Reduction::of(call.element, op)).transpose()?;
        let header = Header { communicator, sequence: 0, call };
        let given_bytes = || schedule.buffer_bytes.first().copied().unwrap_or(0) as u64;
        let bytes = call.length_bytes().unwrap_or_else(given_bytes);
        let record = CollectiveRecord::of(&header, bytes, schedule.peer_count);
        Ok(PreparedCall { header, encoded: header.encode(), record, schedule, reduction })
    }

    /// Return the call that ranks compare.
    pub fn call(&self) -> &Call {
        &self.header.call
    }

    /// Return the schedule of the call.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Return whether the schedule consists of a few short messages.
    pub fn is_brief(&self) -> bool {
        self.schedule.brief.is_some()
    }

    /// Return the header with number `sequence`.
    #[inline]
    pub(super) fn header(&self, sequence: u64) -> Header {
        Header { sequence, ..self.header }
    }

    /// Encode the header with number `sequence` into `header`.
    #[inline]
    pub(super) fn encode(&self, sequence: u64, header: &mut [u8; HEADER_BYTES]) {
        *header = self.encoded;
        set_sequence(header, sequence);
    }
}
