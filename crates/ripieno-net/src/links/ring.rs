//! A link over shared memory: one byte ring in each direction.
//!
//! Messages are copied into the ring and out of it. Large messages are copied in units, so that both sides copy
//! concurrently. Measurements decide whether a copy uses [streaming stores](super::store_choice). A message of up to a
//! kilobyte travels [next to its index](super::indices), so only its own cache lines move between cores. Requires both
//! ends on one host, in any processes.

use super::atomics::AtomicWord;
use super::doorbell::{Waker, accepts_barriers};
use super::indices::{Consumer, Indices, Producer, RingBroken, ShortMemory, SlotContent};
use super::memory::{Mapping, page_bytes, sealed_len, sealed_memfd};
use super::store_choice::{ReadTimes, StoreChoice, StoreKind};
use super::streaming;
use super::zero_copy::{self, UnreleasedSends, ZeroCopyDescriptor, ZeroCopyKind, ZeroCopyReader};
use crate::shortage::shortage;
use ripieno_run::executor::SEGMENT_BYTES;
use ripieno_run::{Link, LinkError, PairCosts, SendFlow, copy_words};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU64, compiler_fence};

/// Default capacity of a ring in bytes.
pub const DEFAULT_CAPACITY_BYTES: usize = 1 << 20;

/// Capacity of a ring in bytes between a few ranks with a core each: more than a second-level cache holds. The lines of
/// a smaller ring are still in the cache of the receiver's core when the sender writes them again. With a common
/// third-level cache, that makes messages of 8 KiB three times slower. More rings of this size fill the third-level
/// cache.
pub const LARGE_CAPACITY_BYTES: usize = 2 << 20;

/// Limit of the capacity in bytes; a larger ring of a peer is refused.
const MAX_CAPACITY_BYTES: usize = 1 << 30;

/// Maximum number of bytes of a ring that are mapped ahead during its first pass. Single page faults cost several times
/// more. A ring for short calls maps few pages.
const MAPPED_BYTES: usize = 128 << 10;

/// Unit after which a long copy is published to the other side.
pub(super) const COPY_UNIT_BYTES: usize = 32 << 10;

/// Maximum size of a copy by the kernel. With copies of 64 KiB, a message of 1 MiB takes 1.25 times as long.
const KERNEL_COPY_BYTES_MAX: usize = 512 << 10;

/// Number of the poll from which on the consumer prefetches the lines of an awaited packet. A consumer that lags finds
/// the packet at an earlier poll, and its prefetches would take lines from a producer that still writes them. Over a
/// mesh, where polls are as fast as the producer, all prefetches do.
const PREFETCHING_POLL: u32 = 2;
/// Maximum number of lines of a later packet that the producer prefetches. More prefetches delay the preceding stores.
const OWNED_LINE_COUNT_MAX: usize = 9;
/// The maximum over a mesh: all lines of the longest packet. An exchange of 1 KiB then takes 0.8 of the time.
const OWNED_MESH_LINE_COUNT_MAX: usize = 18;
/// The maximum without a common cache, for a producer that has just received a message: the peer awaits the next
/// message, and takes most of these lines back.
const OWNED_AWAITED_LINE_COUNT_MAX: usize = 2;

/// Maximum number of bytes of the ring that the producer prefetches.
const OWNED_RING_BYTES_MAX: usize = 5 << 10;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Maximum size of a part of a short message that is copied word by word.
const WORD_COPY_BYTES_MAX: usize = 64;

/// One end of a link over shared memory.
pub struct RingLink {
    segment: Arc<Segment>,
    side: RingSide,
    producer: Producer,
    consumer: Consumer,
    peer: Waker,
    unreleased: UnreleasedSends,
    zero_copy: ZeroCopyReader,
    stores: StoreChoice,
    read_times: ReadTimes,
    /// Bytes of each ring with mapped pages.
    mapped_bytes: [usize; 2],
    /// Whether bytes of a zero-copy send were consumed since the last flush.
    has_read_zero_copy: bool,
    /// Whether a message was received since the last short one was sent.
    has_received: bool,
    /// Bytes of the last message through the ring that was sent since a message was received.
    long_bytes: usize,
    sent: bool,
    released: bool,
    /// Whether the peer's memory barriers, while it issues them, replace the fences of this end.
    accepts_barriers: bool,
}

