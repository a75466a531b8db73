//! The gauge: what any other thread may read of a recorder at any time, also while a call goes on.
//!
//! Nothing is counted until somebody reads, and a call then costs one look at a flag. From then on each call and each
//! wait takes a lock that is free but for the moments of reading.

use super::record::CollectiveRecord;
use crate::executor::RunTraffic;
use ripieno_plan::Collective;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a rank has communicated since somebody first read, and what it is at.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Calls that ended well.
    pub call_count: u64,
    /// Payload bytes that reached this rank.
    pub received_bytes: u64,
    /// Time of the program inside calls, of short ones since they first waited.
    pub called: Duration,
    /// Time of that in which nothing moved.
    pub waited: Duration,
    /// How long the program has waited for each peer, by rank; ranks beyond the end were never waited for.
    pub waited_for: Vec<Duration>,
    /// Payload bytes that left for each peer, likewise.
    pub sent_to: Vec<u64>,
    /// How often each algorithm ran, and what this rank sent by it.
    pub usage: Vec<LinkUsage>,
    /// The call that the program is in, if it is long enough to be seen.
    pub current: Option<Current>,
}

/// What an algorithm was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkUsage {
    /// Of which collective.
    pub collective: Collective,
    /// Its name.
    pub algorithm: &'static str,
    /// How often it ran to its end.
    pub call_count: u64,
    /// Payload bytes that left this rank.
    pub sent_bytes: u64,
}

/// A call that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// Which collective.
    pub collective: Collective,
    /// Since when; of a short call, since it first waited.
    pub since: Option<Duration>,
    /// How long it has waited before its last wait.
    waited: Duration,
    /// The peer that it waits for, and since when.
    pub waits: Option<(usize, Duration)>,
}

/// See above.
#[derive(Debug, Default)]
pub struct Gauge {
    is_read: AtomicBool,
    reading: Mutex<Reading>,
}

impl Gauge {
    /// What was counted, as it stands `now`; the first time nothing.
    pub fn read(&self, now: Duration) -> Reading {
        self.is_read.store(true, Ordering::Relaxed);
        let mut reading = self.lock().clone();
        if let Some(current) = reading.current {
            reading.leave(current, now);
        }
        reading
    }

    /// What counts, if somebody reads.
    #[inline]
    pub(super) fn counting(&self) -> Option<MutexGuard<'_, Reading>> {
        self.is_read.load(Ordering::Relaxed).then(|| self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// Payload bytes that left this rank.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_to.iter().sum()
    }

    /// The program enters the call of `record`, `since` then if that is known.
    pub(super) fn enter(&mut self, record: &CollectiveRecord, since: Option<Duration>) {
        self.current = Some(Current { collective: record.collective, since, waited: Duration::ZERO, waits: None });
    }

    /// Nothing moves since `since`, because of `peer`.
    pub(super) fn begin_wait(&mut self, peer: usize, since: Duration) {
        if let Some(current) = &mut self.current {
            let begin = *current.since.get_or_insert(since);
            current.waits.get_or_insert((peer, since.max(begin)));
        }
    }

    /// Something moves again.
    pub(super) fn end_wait(&mut self, until: Duration) {
        if let Some(current) = &mut self.current
            && let Some((_, since)) = current.waits.take()
        {
            current.waited += until.saturating_sub(since);
        }
    }

    /// A wait from `since` until `until` was for `peer`, as one of so many.
    pub(super) fn waited_for(&mut self, peer: usize, since: Duration, until: Duration, peer_count: u32) {
        // Before that the program did not wait itself.
        let entered = self.current.and_then(|current| current.since).unwrap_or_default();
        *at(&mut self.waited_for, peer) += until.saturating_sub(since.max(entered)) / peer_count;
    }

    /// The program has left its call, `now` if there are times of it.
    pub(super) fn left(&mut self, now: impl FnOnce() -> Duration) {
        if let Some(current) = self.current.take()
            && current.since.is_some()
        {
            self.leave(current, now());
        }
    }

    fn leave(&mut self, current: Current, now: Duration) {
        let Some(since) = current.since else { return };
        let called = now.saturating_sub(since);
        let waits = current.waits.map_or(Duration::ZERO, |(_, since)| now.saturating_sub(since));
        if let Some((peer, _)) = current.waits {
            *at(&mut self.waited_for, peer) += waits;
        }
        self.called += called;
        self.waited += (current.waited + waits).min(called);
    }

    /// A call has ended well, which has sent so many bytes to these peers.
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
        let is_same = |usage: &&mut LinkUsage| usage.collective == collective && usage.algorithm == algorithm;
        match self.usage.iter_mut().find(is_same) {
            Some(usage) => {
                usage.call_count += 1;
                usage.sent_bytes += traffic.sent_bytes;
            }
            None => self.usage.push(LinkUsage { collective, algorithm, call_count: 1, sent_bytes: traffic.sent_bytes }),
        }
    }
}

/// The place of `peer`.
fn at<T: Clone + Default>(by_peer: &mut Vec<T>, peer: usize) -> &mut T {
    if by_peer.len() <= peer {
        by_peer.resize(peer + 1, T::default());
    }
    &mut by_peer[peer]
}
