//! Shared memory for a value: one process of a host creates and fills it, and other processes map it read-only.
//!
//! The memory is a sealed memfd. It has no name and lives until the last process releases it, even if processes crash.
//! It can also be a file, which may be larger than the machine's memory. Only unnamed files are shared.

use super::memory::{Mapping, sealed_len, sealed_memfd};
use super::value_memory::CountedMemory;
use ripieno_run::swarm::{MemoryLocation, Store};
use rustix::fs::{Advice, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Zeros are written in pieces of this size if the file system cannot preallocate.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
/// Bytes that move to a file are written in pieces of this size.
const MOVE_PIECE_BYTES: usize = 4 << 20;

/// The memory of a value.
#[derive(Debug)]
pub struct HostMemory {
    mapping: Mapping,
    backing: Mutex<Backing>,
    /// Length of the readable part: the whole memory, unless a [`MemoryWriter`] is filling it.
    ready_bytes: AtomicUsize,
    /// Whether this process created the memory and may write it.
    is_own: bool,
    counted: Option<CountedMemory>,
}

/// The location of the bytes. When they move, the descriptor keeps its number, because other processes use that number.
#[derive(Debug)]
struct Backing {
    fd: OwnedFd,
    inode: u64,
}

impl HostMemory {
    fn of(mapping: Mapping, fd: OwnedFd, ready_bytes: usize, is_own: bool) -> io::Result<HostMemory> {
        let inode = rustix::fs::fstat(&fd)?.st_ino;
        let backing = Mutex::new(Backing { fd, inode });
        Ok(HostMemory { mapping, backing, ready_bytes: ready_bytes.into(), is_own, counted: None })
    }

    /// Create memory of `length_bytes` zero bytes, or fail if the machine has too little memory.
    pub fn new(length_bytes: usize) -> io::Result<HostMemory> {
        super::region::check_fits_machine(length_bytes)?;
        // An empty file cannot be mapped.
        let fd = sealed_memfd("ripieno-value", length_bytes.max(1))?;
        let mapping = Mapping::plain(&fd, 0, length_bytes.max(1))?;
        HostMemory::of(mapping, fd, length_bytes, true)
    }

    /// Use an unnamed file that no other process has open, and extend it to `length_bytes`.
    pub(super) fn of_unnamed(file: impl Into<OwnedFd>, length_bytes: usize) -> io::Result<HostMemory> {
        let fd = file.into();
        rustix::fs::ftruncate(&fd, length_bytes.max(1) as u64)?;
        HostMemory::of(Mapping::plain(&fd, 0, length_bytes.max(1))?, fd, length_bytes, true)
    }

    pub(super) fn count(&mut self, counted: CountedMemory) {
        self.counted = Some(counted);
    }

    pub(super) fn counted(&self) -> Option<&CountedMemory> {
        self.counted.as_ref()
    }

    /// Move the bytes to a file that has enough space. No thread may write them any more. Readers in this process are
    /// not affected; processes that have mapped the memory must call [remap](Store::remap).
    pub(super) fn move_to(&self, file: impl AsFd) -> io::Result<()> {
        let file = file.as_fd();
        for (at, piece) in self.chunks(MOVE_PIECE_BYTES).enumerate() {
            let (mut at, mut piece) = (at * MOVE_PIECE_BYTES, piece);
            while !piece.is_empty() {
                let count = rustix::io::pwrite(file, piece, at as u64)?;
                (at, piece) = (at + count, &piece[count..]);
            }
        }
        // The kernel reclaims pages that are on disk without further I/O.
        rustix::fs::fdatasync(file)?;
        self.remap_to(file)?;
        let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
        if let Some(counted) = &self.counted {
            counted.leave();
        }
        Ok(())
    }

    /// Map the same bytes from another file.
    fn remap_to(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let inode = rustix::fs::fstat(fd)?.st_ino;
        let mut backing = self.backing();
        self.mapping.replace(fd)?;
        rustix::io::dup3(fd, &mut backing.fd, rustix::io::DupFlags::CLOEXEC)?;
        backing.inode = inode;
        Ok(())
    }

    fn backing(&self) -> MutexGuard<'_, Backing> {
        self.backing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Map a whole file read-only. No process may truncate it meanwhile.
    pub fn of_file(path: &Path) -> io::Result<HostMemory> {
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let length_bytes = file_bytes(&fd)?;
        HostMemory::of(Mapping::read_only(&fd, length_bytes.max(1))?, fd, length_bytes, false)
    }

    /// Open or create a file of `length_bytes`, and return its previous length. Disk space is allocated in advance, so
    /// that writing never fails. A lock admits one writing process at a time, if the file system supports locks.
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
        Ok((HostMemory::of(mapping, fd, length_bytes, true)?, old_bytes))
    }

    /// Wait until all written bytes are on disk.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.backing().fd)?)
    }
}