/// The side of an end: the first sends through ring 0, the second through ring 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingSide {
    /// Sends through ring 0.
    First,
    /// Sends through ring 1.
    Second,
}

/// The memory of a link: some pages of indices, then the bytes of both rings, each mapped mirrored.
pub struct Segment {
    header: Mapping,
    data: [Mapping; 2],
    capacity: usize,
}

impl Segment {
    /// Create memory for a link with rings of at least `capacity_bytes`.
    pub fn create(capacity_bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let capacity = capacity_bytes.clamp(page_bytes(), MAX_CAPACITY_BYTES).next_power_of_two();
        let fd = sealed_memfd("ripieno-link", header_bytes() + 2 * capacity)?;
        Ok((Self::map(&fd, capacity)?, fd))
    }

    /// Map memory that a peer has created.
    pub fn open(fd: &OwnedFd) -> io::Result<Self> {
        let capacity = sealed_len(fd.as_fd())?.saturating_sub(header_bytes()) / 2;
        if !capacity.is_power_of_two() || !(page_bytes()..=MAX_CAPACITY_BYTES).contains(&capacity) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer's shared memory does not hold two rings"));
        }
        Self::map(fd, capacity)
    }

    /// Let the peer of the end at `side` test whether it can map this process's memory.
    pub(super) fn publish_token(&self, side: RingSide) -> io::Result<()> {
        zero_copy::publish_token(self.indices(side as usize).read_attempt())
    }

    fn map(fd: &OwnedFd, capacity: usize) -> io::Result<Self> {
        let header = Mapping::plain(fd, 0, header_bytes())?;
        let rings = [header_bytes(), header_bytes() + capacity];
        let data = [Mapping::mirrored(fd, rings[0], capacity)?, Mapping::mirrored(fd, rings[1], capacity)?];
        Ok(Segment { header, data, capacity })
    }

    fn indices(&self, ring: usize) -> &Indices<AtomicU64> {
        let both = self.header.address().cast::<[Indices<AtomicU64>; 2]>();
        // SAFETY: The pages are mapped as long as `self`, larger than both, and zero at first (a valid value of
        // atomics). Every process accesses these words through atomics, and the bytes of slots according to the
        // protocol.
        unsafe { &both.as_ref()[ring] }
    }
}

/// Return the size of the indices of both rings, in whole pages.
fn header_bytes() -> usize {
    size_of::<[Indices<AtomicU64>; 2]>().next_multiple_of(page_bytes())
}

impl RingLink {
    /// Create the end of `segment` at `side`. `peer` wakes the rank at the other end; `pid` is its process, if known.
    pub(super) fn new(segment: Arc<Segment>, side: RingSide, peer: Waker, pid: Option<i32>) -> Self {
        let (producer, consumer) = (Producer::new(segment.capacity), Consumer::new(segment.capacity));
        let accepts_barriers = peer.issues_barriers() && accepts_barriers();
        let zero_copy = ZeroCopyReader::of(pid, segment.indices(1 - side as usize).read_attempt());
        RingLink {
            segment,
            side,
            producer,
            consumer,
            peer,
            unreleased: UnreleasedSends::default(),
            zero_copy,
            stores: StoreChoice::default(),
            read_times: ReadTimes::default(),
            mapped_bytes: [0; 2],
            has_read_zero_copy: false,
            has_received: false,
            long_bytes: 0,
            sent: false,
            released: false,
            accepts_barriers,
        }
    }

