//! Progress of a broadcast on this rank, readable by other threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of fetches recorded per value. Further fetches are only counted.
const FETCHES_RECORDED_MAX: usize = 1 << 16;

/// A received block or part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeteredBlock {
    /// Index of the block.
    pub block: usize,
    /// The sender.
    pub from: usize,
    /// Number of bytes.
    pub bytes: usize,
    /// Arrival of the first bytes, on the driver's clock.
    pub first: Duration,
    /// Arrival of the last bytes.
    pub last: Duration,
}

/// Received blocks in the order of their indices.
#[derive(Clone, Debug, Default)]
pub struct FetchRecord {
    /// One entry per block and sender.
    pub fetches: Vec<MeteredBlock>,
    /// Bytes of blocks that did not fit the record.
    pub left_out_bytes: usize,
}

/// Counters of one value.
#[derive(Debug, Default)]
pub struct Meter {
    value_bytes: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    is_released: AtomicBool,
    is_recorded: AtomicBool,
    record: Mutex<FetchLog>,
}

/// Fetches by block and sender.
#[derive(Debug, Default)]
struct FetchLog {
    fetches: BTreeMap<(usize, usize), MeteredBlock>,
    left_out_bytes: usize,
}

impl Meter {
    /// Return the size of the value in bytes, or 0 until it is known.
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes.load(Ordering::Relaxed)
    }

    /// Return the number of received bytes, including blocks that failed verification.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Return the number of bytes sent to other ranks.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Return whether the tracker has reported that all live ranks have the value.
    pub fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Relaxed)
    }

    /// Start to record the time and the sender of each received block.
    pub fn begin_record(&self) {
        self.is_recorded.store(true, Ordering::Relaxed);
    }

    /// Return the record so far.
    pub fn record(&self) -> FetchRecord {
        let recorded = self.recorded();
        FetchRecord { fetches: recorded.fetches.values().copied().collect(), left_out_bytes: recorded.left_out_bytes }
    }

    fn recorded(&self) -> MutexGuard<'_, FetchLog> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note_value(&self, bytes: usize) {
        self.value_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn note_received(&self, now: Duration, from: usize, block: usize, count: usize) {
        self.received_bytes.fetch_add(count as u64, Ordering::Relaxed);
        if !self.is_recorded.load(Ordering::Relaxed) {
            return;
        }
        let mut recorded = self.recorded();
        let has_space = recorded.fetches.len() < FETCHES_RECORDED_MAX;
        match recorded.fetches.get_mut(&(block, from)) {
            Some(fetched) => (fetched.bytes, fetched.last) = (fetched.bytes + count, now),
            None if has_space => {
                let fetched = MeteredBlock { block, from, bytes: count, first: now, last: now };
                recorded.fetches.insert((block, from), fetched);
            }
            None => recorded.left_out_bytes += count,
        }
    }

    pub(super) fn record_sent(&self, count: usize) {
        self.sent_bytes.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn note_released(&self) {
        self.is_released.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bytes_are_recorded_on_request_in_bounded_memory() {
        let meter = Meter::default();
        let at = Duration::from_millis;
        meter.note_received(at(1), 3, 0, 10);
        meter.begin_record();
        for (ms, from, count) in [(2, 3, 20), (3, 3, 5), (4, 1, 7)] {
            meter.note_received(at(ms), from, 0, count);
        }
        let fetched =
            |from, bytes, first, last| MeteredBlock { block: 0, from, bytes, first: at(first), last: at(last) };
        assert_eq!(meter.record().fetches, [fetched(1, 7, 4, 4), fetched(3, 25, 2, 3)]);
        (1..=FETCHES_RECORDED_MAX).for_each(|block| meter.note_received(at(5), 1, block, 2));
        let record = meter.record();
        assert_eq!((record.fetches.len(), record.left_out_bytes), (FETCHES_RECORDED_MAX, 4));
        assert_eq!(meter.received_bytes(), 42 + 2 * FETCHES_RECORDED_MAX as u64);
    }
}