fn file_bytes(fd: impl AsFd) -> io::Result<usize> {
    usize::try_from(rustix::fs::fstat(fd)?.st_size).map_err(|_| Errno::OVERFLOW.into())
}

/// Extend a file of `old_bytes` to `length_bytes` and allocate disk space for all of it.
pub(super) fn reserve(fd: impl AsFd, old_bytes: usize, length_bytes: usize) -> io::Result<()> {
    if length_bytes == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, length_bytes as u64) {
        Err(Errno::OPNOTSUPP) => {}
        other => return Ok(other?),
    }
    let mut at = old_bytes;
    while at < length_bytes {
        let piece = &ZEROS[..ZEROS.len().min(length_bytes - at)];
        at += rustix::io::pwrite(&fd, piece, at as u64)?;
    }
    Ok(())
}

/// Open the file of another process, after checking its identity and that no process can truncate it below
/// `length_bytes`.
fn open_peer_file(location: MemoryLocation, length_bytes: usize) -> io::Result<OwnedFd> {
    let path = format!("/proc/{}/fd/{}", location.process, location.descriptor);
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // In another PID namespace the number may belong to another process.
    let status = rustix::fs::fstat(&fd)?;
    if status.st_ino != location.inode {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the descriptor of this process refers to other memory"));
    }
    let available_bytes = match sealed_len(fd.as_fd()) {
        // Files on disk have no seals; only the creator of an unnamed file can change its length.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) && status.st_nlink == 0 => {
            file_bytes(&fd)?
        }
        other => other?,
    };
    if available_bytes < length_bytes {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the memory is shorter than the value"));
    }
    Ok(fd)
}

impl Store for HostMemory {
    fn location(&self) -> MemoryLocation {
        let backing = self.backing();
        MemoryLocation { process: std::process::id(), descriptor: backing.fd.as_raw_fd(), inode: backing.inode }
    }

    fn at(location: MemoryLocation, length_bytes: usize) -> io::Result<HostMemory> {
        let fd = open_peer_file(location, length_bytes)?;
        HostMemory::of(Mapping::read_only(&fd, length_bytes.max(1))?, fd, length_bytes, false)
    }

    fn remap(&self, location: MemoryLocation, length_bytes: usize) -> io::Result<()> {
        if self.is_own || length_bytes != self.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the memory differs from the memory of the other process",
            ));
        }
        self.remap_to(open_peer_file(location, length_bytes)?.as_fd())
    }
}

impl Deref for HostMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let ready_bytes = self.ready_bytes.load(Ordering::Acquire);
        // SAFETY: The mapping is readable and lives as long as `self`. The creator does not write it after other
        // processes know its location. A [`MemoryWriter`] writes nothing before the end of the ready part.
        unsafe { std::slice::from_raw_parts(self.mapping.address().as_ptr(), ready_bytes) }
    }
}

impl DerefMut for HostMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(self.is_own, "memory created by another process is read-only");
        // SAFETY: The mapping is readable and writable and lives as long as `self`; others map it only after the last
        // write.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.address().as_ptr(), *self.ready_bytes.get_mut()) }
    }
}

