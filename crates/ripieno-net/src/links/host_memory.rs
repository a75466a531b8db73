//! Memory of a value that processes of a host share: one makes and fills it, others map it to read.
//!
//! It is a sealed memfd, so it has no name and lives until the last of them lets go, however the others end. Or it is
//! a file, which may be larger than the machine's memory; that one is not shared.

use super::memory::{Mapping, sealed_len, sealed_memfd};
use ripieno_run::swarm::{MemoryPlace, Store};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where a file system reserves no room, zeros are written in pieces of this size.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Memory of a value.
#[derive(Debug)]
pub struct HostMemory {
    mapping: Mapping,
    fd: OwnedFd,
    inode: u64,
    /// How much of it can be read: all of it, unless somebody is filling it.
    ready_bytes: AtomicUsize,
    /// Whether it was made here, and may be written.
    is_own: bool,
}

impl HostMemory {
    /// `length_bytes` zero bytes; an error where the machine has no memory for them.
    pub fn new(length_bytes: usize) -> io::Result<HostMemory> {
        super::region::refuse_more_than_there_is(length_bytes)?;
        // Nothing can be mapped of an empty file.
        let fd = sealed_memfd("ripieno-value", length_bytes.max(1))?;
        let mapping = Mapping::plain(&fd, 0, length_bytes.max(1))?;
        let inode = rustix::fs::fstat(&fd)?.st_ino;
        Ok(HostMemory { mapping, fd, inode, ready_bytes: length_bytes.into(), is_own: true })
    }

    /// Memory for `length_bytes`, of which can be read what was filled.
    pub fn to_fill(length_bytes: usize) -> io::Result<Filler> {
        let mut memory = HostMemory::new(length_bytes)?;
        *memory.ready_bytes.get_mut() = 0;
        Ok(Filler { memory: Arc::new(memory), length_bytes })
    }

    /// A whole file, to read only. Nobody may make it shorter meanwhile.
    pub fn of_file(path: &Path) -> io::Result<HostMemory> {
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let (length_bytes, inode) = (file_bytes(&fd)?, rustix::fs::fstat(&fd)?.st_ino);
        let mapping = Mapping::read_only(&fd, length_bytes.max(1))?;
        Ok(HostMemory { mapping, fd, inode, ready_bytes: length_bytes.into(), is_own: false })
    }

    /// A file of `length_bytes`, made if it is not there, and how long it was. Its bytes have room on the disk, so
    /// that writing them never fails. It is written by one process at a time, where its file system has locks.
    pub fn in_file(path: &Path, length_bytes: usize) -> io::Result<(HostMemory, usize)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        if let Err(Errno::WOULDBLOCK) = rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            return Err(Errno::BUSY.into());
        }
        let old_bytes = file_bytes(&fd)?;
        if old_bytes > length_bytes {
            rustix::fs::ftruncate(&fd, length_bytes as u64)?;
        }
        reserve(&fd, old_bytes, length_bytes)?;
        let mapping = Mapping::plain(&fd, 0, length_bytes.max(1))?;
        let inode = rustix::fs::fstat(&fd)?.st_ino;
        Ok((HostMemory { mapping, fd, inode, ready_bytes: length_bytes.into(), is_own: true }, old_bytes))
    }

    /// Waits until what was written is on the disk.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }
}

fn file_bytes(fd: &OwnedFd) -> io::Result<usize> {
    usize::try_from(rustix::fs::fstat(fd)?.st_size).map_err(|_| Errno::OVERFLOW.into())
}

/// Makes a file of `old_bytes` as long as it is to be, with room for all of it.
fn reserve(fd: &OwnedFd, old_bytes: usize, length_bytes: usize) -> io::Result<()> {
    if length_bytes == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, length_bytes as u64) {
        Err(Errno::OPNOTSUPP) => {}
        other => return Ok(other?),
    }
    let mut at = old_bytes;
    while at < length_bytes {
        let piece = &ZEROS[..ZEROS.len().min(length_bytes - at)];
        at += rustix::io::pwrite(fd, piece, at as u64)?;
    }
    Ok(())
}

impl Store for HostMemory {
    fn place(&self) -> MemoryPlace {
        MemoryPlace { process: std::process::id(), descriptor: self.fd.as_raw_fd(), inode: self.inode }
    }

