//! The index protocol of a ring with one producer and one consumer, apart from its bytes.
//!
//! Indices count bytes since the start and never wrap; a byte's place is its index modulo the capacity, a power of two.
//! Each side writes its own cache line only and keeps a copy of the last index it saw of the other, so the other's line
//! is read only when that copy does not suffice. Nothing read from the shared words is believed unchecked: the peer may
//! have crashed or be hostile.

use super::atomics::Word;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Set in an index by the side that closes; the rest of the word is its last index.
const CLOSED: u64 = 1 << 63;

/// The words of one ring, in shared memory. Lines are 128 bytes apart: x86 prefetches lines in pairs, some arm64 have
/// lines of that size.
#[repr(C)]
#[cfg_attr(test, derive(Default))]
pub struct Indices<W> {
    producer: Line<ProducerWords<W>>,
    consumer: Line<W>,
}

#[repr(C, align(128))]
#[cfg_attr(test, derive(Default))]
struct Line<T>(T);

#[repr(C)]
#[cfg_attr(test, derive(Default))]
struct ProducerWords<W> {
    /// Bytes published so far, with [`CLOSED`].
    tail: W,
    /// Not 0 while the producer waits for room.
    starved: W,
}

/// Why a ring carries nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The other side has closed it.
    Closed,
    /// The other side's index is one that the protocol cannot give.
    Corrupt {
        /// The index found.
        found: u64,
        /// The least index possible.
        least: u64,
        /// The greatest index possible.
        greatest: u64,
    },
}

/// The producer's private state.
pub struct Producer {
    capacity: u64,
    tail: u64,
    published: u64,
    head_seen: u64,
    starved: bool,
}

/// The consumer's private state.
pub struct Consumer {
    capacity: u64,
    head: u64,
    tail_seen: u64,
    closed: bool,
}

impl Producer {
    /// The producer of an empty ring of `capacity` bytes, a power of two.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity.is_power_of_two(), "a ring's capacity is a power of two");
        Producer { capacity: capacity as u64, tail: 0, published: 0, head_seen: 0, starved: false }
    }

    /// Bytes that may be written at [`Self::offset`]; the consumer's index is looked at if fewer than `wanted` are known
    /// to be free.
    pub fn room<W: Word>(&mut self, shared: &Indices<W>, wanted: usize) -> Result<usize, Broken> {
        let free = self.capacity - (self.tail - self.head_seen);
        if free >= wanted as u64 {
            return Ok(free as usize);
        }
        // Acquire: the consumer's reads of these bytes come before our overwriting them.
        let word = shared.consumer.0.load(Acquire);
        if word & CLOSED != 0 {
            return Err(Broken::Closed);
        }
        self.head_seen = within(word, self.head_seen, self.published)?;
        Ok((self.capacity - (self.tail - self.head_seen)) as usize)
    }

    /// Where the next byte goes.
    pub fn offset(&self) -> usize {
        (self.tail & (self.capacity - 1)) as usize
    }

    /// Notes that `count` bytes were written; the consumer does not see them yet.
    pub fn advance(&mut self, count: usize) {
        self.tail += count as u64;
        debug_assert!(self.tail - self.head_seen <= self.capacity, "no more is written than there is room");
    }

    /// Bytes written and not yet published.
    pub fn unpublished(&self) -> usize {
        (self.tail - self.published) as usize
    }

    /// Shows the consumer all that was written.
    pub fn publish<W: Word>(&mut self, shared: &Indices<W>) {
        if self.tail != self.published {
            self.published = self.tail;
            shared.producer.0.tail.store(self.tail, Release);
        }
    }

    /// Tells the consumer whether this side waits for room.
    pub fn set_starved<W: Word>(&mut self, shared: &Indices<W>, starved: bool) {
        if self.starved != starved {
            self.starved = starved;
            shared.producer.0.starved.store(starved.into(), Relaxed);
        }
    }

    /// Publishes and says that nothing more comes.
    pub fn close<W: Word>(&mut self, shared: &Indices<W>) {
        self.published = self.tail;
        shared.producer.0.tail.store(self.tail | CLOSED, Release);
    }
}

