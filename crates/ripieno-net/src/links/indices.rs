//! The index protocol of a ring with one producer and one consumer, independent of the ring's bytes.
//!
//! Indices count bytes since the start and never wrap. The position of a byte is its index modulo the capacity, a power
//! of two. The producer publishes through slots, a circle of cache lines used in turn. A slot holds the index up to
//! which bytes are available, and the bytes themselves if they fit, so a short message moves one cache line between
//! cores. The consumer copies inline bytes to their position in the ring.
//!
//! The producer reuses a slot after the consumer has released the published bytes. It reads the consumer's line only
//! when the last value it saw there does not suffice. All indices read from shared memory are validated, because the
//! peer may have crashed or be hostile.

use super::atomics::AtomicWord;
use super::store_choice::ReadCosts;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Set in an index by the side that closes; the other bits are its last index.
const CLOSED: u64 = 1 << 63;
/// Set in a slot's index if the slot contains the bytes.
const INLINE: u64 = 1 << 62;
/// Set in a slot's index if the slot describes a zero-copy send, which counts as one byte.
const LOAN: u64 = 1 << 61;
/// Set in a slot's index if the bytes in the ring were written by streaming stores.
const STREAMED: u64 = 1 << 60;
/// The bits of a slot's index that are no part of the index.
const FLAGS: u64 = CLOSED | INLINE | LOAN | STREAMED;

/// Number of slots of a ring. Up to `NOTE_COUNT - 1` publications may be ahead of the consumer.
pub const NOTE_COUNT: usize = 64;

/// The words of one ring, in shared memory. Lines written by different sides are 128 bytes apart, because x86
/// prefetches lines in pairs and some arm64 CPUs have lines of that size.
#[repr(C)]
pub struct Indices<W: AtomicWord, const NOTES: usize = NOTE_COUNT> {
    notes: [InlineSlot<W>; NOTES],
    starved: IndexLine<W>,
    recalled: IndexLine<W>,
    visit: IndexLine<ReadAttempt<W>>,
    read_costs: IndexLine<ReadCosts<W>>,
    consumer: IndexLine<W>,
}

/// A descriptor of the producer, and the result of the consumer's attempt to read its memory.
#[repr(C)]
#[cfg_attr(test, derive(Default))]
pub(super) struct ReadAttempt<W> {
    /// The descriptor plus 1.
    pub descriptor: W,
    /// The value that the consumer must read there.
    pub value: W,
    /// Nonzero once the consumer has read it.
    pub welcome: W,
}

/// The content of a slot's inline memory.
pub(super) enum NoteResult {
    /// Offset in the ring and count of the inline bytes.
    Bytes(usize, usize),
    /// A zero-copy send at this index of the stream.
    Loan(u64),
}

/// One publication, in one cache line.
#[repr(C, align(64))]
struct InlineSlot<W: AtomicWord> {
    /// Bytes published so far, with the flags [`CLOSED`], [`INLINE`] or [`LOAN`].
    tail: W,
    /// The last of these bytes, if [`INLINE`].
    bytes: W::Inline,
}

#[repr(C, align(128))]
struct IndexLine<T>(T);

/// The reason why a ring is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingBroken {
    /// The other side has closed the ring.
    Closed,
    /// The other side's index is impossible under the protocol.
    Corrupt {
        /// The index found.
        found: u64,
        /// The least possible index.
        least: u64,
        /// The greatest possible index.
        greatest: u64,
    },
}

/// The producer's private state.
pub struct Producer<const NOTES: usize = NOTE_COUNT> {
    capacity: u64,
    tail: u64,
    published: u64,
    head_seen: u64,
    starved: bool,
    /// Whether the last unpublished bytes were written by streaming stores.
    is_streamed: bool,
    /// The slot of the next publication.
    next: usize,
    /// The index that was published in each slot.
    told: [u64; NOTES],
}

/// The consumer's private state.
pub struct Consumer<const NOTES: usize = NOTE_COUNT> {
    capacity: u64,
    head: u64,
    tail_seen: u64,
    closed: bool,
    /// Whether the bytes of the last publication were written by streaming stores.
    is_streamed: bool,
    /// The index at which the last publication begins.
    last_start: u64,
    /// The slot of the next publication.
    next: usize,
}

