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
use super::line_times::LineTimes;
use super::store_choice::ReadCosts;
use super::streaming::{ticks, ticks_after_loads};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Set in an index by the side that closes; the other bits are its last index.
const CLOSED: u64 = 1 << 63;
/// Set in an index if the slot contains the bytes.
const INLINE: u64 = 1 << 62;
/// Set in a slot's index if the slot describes a zero-copy send, which counts as one byte.
const ZERO_COPY: u64 = 1 << 61;
/// Set in a slot's index if the bytes in the ring were written by streaming stores.
const STREAMED: u64 = 1 << 60;
/// Set in an index if the next packet contains the bytes.
const PACKET: u64 = 1 << 59;
/// The flag bits of an index word. The other bits are the index.
const FLAGS: u64 = CLOSED | INLINE | ZERO_COPY | STREAMED | PACKET;

/// Number of bits of an index in the word of a packet, which also has the packet's length.
const PACKET_END_BITS: u32 = 48;
/// Number of slots of a ring. Up to `SLOT_COUNT - 1` publications may be ahead of the consumer.
pub const SLOT_COUNT: usize = 64;
/// Number of packets of a ring.
const PACKET_COUNT: usize = 16;
/// Prefetch distance of a lagging consumer, in messages.
const PREFETCH_DISTANCE_COUNT: usize = 4;
/// Distance between the places of two consecutive packets, for the same reasons as [`PLACE_STEP`].
const PACKET_STEP: usize = 5;
/// Distance between the places of two consecutive slots. It has no common divisor with the number of slots, and puts
/// most consecutive slots into different pages.
const PLACE_STEP: usize = 37;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Maximum number of lines of an awaited packet that the consumer prefetches.
const PREFETCHED_LINE_COUNT_MAX: usize = 5;

/// The words of one ring, in shared memory. Lines written by different sides are 128 bytes apart, because x86
/// prefetches lines in pairs and some arm64 CPUs have lines of that size.
#[repr(C)]
pub struct Indices<W: AtomicWord, const SLOTS: usize = SLOT_COUNT> {
    slots: [Slot<W, W::Inline>; SLOTS],
    packets: [Slot<W, W::Packet>; PACKET_COUNT],
    starved: IndexLine<W>,
    revoked: IndexLine<W>,
    read_attempt: IndexLine<ReadAttempt<W>>,
    read_costs: IndexLine<ReadCosts<W>>,
    consumer: IndexLine<W>,
}

/// A value in the memory of the producer, and the result of the consumer's attempts to read it.
#[repr(C)]
#[cfg_attr(test, derive(Default))]
pub(super) struct ReadAttempt<W> {
    /// The descriptor of a file with the value, plus 1.
    pub descriptor: W,
    /// The address of the value in the process.
    pub address: W,
    /// The value.
    pub value: W,
    /// The kinds of zero-copy sends that the consumer can read, a bit for each.
    pub readable_kinds: W,
}

