//! The buffer pool: memory that results lived in and nobody needs any more, kept for the next.
//!
//! Memory that is fresh from the system costs a page fault every few KiB, which is more than moving the bytes does. An
//! iteration asks for the same sizes again and again, so what one result leaves behind fits the next.
//!
//! Larger buffers are regions that ranks of the same host can map, so that a rank lends them instead of sending copies.
//! A forked child begins with an empty pool, for its parent goes on with what it shares.

use ripieno_net::links::Region;
use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};

/// The pool keeps at most so many bytes that nobody uses.
const KEPT_BYTES: usize = 512 << 20;
/// The pool keeps at most so many buffers that nobody uses.
const KEPT_COUNT: usize = 32;

/// From here on a buffer is a region; what is sent of a smaller one is hardly worth lending.
const REGION_BYTES: usize = 64 << 10;

/// Buffers that wait to be used again. A clone is the same pool.
#[derive(Clone, Debug, Default)]
pub struct BufferPool {
    kept: Arc<Mutex<IdleMemory>>,
}

/// What nobody uses.
#[derive(Debug, Default)]
struct IdleMemory {
    /// Whose it is.
    process: u32,
    buffers: VecDeque<PooledMemory>,
}

/// Memory of a pool; goes back there when it is dropped.
#[derive(Debug)]
pub struct PooledBuffer {
    memory: PooledMemory,
    length_bytes: usize,
    pool: BufferPool,
}

/// Memory that peers can map, or that they cannot.
#[derive(Debug)]
enum PooledMemory {
    Shared(Region),
    Private(Vec<u8>),
}

impl BufferPool {
    /// `length_bytes` bytes of any content; an error where the system has no memory for them.
    pub fn take(&self, length_bytes: usize) -> io::Result<PooledBuffer> {
        let mut kept = self.kept();
        // At most an eighth may lie idle, lest a small result hold the memory of a large one.
        let most_bytes = length_bytes.saturating_add(length_bytes / 8);
        let fits = |memory: &PooledMemory| (length_bytes..=most_bytes).contains(&memory.len());
        let found = kept.buffers.iter().position(fits).and_then(|at| kept.buffers.remove(at));
        drop(kept);
        let memory = match found {
            Some(memory) => memory,
            None => PooledMemory::new(length_bytes)?,
        };
        Ok(PooledBuffer { memory, length_bytes, pool: self.clone() })
    }

    /// Bytes that wait to be used again.
    pub fn kept_bytes(&self) -> usize {
        self.kept().bytes()
    }

    fn give_back(&self, memory: PooledMemory) {
        if matches!(&memory, PooledMemory::Shared(region) if !region.is_own()) {
            return;
        }
        let mut kept = self.kept();
        kept.buffers.push_back(memory);
        while kept.buffers.len() > KEPT_COUNT || kept.bytes() > KEPT_BYTES {
            kept.buffers.pop_front();
        }
    }

    fn kept(&self) -> MutexGuard<'_, IdleMemory> {
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let process = std::process::id();
        if std::mem::replace(&mut kept.process, process) != process {
            kept.buffers.clear();
        }
        kept
    }
}

impl IdleMemory {
    fn bytes(&self) -> usize {
        self.buffers.iter().map(|memory| memory.len()).sum()
    }
}

impl PooledMemory {
    fn new(length_bytes: usize) -> io::Result<PooledMemory> {
        if length_bytes >= REGION_BYTES {
            match Region::new(length_bytes) {
                Ok(Some(region)) => return Ok(PooledMemory::Shared(region)),
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory => return Err(error),
                // A process that may have no more regions, descriptors or files of this size goes on with memory of its
                // own, which is copied when it is sent.
                Ok(None) | Err(_) => {}
            }
        }
        let mut memory = Vec::new();
        memory.try_reserve_exact(length_bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        memory.resize(length_bytes, 0);
        Ok(PooledMemory::Private(memory))
    }
}

impl Deref for PooledMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            PooledMemory::Shared(region) => region,
            PooledMemory::Private(memory) => memory,
        }
    }
}

impl DerefMut for PooledMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            PooledMemory::Shared(region) => region,
            PooledMemory::Private(memory) => memory,
        }
    }
}

impl PooledBuffer {
    /// The memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.length_bytes]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::replace(&mut self.memory, PooledMemory::Private(Vec::new())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_result_leaves_behind_fits_the_next() {
        let pool = BufferPool::default();
        let first = pool.take(1000).unwrap().bytes_mut().as_ptr();
        assert_eq!(pool.kept_bytes(), 1000);
        let mut second = pool.take(950).unwrap();
        assert_eq!((second.bytes_mut().as_ptr(), second.bytes_mut().len()), (first, 950));
        assert_eq!(pool.kept_bytes(), 0);
    }

    #[test]
    fn a_small_result_does_not_hold_the_memory_of_a_large_one() {
        let pool = BufferPool::default();
        drop(pool.take(1000).unwrap());
        let _small = pool.take(500).unwrap();
        assert_eq!(pool.kept_bytes(), 1000);
    }

    #[test]
    fn the_pool_is_bounded_in_bytes_and_in_buffers() {
        let pool = BufferPool::default();
        let many: Vec<PooledBuffer> = (0..KEPT_COUNT + 5).map(|_| pool.take(10).unwrap()).collect();
        drop(many);
        assert_eq!(pool.kept_bytes(), 10 * KEPT_COUNT);
        drop(pool.take(KEPT_BYTES).unwrap());
        assert_eq!(pool.kept_bytes(), KEPT_BYTES);
        drop(pool.take(KEPT_BYTES + 1).unwrap());
        assert_eq!(pool.kept_bytes(), 0);
    }

    #[test]
    fn memory_that_the_system_has_not_is_an_error() {
        // No address, and more than any machine has.
        for length_bytes in [1 << 62, 1 << 46] {
            let error = BufferPool::default().take(length_bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{error}");
        }
    }
}
