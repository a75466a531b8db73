//! What a communicator has done so far.

use ripieno_run::RunTraffic;
use std::ops::Add;
use std::time::Duration;

/// What a communicator has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Calls that ended well.
    pub call_count: u64,
    /// Time inside blocking calls; of calls up to 8 KiB, since they first waited.
    pub communicating: Duration,
    /// Payload bytes that left this rank.
    pub sent_bytes: u64,
    /// Payload bytes that reached this rank.
    pub received_bytes: u64,
}

impl Statistics {
    /// Counts a call that ended well.
    pub(crate) fn count(&mut self, traffic: RunTraffic) {
        self.call_count += 1;
        self.sent_bytes += traffic.sent_bytes;
        self.received_bytes += traffic.received_bytes;
    }
}

impl Add for Statistics {
    type Output = Statistics;

    fn add(self, other: Statistics) -> Statistics {
        Statistics {
            call_count: self.call_count + other.call_count,
            communicating: self.communicating + other.communicating,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received_bytes: self.received_bytes + other.received_bytes,
        }
    }
}