impl<W: AtomicWord, const NOTES: usize> Indices<W, NOTES> {
    /// Return the words with which the consumer tests whether it can read the producer's memory.
    pub(super) fn visit(&self) -> &ReadAttempt<W> {
        &self.visit.0
    }

    /// Return the consumer's costs of reading.
    pub(super) fn read_costs(&self) -> &ReadCosts<W> {
        &self.read_costs.0
    }
}

impl<const NOTES: usize> Producer<NOTES> {
    /// Create the producer of an empty ring of `capacity` bytes, a power of two.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity.is_power_of_two(), "a ring's capacity is a power of two");
        Producer {
            capacity: capacity as u64,
            tail: 0,
            published: 0,
            head_seen: 0,
            starved: false,
            is_streamed: false,
            next: 0,
            told: [0; NOTES],
        }
    }

    /// Return the number of bytes that may be written at [`Self::offset`] and published. The consumer's index is read
    /// only if fewer than `wanted` bytes are known to be free.
    pub fn room<W: AtomicWord>(&mut self, shared: &Indices<W, NOTES>, wanted: usize) -> Result<usize, RingBroken> {
        let free = self.free();
        if free >= wanted {
            return Ok(free);
        }
        match self.look(shared)? {
            true => Err(RingBroken::Closed),
            false => Ok(self.free()),
        }
    }

    /// Return the consumer's index. Fails with `Closed` only if the index is below `least` and will never reach it.
    pub fn head<W: AtomicWord>(&mut self, shared: &Indices<W, NOTES>, least: u64) -> Result<u64, RingBroken> {
        let is_closed = self.look(shared)?;
        if is_closed && self.head_seen < least { Err(RingBroken::Closed) } else { Ok(self.head_seen) }
    }

    /// Read the consumer's index; return whether the consumer has closed.
    fn look<W: AtomicWord>(&mut self, shared: &Indices<W, NOTES>) -> Result<bool, RingBroken> {
        // Acquire: the consumer's reads of these bytes and slots happen before they are overwritten here.
        let word = shared.consumer.0.load(Acquire);
        self.head_seen = within(word & !CLOSED, self.head_seen, self.published)?;
        Ok(word & CLOSED != 0)
    }

    /// Return the number of bytes known to be free. It is 0 without two free slots, because one stays reserved for the
    /// close.
    fn free(&self) -> usize {
        match self.has_notes(1) {
            true => (self.capacity - (self.tail - self.head_seen)) as usize,
            false => 0,
        }
    }

    /// Return whether `count` slots are known to be free, plus one for the close.
    pub fn has_notes(&self, count: usize) -> bool {
        self.told[(self.next + count) % NOTES] <= self.head_seen
    }

    /// Return the ring offset of the next byte to write.
    pub fn offset(&self) -> usize {
        (self.tail & (self.capacity - 1)) as usize
    }

    /// Record that `count` bytes were written; the consumer does not see them yet.
    pub fn advance(&mut self, count: usize) {
        self.tail += count as u64;
        debug_assert!(self.tail - self.head_seen <= self.capacity, "no more is written than there is room");
    }

    /// Return whether every byte of the ring was written before.
    pub fn has_wrapped(&self) -> bool {
        self.tail >= self.capacity
    }

    /// Record that the last written bytes were written by streaming stores. The caller has fenced them.
    pub fn mark_streamed(&mut self) {
        self.is_streamed = true;
    }

    /// Return the number of bytes written and not yet published.
    pub fn unpublished(&self) -> usize {
        (self.tail - self.published) as usize
    }

    /// Publish all written bytes to the consumer.
    pub fn publish<W: AtomicWord>(&mut self, shared: &Indices<W, NOTES>) {
        if self.tail != self.published {
            let flags = if std::mem::take(&mut self.is_streamed) { STREAMED } else { 0 };
            self.tell(shared, flags);
        }
    }

    /// Publish `count` bytes that `write` puts into a slot instead of the ring. The ring has space for them, they fit a
    /// slot, and all earlier bytes are published.
    pub fn publish_inline<W: AtomicWord>(
        &mut self,
        shared: &Indices<W, NOTES>,
        count: usize,
        write: impl FnOnce(&W::Inline),
    ) {
        debug_assert!(self.unpublished() == 0 && count <= W::INLINE_BYTES, "a note tells of its own bytes");
        write(&shared.notes[self.next].bytes);
        self.tail += count as u64;
        self.tell(shared, INLINE);
    }

    /// Publish a zero-copy send that `write` describes in a slot, and return the index that the consumer passes to
    /// complete it. The ring has space for one byte, and all earlier bytes are published.
    pub fn publish_loan<W: AtomicWord>(&mut self, shared: &Indices<W, NOTES>, write: impl FnOnce(&W::Inline)) -> u64 {
        debug_assert!(self.unpublished() == 0, "a note tells of one thing");
        write(&shared.notes[self.next].bytes);
        self.tail += 1;
        self.tell(shared, LOAN);
        self.tail
    }

    /// Mark all zero-copy sends as invalid.
    pub fn recall<W: AtomicWord>(&self, shared: &Indices<W, NOTES>) {
        shared.recalled.0.store(1, Relaxed);
        // Later changes of the memory are ordered after the mark.
        W::fence();
    }

    fn tell<W: AtomicWord>(&mut self, shared: &Indices<W, NOTES>, flags: u64) {
        self.published = self.tail;
        self.told[self.next] = self.tail;
        shared.notes[self.next].tail.store(self.tail | flags, Release);
        self.next = (self.next + 1) % NOTES;
        // Not the next line, because the consumer polls it.
        shared.notes[(self.next + 1) % NOTES].tail.fetch(true);
    }

    /// Notify the consumer whether this side waits for free space.
    pub fn set_starved<W: AtomicWord>(&mut self, shared: &Indices<W, NOTES>, starved: bool) {
        if self.starved != starved {
            self.starved = starved;
            shared.starved.0.store(starved.into(), Relaxed);
        }
    }

    /// Publish all written bytes and mark the stream as ended.
    pub fn close<W: AtomicWord>(&mut self, shared: &Indices<W, NOTES>) {
        self.tell(shared, CLOSED);
    }
}

