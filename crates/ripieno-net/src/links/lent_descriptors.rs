//! Zero-copy sends: the bytes stay with the sender, and the receiver reads them in place.
//!
//! A zero-copy send occupies a slot and one byte of the ring's indices. The reader releases that byte when it has read
//! everything, which completes the send. The bytes lie in a [`super::Region`] of the sender. The reader maps the region
//! read-only on first use, through the sender's open files in `/proc`. The kernel may refuse that access, so the reader
//! tries it at the start and reports the result before the first zero-copy send.
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

/// Limit of a sender's regions that stay mapped.
const MAX_MAPPED: usize = 32;

/// The content of a zero-copy slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct LentDescriptor {
    length_bytes: u64,
    /// The number of the region.
    number: u64,
    fd: u64,
    offset: u64,
}

impl LentDescriptor {
    /// Encode a zero-copy send of `length_bytes` at `place` as the words of a slot.
    pub fn words(place: RegionOffset, length_bytes: usize) -> [u64; 15] {
        let mut words = [0; 15];
        words[..4].copy_from_slice(&[length_bytes as u64, place.number, place.fd as u64, place.offset as u64]);
        words
    }

    pub fn from_words([length_bytes, number, fd, offset, ..]: [u64; 15]) -> LentDescriptor {
        LentDescriptor { length_bytes, number, fd, offset }
    }
}

/// Zero-copy sends that are not completed.
#[derive(Default)]
pub(super) struct Lent {
    /// For each send: the reader's index that completes it, and the byte count.
    loans: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl Lent {
    pub fn add(&mut self, returned_at: u64, length_bytes: usize) {
        self.loans.push_back((returned_at, length_bytes));
        self.bytes += length_bytes;
    }

    /// Complete the sends up to the reader's index `head`.
    pub fn note(&mut self, head: u64) {
        while let Some(&(_, length_bytes)) = self.loans.front().filter(|(index, _)| *index <= head) {
            self.bytes -= length_bytes;
            self.loans.pop_front();
        }
    }

    /// Return the reader's index that completes the last send.
    pub fn last(&self) -> u64 {
        self.loans.back().map_or(0, |(index, _)| *index)
    }

    /// Return the number of bytes in open zero-copy sends.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Publish a descriptor that lets the peer test whether it can map this process's regions.
pub(super) fn invite(visit: &ReadAttempt<AtomicU64>) -> io::Result<()> {
    let (fd, value) = token()?;
    visit.value.store(value, Release);
    visit.descriptor.store(fd as u64 + 1, Release);
    Ok(())
}

/// Zero-copy sends of the peer that this end has not consumed.
pub(super) struct LentSpan {
    /// The peer's process, if its regions can be mapped.
    pid: Option<i32>,
    /// Descriptors with their index in the stream.
    loans: VecDeque<(u64, LentDescriptor)>,
    /// Bytes consumed of the first one.
    taken: usize,
    mapped: VecDeque<(u64, Mapping)>,
}

impl LentSpan {
    /// Test whether the memory that process `pid` publishes in `visit` can be mapped. If not, the peer never sends
    /// zero-copy.
    pub fn of(pid: Option<i32>, visit: &ReadAttempt<AtomicU64>) -> LentSpan {
        let (descriptor, value) = (visit.descriptor.load(Acquire), visit.value.load(Acquire));
        let seen = pid.zip(descriptor.checked_sub(1)).map(|(pid, fd)| {
            let mut found = [0; 8];
            rustix::io::pread(open(pid, fd)?, &mut found, 0)?;
            io::Result::Ok(u64::from_ne_bytes(found))
        });
        let can_map = matches!(seen, Some(Ok(seen)) if seen == value);
        visit.welcome.store(can_map.into(), Release);
        LentSpan { pid: pid.filter(|_| can_map), loans: VecDeque::new(), taken: 0, mapped: VecDeque::new() }
    }

    pub fn add(&mut self, index: u64, loan: LentDescriptor) {
        self.loans.push_back((index, loan));
    }

    /// Return the index of the first zero-copy send in the stream.
    pub fn index(&self) -> Option<u64> {
        self.loans.front().map(|(index, _)| *index)
    }

    /// Return the unconsumed bytes of the first zero-copy send, in the peer's memory.
    pub fn peek(&mut self) -> io::Result<&[u8]> {
        let (_, loan) = *self.loans.front().expect("a loan stands at the front");
        if self.mapped.iter().all(|(number, _)| *number != loan.number) {
            self.map(loan)?;
        }
        let mapping = self.mapped.iter().find(|(number, _)| *number == loan.number).map(|(_, mapping)| mapping);
        let mapping = mapping.expect("it was mapped");
        let is_within = loan.offset.checked_add(loan.length_bytes).is_some_and(|end| end <= mapping.len() as u64);
        if !is_within || loan.length_bytes == 0 {
            return Err(invalid("the peer lent nothing, or more than its region holds"));
        }
        // SAFETY: The range lies within the mapping, which lives as long as `self` and cannot shrink. The peer leaves
        // the bytes alone until the send is completed. A hostile peer can change the bytes, but it could have sent
        // those bytes anyway.
        Ok(unsafe {
            let start = mapping.address().as_ptr().add(loan.offset as usize + self.taken);
            std::slice::from_raw_parts(start, loan.length_bytes as usize - self.taken)
        })
    }

    /// Consume `count` bytes of the first zero-copy send.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.left(), "no more is taken than was lent");
        self.taken += count;
    }

    /// Return the number of unconsumed bytes of the first zero-copy send.
    pub fn left(&self) -> usize {
        self.loans.front().map_or(0, |(_, loan)| loan.length_bytes as usize - self.taken)
    }

    /// Remove the first zero-copy send, which is fully consumed.
    pub fn end_first(&mut self) {
        self.loans.pop_front();
        self.taken = 0;
    }

    fn map(&mut self, loan: LentDescriptor) -> io::Result<()> {
        let pid = self.pid.ok_or_else(|| invalid("the peer lent memory that this process cannot map"))?;
        let file = open(pid, loan.fd)?;
        let length_bytes = sealed_len(file.as_fd())?;
        self.mapped.push_back((loan.number, Mapping::read_only(&file, length_bytes)?));
        if self.mapped.len() > MAX_MAPPED {
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