/// The content of a slot, as the consumer reads it.
pub(super) enum SlotContent<'a, W: AtomicWord> {
    /// Inline bytes, their offset in the ring and their count.
    Inline(&'a W::Inline, usize, usize),
    /// The bytes of a packet, their offset in the ring and their count.
    Packet(&'a W::Packet, usize, usize),
    /// The descriptor of a zero-copy send at this index of the stream.
    ZeroCopy(&'a W::Inline, u64),
}

/// The memory of a short message.
pub(super) enum ShortMemory<'a, W: AtomicWord> {
    Inline(&'a W::Inline),
    Packet(&'a W::Packet),
}

/// One publication: an index, and the bytes up to it if they fit.
#[repr(C, align(128))]
struct Slot<W, T> {
    /// Bytes published so far, with flags.
    tail: W,
    bytes: T,
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
        /// The smallest possible index.
        min: u64,
        /// The largest possible index.
        max: u64,
    },
}

/// The producer's private state.
pub struct Producer<const SLOTS: usize = SLOT_COUNT> {
    capacity: u64,
    tail: u64,
    published: u64,
    head_seen: u64,
    starved: bool,
    /// Whether the last unpublished bytes were written by streaming stores.
    is_streamed: bool,
    /// The slot of the next publication.
    next: usize,
    /// Measured times of the consumer's line.
    line: LineTimes,
    /// The next packet.
    next_packet: usize,
    /// The index that was published in each slot.
    slot_ends: [u64; SLOTS],
    /// The index that was published in each packet.
    packet_ends: [u64; PACKET_COUNT],
}

/// The consumer's private state.
pub struct Consumer<const SLOTS: usize = SLOT_COUNT> {
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
    /// The next packet.
    next_packet: usize,
    /// Whether this consumer lags: the last short message was there at the first poll.
    lags: bool,
}

impl<W: AtomicWord, const SLOTS: usize> Indices<W, SLOTS> {
    /// Return the words with which the consumer tests whether it can read the producer's memory.
    pub(super) fn read_attempt(&self) -> &ReadAttempt<W> {
        &self.read_attempt.0
    }

    /// Return the consumer's costs of reading.
    pub(super) fn read_costs(&self) -> &ReadCosts<W> {
        &self.read_costs.0
    }
}

impl<const SLOTS: usize> Producer<SLOTS> {
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
            line: LineTimes::default(),
            next_packet: 0,
            slot_ends: [0; SLOTS],
            packet_ends: [0; PACKET_COUNT],
        }
    }

    /// Return the number of bytes that may be written at [`Self::offset`] and published. The consumer's index is read
    /// only if fewer than `min_bytes` bytes are known to be free.
    pub fn room<W: AtomicWord>(&mut self, shared: &Indices<W, SLOTS>, min_bytes: usize) -> Result<usize, RingBroken> {
        let free = self.free();
        if free >= min_bytes {
            return Ok(free);
        }
        match self.read_timed_head(shared)? {
            true => Err(RingBroken::Closed),
            false => Ok(self.free()),
        }
    }

    /// Return the consumer's index. Fails with `Closed` only if the index is below `min` and will never reach it.
    pub fn head<W: AtomicWord>(&mut self, shared: &Indices<W, SLOTS>, min: u64) -> Result<u64, RingBroken> {
        let is_closed = self.read_head(shared)?;
        if is_closed && self.head_seen < min { Err(RingBroken::Closed) } else { Ok(self.head_seen) }
    }

    /// Read the consumer's index, and time its line; return whether the consumer has closed.
    fn read_timed_head<W: AtomicWord>(&mut self, shared: &Indices<W, SLOTS>) -> Result<bool, RingBroken> {
        let (start, before) = (ticks(), self.head_seen);
        let is_closed = self.read_head(shared)?;
        // The consumer has written a new value since the last read, so the line came from its core.
        if self.head_seen != before {
            self.line.add(ticks_after_loads().saturating_sub(start));
        }
        Ok(is_closed)
    }

    /// Read the consumer's index; return whether the consumer has closed. Not timed: a producer that polls finds the
    /// line on its way.
    fn read_head<W: AtomicWord>(&mut self, shared: &Indices<W, SLOTS>) -> Result<bool, RingBroken> {
        // Acquire: the consumer's reads of these bytes and slots happen before they are overwritten here.
        let word = shared.consumer.0.load(Acquire);
        self.head_seen = within(word & !CLOSED, self.head_seen, self.published)?;
        Ok(word & CLOSED != 0)
    }

    /// Return the number of bytes known to be free. It is 0 without two free slots, because one stays reserved for the
    /// close.
    fn free(&self) -> usize {
        match self.slot_ends[(self.next + 1) % SLOTS] <= self.head_seen {
            true => (self.capacity - (self.tail - self.head_seen)) as usize,
            false => 0,
        }
    }

    /// Return whether a message of `count` bytes fits a slot or a packet, and one is free.
    #[inline]
    pub fn accepts<W: AtomicWord>(&mut self, shared: &Indices<W, SLOTS>, count: usize) -> Result<bool, RingBroken> {
        let (needs_packet, fits) = (count > W::INLINE_BYTES, (1..=W::PACKET_BYTES).contains(&count));
        if !fits || self.room(shared, count)? < count {
            return Ok(false);
        }
        if needs_packet && !self.has_packet() && self.read_timed_head(shared)? {
            return Err(RingBroken::Closed);
        }
        Ok(!needs_packet || self.has_packet())
    }

    fn has_packet(&self) -> bool {
        self.packet_ends[self.next_packet] <= self.head_seen
    }

    /// Return the ring offset of the next byte to write.
    pub fn offset(&self) -> usize {
        (self.tail & (self.capacity - 1)) as usize
    }

    /// Record that `count` bytes were written; the consumer does not see them yet.
    pub fn advance(&mut self, count: usize) {
        self.tail += count as u64;
        debug_assert!(self.tail - self.head_seen <= self.capacity, "no more bytes are written than are free");
    }

    /// Return the measured times of a line from the consumer's core.
    pub fn line(&self) -> &LineTimes {
        &self.line
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
    pub fn publish<W: AtomicWord>(&mut self, shared: &Indices<W, SLOTS>) {
        if self.tail != self.published {
            let flags = if std::mem::take(&mut self.is_streamed) { STREAMED } else { 0 };
            self.publish_slot(shared, flags);
        }
    }

    /// Publish `count` bytes that `write` puts into a slot instead of the ring. The ring has space for them, they fit a
    /// slot, and all earlier bytes are published.
    #[inline]
    pub fn publish_inline<W: AtomicWord>(
        &mut self,
        shared: &Indices<W, SLOTS>,
        count: usize,
        write: impl FnOnce(&W::Inline),
    ) {
        debug_assert!(self.unpublished() == 0 && count <= W::INLINE_BYTES, "a slot contains only its own bytes");
        write(&shared.slots[place_of::<SLOTS>(self.next)].bytes);
        self.tail += count as u64;
        self.publish_slot(shared, INLINE);
        // Not the next slot, because the consumer polls it.
        prefetch_lines(&shared.slots[place_of::<SLOTS>(self.next + 1)].tail, lines_of(count), true);
    }

    /// Publish `count` bytes that `write` puts into a packet instead of the ring. The producer [accepts](Self::accepts)
    /// them, they do not fit a slot, and all earlier bytes are published. Takes ownership of up to `owned_line_count`
    /// lines of a later packet in advance.
    #[inline]
    pub fn publish_packet<W: AtomicWord>(
        &mut self,
        shared: &Indices<W, SLOTS>,
        count: usize,
        owned_line_count: usize,
        write: impl FnOnce(&W::Packet),
    ) {
        debug_assert!(self.unpublished() == 0 && self.has_packet(), "a packet is free and contains only its own bytes");
        let packet = &shared.packets[packet_place_of(self.next_packet)];
        write(&packet.bytes);
        self.tail += count as u64;
        packet.tail.store(packet_word(self.tail, count), Release);
        self.packet_ends[self.next_packet] = self.tail;
        self.next_packet = (self.next_packet + 1) % PACKET_COUNT;
        self.publish_slot(shared, PACKET);
        let later = &shared.packets[packet_place_of(self.next_packet + 1)];
        prefetch_lines(&later.tail, lines_of(count).min(owned_line_count), true);
    }

    /// Publish a zero-copy send that `write` describes in a slot, and return the index that the consumer passes to
    /// complete it. The ring has space for one byte, and all earlier bytes are published.
    pub fn publish_zero_copy<W: AtomicWord>(
        &mut self,
        shared: &Indices<W, SLOTS>,
        write: impl FnOnce(&W::Inline),
    ) -> u64 {
        debug_assert!(self.unpublished() == 0, "a slot describes one send");
        write(&shared.slots[place_of::<SLOTS>(self.next)].bytes);
        self.tail += 1;
        self.publish_slot(shared, ZERO_COPY);
        self.tail
    }

    /// Mark all zero-copy sends as invalid.
    pub fn revoke_zero_copy<W: AtomicWord>(&self, shared: &Indices<W, SLOTS>) {
        shared.revoked.0.store(1, Relaxed);
        // Later changes of the memory are ordered after the mark.
        W::fence();
    }

    fn publish_slot<W: AtomicWord>(&mut self, shared: &Indices<W, SLOTS>, flags: u64) {
        self.published = self.tail;
        self.slot_ends[self.next] = self.tail;
        shared.slots[place_of::<SLOTS>(self.next)].tail.store(self.tail | flags, Release);
        self.next = (self.next + 1) % SLOTS;
    }

    /// Notify the consumer whether this side waits for free space.
    pub fn set_starved<W: AtomicWord>(&mut self, shared: &Indices<W, SLOTS>, starved: bool) {
        if self.starved != starved {
            self.starved = starved;
            shared.starved.0.store(starved.into(), Relaxed);
        }
    }

    /// Publish all written bytes and mark the stream as ended.
    pub fn close<W: AtomicWord>(&mut self, shared: &Indices<W, SLOTS>) {
        self.publish_slot(shared, CLOSED);
    }
}

impl<const SLOTS: usize> Consumer<SLOTS> {
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
            next_packet: 0,
            lags: false,
        }
    }

    /// Return the number of bytes that may be read at [`Self::offset`]. Slots are read until `min_bytes` bytes are
    /// known. `handle` receives the content of a slot: bytes for the ring, or a zero-copy send. Fails with `Closed`
    /// only if fewer than `min_bytes` bytes are left and no more can arrive.
    pub fn arrived<W: AtomicWord>(
        &mut self,
        shared: &Indices<W, SLOTS>,
        min_bytes: usize,
        mut handle: impl FnMut(SlotContent<'_, W>),
    ) -> Result<usize, RingBroken> {
        while self.tail_seen - self.head < min_bytes as u64 {
            if self.closed {
                return Err(RingBroken::Closed);
            }
            let slot = &shared.slots[place_of::<SLOTS>(self.next)];
            // Acquire: the producer's writes of these bytes happen before they are read here.
            let word = slot.tail.load(Acquire);
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
            let kind = word & (INLINE | PACKET | ZERO_COPY);
            let max_tail = match kind {
                0 => u64::MAX,
                INLINE => self.tail_seen + W::INLINE_BYTES as u64,
                PACKET => self.tail_seen + W::PACKET_BYTES as u64,
                _ => self.tail_seen + 1,
            };
            within(tail, self.tail_seen, max_tail.min(self.head + self.capacity))?;
            let (offset, count) = (self.place(self.tail_seen), (tail - self.tail_seen) as usize);
            match kind {
                0 => {}
                INLINE => handle(SlotContent::Inline(&slot.bytes, offset, count)),
                PACKET => {
                    let packet = &shared.packets[packet_place_of(self.next_packet)];
                    handle(SlotContent::Packet(&packet.bytes, offset, count));
                    self.next_packet = (self.next_packet + 1) % PACKET_COUNT;
                }
                _ => handle(SlotContent::ZeroCopy(&slot.bytes, self.tail_seen)),
            }
            (self.last_start, self.is_streamed) = (self.tail_seen, word & STREAMED != 0);
            self.tail_seen = tail;
            self.next = (self.next + 1) % SLOTS;
            shared.slots[place_of::<SLOTS>(self.next)].tail.prefetch(0, false);
        }
        Ok((self.tail_seen - self.head) as usize)
    }

    /// Return the slot or packet that contains exactly the next `count` bytes, if it is published and all earlier bytes
    /// are consumed.
    #[inline]
    pub fn short_message<'a, W: AtomicWord>(
        &self,
        shared: &'a Indices<W, SLOTS>,
        count: usize,
    ) -> Option<ShortMemory<'a, W>> {
        if !self.is_drained() {
            return None;
        }
        let end = self.head + count as u64;
        // Acquire: the producer's writes of these bytes happen before they are read here.
        if count <= W::INLINE_BYTES {
            let slot = &shared.slots[place_of::<SLOTS>(self.next)];
            return (slot.tail.load(Acquire) == end | INLINE).then_some(ShortMemory::Inline(&slot.bytes));
        }
        let packet = &shared.packets[packet_place_of(self.next_packet)];
        let is_there = count <= W::PACKET_BYTES && packet.tail.load(Acquire) == packet_word(end, count);
        is_there.then_some(ShortMemory::Packet(&packet.bytes))
    }

    /// Prefetch the lines of the awaited packet of `count` bytes.
    #[inline]
    pub fn prefetch_packet<W: AtomicWord>(&self, shared: &Indices<W, SLOTS>, count: usize) {
        let packet = &shared.packets[packet_place_of(self.next_packet)];
        prefetch_lines(&packet.tail, lines_of(count).min(PREFETCHED_LINE_COUNT_MAX), false);
    }

    /// Record whether the last [short message](Self::short_message) was found at the first poll.
    #[inline]
    pub fn set_lags(&mut self, lags: bool) {
        self.lags = lags;
    }

    /// Consume the `count` bytes of a [short message](Self::short_message), without copying them to the ring.
    #[inline]
    pub fn consume_short<W: AtomicWord>(&mut self, shared: &Indices<W, SLOTS>, count: usize) {
        debug_assert!(self.short_message(shared, count).is_some(), "the message was found");
        self.tail_seen += count as u64;
        self.next = (self.next + 1) % SLOTS;
        let is_packet = count > W::INLINE_BYTES;
        if is_packet {
            self.next_packet = (self.next_packet + 1) % PACKET_COUNT;
        }
        if self.lags {
            let later = match is_packet {
                true => &shared.packets[packet_place_of(self.next_packet + PREFETCH_DISTANCE_COUNT - 1)].tail,
                false => &shared.slots[place_of::<SLOTS>(self.next + PREFETCH_DISTANCE_COUNT - 1)].tail,
            };
            prefetch_lines(later, lines_of(count), false);
        }
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
    pub fn release<W: AtomicWord>(&mut self, shared: &Indices<W, SLOTS>, count: usize) {
        self.head += count as u64;
        assert!(self.head <= self.tail_seen, "no more bytes are consumed than have arrived");
        shared.consumer.0.store(self.head, Release);
    }

    /// Return whether the producer waits for free space. Requires a fence after [`Self::release`].
    pub fn producer_is_starved<W: AtomicWord>(&self, shared: &Indices<W, SLOTS>) -> bool {
        shared.starved.0.load(Relaxed) != 0
    }

    /// Return whether the producer has invalidated its zero-copy sends. Call after the bytes were read.
    pub fn is_revoked<W: AtomicWord>(&self, shared: &Indices<W, SLOTS>) -> bool {
        W::fence();
        shared.revoked.0.load(Relaxed) != 0
    }

    /// Mark that the consumer takes no more bytes.
    pub fn close<W: AtomicWord>(&mut self, shared: &Indices<W, SLOTS>) {
        shared.consumer.0.store(self.head | CLOSED, Release);
    }
}

