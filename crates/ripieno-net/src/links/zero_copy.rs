//! Zero-copy sends: the bytes stay in the memory of the sender, and the receiver reads them from there.
//!
//! A zero-copy send occupies a slot and one byte of the ring's indices. The reader releases that byte when it has read
//! all bytes of the send, which completes the send. Bytes in a [`super::Region`] of the sender are read in place: the
//! reader maps the region read-only on first use, through the sender's open files in `/proc`. Other bytes are read by
//! process_vm_readv(2), one copy by the kernel. The kernel may refuse either access, so the reader tries both at the
//! start and reports the results before the first zero-copy send.
//!
//! A copy by the kernel occupies the core of the receiver. Through the ring, both cores copy one message at the same
//! time. If both ranks send, each core copies twice. So [`super::store_choice`] compares both ways.

use super::indices::ReadAttempt;
use super::memory::{Mapping, sealed_len};
use super::region::{region_offset, token};
use rustix::fs::{Mode, OFlags};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Maximum number of regions of one sender that a reader keeps mapped.
const MAX_MAPPED_COUNT: usize = 32;

/// The number of no region: the bytes lie in other memory of the process.
const NO_REGION: u64 = u64::MAX;

/// Size of a copy that is read in parts, without a destination of its own. It stays in a second-level cache.
const STAGED_BYTES: usize = 32 << 10;

/// How the peer reads a zero-copy send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZeroCopyKind {
    /// In place: it maps the region.
    Mapped = 0,
    /// By a copy of the kernel from the memory of the process.
    Copied = 1,
}

impl ZeroCopyKind {
    /// Return how a peer can read `bytes` of this process.
    pub fn of(bytes: &[u8]) -> ZeroCopyKind {
        if region_offset(bytes).is_some() { ZeroCopyKind::Mapped } else { ZeroCopyKind::Copied }
    }

    /// Return whether the peer's attempt to read memory in this way succeeded.
    pub fn is_readable(self, attempt: &ReadAttempt<AtomicU64>) -> bool {
        attempt.readable_kinds.load(Acquire) & self.bit() != 0
    }

    fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// The content of a zero-copy slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZeroCopyDescriptor {
    length_bytes: u64,
    /// The number of the region, or [`NO_REGION`].
    number: u64,
    fd: u64,
    /// The offset in the region, or the address in the process.
    offset: u64,
}

