//! Memory of a value that processes of a host share: one makes and fills it, others map it to read.
//!
//! It is a sealed memfd, so it has no name and lives until the last of them lets go, however the others end.

use super::memory::{Mapping, sealed_len, sealed_memfd};
use ripieno_run::swarm::{Place, Store};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Memory of a value.
#[derive(Debug)]
pub struct HostMemory {
    mapping: Mapping,
    fd: OwnedFd,
    inode: u64,
    length_bytes: usize,
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
        Ok(HostMemory { mapping, fd, inode, length_bytes, is_own: true })
    }
}

impl Store for HostMemory {
    fn place(&self) -> Place {
        Place { process: std::process::id(), descriptor: self.fd.as_raw_fd(), inode: self.inode }
    }

    fn at(place: Place, length_bytes: usize) -> io::Result<HostMemory> {
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
        Ok(HostMemory { mapping, fd, inode: place.inode, length_bytes, is_own: false })
    }
}

impl Deref for HostMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped as long as `self` and readable; whoever made it writes it no more once others know its place.
        unsafe { std::slice::from_raw_parts(self.mapping.address().as_ptr(), self.length_bytes) }
    }
}

impl DerefMut for HostMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(self.is_own, "what another process has made is read only");
        // SAFETY: mapped as long as `self`, readable and writable; others map it once it is written no more.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.address().as_ptr(), self.length_bytes) }
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
    fn memory_that_is_too_short_or_another_is_refused() {
        let (made, other) = (HostMemory::new(10).unwrap(), HostMemory::new(10).unwrap());
        assert!(HostMemory::at(made.place(), 11).is_err());
        assert!(HostMemory::at(Place { inode: other.place().inode, ..made.place() }, 10).is_err());
        assert!(HostMemory::new(1 << 62).is_err());
    }
}
