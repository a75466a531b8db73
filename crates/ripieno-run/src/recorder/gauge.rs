//! Communication gauge: counters of a recorder that any thread can read at any time, even during a call.
//!
//! Counting starts with the first read. Before that, a call costs one check of a flag. Afterwards each call and each
//! wait takes a lock, which is contended only during reads. The current wait of the program is always known: each wait
//! takes another lock, which is short compared with the wait.

use super::record::CollectiveRecord;
use crate::executor::RunTraffic;
use ripieno_plan::Collective;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Communication of a rank since the first read, and its current call.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Number of successful calls.
    pub call_count: u64,
    /// Payload bytes received by this rank.
    pub received_bytes: u64,
    /// Time that the program spent in calls. A short call counts from its first wait.
    pub called: Duration,
    /// Part of this time without data movement.
    pub waited: Duration,
    /// Time that the program waited for each peer, by rank. Missing entries at the end are zero.
    pub waited_for: Vec<Duration>,
    /// Payload bytes sent to each peer, by rank. Missing entries at the end are zero.
    pub sent_to: Vec<u64>,
    /// Number of runs and bytes sent by this rank, per algorithm.
    pub usage: Vec<AlgorithmUsage>,
    /// The current call of the program, if it lasts long enough to be observed.
    pub current: Option<CurrentCall>,
}

/// Usage of one algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlgorithmUsage {
    /// The collective.
    pub collective: Collective,
    /// Name of the algorithm.
    pub algorithm: &'static str,
    /// Number of completed runs.
    pub call_count: u64,
    /// Payload bytes sent by this rank.
    pub sent_bytes: u64,
}

/// A call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentCall {
    /// The collective.
    pub collective: Collective,
    /// Start time. For a short call: start of its first wait.
    pub since: Option<Duration>,
    /// Waiting time before the current wait.
    waited: Duration,
    /// The awaited peer and the start of the wait.
    pub waits: Option<(usize, Duration)>,
}

/// Counters that other threads can read. See the module documentation.
#[derive(Debug, Default)]
pub struct Gauge {
    is_read: AtomicBool,
    reading: Mutex<Reading>,
    stall: Mutex<Option<StalledCall>>,
}

/// A wait of the program that has begun and not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct StalledCall {
    pub record: CollectiveRecord,
    pub peer: Option<usize>,
    pub since: Duration,
}

impl Gauge {
    /// Return the counters at time `now`. The first read returns zeros.
    pub fn read(&self, now: Duration) -> Reading {
        self.is_read.store(true, Ordering::Relaxed);
        let mut reading = self.lock().clone();
        if let Some(current) = reading.current {
            reading.add_call(current, now);
        }
        reading
    }

    /// Return the collective for which the program waits, with its waiting time until `now`.
    pub fn stalled(&self, now: Duration) -> Option<CollectiveRecord> {
        let StalledCall { mut record, peer, since } = (*self.lock_stall())?;
        record.waited(peer, since, now);
        record.ended(now);
        Some(record)
    }

    /// Record the current wait of the program, or that it waits no longer.
    pub(super) fn set_stall(&self, stall: Option<StalledCall>) {
        *self.lock_stall() = stall;
    }

    fn lock_stall(&self) -> MutexGuard<'_, Option<StalledCall>> {
        self.stall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return the locked counters, or `None` if they were never read.
    #[inline]
    pub(super) fn counting(&self) -> Option<MutexGuard<'_, Reading>> {
        self.is_read.load(Ordering::Relaxed).then(|| self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// Return the number of payload bytes sent by this rank.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_to.iter().sum()
    }

    /// Record that the program enters the call of `record`, at time `since` if known.
    pub(super) fn enter(&mut self, record: &CollectiveRecord, since: Option<Duration>) {
        self.current = Some(CurrentCall { collective: record.collective, since, waited: Duration::ZERO, waits: None });
    }

    /// Record that no data moves since `since`, because of `peer`.
    pub(super) fn begin_wait(&mut self, peer: usize, since: Duration) {
        if let Some(current) = &mut self.current {
            let begin = *current.since.get_or_insert(since);
            current.waits.get_or_insert((peer, since.max(begin)));
        }
    }

    /// Record that data moves again.
    pub(super) fn end_wait(&mut self, until: Duration) {
        if let Some(current) = &mut self.current
            && let Some((_, since)) = current.waits.take()
        {
            current.waited += until.saturating_sub(since);
        }
    }

    /// Add a wait for `peer` from `since` until `until`. The time is divided by `peer_count`.
    pub(super) fn waited_for(&mut self, peer: usize, since: Duration, until: Duration, peer_count: u32) {
        // Before that time the program itself did not wait.
        let entered = self.current.and_then(|current| current.since).unwrap_or_default();
        *at(&mut self.waited_for, peer) += until.saturating_sub(since.max(entered)) / peer_count;
    }

    /// Record that the program left its call. `now` is only read if the call has a start time.
    pub(super) fn leave(&mut self, now: impl FnOnce() -> Duration) {
        if let Some(current) = self.current.take()
            && current.since.is_some()
        {
            self.add_call(current, now());
        }
    }

    fn add_call(&mut self, current: CurrentCall, now: Duration) {
        let Some(since) = current.since else { return };
        let called = now.saturating_sub(since);
        let waits = current.waits.map_or(Duration::ZERO, |(_, since)| now.saturating_sub(since));
        if let Some((peer, _)) = current.waits {
            *at(&mut self.waited_for, peer) += waits;
        }
        self.called += called;
        self.waited += (current.waited + waits).min(called);
    }

    /// Record a successful call and the bytes that it sent to each peer.
    pub(super) fn count(
        &mut self,
        record: &CollectiveRecord,
        traffic: &RunTraffic,
        sent: impl Iterator<Item = (usize, usize)>,
    ) {
        self.call_count += 1;
        self.received_bytes += traffic.received_bytes;
        sent.for_each(|(peer, bytes)| *at(&mut self.sent_to, peer) += bytes as u64);
        let (collective, algorithm) = (record.collective, record.algorithm());
        let is_same = |usage: &&mut AlgorithmUsage| usage.collective == collective && usage.algorithm == algorithm;
        match self.usage.iter_mut().find(is_same) {
            Some(usage) => {
                usage.call_count += 1;
                usage.sent_bytes += traffic.sent_bytes;
            }
            None => {
                self.usage.push(AlgorithmUsage { collective, algorithm, call_count: 1, sent_bytes: traffic.sent_bytes })
            }
        }
    }
}

/// Return the entry of `peer`. Extend the list if needed.
fn at<T: Clone + Default>(by_peer: &mut Vec<T>, peer: usize) -> &mut T {
    if by_peer.len() <= peer {
        by_peer.resize(peer + 1, T::default());
    }
    &mut by_peer[peer]
}
