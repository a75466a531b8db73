//! How far a run is: plain data, which the executor keeps from one run to the next.

use super::rows::Staging;
use super::schedule::Schedule;
use super::{RELAY_UNIT_BYTES, RunTraffic};
use crate::call::HEADER_BYTES;
use crate::fabric::Want;
use crate::recorder::OpenRecord;
use std::time::Duration;

/// How far a run is. Kept by the executor for the next run.
#[derive(Debug, Default)]
pub(super) struct RunProgress {
    /// Bytes that each step has passed.
    pub passed: Vec<usize>,
    /// Per lane: how far it is.
    pub cursors: Vec<LaneCursor>,
    pub staging: Staging,
    pub traffic: RunTraffic,
    /// What a relay has at least before it sends on.
    pub relay_unit_bytes: usize,
    /// Its record.
    pub ticket: OpenRecord,
    /// Its header as it travels.
    pub header: [u8; HEADER_BYTES],
    pub waiting: Option<Waiting>,
    /// Memory for the wants of a wait.
    pub wants: Vec<Want>,
}

/// How far a lane is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaneCursor {
    /// Index into the lane's steps.
    pub next: usize,
    /// Bytes of the preamble that have left or come.
    pub preamble_bytes: usize,
    /// Bytes of the next step that were lent, returned or not.
    pub lent_bytes: usize,
    /// Where replicas race: bytes of the next step that this lane has brought or let go.
    pub raced_bytes: usize,
    /// The stream itself, not a byte awaited from elsewhere, is what holds the lane up.
    pub on_stream: bool,
    /// A lane of an earlier run still has the stream.
    pub is_queued: bool,
    /// The peer is gone, and its replicas do without it.
    pub is_out: bool,
}

/// A time in which nothing of a run moves.
#[derive(Debug)]
pub(super) struct Waiting {
    pub since: Duration,
    /// The last look at the clock.
    pub seen: Duration,
    /// Whether the recorder knows.
    pub is_noted: bool,
}

impl RunProgress {
    /// Makes ready for a run.
    pub fn begin(&mut self, header: [u8; HEADER_BYTES], ticket: OpenRecord) {
        self.header = header;
        self.ticket = ticket;
        self.waiting = None;
    }

    /// Makes ready for the lanes of `schedule`, none of which has moved.
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
