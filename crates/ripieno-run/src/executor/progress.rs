//! Progress of a run: plain data that the executor reuses for the next run.

use super::rows::Staging;
use super::schedule::Schedule;
use super::{PreparedCall, RELAY_UNIT_BYTES, RunTraffic};
use crate::call::HEADER_BYTES;
use crate::fabric::LinkInterest;
use crate::recorder::OpenRecord;
use std::time::Duration;

/// Progress of a run.
#[derive(Debug, Default)]
pub(super) struct RunProgress {
    /// Bytes that each step has passed.
    pub passed: Vec<usize>,
    /// Progress of each lane.
    pub cursors: Vec<LaneCursor>,
    pub staging: Staging,
    pub traffic: RunTraffic,
    /// Minimum number of bytes that a relay forwards at once.
    pub relay_unit_bytes: usize,
    /// Ticket of the run's record.
    pub ticket: OpenRecord,
    /// Encoded header of the run.
    pub header: [u8; HEADER_BYTES],
    pub waiting: Option<WaitState>,
    /// Reused memory for the interests of a wait.
    pub interests: Vec<LinkInterest>,
}

/// Progress of a lane.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaneCursor {
    /// Index into the lane's steps.
    pub next: usize,
    /// Bytes of the preamble that were sent or received.
    pub preamble_bytes: usize,
    /// Bytes of the next step that were sent without a copy, released or not.
    pub zero_copy_bytes: usize,
    /// With replicas: bytes of the next step that this lane has delivered or discarded.
    pub raced_bytes: usize,
    /// Whether the lane waits for the stream itself, not for bytes from elsewhere.
    pub on_stream: bool,
    /// Whether a lane of an earlier run still uses the stream.
    pub is_queued: bool,
    /// Whether the peer is lost and its replicas continue without it.
    pub has_dropped_out: bool,
}

/// An interval without progress of a run.
#[derive(Debug)]
pub(super) struct WaitState {
    pub since: Duration,
    /// Time of the last clock read.
    pub seen: Duration,
    /// Whether the recorder was notified.
    pub is_recorded: bool,
}

impl RunProgress {
    /// Prepare for a run.
    pub fn begin(&mut self, prepared: &PreparedCall, sequence: u64, ticket: OpenRecord) {
        // In place: copying the header just after its number is set would wait for the store.
        prepared.encode(sequence, &mut self.header);
        self.ticket = ticket;
        self.waiting = None;
    }

    /// Prepare for the lanes of `schedule`, before any of them has progressed.
    pub fn reset(&mut self, schedule: &Schedule) {
        self.passed.clear();
        self.passed.resize(schedule.steps.len(), 0);
        self.cursors.clear();
        self.cursors.resize(schedule.lanes.len(), LaneCursor::default());
        self.staging.reset(schedule);
        self.traffic = RunTraffic::default();
        self.relay_unit_bytes = RELAY_UNIT_BYTES;
    }
}