    /// Return the capacity of each of the two rings in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.segment.capacity
    }

    /// Return the measured costs between this rank and its peer.
    pub fn pair_costs(&self) -> PairCosts {
        let (ring_s_per_byte, zero_copy_s_per_byte) =
            self.stores.s_per_byte(self.segment.indices(self.outgoing()).read_costs());
        PairCosts { line_s: self.producer.line().seconds(), ring_s_per_byte, zero_copy_s_per_byte }
    }

    fn outgoing(&self) -> usize {
        self.side as usize
    }

    fn incoming(&self) -> usize {
        1 - self.side as usize
    }

    /// Send the `count` bytes of `parts` in a slot or packet. The producer accepts them.
    #[inline]
    fn send_short(&mut self, parts: &[&[u8]], count: usize) {
        let shared = self.segment.indices(self.outgoing());
        if count <= AtomicU64::INLINE_BYTES {
            // SAFETY: The parts together fit the slot. It is free, so the consumer does not read it until it is
            // published, and nothing else in this process refers to it.
            self.producer.publish_inline(shared, count, |slot| unsafe {
                copy_parts(parts, slot.get().cast(), StoreKind::Ordinary);
            });
        } else {
            let is_far = self.producer.line().is_far();
            let write = self.stores.begin(count, self.producer.has_wrapped(), is_far);
            let owned_line_count = match write.kind {
                // Streaming stores need no ownership of the lines after the first.
                StoreKind::Streaming => 1,
                StoreKind::Ordinary if is_far && self.has_received => OWNED_AWAITED_LINE_COUNT_MAX,
                StoreKind::Ordinary if self.producer.line().is_over_mesh() => OWNED_MESH_LINE_COUNT_MAX,
                StoreKind::Ordinary => OWNED_LINE_COUNT_MAX,
            };
            // SAFETY: As above, for the packet.
            self.producer.publish_packet(shared, count, owned_line_count, |packet| unsafe {
                copy_to_packet(parts, packet.get().cast(), write.kind);
            });
        }
        self.has_received = false;
        self.producer.set_starved(shared, false);
        self.sent = true;
    }

    /// Send the `count` bytes of `parts` through the ring in one publication. The ring has space for them.
    #[inline]
    fn send_long(&mut self, parts: &[&[u8]], count: usize) {
        if !self.producer.has_wrapped() {
            self.map_pages(self.outgoing(), self.producer.offset() + count);
        }
        let shared = self.segment.indices(self.outgoing());
        let ring = self.segment.data[self.outgoing()].address();
        let write = self.stores.begin(count, self.producer.has_wrapped(), self.producer.line().is_far());
        // SAFETY: As in `write`.
        unsafe { copy_parts(parts, ring.as_ptr().add(self.producer.offset()), write.kind) };
        self.producer.advance(count);
        if write.kind == StoreKind::Streaming {
            self.producer.mark_streamed();
        }
        self.stores.end(write, shared.read_costs());
        self.producer.publish(shared);
        self.producer.set_starved(shared, false);
        self.long_bytes = count;
        self.sent = true;
    }

    /// Take ownership of the lines of the next message through the ring, which is probably as long as the last one.
    /// Only over a mesh: the lines are in its third-level cache.
    #[inline]
    fn own_next_message(&mut self) {
        let line_count = std::mem::take(&mut self.long_bytes).min(OWNED_RING_BYTES_MAX).div_ceil(LINE_BYTES);
        if self.producer.line().is_over_mesh() && self.producer.has_wrapped() {
            let ring = self.segment.data[self.outgoing()].address().cast::<AtomicU64>();
            let first_line = self.producer.offset() / LINE_BYTES;
            // SAFETY: The memory is mapped and aligned as long as the segment. Both processes use it as bytes, and
            // nothing is read or written here.
            let word = unsafe { ring.as_ref() };
            (first_line..first_line + line_count).for_each(|line| word.prefetch(line, true));
        }
    }

    /// Map the pages of a ring up to `end`, at least as many as are mapped, up to [`MAPPED_BYTES`]. For the first pass.
    #[cold]
    fn map_pages(&mut self, ring: usize, end: usize) {
        let (start, end) = (self.mapped_bytes[ring], end.min(self.segment.capacity));
        if start < end {
            let length = (end - start).max(start.min(MAPPED_BYTES)).next_multiple_of(page_bytes());
            let count = length.min(self.segment.capacity - start);
            self.segment.data[ring].map_pages(start, count);
            self.mapped_bytes[ring] += count;
        }
    }

    /// Wake the peer if it waits for the sent bytes or for freed space.
    fn wake_peer(&mut self) {
        if self.accepts_barriers && self.peer.issues_barriers() {
            compiler_fence(SeqCst);
        } else {
            AtomicU64::fence();
        }
        // A peer that waits for bytes is not woken because of freed space, which saves a context switch.
        if self.sent || self.consumer.producer_is_starved(self.segment.indices(self.incoming())) {
            self.peer.wake_after_fence();
        }
        (self.sent, self.released) = (false, false);
    }

    /// Return whether the next item in the stream is a zero-copy send.
    fn is_at_zero_copy(&self) -> bool {
        self.zero_copy.index() == Some(self.consumer.head())
    }

    /// Record consumed bytes of the first zero-copy send, and complete the send after its last byte.
    fn after_zero_copy_read(&mut self) {
        self.has_read_zero_copy = true;
        if self.zero_copy.left() == 0 {
            let costs = self.segment.indices(self.incoming()).read_costs();
            let way = (self.zero_copy.kind(), self.zero_copy.has_parts());
            self.read_times.end_zero_copy_message(way, self.zero_copy.message_bytes(), costs);
            self.zero_copy.end_first();
            self.release(1);
        }
    }

    fn release(&mut self, count: usize) {
        self.consumer.release(self.segment.indices(self.incoming()), count);
        self.released |= count > 0;
    }

    /// Return the number of bytes that arrived ahead of the next zero-copy send. Slots are read until there are
    /// `min_bytes`.
    fn arrived(&mut self, min_bytes: usize) -> Result<usize, RingBroken> {
        let ring = self.segment.data[self.incoming()].address();
        let (segment, incoming, zero_copy) = (&self.segment, 1 - self.side as usize, &mut self.zero_copy);
        let to_ring = |from: *const u8, offset: usize, count: usize| {
            // SAFETY: `count` lies within the slot or packet, and the mirrored mapping holds that many bytes from any
            // offset. The producer writes neither of them until they are released. A hostile peer can change the bytes,
            // but it could have sent those bytes anyway.
            unsafe { std::ptr::copy_nonoverlapping(from, ring.as_ptr().add(offset), count) }
        };
        let arrived = self.consumer.arrived(segment.indices(incoming), min_bytes, |content| match content {
            SlotContent::Inline(slot, offset, count) => to_ring(slot.get().cast(), offset, count),
            SlotContent::Packet(packet, offset, count) => to_ring(packet.get().cast(), offset, count),
            // SAFETY: The producer does not write the slot's words until they are released, and every bit pattern is
            // valid.
            SlotContent::ZeroCopy(slot, index) => {
                zero_copy.add(index, ZeroCopyDescriptor::from_words(unsafe { *slot.get() }))
            }
        })?;
        let ahead = self.zero_copy.index().map_or(u64::MAX, |index| index - self.consumer.head());
        Ok(usize::try_from(ahead).unwrap_or(usize::MAX).min(arrived))
    }

    /// Record that the next `count` of the `arrived` bytes are read now, and time them if they are one publication.
    #[inline]
    fn begin_read(&mut self, arrived: usize, count: usize) {
        if !self.consumer.has_wrapped() {
            self.map_pages(self.incoming(), self.consumer.offset() + count);
        }
        let is_whole = arrived == count && self.consumer.has_wrapped();
        self.read_times.begin(count, self.consumer.is_streamed().filter(|_| is_whole));
    }

    /// Record that the next `count` bytes were read.
    #[inline]
    fn end_read(&mut self, count: usize) {
        self.read_times.end(count, self.segment.indices(self.incoming()).read_costs());
    }

    /// Copy a prefix of `part` into the ring; return its length.
    fn write(&mut self, part: &[u8]) -> Result<usize, RingBroken> {
        let mut written = 0;
        while written < part.len() {
            let unit = (part.len() - written).min(COPY_UNIT_BYTES);
            let count = self.producer.room(self.segment.indices(self.outgoing()), unit)?.min(unit);
            if count == 0 {
                break;
            }
            if !self.producer.has_wrapped() {
                self.map_pages(self.outgoing(), self.producer.offset() + count);
            }
            let ring = self.segment.data[self.outgoing()].address();
            let write = self.stores.begin(count, self.producer.has_wrapped(), self.producer.line().is_far());
            // SAFETY: The mirrored mapping holds `capacity` bytes from any offset. `room` guarantees that the consumer
            // does not read these bytes until they are published.
            unsafe {
                let (from, place) = (part.as_ptr().add(written), ring.as_ptr().add(self.producer.offset()));
                match write.kind {
                    StoreKind::Ordinary => std::ptr::copy_nonoverlapping(from, place, count),
                    StoreKind::Streaming => streaming::copy(from, place, count),
                }
            }
            self.producer.advance(count);
            if write.kind == StoreKind::Streaming {
                self.producer.mark_streamed();
            }
            self.stores.end(write, self.segment.indices(self.outgoing()).read_costs());
            written += count;
            if self.producer.unpublished() >= COPY_UNIT_BYTES {
                self.producer.publish(self.segment.indices(self.outgoing()));
            }
        }
        Ok(written)
    }
}

