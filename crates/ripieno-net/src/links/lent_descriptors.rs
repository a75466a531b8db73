//! Loans: bytes that stay with their sender until the receiver has read them where they are.
//!
//! A loan travels as a note and takes one byte of the ring's indices, which the borrower releases when it has read all:
//! that returns the loan. Its bytes lie in a [`super::Region`] of the lender, which the borrower maps when it first
//! meets it, to read only, out of the lender's open files. The kernel may refuse that to one process of another, so the
//! borrower tries at the start, and says so, before anything is lent. Copying from other memory by process_vm_readv(2)
//! takes more processor time than two copies through a ring that stays in the caches, so such memory is not lent.

use super::indices::ReadAttempt;
use super::memory::{Mapping, sealed_len};
use super::region::{RegionOffset, token};
use rustix::fs::{Mode, OFlags};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Regions of a lender that stay mapped.
const MAX_MAPPED: usize = 32;

/// What the note of a loan tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct LentDescriptor {
    length_bytes: u64,
    /// Of the region.
    number: u64,
    fd: u64,
    offset: u64,
}

impl LentDescriptor {
    /// The loan of `length_bytes` at `place`, as words of a note.
    pub fn words(place: RegionOffset, length_bytes: usize) -> [u64; 7] {
        [length_bytes as u64, place.number, place.fd as u64, place.offset as u64, 0, 0, 0]
    }

    pub fn from_words([length_bytes, number, fd, offset, ..]: [u64; 7]) -> LentDescriptor {
        LentDescriptor { length_bytes, number, fd, offset }
    }
}

/// What has been lent and not returned.
#[derive(Default)]
pub(super) struct Lent {
    /// The index that the borrower's passes when it returns the loan, and the bytes.
    loans: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl Lent {
    pub fn add(&mut self, returned_at: u64, length_bytes: usize) {
        self.loans.push_back((returned_at, length_bytes));
        self.bytes += length_bytes;
    }

    /// Notes that the borrower has come to index `head`.
    pub fn note(&mut self, head: u64) {
        while let Some(&(_, length_bytes)) = self.loans.front().filter(|(index, _)| *index <= head) {
            self.bytes -= length_bytes;
            self.loans.pop_front();
        }
    }

    /// The index that the borrower's passes when it returns the last loan.
    pub fn last(&self) -> u64 {
        self.loans.back().map_or(0, |(index, _)| *index)
    }

    /// Bytes that are still lent.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Shows the peer where to try whether it can map this process's regions.
pub(super) fn invite(visit: &ReadAttempt<AtomicU64>) -> io::Result<()> {
    let (fd, value) = token()?;
    visit.value.store(value, Release);
    visit.descriptor.store(fd as u64 + 1, Release);
    Ok(())
}

/// What the peer has lent to this end.
pub(super) struct LentSpan {
    /// The peer's process, if its regions can be mapped.
    pid: Option<i32>,
    /// Loans and the index in the stream where each stands.
    loans: VecDeque<(u64, LentDescriptor)>,
    /// Bytes of the first that were taken.
    taken: usize,
    mapped: VecDeque<(u64, Mapping)>,
}

impl LentSpan {
    /// Tries to map what the process `pid` shows in `visit`; without one the peer is told not to lend.
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

    /// Where in the stream the first loan stands.
    pub fn index(&self) -> Option<u64> {
        self.loans.front().map(|(index, _)| *index)
    }

    /// The bytes of the first loan that were not taken, where the peer has them.
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
        // SAFETY: within the mapping, which stays as long as `self` and cannot shrink. The peer leaves the bytes alone
        // until the loan is returned; a hostile one that does not gives us other bytes, which it could have sent
        // anyway.
        Ok(unsafe {
            let start = mapping.address().as_ptr().add(loan.offset as usize + self.taken);
            std::slice::from_raw_parts(start, loan.length_bytes as usize - self.taken)
        })
    }

    /// Takes `count` bytes of the first loan.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.left(), "no more is taken than was lent");
        self.taken += count;
    }

    /// Bytes of the first loan that were not taken.
    pub fn left(&self) -> usize {
        self.loans.front().map_or(0, |(_, loan)| loan.length_bytes as usize - self.taken)
    }

    /// Forgets the first loan, all of which was taken.
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

/// Opens an open file of another process, to read only.
fn open(pid: i32, fd: u64) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(rustix::fs::open(format!("/proc/{pid}/fd/{fd}"), flags, Mode::empty())?)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
