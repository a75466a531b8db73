//! Zero-copy sends: the bytes stay in the memory of the sender, and the receiver reads them in place.
//!
//! A zero-copy send occupies a slot and one byte of the ring's indices. The reader releases that byte when it has read
//! all bytes of the send, which completes the send. The bytes lie in a [`super::Region`] of the sender. The reader maps
//! the region read-only on first use, through the sender's open files in `/proc`. The kernel may refuse that access, so
//! the reader tries it at the start and reports the result before the first zero-copy send.
//!
//! Copying from other memory with process_vm_readv(2) takes more CPU time than two copies through a ring that stays in
//! the caches. Such memory is therefore sent through the ring.

use super::indices::ReadAttempt;
use super::memory::{Mapping, sealed_len};
use super::region::{RegionOffset, token};
use rustix::fs::{Mode, OFlags};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Maximum number of regions of one sender that a reader keeps mapped.
const MAX_MAPPED_COUNT: usize = 32;

/// The content of a zero-copy slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZeroCopyDescriptor {
    length_bytes: u64,
    /// The number of the region.
    number: u64,
    fd: u64,
    offset: u64,
}

impl ZeroCopyDescriptor {
    /// Encode a zero-copy send of `length_bytes` at `place` as the words of a slot.
    pub fn words(place: RegionOffset, length_bytes: usize) -> [u64; 15] {
        let mut words = [0; 15];
        words[..4].copy_from_slice(&[length_bytes as u64, place.number, place.fd as u64, place.offset as u64]);
        words
    }

    pub fn from_words([length_bytes, number, fd, offset, ..]: [u64; 15]) -> ZeroCopyDescriptor {
        ZeroCopyDescriptor { length_bytes, number, fd, offset }
    }
}

/// The sender's zero-copy sends that are not completed.
#[derive(Default)]
pub(super) struct UnreleasedSends {
    /// For each send: the reader's index that completes it, and the byte count.
    sends: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl UnreleasedSends {
    pub fn add(&mut self, released_at: u64, length_bytes: usize) {
        self.sends.push_back((released_at, length_bytes));
        self.bytes += length_bytes;
    }

    /// Complete the sends up to the reader's index `head`.
    pub fn release_up_to(&mut self, head: u64) {
        while let Some(&(_, length_bytes)) = self.sends.front().filter(|(index, _)| *index <= head) {
            self.bytes -= length_bytes;
            self.sends.pop_front();
        }
    }

    /// Return the reader's index that completes the last send.
    pub fn last(&self) -> u64 {
        self.sends.back().map_or(0, |(index, _)| *index)
    }

    /// Return the number of bytes in open zero-copy sends.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Publish a descriptor that lets the peer test whether it can map this process's regions.
pub(super) fn publish_token(attempt: &ReadAttempt<AtomicU64>) -> io::Result<()> {
    let (fd, value) = token()?;
    attempt.value.store(value, Release);
    attempt.descriptor.store(fd as u64 + 1, Release);
    Ok(())
}

/// Reads the zero-copy sends of the peer.
pub(super) struct ZeroCopyReader {
    /// The peer's process, if this process can map its regions.
    pid: Option<i32>,
    /// The unconsumed sends: their index in the stream and their descriptor.
    sends: VecDeque<(u64, ZeroCopyDescriptor)>,
    /// Consumed bytes of the first send.
    consumed: usize,
    mapped: VecDeque<(u64, Mapping)>,
    /// Bytes to read until all mapped regions have probably been read once. The first read of a page is a page fault.
    cold_bytes: usize,
}

impl ZeroCopyReader {
    /// Test whether this process can map the memory that process `pid` published in `attempt`. If not, the peer copies
    /// all its sends.
    pub fn of(pid: Option<i32>, attempt: &ReadAttempt<AtomicU64>) -> ZeroCopyReader {
        let (descriptor, value) = (attempt.descriptor.load(Acquire), attempt.value.load(Acquire));
        let seen = pid.zip(descriptor.checked_sub(1)).map(|(pid, fd)| {
            let mut found = [0; 8];
            rustix::io::pread(open(pid, fd)?, &mut found, 0)?;
            io::Result::Ok(u64::from_ne_bytes(found))
        });
        let can_map = matches!(seen, Some(Ok(seen)) if seen == value);
        attempt.is_readable.store(can_map.into(), Release);
        let (sends, mapped) = (VecDeque::new(), VecDeque::new());
        ZeroCopyReader { pid: pid.filter(|_| can_map), sends, consumed: 0, mapped, cold_bytes: 0 }
    }

    pub fn add(&mut self, index: u64, descriptor: ZeroCopyDescriptor) {
        self.sends.push_back((index, descriptor));
    }

    /// Return the index of the first zero-copy send in the stream.
    pub fn index(&self) -> Option<u64> {
        self.sends.front().map(|(index, _)| *index)
    }

    /// Return the unconsumed bytes of the first zero-copy send, in the peer's memory.
    pub fn peek(&mut self) -> io::Result<&[u8]> {
        let (_, descriptor) = *self.sends.front().expect("a zero-copy send is open");
        if self.mapped.iter().all(|(number, _)| *number != descriptor.number) {
            self.map(descriptor)?;
        }
        let mapping = self.mapped.iter().find(|(number, _)| *number == descriptor.number).map(|(_, mapping)| mapping);
        let mapping = mapping.expect("it was mapped");
        let is_within =
            descriptor.offset.checked_add(descriptor.length_bytes).is_some_and(|end| end <= mapping.len() as u64);
        if !is_within || descriptor.length_bytes == 0 {
            return Err(invalid("the peer sent an empty zero-copy message, or one beyond its region"));
        }
        // SAFETY: The range lies within the mapping, which lives as long as `self` and cannot shrink. The peer leaves
        // the bytes alone until the send is completed. A hostile peer can change the bytes, but it could have sent
        // those bytes anyway.
        Ok(unsafe {
            let start = mapping.address().as_ptr().add(descriptor.offset as usize + self.consumed);
            std::slice::from_raw_parts(start, descriptor.length_bytes as usize - self.consumed)
        })
    }

    /// Consume `count` bytes of the first zero-copy send.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.left(), "no more is consumed than was sent");
        self.consumed += count;
        self.cold_bytes = self.cold_bytes.saturating_sub(count);
    }

    /// Return the number of unconsumed bytes of the first zero-copy send.
    pub fn left(&self) -> usize {
        self.sends.front().map_or(0, |(_, descriptor)| descriptor.length_bytes as usize - self.consumed)
    }

    /// Return whether reads are likely to cause no page faults.
    pub fn is_warm(&self) -> bool {
        self.cold_bytes == 0
    }

    /// Remove the first zero-copy send, which is fully consumed.
    pub fn end_first(&mut self) {
        self.sends.pop_front();
        self.consumed = 0;
    }

    fn map(&mut self, descriptor: ZeroCopyDescriptor) -> io::Result<()> {
        let pid = self.pid.ok_or_else(|| invalid("the peer sent memory that this process cannot map"))?;
        let file = open(pid, descriptor.fd)?;
        let length_bytes = sealed_len(file.as_fd())?;
        self.mapped.push_back((descriptor.number, Mapping::read_only(&file, length_bytes)?));
        self.cold_bytes = self.cold_bytes.saturating_add(length_bytes);
        if self.mapped.len() > MAX_MAPPED_COUNT {
            self.mapped.pop_front();
        }
        Ok(())
    }
}

/// Open an open file of another process read-only.
fn open(pid: i32, fd: u64) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(rustix::fs::open(format!("/proc/{pid}/fd/{fd}"), flags, Mode::empty())?)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