impl ZeroCopyDescriptor {
    /// Encode a zero-copy send of `bytes` as the words of a slot.
    pub fn words(bytes: &[u8]) -> [u64; 15] {
        let [number, fd, offset] = match region_offset(bytes) {
            Some(place) => [place.number, place.fd as u64, place.offset as u64],
            None => [NO_REGION, 0, bytes.as_ptr() as u64],
        };
        let mut words = [0; 15];
        words[..4].copy_from_slice(&[bytes.len() as u64, number, fd, offset]);
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

/// Publish a descriptor and an address that let the peer test whether it can read this process's memory.
pub(super) fn publish_token(attempt: &ReadAttempt<AtomicU64>) -> io::Result<()> {
    let (fd, value) = token()?;
    attempt.value.store(*value, Release);
    attempt.address.store(std::ptr::from_ref(value) as u64, Release);
    attempt.descriptor.store(fd as u64 + 1, Release);
    Ok(())
}

/// Reads the zero-copy sends of the peer.
pub(super) struct ZeroCopyReader {
    /// The peer's process, if this process can read its memory.
    pid: Option<i32>,
    /// The unconsumed sends: their index in the stream and their descriptor.
    sends: VecDeque<(u64, ZeroCopyDescriptor)>,
    /// Consumed bytes of the first send.
    consumed: usize,
    mapped: VecDeque<(u64, Mapping)>,
    /// Bytes to read until all mapped regions have probably been read once. The first read of a page is a page fault.
    cold_bytes: usize,
    /// Unconsumed bytes of the first send that were copied from the peer's memory.
    staged: Vec<u8>,
    /// Consumed bytes of `staged`.
    staged_start: usize,
}

impl ZeroCopyReader {
    /// Test how this process can read the memory that process `pid` published in `attempt`. If it cannot, the peer
    /// copies all its sends.
    pub fn of(pid: Option<i32>, attempt: &ReadAttempt<AtomicU64>) -> ZeroCopyReader {
        let (descriptor, value) = (attempt.descriptor.load(Acquire), attempt.value.load(Acquire));
        let address = attempt.address.load(Acquire);
        let read = |kind, pid, fd| {
            let mut found = [0; 8];
            match kind {
                ZeroCopyKind::Mapped => rustix::io::pread(open(pid, fd)?, &mut found, 0).map(|_| ())?,
                ZeroCopyKind::Copied => copy_from_process(pid, address, &mut found)?,
            }
            io::Result::Ok(u64::from_ne_bytes(found))
        };
        let process = pid.zip(descriptor.checked_sub(1));
        let can_read = |kind| process.is_some_and(|(pid, fd)| read(kind, pid, fd).is_ok_and(|found| found == value));
        let kinds = [ZeroCopyKind::Mapped, ZeroCopyKind::Copied].into_iter().filter(|&kind| can_read(kind));
        let bits = kinds.map(ZeroCopyKind::bit).sum();
        attempt.readable_kinds.store(bits, Release);
        ZeroCopyReader {
            pid: pid.filter(|_| bits != 0),
            sends: VecDeque::new(),
            consumed: 0,
            mapped: VecDeque::new(),
            cold_bytes: 0,
            staged: Vec::new(),
            staged_start: 0,
        }
    }

    pub fn add(&mut self, index: u64, descriptor: ZeroCopyDescriptor) {
        self.sends.push_back((index, descriptor));
    }

    /// Return the index of the first zero-copy send in the stream.
    pub fn index(&self) -> Option<u64> {
        self.sends.front().map(|(index, _)| *index)
    }

    /// Return how the first zero-copy send is read.
    pub fn kind(&self) -> ZeroCopyKind {
        let (_, descriptor) = self.sends.front().expect("a zero-copy send is open");
        if descriptor.number == NO_REGION { ZeroCopyKind::Copied } else { ZeroCopyKind::Mapped }
    }

    /// Copy the first unconsumed bytes of the first zero-copy send to `into`, and return their number.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let is_direct = self.kind() == ZeroCopyKind::Copied && self.staged_start == self.staged.len();
        if is_direct {
            self.check_length()?;
            let count = self.left().min(into.len());
            self.copy_ahead(0, &mut into[..count])?;
            return Ok(count);
        }
        let there = self.peek(1)?;
        let count = there.len().min(into.len());
        into[..count].copy_from_slice(&there[..count]);
        Ok(count)
    }

    /// Return unconsumed bytes of the first zero-copy send, in the peer's memory if they are mapped: at least
    /// `min_bytes`, or all that are left.
    pub fn peek(&mut self, min_bytes: usize) -> io::Result<&[u8]> {
        let (_, descriptor) = *self.sends.front().expect("a zero-copy send is open");
        self.check_length()?;
        if self.kind() == ZeroCopyKind::Copied {
            return self.peek_staged(min_bytes);
        }
        if self.mapped.iter().all(|(number, _)| *number != descriptor.number) {
            self.map(descriptor)?;
        }
        let mapping = self.mapped.iter().find(|(number, _)| *number == descriptor.number).map(|(_, mapping)| mapping);
        let mapping = mapping.expect("it was mapped");
        let is_within =
            descriptor.offset.checked_add(descriptor.length_bytes).is_some_and(|end| end <= mapping.len() as u64);
        if !is_within {
            return Err(invalid("the peer sent a zero-copy message beyond its region"));
        }
        // SAFETY: The range lies within the mapping, which lives as long as `self` and cannot shrink. The peer leaves
        // the bytes alone until the send is completed. A hostile peer can change the bytes, but it could have sent
        // those bytes anyway.
        Ok(unsafe {
            let start = mapping.address().as_ptr().add(descriptor.offset as usize + self.consumed);
            std::slice::from_raw_parts(start, descriptor.length_bytes as usize - self.consumed)
        })
    }

    /// Refuse an empty first send: its end would never be reached.
    fn check_length(&self) -> io::Result<()> {
        if self.left() > 0 { Ok(()) } else { Err(invalid("the peer sent an empty zero-copy message")) }
    }

    fn peek_staged(&mut self, min_bytes: usize) -> io::Result<&[u8]> {
        let left = self.left();
        if self.staged.len() - self.staged_start < min_bytes.min(left) {
            let mut staged = std::mem::take(&mut self.staged);
            staged.drain(..self.staged_start);
            self.staged_start = 0;
            let known = staged.len();
            staged.resize(left.min(STAGED_BYTES.max(min_bytes)), 0);
            self.copy_ahead(known, &mut staged[known..])?;
            self.staged = staged;
        }
        Ok(&self.staged[self.staged_start..])
    }

    /// Copy bytes from the memory of the peer, `ahead` bytes after the first unconsumed byte.
    fn copy_ahead(&self, ahead: usize, into: &mut [u8]) -> io::Result<()> {
        let (_, descriptor) = *self.sends.front().expect("a zero-copy send is open");
        let pid = self.pid.ok_or_else(|| invalid("the peer sent memory that this process cannot read"))?;
        copy_from_process(pid, descriptor.offset.wrapping_add((self.consumed + ahead) as u64), into)
    }

    /// Consume `count` bytes of the first zero-copy send.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.left(), "no more is consumed than was sent");
        self.consumed += count;
        self.staged_start = (self.staged_start + count).min(self.staged.len());
        self.cold_bytes = self.cold_bytes.saturating_sub(count);
    }

