//! A link over shared memory: one byte ring in each direction.
//!
//! Messages are copied into the ring and out of it, large ones in units so that both sides copy at once. A message of
//! some bytes costs two cache lines that change cores: the index and the bytes.
//! Needs both ends on one host, in any processes.

use super::atomics::Word;
use super::doorbell::Bell;
use super::indices::{Broken, Consumer, Indices, Producer};
use super::memory::{Mapping, page_bytes, sealed_len, sealed_memfd};
use ripieno_run::{Link, LinkError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Bytes that a ring holds unless told otherwise.
pub const DEFAULT_CAPACITY_BYTES: usize = 1 << 20;

/// Rings above this are refused, whoever asks.
const MAX_CAPACITY_BYTES: usize = 1 << 30;

/// A long copy is shown to the other side each time so many bytes are done.
const UNIT_BYTES: usize = 32 << 10;

/// One end of a link over shared memory.
pub struct RingLink {
    segment: Arc<Segment>,
    side: Side,
    producer: Producer,
    consumer: Consumer,
    peer: Bell,
    sent: bool,
    released: bool,
}

/// Which of the two ends: the first sends through ring 0, the second through ring 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Sends through ring 0.
    First,
    /// Sends through ring 1.
    Second,
}

/// The memory of a link: a page of indices, then the bytes of both rings, each mapped mirrored.
pub struct Segment {
    header: Mapping,
    data: [Mapping; 2],
    capacity: usize,
}

impl Segment {
    /// New memory for a link with rings of at least `capacity_bytes`.
    pub fn create(capacity_bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let capacity = capacity_bytes.clamp(page_bytes(), MAX_CAPACITY_BYTES).next_power_of_two();
        let fd = sealed_memfd("ripieno-link", page_bytes() + 2 * capacity)?;
        Ok((Self::map(&fd, capacity)?, fd))
    }

    /// Maps memory that a peer has created.
    pub fn open(fd: &OwnedFd) -> io::Result<Self> {
        let capacity = sealed_len(fd.as_fd())?.saturating_sub(page_bytes()) / 2;
        if !capacity.is_power_of_two() || !(page_bytes()..=MAX_CAPACITY_BYTES).contains(&capacity) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer's shared memory is no pair of rings"));
        }
        Self::map(fd, capacity)
    }

    fn map(fd: &OwnedFd, capacity: usize) -> io::Result<Self> {
        let header = Mapping::plain(fd, 0, page_bytes())?;
        let data =
            [Mapping::mirrored(fd, page_bytes(), capacity)?, Mapping::mirrored(fd, page_bytes() + capacity, capacity)?];
        Ok(Segment { header, data, capacity })
    }

    fn indices(&self, ring: usize) -> &Indices<AtomicU64> {
        let both = self.header.address().cast::<[Indices<AtomicU64>; 2]>();
        // SAFETY: the page is mapped as long as `self`, larger than both, zero at first (a valid value of atomics), and
        // every process uses these words through atomics only.
        unsafe { &both.as_ref()[ring] }
    }
}

impl RingLink {
    /// The end of `segment` at `side`; `peer` wakes the rank at the other.
    pub(super) fn new(segment: Arc<Segment>, side: Side, peer: Bell) -> Self {
        let (producer, consumer) = (Producer::new(segment.capacity), Consumer::new(segment.capacity));
        RingLink { segment, side, producer, consumer, peer, sent: false, released: false }
    }

    /// Bytes that each of the two rings holds.
    pub fn capacity_bytes(&self) -> usize {
        self.segment.capacity
    }

    fn outgoing(&self) -> usize {
        self.side as usize
    }

    fn incoming(&self) -> usize {
        1 - self.side as usize
    }

    /// Copies a prefix of `part` into the ring; returns its length.
    fn write(&mut self, part: &[u8]) -> Result<usize, Broken> {
        let mut written = 0;
        while written < part.len() {
            let unit = (part.len() - written).min(UNIT_BYTES);
            let count = self.producer.room(self.segment.indices(self.outgoing()), unit)?.min(unit);
            if count == 0 {
                break;
            }
            let ring = self.segment.data[self.outgoing()].address();
            // SAFETY: the mirrored mapping holds `capacity` bytes from any offset; `room` says that the consumer does
            // not read these until they are published.
            unsafe {
                let place = ring.as_ptr().add(self.producer.offset());
                std::ptr::copy_nonoverlapping(part.as_ptr().add(written), place, count);
            }
            self.producer.advance(count);
            written += count;
            if self.producer.unpublished() >= UNIT_BYTES {
                self.producer.publish(self.segment.indices(self.outgoing()));
            }
        }
        Ok(written)
    }
}

impl Link for RingLink {
    fn send(&mut self, parts: &[&[u8]]) -> Result<usize, LinkError> {
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

    fn flush(&mut self) -> Result<(), LinkError> {
        if !self.sent && !self.released {
            return Ok(());
        }
        AtomicU64::fence();
        // A peer that waits for our bytes is not woken because we made room, and is spared a switch of context.
        if self.sent || self.consumer.producer_is_starved(self.segment.indices(self.incoming())) {
            self.peer.ring_after_fence();
        }
        (self.sent, self.released) = (false, false);
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let mut taken = 0;
        while taken < into.len() {
            let arrived = match self.consumer.arrived(self.segment.indices(self.incoming()), 1) {
                Ok(0) => break,
                Ok(arrived) => arrived,
                Err(_) if taken > 0 => break,
                Err(broken) => return Err(closed(broken)),
            };
            let count = arrived.min(into.len() - taken).min(UNIT_BYTES);
            let ring = self.segment.data[self.incoming()].address();
            // SAFETY: the mirrored mapping holds `capacity` bytes from any offset; the producer does not write these
            // until they are released. A hostile peer that does gives us other bytes, which it could have sent anyway.
            unsafe {
                let place = ring.as_ptr().add(self.consumer.offset());
                std::ptr::copy_nonoverlapping(place, into.as_mut_ptr().add(taken), count);
            }
            self.consume(count);
            taken += count;
        }
        Ok(taken)
    }

    fn peek(&mut self, least: usize) -> Result<&[u8], LinkError> {
        let arrived = self.consumer.arrived(self.segment.indices(self.incoming()), least.max(1)).map_err(closed)?;
        let ring = self.segment.data[self.incoming()].address();
        // SAFETY: as in `receive`; `consume` needs `self`, so the bytes are released after the slice is gone.
        Ok(unsafe { std::slice::from_raw_parts(ring.as_ptr().add(self.consumer.offset()), arrived) })
    }

    fn consume(&mut self, count: usize) {
        self.consumer.release(self.segment.indices(self.incoming()), count);
        self.released |= count > 0;
    }

    fn expect(&mut self, _bytes: usize) {}

    fn is_memory(&self) -> bool {
        true
    }
}

impl Drop for RingLink {
    fn drop(&mut self) {
        self.producer.close(self.segment.indices(self.outgoing()));
        self.consumer.close(self.segment.indices(self.incoming()));
        self.peer.ring();
    }
}

fn closed(broken: Broken) -> LinkError {
    let cause = match broken {
        Broken::Closed => "the peer closed its end of the shared memory".into(),
        Broken::Corrupt { found, least, greatest } => {
            format!("the peer wrote index {found} into the shared memory where {least}..={greatest} is possible")
        }
    };
    LinkError::Closed { cause }
}