impl Consumer {
    /// The consumer of an empty ring of `capacity` bytes, a power of two.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity.is_power_of_two(), "a ring's capacity is a power of two");
        Consumer { capacity: capacity as u64, head: 0, tail_seen: 0, closed: false }
    }

    /// Bytes that may be read at [`Self::offset`]; the producer's index is looked at if fewer than `least` are known.
    /// Closed only when fewer than `least` are left and no more can come.
    pub fn arrived<W: Word>(&mut self, shared: &Indices<W>, least: usize) -> Result<usize, Broken> {
        let known = self.tail_seen - self.head;
        if known >= least as u64 {
            return Ok(known as usize);
        }
        if !self.closed {
            // Acquire: the producer's writes of these bytes come before our reading them.
            let word = shared.producer.0.tail.load(Acquire);
            self.tail_seen = within(word & !CLOSED, self.tail_seen, self.head + self.capacity)?;
            self.closed = word & CLOSED != 0;
        }
        let known = self.tail_seen - self.head;
        if self.closed && known < least as u64 {
            return Err(Broken::Closed);
        }
        Ok(known as usize)
    }

    /// Where the next byte is.
    pub fn offset(&self) -> usize {
        (self.head & (self.capacity - 1)) as usize
    }

    /// Gives the first `count` bytes back to the producer. They are not read afterwards.
    pub fn release<W: Word>(&mut self, shared: &Indices<W>, count: usize) {
        self.head += count as u64;
        assert!(self.head <= self.tail_seen, "no more is taken than has arrived");
        shared.consumer.0.store(self.head, Release);
    }

    /// Whether the producer waits for room. Asked after a fence that follows [`Self::release`].
    pub fn producer_is_starved<W: Word>(&self, shared: &Indices<W>) -> bool {
        shared.producer.0.starved.load(Relaxed) != 0
    }

    /// Says that nothing more will be taken.
    pub fn close<W: Word>(&mut self, shared: &Indices<W>) {
        shared.consumer.0.store(self.head | CLOSED, Release);
    }
}

fn within(found: u64, least: u64, greatest: u64) -> Result<u64, Broken> {
    if (least..=greatest).contains(&found) { Ok(found) } else { Err(Broken::Corrupt { found, least, greatest }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn an_index_the_protocol_cannot_give_breaks_the_ring() {
        for hostile in [9, 100, CLOSED - 1, 1, 0] {
            let shared = Indices::<AtomicU64>::default();
            let mut consumer = Consumer::new(8);
            shared.producer.0.tail.store(2, Relaxed);
            assert_eq!(consumer.arrived(&shared, 1), Ok(2));
            consumer.release(&shared, 1);

            shared.producer.0.tail.store(hostile, Relaxed);
            let found = consumer.arrived(&shared, 8);

            let possible = hostile == 9;
            assert_eq!(found.is_ok(), possible, "index {hostile} where 2..=9 is possible gave {found:?}");
        }
    }

    #[test]
    fn a_consumer_that_claims_more_than_was_sent_gives_no_room() {
        for hostile in [5, 100, u64::MAX >> 1] {
            let shared = Indices::<AtomicU64>::default();
            let mut producer = Producer::new(8);
            producer.advance(4);
            producer.publish(&shared);

            shared.consumer.0.store(hostile, Relaxed);

            let expected = Broken::Corrupt { found: hostile, least: 0, greatest: 4 };
            assert_eq!(producer.room(&shared, 8), Err(expected));
        }
    }

    #[test]
    fn what_was_published_is_read_before_the_close_is_seen() {
        let shared = Indices::<AtomicU64>::default();
        let (mut producer, mut consumer) = (Producer::new(8), Consumer::new(8));
        producer.advance(3);
        producer.close(&shared);

        assert_eq!(consumer.arrived(&shared, 4), Err(Broken::Closed));
        assert_eq!(consumer.arrived(&shared, 3), Ok(3));
        consumer.release(&shared, 3);
        assert_eq!(consumer.arrived(&shared, 1), Err(Broken::Closed));
    }
}