/// Copy the parts of a message one after the other to `place` in a packet, the bytes of its first line last. The
/// consumer polls this line, and takes it from the producer at each poll. So the producer writes it once, together with
/// the index.
///
/// # Safety
/// As for [`copy_parts`].
#[inline]
unsafe fn copy_to_packet(parts: &[&[u8]], place: *mut u8, kind: StoreKind) {
    match parts {
        [head, body] if kind == StoreKind::Ordinary && head.len() <= AtomicU64::INLINE_BYTES => {
            // A slot of inline bytes is one line, as the first line of a packet.
            let (first, rest) = body.split_at((AtomicU64::INLINE_BYTES - head.len()).min(body.len()));
            // SAFETY: The caller guarantees it.
            unsafe {
                std::ptr::copy_nonoverlapping(rest.as_ptr(), place.add(AtomicU64::INLINE_BYTES), rest.len());
                // The compiler keeps the order, too.
                compiler_fence(SeqCst);
                copy_parts(&[head, first], place, kind);
            }
        }
        // SAFETY: The caller guarantees it.
        _ => unsafe { copy_parts(parts, place, kind) },
    }
}

/// Copy `parts` one after the other to `place`.
///
/// # Safety
/// Nothing else accesses the memory at `place`, which holds the parts.
#[inline]
unsafe fn copy_parts(parts: &[&[u8]], place: *mut u8, kind: StoreKind) {
    let mut place = place;
    for part in parts {
        // SAFETY: The caller guarantees it.
        unsafe {
            // The caller has just composed a preamble, and often a short payload.
            if part.len() <= WORD_COPY_BYTES_MAX && part.len().is_multiple_of(size_of::<u64>()) {
                copy_words(part, std::slice::from_raw_parts_mut(place, part.len()));
            } else if kind == StoreKind::Streaming {
                streaming::copy(part.as_ptr(), place, part.len());
            } else {
                std::ptr::copy_nonoverlapping(part.as_ptr(), place, part.len());
            }
            place = place.add(part.len());
        }
    }
}