impl<const NOTES: usize> Consumer<NOTES> {
    /// Create the consumer of an empty ring of `capacity` bytes, a power of two.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity.is_power_of_two(), "a ring's capacity is a power of two");
        Consumer {
            capacity: capacity as u64,
            head: 0,
            tail_seen: 0,
            closed: false,
            is_streamed: false,
            last_start: 0,
            next: 0,
        }
    }

    /// Return the number of bytes that may be read at [`Self::offset`]. Slots are read while fewer than `least` bytes
    /// are known. `take` receives the content of a slot: bytes for the ring, or a zero-copy send. Fails with `Closed`
    /// only if fewer than `least` bytes are left and no more can arrive.
    pub fn arrived<W: AtomicWord>(
        &mut self,
        shared: &Indices<W, NOTES>,
        least: usize,
        mut take: impl FnMut(&W::Inline, NoteResult),
    ) -> Result<usize, RingBroken> {
        while self.tail_seen - self.head < least as u64 {
            if self.closed {
                return Err(RingBroken::Closed);
            }
            let note = &shared.notes[self.next];
            // Acquire: the producer's writes of these bytes happen before they are read here.
            let word = note.tail.load(Acquire);
            let tail = word & !FLAGS;
            if word & CLOSED != 0 {
                self.tail_seen = within(tail, self.tail_seen, self.head + self.capacity)?;
                self.closed = true;
                continue;
            }
            // The slot still contains its previous publication.
            if tail <= self.tail_seen {
                break;
            }
            let most = match word & (INLINE | LOAN) {
                0 => u64::MAX,
                INLINE => self.tail_seen + W::INLINE_BYTES as u64,
                _ => self.tail_seen + 1,
            };
            within(tail, self.tail_seen, most.min(self.head + self.capacity))?;
            if word & LOAN != 0 {
                take(&note.bytes, NoteResult::Loan(self.tail_seen));
            } else if word & INLINE != 0 {
                take(&note.bytes, NoteResult::Bytes(self.place(self.tail_seen), (tail - self.tail_seen) as usize));
            }
            (self.last_start, self.is_streamed) = (self.tail_seen, word & STREAMED != 0);
            self.tail_seen = tail;
            self.turn(shared);
        }
        Ok((self.tail_seen - self.head) as usize)
    }

    /// Return the slot that contains exactly the next `count` bytes, if it is published and all earlier bytes are
    /// consumed.
    #[inline]
    pub fn noted<'a, W: AtomicWord>(&self, shared: &'a Indices<W, NOTES>, count: usize) -> Option<&'a W::Inline> {
        let note = &shared.notes[self.next];
        let is_next = self.tail_seen == self.head && count <= W::INLINE_BYTES;
        // Acquire: the producer's writes of these bytes happen before they are read here.
        let is_there = is_next && note.tail.load(Acquire) == (self.head + count as u64) | INLINE;
        is_there.then_some(&note.bytes)
    }

    /// Consume the `count` bytes that a slot [held](Self::noted), without copying them to the ring.
    #[inline]
    pub fn take_noted<W: AtomicWord>(&mut self, shared: &Indices<W, NOTES>, count: usize) {
        debug_assert!(self.noted(shared, count).is_some(), "a note is taken as it was shown");
        self.tail_seen += count as u64;
        self.turn(shared);
    }

    /// Move to the next slot.
    #[inline]
    fn turn<W: AtomicWord>(&mut self, shared: &Indices<W, NOTES>) {
        self.next = (self.next + 1) % NOTES;
        shared.notes[self.next].tail.fetch(false);
    }

    /// Return the ring offset of the next byte to read.
    pub fn offset(&self) -> usize {
        self.place(self.head)
    }

    /// Return whether every byte of the ring was read before.
    pub fn has_wrapped(&self) -> bool {
        self.head >= self.capacity
    }

    /// Return whether the bytes of the last publication were written by streaming stores, if all known bytes belong to
    /// it.
    pub fn is_streamed(&self) -> Option<bool> {
        (self.head >= self.last_start).then_some(self.is_streamed)
    }

    /// Return whether all bytes known to have arrived are consumed.
    pub fn is_drained(&self) -> bool {
        self.tail_seen == self.head
    }

    /// Return the index of the next byte.
    pub fn head(&self) -> u64 {
        self.head
    }

    fn place(&self, index: u64) -> usize {
        (index & (self.capacity - 1)) as usize
    }

    /// Release the first `count` bytes to the producer. They are not read afterwards.
    pub fn release<W: AtomicWord>(&mut self, shared: &Indices<W, NOTES>, count: usize) {
        self.head += count as u64;
        assert!(self.head <= self.tail_seen, "no more is taken than has arrived");
        shared.consumer.0.store(self.head, Release);
    }

    /// Return whether the producer waits for free space. Requires a fence after [`Self::release`].
    pub fn producer_is_starved<W: AtomicWord>(&self, shared: &Indices<W, NOTES>) -> bool {
        shared.starved.0.load(Relaxed) != 0
    }

    /// Return whether the producer has invalidated its zero-copy sends. Call after the bytes were read.
    pub fn is_recalled<W: AtomicWord>(&self, shared: &Indices<W, NOTES>) -> bool {
        W::fence();
        shared.recalled.0.load(Relaxed) != 0
    }

    /// Mark that the consumer takes no more bytes.
    pub fn close<W: AtomicWord>(&mut self, shared: &Indices<W, NOTES>) {
        shared.consumer.0.store(self.head | CLOSED, Release);
    }
}

