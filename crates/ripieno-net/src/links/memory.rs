//! Memory shared through file descriptors: a sealed memfd, mapped once or mirrored.
//!
//! A mirrored mapping maps the same pages twice in a row, so a span of a ring that wraps is contiguous. The memfd has
//! no path and is freed with its last user, even after a crash. It is sealed against shrinking, so no peer can cause an
//! access to fault.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Return the page size of this machine.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Create a sealed memfd of `len` zero bytes.
pub fn sealed_memfd(name: &str, len: usize) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, len as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SEALS)?;
    Ok(fd)
}

/// Return the size of a memfd that a peer sent, or an error if the peer could still shrink it.
pub fn sealed_len(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let seals = rustix::fs::fcntl_get_seals(fd)?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "shared memory from the peer is not sealed"));
    }
    let len = rustix::fs::fstat(fd)?.st_size;
    usize::try_from(len).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "shared memory of impossible size"))
}

/// A mapped piece of shared memory. Other processes may write to it.
#[derive(Debug)]
pub struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: A mapping belongs to the process, not to a thread. Users of its address must justify their accesses.
unsafe impl Send for Mapping {}
// SAFETY: As for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Map `len` bytes of `fd` from `offset`; both are multiples of the page size and lie within the file.
    pub fn plain(fd: impl AsFd, offset: usize, len: usize) -> io::Result<Self> {
        let mapping = Self::reserve(len)?;
        mapping.map_at(0, fd.as_fd(), offset, len)?;
        Ok(mapping)
    }

    /// Map `len` bytes of `fd` from `offset` twice in a row.
    pub fn mirrored(fd: impl AsFd, offset: usize, len: usize) -> io::Result<Self> {
        let mapping = Self::reserve(2 * len)?;
        mapping.map_at(0, fd.as_fd(), offset, len)?;
        mapping.map_at(len, fd.as_fd(), offset, len)?;
        Ok(mapping)
    }

    /// Map the first `len` bytes of `fd` read-only.
    pub fn read_only(fd: impl AsFd, len: usize) -> io::Result<Self> {
        // SAFETY: A new mapping at an address that the kernel chooses; it touches no memory in use.
        let address = unsafe { rustix::mm::mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, fd.as_fd(), 0)? };
        Ok(Mapping { address: NonNull::new(address.cast()).expect("the kernel maps nothing at 0"), len })
    }

    /// Map the pages of a range now, which costs less than a page fault for each. Allocates missing pages.
    pub fn map_pages(&self, at: usize, len: usize) {
        assert!(at + len <= self.len, "the range lies within the mapping");
        // SAFETY: The range is ours, and the call changes no bytes. Older kernels refuse it: page faults do the same.
        let _ = unsafe {
            let address = self.address.as_ptr().add(at).cast::<c_void>();
            rustix::mm::madvise(address, len, rustix::mm::Advice::LinuxPopulateWrite)
        };
    }

    /// Map the first bytes of `fd` read-only at the same addresses. They must equal the mapped bytes, so concurrent
    /// readers see no change.
    pub fn replace(&self, fd: impl AsFd) -> io::Result<()> {
        // SAFETY: The range is ours since `reserve`, and holds the same bytes before and after. The kernel replaces it
        // atomically for all threads.
        unsafe {
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            rustix::mm::mmap(self.address.as_ptr().cast(), self.len, ProtFlags::READ, flags, fd.as_fd(), 0)?;
        }
        Ok(())
    }

    /// Return the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Return the address of the first byte.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    fn reserve(len: usize) -> io::Result<Self> {
        // SAFETY: A new mapping at an address that the kernel chooses; it touches no memory in use.
        let address = unsafe {
            rustix::mm::mmap_anonymous(null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)?
        };
        Ok(Mapping { address: NonNull::new(address.cast()).expect("the kernel maps nothing at 0"), len })
    }

    fn map_at(&self, at: usize, fd: BorrowedFd<'_>, offset: usize, len: usize) -> io::Result<()> {
        assert!(at + len <= self.len, "the file fits the reservation");
        // SAFETY: at..at + len lies in our own reservation, which nothing refers to yet.
        unsafe {
            let address = self.address.as_ptr().add(at).cast::<c_void>();
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            rustix::mm::mmap(address, len, ProtFlags::READ | ProtFlags::WRITE, flags, fd, offset as u64)?;
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: This value owns the range, and holders of pointers into it also hold this value.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.len) };
    }
}
