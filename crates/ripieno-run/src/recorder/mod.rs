//! Flight recorder: the last collectives of this rank, with their waiting times and the awaited peers.
//!
//! The recorder is always on. [`Recorder::begin`] and [`Recorder::end`] write one cache line of a preallocated ring.
//! They read no clock and do not allocate. The executor reads the clock anyway for long calls and for calls that wait,
//! and the recorder uses these times. A short call that never waited has no times; it ran between the calls before and
//! after it. A *clocked* recorder receives the times of every call.

mod gauge;
mod record;
mod waits;

pub use gauge::{AlgorithmUsage, CurrentCall, Gauge, Reading};
pub use record::{CollectiveOutcome, CollectiveRecord};
pub use waits::{MIN_LISTED_WAIT, StallInterval};

use crate::executor::RunTraffic;
use crate::fabric::LinkInterest;
use gauge::StalledCall;
use std::sync::Arc;
use std::time::Duration;
use waits::StallRecord;

/// Default number of recorded collectives.
pub const DEFAULT_RECORD_COUNT: usize = 4096;

/// The last collectives of one rank.
#[derive(Debug)]
pub struct Recorder {
    /// Whether the executor supplies the times of every call.
    pub is_clocked: bool,
    /// Counters that other threads can read at any time.
    pub gauge: Arc<Gauge>,
    /// Whether the program itself waits for the runs in flight.
    is_awaited: bool,
    /// If the program waits: the call for which the gauge shows the wait.
    stalled: Option<OpenRecord>,
    /// The length is a power of two.
    ring: Box<[CollectiveRecord]>,
    begun_count: u64,
    waits: StallRecord,
}

/// A record that has begun and not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenRecord(u64);

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new(DEFAULT_RECORD_COUNT)
    }
}

impl Recorder {
    /// Return a recorder for the last `record_count` collectives, rounded up to a power of two, and equally many waits.
    pub fn new(record_count: usize) -> Recorder {
        let record_count = record_count.max(1).next_power_of_two();
        Recorder {
            is_clocked: false,
            gauge: Arc::default(),
            is_awaited: false,
            stalled: None,
            ring: vec![CollectiveRecord::EMPTY; record_count].into(),
            begun_count: 0,
            waits: StallRecord::new(record_count),
        }
    }

    /// Record that the collective of `record` begins as number `sequence`, at time `start` if known.
    #[inline]
    pub fn begin(&mut self, record: &CollectiveRecord, sequence: u64, start: Option<Duration>) -> OpenRecord {
        let ticket = OpenRecord(self.begun_count);
        self.begun_count += 1;
        let slot = self.slot(ticket.0);
        self.ring[slot] = record.begun(sequence, start);
        ticket
    }

    /// Record that a collective is stalled since `since` because of `interests`.
    pub fn begin_wait(&mut self, ticket: OpenRecord, interests: &[LinkInterest], since: Duration) {
        let first = self.waits.begin(ticket, interests, since);
        // If several calls are in flight, the gauge shows the longest wait.
        if self.is_awaited && self.stalled.is_none() {
            self.stall(ticket, first, since);
        }
        if self.is_awaited
            && let (Some(peer), Some(mut counting)) = (first, self.gauge.counting())
        {
            counting.begin_wait(peer, since);
        }
    }

    /// Record that data of the collective moves again, or that its wait has ended for another reason. Does nothing if
    /// no wait has begun.
    ///
    /// The time is divided evenly among the peers from which bytes were awaited. If there are none, it is divided among
    /// the peers that accepted no bytes.
    pub fn end_wait(&mut self, ticket: OpenRecord, until: Duration) {
        let mut counting = if self.is_awaited { self.gauge.counting() } else { None };
        let ended = self.waits.end(ticket, until, |peer, since, peer_count| {
            counting.iter_mut().for_each(|reading| reading.waited_for(peer, since, until, peer_count));
        });
        counting.iter_mut().for_each(|reading| reading.end_wait(until));
        drop(counting);
        if self.stalled == Some(ticket) {
            match self.waits.longest() {
                Some((other, peer, since)) => self.stall(other, peer, since),
                None => self.unstall(),
            }
        }
        if let Some((since, longest)) = ended
            && let Some(record) = self.record(ticket)
        {
            record.waited(longest, since, until);
        }
    }

