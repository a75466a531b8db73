//! The flight recorder: the last collectives of this rank, how long each waited, and for whom.
//!
//! Always on: [`Recorder::begin`] and [`Recorder::end`] write one cache line of a ring that was there before; they look
//! at no clock and allocate nothing. Times are those that the executor learns anyway: of long calls and of calls that
//! wait. A short call that never waited has none; it lies between its neighbours'. A recorder that is *clocked* is
//! given the time of every call.

mod record;
mod waits;

pub use record::{Outcome, Record};
pub use waits::{NOTED_WAIT, Wait};

use crate::call::Header;
use crate::fabric::Want;
use std::time::Duration;
use waits::Waits;

/// How many collectives are kept unless told otherwise.
pub const KEPT_COUNT: usize = 4096;

/// The last collectives of one rank.
#[derive(Debug)]
pub struct Recorder {
    /// Whether the executor gives the time of every call.
    pub is_clocked: bool,
    /// As many as a power of two.
    ring: Box<[Record]>,
    begun_count: u64,
    waits: Waits,
}

/// A record that has begun and not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket(u64);

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new(KEPT_COUNT)
    }
}

impl Recorder {
    /// A recorder of the last `kept_count` collectives, rounded up to a power of two, and as many waits.
    pub fn new(kept_count: usize) -> Recorder {
        let kept_count = kept_count.max(1).next_power_of_two();
        Recorder {
            is_clocked: false,
            ring: vec![Record::EMPTY; kept_count].into(),
            begun_count: 0,
            waits: Waits::new(kept_count),
        }
    }

    /// Notes that `header` begins, on `bytes` of this rank's memory and with `peer_count` others; `start` if it is
    /// known.
    #[inline]
    pub fn begin(&mut self, header: &Header, bytes: u64, peer_count: u16, start: Option<Duration>) -> Ticket {
        let ticket = Ticket(self.begun_count);
        self.begun_count += 1;
        let slot = self.slot(ticket.0);
        self.ring[slot] = Record::begun(header, bytes, peer_count, start);
        ticket
    }

    /// Notes that from `since` on nothing of a collective moves, because of `wants`.
    pub fn begin_wait(&mut self, ticket: Ticket, wants: &[Want], since: Duration) {
        self.waits.begin(ticket, wants, since);
    }

    /// Notes that something moves again, or that nobody waits any longer; nothing if no wait has begun.
    ///
    /// The time is divided evenly among the peers whose bytes were awaited or, where none were, that took none.
    pub fn end_wait(&mut self, ticket: Ticket, until: Duration) {
        if let Some((since, longest)) = self.waits.end(ticket, until)
            && let Some(record) = self.record(ticket)
        {
            record.waited(longest, since, until);
        }
    }

    /// Notes how a collective ended, and returns how long it took; if nobody has looked at the clock before and it
    /// ended well, nobody does now.
    #[inline]
    pub fn end(&mut self, ticket: Ticket, outcome: Outcome, now: impl FnOnce() -> Duration) -> Option<Duration> {
        let Some(record) = self.record(ticket) else {
            self.close(ticket, now);
            return None;
        };
        record.outcome = outcome;
        if !record.has_start() && outcome == Outcome::Done && !self.waits.has_accounts() {
            return None;
        }
        self.close(ticket, now)
    }

    /// The latest records, at most `count`, oldest first, each with its number among all that this rank began. What is
    /// in flight stands as it does `now`.
    pub fn latest(&self, count: usize, now: Duration) -> impl Iterator<Item = (u64, Record)> {
        let kept = self.begun_count.min(self.ring.len() as u64).min(count as u64);
        (self.begun_count - kept..self.begun_count).map(move |number| {
            let mut record = self.ring[self.slot(number)];
            if record.outcome == Outcome::InFlight {
                if let Some((since, longest)) = self.waits.so_far(Ticket(number), now) {
                    record.waited(longest, since, now);
                }
                record.ended(now);
            }
            (number, record)
        })
    }

    /// The latest waits of at least [`NOTED_WAIT`], oldest first, each with the number of its record.
    pub fn waits(&self) -> impl Iterator<Item = &Wait> {
        self.waits.latest()
    }

    /// How long this rank has waited for each peer, by rank; ranks beyond the end were never waited for.
    pub fn waited_for(&self) -> &[Duration] {
        self.waits.by_peer()
    }

    fn close(&mut self, ticket: Ticket, now: impl FnOnce() -> Duration) -> Option<Duration> {
        let has_times = |record: &mut Record| record.has_start() || record.outcome != Outcome::Done;
        if self.record(ticket).is_none_or(has_times) {
            let end = now();
            self.end_wait(ticket, end);
            if let Some(record) = self.record(ticket) {
                record.ended(end);
            }
        }
        self.waits.forget(ticket);
        self.record(ticket)?.elapsed()
    }

    /// The record of a ticket; `None` when as many have begun since as are kept.
    fn record(&mut self, Ticket(number): Ticket) -> Option<&mut Record> {
        let slot = self.slot(number);
        (self.begun_count - number <= self.ring.len() as u64).then(|| &mut self.ring[slot])
    }

    fn slot(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }
}

#[cfg(test)]
mod tests;