impl Link for RingLink {
    fn send(&mut self, parts: &[&[u8]]) -> Result<usize, LinkError> {
        let count = parts.iter().map(|part| part.len()).sum();
        if count <= AtomicU64::INLINE_BYTES
            && self.producer.accepts(self.segment.indices(self.outgoing()), count).map_err(closed)?
        {
            self.send_short(parts, count);
            return Ok(count);
        }
        let mut sent = 0;
        let mut full = false;
        for part in parts {
            let written = self.write(part).map_err(closed)?;
            sent += written;
            full = written < part.len();
            if full {
                break;
            }
        }
        let shared = self.segment.indices(self.outgoing());
        self.producer.publish(shared);
        self.producer.set_starved(shared, full);
        self.sent |= sent > 0;
        Ok(sent)
    }

    fn send_message(&mut self, parts: &[&[u8]; 2]) -> bool {
        let count = parts[0].len() + parts[1].len();
        let shared = self.segment.indices(self.outgoing());
        if self.producer.accepts(shared, count) == Ok(true) {
            self.send_short(parts, count);
        } else if count > AtomicU64::PACKET_BYTES && self.producer.room(shared, count).is_ok_and(|room| room >= count) {
            self.send_long(parts, count);
        } else {
            return false;
        }
        self.wake_peer();
        true
    }

    fn message(&mut self, length_bytes: usize, poll_count: u32) -> Option<&[u8]> {
        let fits_packet = (AtomicU64::INLINE_BYTES + 1..=AtomicU64::PACKET_BYTES).contains(&length_bytes);
        for poll in 0..poll_count {
            let shared = self.segment.indices(1 - self.side as usize);
            if let Some(memory) = self.consumer.short_message(shared, length_bytes) {
                self.consumer.set_lags(poll == 0);
                let place = match memory {
                    ShortMemory::Inline(slot) => slot.get().cast::<u8>(),
                    ShortMemory::Packet(packet) => packet.get().cast(),
                };
                // SAFETY: The memory holds that many bytes. The producer does not write it until the bytes are
                // released, and `end_message` needs `self` for that. A hostile peer can change the bytes, but it could
                // have sent those bytes anyway.
                return Some(unsafe { std::slice::from_raw_parts(place, length_bytes) });
            }
            // The peer may have sent the bytes in another way. Reading the slot of a packet takes its cache line from
            // the producer, which then waits for the line. So only the last poll reads it.
            let is_due = !fits_packet || !self.consumer.is_drained() || poll + 1 == poll_count;
            if is_due {
                let arrived = self.arrived(length_bytes).ok()?;
                if arrived >= length_bytes {
                    self.begin_read(arrived, length_bytes);
                    let ring = self.segment.data[self.incoming()].address();
                    // SAFETY: as in `peek`.
                    return Some(unsafe {
                        std::slice::from_raw_parts(ring.as_ptr().add(self.consumer.offset()), length_bytes)
                    });
                }
            } else if poll >= PREFETCHING_POLL && !self.producer.line().is_over_mesh() {
                self.consumer.prefetch_packet(shared, length_bytes);
            }
        }
        None
    }

