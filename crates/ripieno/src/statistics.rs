//! Counters of a communicator.

use ripieno_run::RunTraffic;
use std::ops::Add;
use std::time::Duration;

/// Counters of a communicator since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of successful calls.
    pub call_count: u64,
    /// Time in blocking calls. For calls of up to 8 KiB, it starts with the first wait.
    pub communicating: Duration,
    /// Payload bytes sent by this rank.
    pub sent_bytes: u64,
    /// Part of the sent bytes that the receivers read from the memory of this rank.
    pub zero_copy_bytes: u64,
    /// Payload bytes received by this rank.
    pub received_bytes: u64,
}

impl Statistics {
    /// Count a successful call.
    pub(crate) fn count(&mut self, traffic: RunTraffic) {
        self.call_count += 1;
        self.sent_bytes += traffic.sent_bytes;
        self.zero_copy_bytes += traffic.zero_copy_bytes;
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
            zero_copy_bytes: self.zero_copy_bytes + other.zero_copy_bytes,
            received_bytes: self.received_bytes + other.received_bytes,
        }
    }
}