/// Return the word of a packet of `count` bytes up to index `end`. A consumer that expects `count` bytes reads this
/// word before the slots. Without the length, it would accept a shorter packet with the same end.
#[inline]
fn packet_word(end: u64, count: usize) -> u64 {
    const { assert!(FLAGS.trailing_zeros() - PACKET_END_BITS >= 11, "a length is less than 2 KiB") };
    PACKET | (count as u64) << PACKET_END_BITS | end & ((1 << PACKET_END_BITS) - 1)
}

/// Return the place of slot `number`. Consecutive slots are not neighbors: the consumer's core would fetch lines at a
/// constant distance ahead of its reads, and take lines from the producer that it has not written yet.
#[inline]
fn place_of<const SLOTS: usize>(number: usize) -> usize {
    const { assert!(!SLOTS.is_multiple_of(PLACE_STEP), "every slot has a place of its own") };
    number * PLACE_STEP % SLOTS
}

/// Return the place of packet `number`.
#[inline]
fn packet_place_of(number: usize) -> usize {
    const { assert!(!PACKET_COUNT.is_multiple_of(PACKET_STEP), "every packet has a place of its own") };
    number * PACKET_STEP % PACKET_COUNT
}

/// Return the number of cache lines of a slot or packet of `count` bytes.
fn lines_of(count: usize) -> usize {
    (size_of::<u64>() + count).div_ceil(LINE_BYTES)
}