    fn end_message(&mut self, length_bytes: usize) {
        if self.consumer.is_drained() {
            self.consumer.consume_short(self.segment.indices(self.incoming()), length_bytes);
        } else if length_bytes > AtomicU64::PACKET_BYTES {
            self.end_read(length_bytes);
            self.own_next_message();
        }
        self.has_received = true;
        self.release(length_bytes);
        self.wake_peer();
    }

    fn can_send_zero_copy(&mut self, bytes: &[u8], flow: SendFlow) -> bool {
        let (shared, kind) = (self.segment.indices(self.outgoing()), ZeroCopyKind::of(bytes));
        kind.is_readable(shared.read_attempt())
            && self.stores.prefers_zero_copy(kind, flow, bytes.len(), shared.read_costs())
    }

    fn send_zero_copy(&mut self, bytes: &[u8]) -> Result<bool, LinkError> {
        let shared = self.segment.indices(self.outgoing());
        if bytes.is_empty() || !ZeroCopyKind::of(bytes).is_readable(shared.read_attempt()) {
            return Ok(false);
        }
        if self.producer.room(shared, 1).map_err(closed)? == 0 {
            self.producer.set_starved(shared, true);
            return Ok(false);
        }
        let words = ZeroCopyDescriptor::words(bytes);
        // SAFETY: The slot is free, so the consumer does not read it until it is published, and nothing else in this
        // process refers to it.
        let released_at = self.producer.publish_zero_copy(shared, |slot| unsafe { *slot.get() = words });
        self.unreleased.add(released_at, bytes.len());
        self.stores.note_zero_copy();
        self.sent = true;
        Ok(true)
    }

    fn unreleased_bytes(&mut self) -> Result<usize, LinkError> {
        if self.unreleased.bytes() > 0 {
            let shared = self.segment.indices(self.outgoing());
            let head = self.producer.head(shared, self.unreleased.last()).map_err(closed)?;
            self.unreleased.release_up_to(head);
            self.producer.set_starved(shared, self.unreleased.bytes() > 0);
        }
        Ok(self.unreleased.bytes())
    }