/// Fills memory from the start to the end while other threads and processes read the ready part.
#[derive(Debug)]
pub struct MemoryWriter {
    memory: Arc<HostMemory>,
    length_bytes: usize,
}

impl MemoryWriter {
    /// Start to fill memory that has not been written yet.
    pub fn new(mut memory: HostMemory) -> MemoryWriter {
        let length_bytes = std::mem::take(memory.ready_bytes.get_mut());
        MemoryWriter { memory: Arc::new(memory), length_bytes }
    }

    /// Return the memory that is being filled.
    pub fn memory(&self) -> &Arc<HostMemory> {
        &self.memory
    }

    /// Append bytes. The kernel writes them, so it allocates pages on demand and need not clear them.
    pub fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut at = self.memory.len();
        assert!(bytes.len() <= self.length_bytes - at, "no more bytes are written than allocated");
        while !bytes.is_empty() {
            let count = rustix::io::pwrite(&self.memory.backing().fd, bytes, at as u64)?;
            (at, bytes) = (at + count, &bytes[count..]);
            self.memory.ready_bytes.store(at, Ordering::Release);
        }
        Ok(())
    }

    /// Leave `count` bytes zero.
    pub fn skip(&mut self, count: usize) {
        let at = self.memory.len();
        assert!(count <= self.length_bytes - at, "no more bytes are written than allocated");
        self.memory.ready_bytes.store(at + count, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_mappings_read_the_memory_and_outlive_its_creator() {
        for length_bytes in [0, 1, 10_000] {
            let mut created = HostMemory::new(length_bytes).unwrap();
            created.fill(7);
            let read = HostMemory::at(created.location(), length_bytes).unwrap();
            drop(created);
            assert_eq!(read[..], vec![7; length_bytes]);
        }
    }

    #[test]
    fn the_written_part_is_readable() {
        let mut writer = MemoryWriter::new(HostMemory::new(10_000).unwrap());
        let memory = writer.memory().clone();
        assert!(memory.is_empty());
        writer.push(&[7; 5000]).unwrap();
        assert_eq!(memory[..], [7; 5000]);
        writer.skip(10);
        writer.push(&[8; 4990]).unwrap();
        assert_eq!(memory[..], [&[7; 5000][..], &[0; 10], &[8; 4990]].concat());
        assert_eq!(HostMemory::at(memory.location(), 10_000).unwrap()[..], memory[..]);
        let overflow = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.push(&[9])));
        assert!(overflow.is_err(), "the memory is full");
    }

    #[test]
    fn a_file_keeps_its_bytes_and_has_one_writer_at_a_time() {
        let path = std::env::temp_dir().join(format!("ripieno-file-{}", std::process::id()));
        for length_bytes in [10_000, 0, 5000] {
            let (mut created, _) = HostMemory::in_file(&path, length_bytes).unwrap();
            assert!(HostMemory::in_file(&path, length_bytes).is_err(), "it is being written");
            created.fill(7);
            created.sync().unwrap();
            drop(created);
            assert_eq!(HostMemory::of_file(&path).unwrap()[..], vec![7; length_bytes]);
            assert_eq!(HostMemory::in_file(&path, length_bytes).unwrap().1, length_bytes);
        }
        assert!(HostMemory::in_file(&path, 1 << 62).is_err(), "no disk has that much space");
        std::fs::remove_file(&path).unwrap();
        assert!(HostMemory::of_file(&path).is_err());
    }

    #[test]
    fn too_short_or_different_memory_is_rejected() {
        let (created, other) = (HostMemory::new(10).unwrap(), HostMemory::new(10).unwrap());
        assert!(HostMemory::at(created.location(), 11).is_err());
        assert!(HostMemory::at(MemoryLocation { inode: other.location().inode, ..created.location() }, 10).is_err());
        assert!(HostMemory::new(1 << 62).is_err());
    }
}