    fn at(place: MemoryPlace, length_bytes: usize) -> io::Result<HostMemory> {
        let path = format!("/proc/{}/fd/{}", place.process, place.descriptor);
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        // Where processes are numbered apart, this may be another one.
        if rustix::fs::fstat(&fd)?.st_ino != place.inode {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the process of that number has other memory there"));
        }
        if sealed_len(fd.as_fd())? < length_bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the memory is shorter than the value"));
        }
        let mapping = Mapping::read_only(&fd, length_bytes.max(1))?;
        Ok(HostMemory { mapping, fd, inode: place.inode, ready_bytes: length_bytes.into(), is_own: false })
    }
}

impl Deref for HostMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let ready_bytes = self.ready_bytes.load(Ordering::Acquire);
        // SAFETY: mapped as long as `self` and readable; whoever made it writes it no more once others know its place,
        // and whoever fills it writes nothing before the end of what is ready.
        unsafe { std::slice::from_raw_parts(self.mapping.address().as_ptr(), ready_bytes) }
    }
}

impl DerefMut for HostMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(self.is_own, "what another process has made is read only");
        // SAFETY: mapped as long as `self`, readable and writable; others map it once it is written no more.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.address().as_ptr(), *self.ready_bytes.get_mut()) }
    }
}

/// Fills memory from its begin to its end, while others read what is there.
#[derive(Debug)]
pub struct Filler {
    memory: Arc<HostMemory>,
    length_bytes: usize,
}

impl Filler {
    /// What is filled.
    pub fn memory(&self) -> &Arc<HostMemory> {
        &self.memory
    }

    /// Adds bytes. They are written by the kernel, which takes pages as it comes to them and need not clear them.
    pub fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut at = self.memory.len();
        assert!(bytes.len() <= self.length_bytes - at, "no more is filled than was asked for");
        while !bytes.is_empty() {
            let count = rustix::io::pwrite(&self.memory.fd, bytes, at as u64)?;
            (at, bytes) = (at + count, &bytes[count..]);
            self.memory.ready_bytes.store(at, Ordering::Release);
        }
        Ok(())
    }

    /// Leaves so many bytes zero.
    pub fn skip(&mut self, count: usize) {
        let at = self.memory.len();
        assert!(count <= self.length_bytes - at, "no more is filled than was asked for");
        self.memory.ready_bytes.store(at + count, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_here_is_read_there_and_outlives_its_maker() {
        for length_bytes in [0, 1, 10_000] {
            let mut made = HostMemory::new(length_bytes).unwrap();
            made.fill(7);
            let read = HostMemory::at(made.place(), length_bytes).unwrap();
            drop(made);
            assert_eq!(read[..], vec![7; length_bytes]);
        }
    }

    #[test]
    fn what_is_filled_is_read_as_far_as_it_is_there() {
        let mut filler = HostMemory::to_fill(10_000).unwrap();
        let memory = filler.memory().clone();
        assert!(memory.is_empty());
        filler.push(&[7; 5000]).unwrap();
        assert_eq!(memory[..], [7; 5000]);
        filler.skip(10);
        filler.push(&[8; 4990]).unwrap();
        assert_eq!(memory[..], [&[7; 5000][..], &[0; 10], &[8; 4990]].concat());
        assert_eq!(HostMemory::at(memory.place(), 10_000).unwrap()[..], memory[..]);
        let overfull = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| filler.push(&[9])));
        assert!(overfull.is_err(), "there is no room");
    }

    #[test]
    fn a_file_keeps_what_is_written_and_is_written_by_one_at_a_time() {
        let path = std::env::temp_dir().join(format!("ripieno-file-{}", std::process::id()));
        for length_bytes in [10_000, 0, 5000] {
            let (mut made, _) = HostMemory::in_file(&path, length_bytes).unwrap();
            assert!(HostMemory::in_file(&path, length_bytes).is_err(), "it is being written");
            made.fill(7);
            made.sync().unwrap();
            drop(made);
            assert_eq!(HostMemory::of_file(&path).unwrap()[..], vec![7; length_bytes]);
            assert_eq!(HostMemory::in_file(&path, length_bytes).unwrap().1, length_bytes);
        }
        assert!(HostMemory::in_file(&path, 1 << 62).is_err(), "no disk has room for it");
        std::fs::remove_file(&path).unwrap();
        assert!(HostMemory::of_file(&path).is_err());
    }

    #[test]
    fn memory_that_is_too_short_or_another_is_refused() {
        let (made, other) = (HostMemory::new(10).unwrap(), HostMemory::new(10).unwrap());
        assert!(HostMemory::at(made.place(), 11).is_err());
        assert!(HostMemory::at(MemoryPlace { inode: other.place().inode, ..made.place() }, 10).is_err());
        assert!(HostMemory::new(1 << 62).is_err());
    }
}