    fn revoke_zero_copy(&mut self) {
        self.producer.revoke_zero_copy(self.segment.indices(self.outgoing()));
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        if std::mem::take(&mut self.has_read_zero_copy)
            && self.consumer.is_revoked(self.segment.indices(self.incoming()))
        {
            return Err(LinkError::Closed {
                cause: "the peer revoked a zero-copy send that this rank had begun to read".into(),
            });
        }
        if self.sent || self.released {
            self.wake_peer();
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let mut taken = 0;
        while taken < into.len() {
            if self.is_at_zero_copy() {
                self.read_times.begin_zero_copy();
                let count = self.zero_copy.read(&mut into[taken..]).map_err(unreadable)?;
                self.consume(count);
                taken += count;
                continue;
            }
            let arrived = match self.arrived(1) {
                Ok(0) if self.is_at_zero_copy() => continue,
                Ok(0) => break,
                Ok(arrived) => arrived,
                Err(_) if taken > 0 => break,
                Err(broken) => return Err(closed(broken)),
            };
            let count = arrived.min(into.len() - taken).min(COPY_UNIT_BYTES);
            self.begin_read(arrived, count);
            let ring = self.segment.data[self.incoming()].address();
            // SAFETY: The mirrored mapping holds `capacity` bytes from any offset. The producer does not write these
            // bytes until they are released. A hostile peer can change the bytes, but it could have sent those bytes
            // anyway.
            unsafe {
                let place = ring.as_ptr().add(self.consumer.offset());
                std::ptr::copy_nonoverlapping(place, into.as_mut_ptr().add(taken), count);
            }
            self.end_read(count);
            self.release(count);
            taken += count;
        }
        Ok(taken)
    }

    fn receive_bytes_max(&self) -> usize {
        match self.is_at_zero_copy() && self.zero_copy.kind() == ZeroCopyKind::Copied {
            true => KERNEL_COPY_BYTES_MAX,
            false => SEGMENT_BYTES,
        }
    }

    fn peek(&mut self, min_bytes: usize) -> Result<&[u8], LinkError> {
        let arrived = match self.is_at_zero_copy() {
            true => 0,
            false => self.arrived(min_bytes.max(1)).map_err(closed)?,
        };
        if self.is_at_zero_copy() {
            self.read_times.begin_zero_copy();
            return self.zero_copy.peek(min_bytes.max(1)).map_err(unreadable);
        }
        self.begin_read(arrived, arrived);
        let ring = self.segment.data[self.incoming()].address();
        // SAFETY: As in `receive`. `consume` needs `self`, so the bytes are released only after the slice is gone.
        Ok(unsafe { std::slice::from_raw_parts(ring.as_ptr().add(self.consumer.offset()), arrived) })
    }

    fn consume(&mut self, count: usize) {
        if count > 0 && self.is_at_zero_copy() {
            if self.zero_copy.is_warm() {
                self.read_times.end_zero_copy(count);
            }
            self.zero_copy.consume(count);
            self.after_zero_copy_read();
        } else {
            self.end_read(count);
            self.release(count);
        }
    }

    fn expect(&mut self, _bytes: usize) {}

    fn is_memory(&self) -> bool {
        true
    }
}

impl Drop for RingLink {
    fn drop(&mut self) {
        if self.unreleased.bytes() > 0 {
            self.revoke_zero_copy();
        }
        self.producer.close(self.segment.indices(self.outgoing()));
        self.consumer.close(self.segment.indices(self.incoming()));
        self.peer.wake();
    }
}

fn unreadable(error: io::Error) -> LinkError {
    match shortage(&error) {
        Some(missing) => {
            LinkError::MissingResource { cause: format!("it cannot read the memory of that rank: {missing}") }
        }
        None => LinkError::Closed { cause: format!("cannot read the memory of the peer: {error}") },
    }
}

fn closed(broken: RingBroken) -> LinkError {
    let cause = match broken {
        RingBroken::Closed => "the peer closed its end of the shared memory".into(),
        RingBroken::Corrupt { found, min, max } => {
            format!("the peer wrote index {found} into the shared memory where {min}..={max} is possible")
        }
    };
    LinkError::Closed { cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_peer_holds_two_rings_of_a_valid_capacity() {
        let opened = |capacity: usize| {
            let fd = sealed_memfd("ripieno-link", header_bytes() + 2 * capacity).unwrap();
            Segment::open(&fd).map(|segment| segment.capacity)
        };
        for capacity in [page_bytes(), LARGE_CAPACITY_BYTES] {
            assert_eq!(opened(capacity).unwrap(), capacity);
        }
        for capacity in [0, page_bytes() / 2, 3 * page_bytes(), 2 * MAX_CAPACITY_BYTES] {
            let error = opened(capacity).unwrap_err().to_string();
            assert!(error.contains("does not hold two rings"), "{capacity}: {error}");
        }
    }

    #[test]
    fn a_packet_contains_the_parts_one_after_the_other() {
        let bytes: Vec<u8> = (0..AtomicU64::PACKET_BYTES).map(|at| at as u8).collect();
        for head_bytes in [0, 24, 40, 56, 60] {
            for length_bytes in [head_bytes, 57, 64, 72, 119, 120, 121, 300, AtomicU64::PACKET_BYTES] {
                let (head, body) = bytes[..length_bytes.max(head_bytes)].split_at(head_bytes);
                for kind in [StoreKind::Ordinary, StoreKind::Streaming] {
                    let mut packet = [0xff; AtomicU64::PACKET_BYTES];
                    // SAFETY: The packet holds both parts.
                    unsafe { copy_to_packet(&[head, body], packet.as_mut_ptr(), kind) };
                    let (copied, rest) = packet.split_at(head.len() + body.len());
                    assert_eq!(copied, &bytes[..copied.len()], "{head_bytes} {length_bytes} {kind:?}");
                    assert!(rest.iter().all(|&byte| byte == 0xff), "{head_bytes} {length_bytes} {kind:?}");
                }
            }
        }
    }
}
