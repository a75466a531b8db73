//! Regions: memory for arrays that peers on this host can map.
//!
//! A region is a sealed memfd: it has no name and disappears with its process, even after a crash. Peers read zero-copy
//! sends from a region in place. Dropping a region frees its pages immediately, even if a peer still has it mapped. A
//! forked child shares regions with its parent, like all shared memory; only a drop in the creating process frees
//! pages.

use super::memory::{Mapping, page_bytes, sealed_memfd};
use rustix::fs::FallocateFlags;
use rustix::mm::Advice;
use std::collections::BTreeMap;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

/// Limit of regions per process, because each region holds a descriptor.
const MAX_REGIONS: usize = 256;

/// Memory that peers can map.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    fd: OwnedFd,
    /// The process that created it.
    process: u32,
}

/// A position in a region of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionOffset {
    /// The number of the region. Unlike a descriptor, it is never reused.
    pub number: u64,
    pub fd: RawFd,
    pub offset: usize,
}

/// The regions of this process, by address.
static REGIONS: RwLock<BTreeMap<usize, KnownRegion>> = RwLock::new(BTreeMap::new());

struct KnownRegion {
    length_bytes: usize,
    number: u64,
    fd: RawFd,
}

impl Region {
    /// Create a region of at least `length_bytes` zero bytes, in whole pages. Return `None` if the process has reached
    /// its limit of regions. A size beyond the machine's memory is an out-of-memory error.
    pub fn new(length_bytes: usize) -> io::Result<Option<Region>> {
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
        if REGIONS.read().unwrap_or_else(PoisonError::into_inner).len() >= MAX_REGIONS {
            return Ok(None);
        }
        let length_bytes = length_bytes.max(1).checked_next_multiple_of(page_bytes());
        let length_bytes = length_bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        check_fits_machine(length_bytes)?;
        let fd = sealed_memfd("ripieno-region", length_bytes)?;
        let mapping = Mapping::plain(&fd, 0, length_bytes)?;
        // SAFETY: Advice on our own mapping changes no content. Huge pages only affect speed.
        let _ = unsafe { rustix::mm::madvise(mapping.address().as_ptr().cast(), length_bytes, Advice::LinuxHugepage) };
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let known = KnownRegion { length_bytes, number, fd: fd.as_raw_fd() };
        let start = mapping.address().as_ptr() as usize;
        REGIONS.write().unwrap_or_else(PoisonError::into_inner).insert(start, known);
        Ok(Some(Region { mapping, fd, process: std::process::id() }))
    }

    /// Return whether this process created the region, and did not inherit it by a fork.
    pub fn is_own(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: The mapping is readable and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.mapping.address().as_ptr(), self.mapping.len()) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: The mapping is readable and writable and lives as long as `self`. Peers that map it only read it.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.address().as_ptr(), self.mapping.len()) }
    }
}

impl AsMut<[u8]> for Region {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        REGIONS.write().unwrap_or_else(PoisonError::into_inner).remove(&(self.mapping.address().as_ptr() as usize));
        if self.is_own() {
            // If this fails, the pages are freed with the last mapping.
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&self.fd, punch, 0, self.mapping.len() as u64);
        }
    }
}

/// Return an error if memory and swap of this machine cannot hold `length_bytes`. A memfd accepts any size, and a
/// process that fills it beyond memory is killed.
pub(super) fn check_fits_machine(length_bytes: usize) -> io::Result<()> {
    let info = rustix::system::sysinfo();
    let max_bytes = (info.totalram + info.totalswap).saturating_mul(info.mem_unit.into());
    if length_bytes as u64 <= max_bytes {
        return Ok(());
    }
    let text = format!("{length_bytes} bytes are more than this machine's memory and swap, {max_bytes} bytes");
    Err(io::Error::new(io::ErrorKind::OutOfMemory, text))
}

/// Return a descriptor and the value to read there. Peers use them to test whether they can open this process's files,
/// and the address of the value to test whether they can read its memory.
pub(super) fn token() -> io::Result<(RawFd, &'static u64)> {
    static TOKEN: OnceLock<(OwnedFd, u64)> = OnceLock::new();
    if TOKEN.get().is_none() {
        let mut value = [0; 8];
        getrandom::fill(&mut value).map_err(io::Error::other)?;
        let fd = sealed_memfd("ripieno-token", page_bytes())?;
        rustix::io::pwrite(&fd, &value, 0)?;
        // The value of another thread is equally valid.
        let _ = TOKEN.set((fd, u64::from_ne_bytes(value)));
    }
    let (fd, value) = TOKEN.get().expect("it was set");
    Ok((fd.as_raw_fd(), value))
}

/// Return the position of `bytes` in a region, if one region contains them completely.
pub(super) fn region_offset(bytes: &[u8]) -> Option<RegionOffset> {
    let address = bytes.as_ptr() as usize;
    let regions = REGIONS.read().unwrap_or_else(PoisonError::into_inner);
    let (start, known) = regions.range(..=address).next_back()?;
    let offset = address - start;
    let is_within = offset + bytes.len() <= known.length_bytes;
    is_within.then_some(RegionOffset { number: known.number, fd: known.fd, offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_in_their_region_and_only_there() {
        let region = Region::new(10_000).unwrap().unwrap();
        let fd = region.fd.as_raw_fd();
        let bytes = &region[..];
        assert_eq!(region_offset(&bytes[100..200]).map(|place| (place.fd, place.offset)), Some((fd, 100)));
        // SAFETY: The slice is never read; only its position is used.
        let beyond = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len() + 1) };
        assert_eq!(region_offset(beyond), None);
        assert_eq!(region_offset(&[0; 100]), None);
        let start = bytes.as_ptr();
        drop(region);
        // SAFETY: As above.
        assert_eq!(region_offset(unsafe { std::slice::from_raw_parts(start, 1) }), None);
    }

    #[test]
    fn memory_beyond_the_machine_is_an_error() {
        assert!(Region::new(usize::MAX - 5).is_err());
        assert!(Region::new(1 << 62).is_err());
    }
}