fn within(found: u64, least: u64, greatest: u64) -> Result<u64, RingBroken> {
    if (least..=greatest).contains(&found) { Ok(found) } else { Err(RingBroken::Corrupt { found, least, greatest }) }
}

#[cfg(test)]
impl<W: AtomicWord + Default, const NOTES: usize> Default for Indices<W, NOTES>
where
    W::Inline: Default,
{
    fn default() -> Self {
        let note = || InlineSlot { tail: W::default(), bytes: W::Inline::default() };
        let line = || IndexLine(W::default());
        Indices {
            notes: std::array::from_fn(|_| note()),
            starved: line(),
            recalled: line(),
            visit: IndexLine(ReadAttempt::default()),
            read_costs: IndexLine(ReadCosts::default()),
            consumer: line(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn arrived<const NOTES: usize>(
        consumer: &mut Consumer<NOTES>,
        shared: &Indices<AtomicU64, NOTES>,
        least: usize,
    ) -> Result<usize, RingBroken> {
        consumer.arrived(shared, least, |_, _| {})
    }

    #[test]
    fn an_index_the_protocol_cannot_give_breaks_the_ring() {
        for hostile in [10, 100, INLINE - 1, CLOSED | 1, CLOSED | 10, INLINE | 10] {
            let shared = Indices::<AtomicU64>::default();
            let mut consumer = Consumer::new(8);
            shared.notes[0].tail.store(2, Relaxed);
            assert_eq!(arrived(&mut consumer, &shared, 1), Ok(2));
            consumer.release(&shared, 1);

            shared.notes[1].tail.store(hostile, Relaxed);
            let found = arrived(&mut consumer, &shared, 8);

            assert!(
                matches!(found, Err(RingBroken::Corrupt { .. })),
                "index {hostile} where 2..=9 is possible gave {found:?}"
            );
        }
    }

    #[test]
    fn a_note_holds_no_more_than_fits_it() {
        for (count, fits) in [(1, true), (56, true), (57, false)] {
            let shared = Indices::<AtomicU64>::default();
            let mut consumer = Consumer::new(1 << 10);
            shared.notes[0].tail.store(INLINE | count, Relaxed);

            let mut deposited = None;
            let found = consumer.arrived(&shared, 1, |_, told| deposited = Some(told));

            assert_eq!(found.is_ok(), fits);
            let is_told = matches!(deposited, Some(NoteResult::Bytes(0, told)) if told == count as usize);
            assert_eq!(is_told, fits);
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

            let expected = RingBroken::Corrupt { found: hostile, least: 0, greatest: 4 };
            assert_eq!(producer.room(&shared, 8), Err(expected));
        }
    }

    #[test]
    fn what_was_published_is_read_before_the_close_is_seen() {
        let shared = Indices::<AtomicU64>::default();
        let (mut producer, mut consumer) = (Producer::new(8), Consumer::new(8));
        producer.advance(3);
        producer.close(&shared);

        assert_eq!(arrived(&mut consumer, &shared, 4), Err(RingBroken::Closed));
        assert_eq!(arrived(&mut consumer, &shared, 3), Ok(3));
        consumer.release(&shared, 3);
        assert_eq!(arrived(&mut consumer, &shared, 1), Err(RingBroken::Closed));
    }

    #[test]
    fn without_two_free_notes_there_is_no_room_and_the_close_still_has_one() {
        let shared = Indices::<AtomicU64, 3>::default();
        let (mut producer, mut consumer) = (Producer::new(8), Consumer::new(8));
        for _ in 0..2 {
            assert!(producer.room(&shared, 1).unwrap() > 0);
            producer.advance(1);
            producer.publish(&shared);
        }
        assert_eq!(producer.room(&shared, 1), Ok(0));
        assert_eq!(arrived(&mut consumer, &shared, 1), Ok(1));
        consumer.release(&shared, 1);
        assert_eq!(producer.room(&shared, 1), Ok(7));
        producer.advance(1);
        producer.publish(&shared);
        assert_eq!(producer.room(&shared, 1), Ok(0));
        producer.close(&shared);
        assert_eq!(arrived(&mut consumer, &shared, 2), Ok(2));
        assert_eq!(arrived(&mut consumer, &shared, 3), Err(RingBroken::Closed));
    }
}