    /// Return the number of unconsumed bytes of the first zero-copy send.
    pub fn left(&self) -> usize {
        self.message_bytes() - self.consumed
    }

    /// Return the length of the first zero-copy send.
    pub fn message_bytes(&self) -> usize {
        self.sends.front().map_or(0, |(_, descriptor)| descriptor.length_bytes as usize)
    }

    /// Return whether the first zero-copy send is copied in parts, without a destination of its own.
    pub fn has_parts(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Return whether reads are likely to cause no page faults.
    pub fn is_warm(&self) -> bool {
        self.cold_bytes == 0
    }

    /// Remove the first zero-copy send, which is fully consumed.
    pub fn end_first(&mut self) {
        self.sends.pop_front();
        self.consumed = 0;
        self.staged.clear();
        self.staged_start = 0;
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

/// Fill `into` from the memory of process `pid`.
fn copy_from_process(pid: i32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let to = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let from = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: The kernel writes at most `into.len()` bytes to `into`, and checks the address in the other process.
    match unsafe { libc::process_vm_readv(pid, &raw const to, 1, &raw const from, 1, 0) } {
        count if count == into.len() as isize => Ok(()),
        ..0 => Err(io::Error::last_os_error()),
        _ => Err(invalid("the peer sent memory that it has not mapped")),
    }
}

/// Open an open file of another process read-only.
fn open(pid: i32, fd: u64) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(rustix::fs::open(format!("/proc/{pid}/fd/{fd}"), flags, Mode::empty())?)
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_send_is_an_error() {
        for number in [0, NO_REGION] {
            let mut reader = ZeroCopyReader::of(None, &ReadAttempt::default());
            reader.add(0, ZeroCopyDescriptor { length_bytes: 0, number, fd: 0, offset: 0 });
            let errors = [reader.read(&mut [0; 8]).map(drop), reader.peek(1).map(drop)].map(Result::unwrap_err);
            assert!(errors.iter().all(|error| error.to_string().contains("empty")), "{errors:?}");
        }
    }
}