    /// Record that the program itself waits for the collective from now on, or since `since` or the start of the
    /// collective if known.
    #[inline(always)]
    pub fn enter(&mut self, ticket: OpenRecord, since: Option<Duration>) {
        self.is_awaited = true;
        if let (Some(since), Some(peer)) = (since, self.waits.awaited_by(ticket)) {
            self.stall(ticket, Some(peer), since);
        }
        if let Some(mut counting) = self.gauge.counting() {
            let record = self.ring[self.slot(ticket.0)];
            counting.enter(&record, since.or(record.start()));
            if let (Some(since), Some(peer)) = (since, self.waits.awaited_by(ticket)) {
                counting.begin_wait(peer, since);
            }
        }
    }

    /// Record that the program continues.
    #[inline]
    pub fn leave(&mut self, now: impl FnOnce() -> Duration) {
        self.is_awaited = false;
        self.unstall();
        if let Some(mut counting) = self.gauge.counting() {
            counting.leave(now);
        }
    }

    /// Record a successful collective and the bytes sent to each peer.
    #[inline]
    pub fn count(&self, record: &CollectiveRecord, traffic: &RunTraffic, sent: impl Iterator<Item = (usize, usize)>) {
        if let Some(mut counting) = self.gauge.counting() {
            counting.count(record, traffic, sent);
        }
    }

    /// Record the outcome of a collective and return its duration. If the start time is unknown and the collective
    /// succeeded, no clock is read.
    #[inline]
    pub fn end(
        &mut self,
        ticket: OpenRecord,
        outcome: CollectiveOutcome,
        now: impl FnOnce() -> Duration,
    ) -> Option<Duration> {
        let Some(record) = self.record(ticket) else {
            self.close(ticket, now);
            return None;
        };
        record.outcome = outcome;
        if !record.has_start() && outcome == CollectiveOutcome::Done && !self.waits.has_accounts() {
            return None;
        }
        self.close(ticket, now)
    }

    /// Return the latest records, at most `count`, oldest first, each with its number among all records of this rank.
    /// Records in flight include their waiting time until `now`.
    pub fn latest(&self, count: usize, now: Duration) -> impl Iterator<Item = (u64, CollectiveRecord)> {
        let latest_count = self.begun_count.min(self.ring.len() as u64).min(count as u64);
        (self.begun_count - latest_count..self.begun_count).map(move |number| {
            let mut record = self.ring[self.slot(number)];
            if record.outcome == CollectiveOutcome::InFlight {
                if let Some((since, longest)) = self.waits.so_far(OpenRecord(number), now) {
                    record.waited(longest, since, now);
                }
                record.ended(now);
            }
            (number, record)
        })
    }

    /// Return the latest waits of at least [`MIN_LISTED_WAIT`], oldest first, each with the number of its record.
    pub fn waits(&self) -> impl Iterator<Item = &StallInterval> {
        self.waits.latest()
    }

    /// Return the time that this rank waited for each peer, by rank. Missing entries at the end are zero.
    pub fn waited_for(&self) -> &[Duration] {
        self.waits.by_peer()
    }

    fn close(&mut self, ticket: OpenRecord, now: impl FnOnce() -> Duration) -> Option<Duration> {
        let has_times = |record: &mut CollectiveRecord| record.has_start() || record.outcome != CollectiveOutcome::Done;
        if self.record(ticket).is_none_or(has_times) {
            let end = now();
            self.end_wait(ticket, end);
            if let Some(record) = self.record(ticket) {
                record.ended(end);
            }
        }
        self.waits.remove(ticket);
        self.record(ticket)?.elapsed()
    }

    /// Show other threads that the program has waited for `peer` since `since`.
    fn stall(&mut self, ticket: OpenRecord, peer: Option<usize>, since: Duration) {
        self.stalled = Some(ticket);
        // Newer records may have overwritten the record of a call that began long ago.
        let stall = self.record(ticket).map(|record| StalledCall { record: *record, peer, since });
        self.gauge.set_stall(stall);
    }

    /// Show other threads that the program does not wait.
    #[inline]
    fn unstall(&mut self) {
        if self.stalled.take().is_some() {
            self.gauge.set_stall(None);
        }
    }

    /// Return the record of a ticket, or `None` if newer records have overwritten it.
    fn record(&mut self, OpenRecord(number): OpenRecord) -> Option<&mut CollectiveRecord> {
        let slot = self.slot(number);
        (self.begun_count - number <= self.ring.len() as u64).then(|| &mut self.ring[slot])
    }

    fn slot(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }
}

#[cfg(test)]
mod tests;