/// Prefetch the first `count` cache lines of the slot or packet of `word`, for writing if `for_writing`.
#[inline]
fn prefetch_lines<W: AtomicWord>(word: &W, count: usize, for_writing: bool) {
    (0..count).for_each(|line| word.prefetch(line, for_writing));
}

fn within(found: u64, min: u64, max: u64) -> Result<u64, RingBroken> {
    if (min..=max).contains(&found) { Ok(found) } else { Err(RingBroken::Corrupt { found, min, max }) }
}

#[cfg(test)]
impl<W: AtomicWord + Default, const SLOTS: usize> Default for Indices<W, SLOTS>
where
    W::Inline: Default,
    W::Packet: Default,
{
    fn default() -> Self {
        fn slot<W: Default, T>(bytes: T) -> Slot<W, T> {
            Slot { tail: W::default(), bytes }
        }
        let line = || IndexLine(W::default());
        Indices {
            slots: std::array::from_fn(|_| slot(W::Inline::default())),
            packets: std::array::from_fn(|_| slot(W::Packet::default())),
            starved: line(),
            revoked: line(),
            read_attempt: IndexLine(ReadAttempt::default()),
            read_costs: IndexLine(ReadCosts::default()),
            consumer: line(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn arrived<const SLOTS: usize>(
        consumer: &mut Consumer<SLOTS>,
        shared: &Indices<AtomicU64, SLOTS>,
        min_bytes: usize,
    ) -> Result<usize, RingBroken> {
        consumer.arrived(shared, min_bytes, |_| {})
    }

    #[test]
    fn an_impossible_index_is_reported() {
        for hostile in [10, 100, INLINE - 1, CLOSED | 1, CLOSED | 10, INLINE | 10] {
            let shared = Indices::<AtomicU64>::default();
            let mut consumer = Consumer::new(8);
            shared.slots[0].tail.store(2, Relaxed);
            assert_eq!(arrived(&mut consumer, &shared, 1), Ok(2));
            consumer.release(&shared, 1);

            shared.slots[place_of::<SLOT_COUNT>(1)].tail.store(hostile, Relaxed);
            let found = arrived(&mut consumer, &shared, 8);

            assert!(
                matches!(found, Err(RingBroken::Corrupt { .. })),
                "index {hostile} where 2..=9 is possible gave {found:?}"
            );
        }
    }

    #[test]
    fn the_sizes_of_slots_and_packets_are_checked() {
        let cases = [(INLINE, 1, true), (INLINE, 56, true), (INLINE, 57, false), (PACKET, 1144, true)];
        for (kind, count, fits) in cases.into_iter().chain([(PACKET, 1145, false)]) {
            let shared = Indices::<AtomicU64>::default();
            let mut consumer = Consumer::new(2 << 10);
            shared.slots[0].tail.store(kind | count, Relaxed);

            let mut found_count = None;
            let found = consumer.arrived(&shared, 1, |content| {
                found_count = match content {
                    SlotContent::Inline(_, 0, found) | SlotContent::Packet(_, 0, found) => Some(found),
                    _ => None,
                }
            });

            assert_eq!((found.is_ok(), found_count), (fits, fits.then_some(count as usize)));
        }
    }

    #[test]
    fn a_message_is_accepted_if_a_slot_or_packet_is_free() {
        let shared = Indices::<AtomicU64>::default();
        let (mut producer, mut consumer) = (Producer::new(1 << 20), Consumer::new(1 << 20));
        for count in [0, 1145] {
            assert_eq!(producer.accepts(&shared, count), Ok(false), "{count}");
        }
        for _ in 0..PACKET_COUNT {
            assert_eq!(producer.accepts(&shared, 57), Ok(true));
            producer.publish_packet(&shared, 57, 1, |_| {});
        }
        assert_eq!(producer.accepts(&shared, 57), Ok(false));
        assert_eq!(producer.accepts(&shared, 56), Ok(true));
        assert!(consumer.short_message(&shared, 57).is_some());
        consumer.consume_short(&shared, 57);
        consumer.release(&shared, 57);
        assert_eq!(producer.accepts(&shared, 57), Ok(true));
        assert_eq!(producer.accepts(&shared, 1144), Ok(true));
    }

    #[test]
    fn an_impossible_consumer_index_is_reported() {
        for hostile in [5, 100, u64::MAX >> 1] {
            let shared = Indices::<AtomicU64>::default();
            let mut producer = Producer::new(8);
            producer.advance(4);
            producer.publish(&shared);

            shared.consumer.0.store(hostile, Relaxed);

            let expected = RingBroken::Corrupt { found: hostile, min: 0, max: 4 };
            assert_eq!(producer.room(&shared, 8), Err(expected));
        }
    }

    #[test]
    fn published_bytes_are_read_before_the_close() {
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
    fn one_slot_stays_reserved_for_the_close() {
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
