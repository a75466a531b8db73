//! Buffer pool: stores the memory of dropped results for reuse.
//!
//! New memory from the system causes a page fault every few KiB, which is more expensive than moving the bytes.
//! Programs iterate with equal sizes, so the memory of one result fits the next.
//!
//! Larger buffers are regions that ranks of the same host can map, and are sent zero-copy. A forked child starts with
//! an empty pool, because its parent continues to use the shared memory.

use ripieno_net::links::Region;
use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};

/// Maximum bytes of idle buffers in the pool.
const MAX_IDLE_BYTES: usize = 512 << 20;
/// Maximum number of idle buffers in the pool.
const MAX_IDLE_COUNT: usize = 32;

/// Smallest buffer that is a region. Zero-copy sends of smaller messages save almost nothing.
const REGION_BYTES: usize = 64 << 10;

/// Idle buffers for reuse. Clones share one pool.
#[derive(Clone, Debug, Default)]
pub struct BufferPool {
    idle: Arc<Mutex<IdleMemory>>,
}

/// The idle buffers.
#[derive(Debug, Default)]
struct IdleMemory {
    /// The process that owns the buffers.
    process: u32,
    buffers: VecDeque<PooledMemory>,
}

/// Memory of a pool; returns to the pool when dropped.
#[derive(Debug)]
pub struct PooledBuffer {
    memory: PooledMemory,
    length_bytes: usize,
    pool: BufferPool,
}

/// Memory that peers can map, or private memory.
#[derive(Debug)]
enum PooledMemory {
    Shared(Region),
    Private(Vec<u8>),
}

impl BufferPool {
    /// Take a buffer of `length_bytes` with unspecified content. Fails if the system has no memory for it.
    pub fn take(&self, length_bytes: usize) -> io::Result<PooledBuffer> {
        let mut idle = self.idle();
        // A reused buffer may be at most an eighth larger than requested.
        let max_bytes = length_bytes.saturating_add(length_bytes / 8);
        let fits = |memory: &PooledMemory| (length_bytes..=max_bytes).contains(&memory.len());
        let found = idle.buffers.iter().position(fits).and_then(|at| idle.buffers.remove(at));
        drop(idle);
        let memory = match found {
            Some(memory) => memory,
            None => PooledMemory::new(length_bytes)?,
        };
        Ok(PooledBuffer { memory, length_bytes, pool: self.clone() })
    }

    /// Return the bytes of idle buffers.
    pub fn idle_bytes(&self) -> usize {
        self.idle().bytes()
    }

    fn put_back(&self, memory: PooledMemory) {
        if matches!(&memory, PooledMemory::Shared(region) if !region.is_own()) {
            return;
        }
        let mut idle = self.idle();
        idle.buffers.push_back(memory);
        while idle.buffers.len() > MAX_IDLE_COUNT || idle.bytes() > MAX_IDLE_BYTES {
            idle.buffers.pop_front();
        }
    }

    fn idle(&self) -> MutexGuard<'_, IdleMemory> {
        let mut idle = self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let process = std::process::id();
        if std::mem::replace(&mut idle.process, process) != process {
            idle.buffers.clear();
        }
        idle
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
                // The process has reached a limit of regions, descriptors or file sizes: use private memory, which is
                // copied when it is sent.
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
    /// Return the memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.length_bytes]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        self.pool.put_back(std::mem::replace(&mut self.memory, PooledMemory::Private(Vec::new())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_buffer_is_reused_for_the_next_result() {
        let pool = BufferPool::default();
        let first = pool.take(1000).unwrap().bytes_mut().as_ptr();
        assert_eq!(pool.idle_bytes(), 1000);
        let mut second = pool.take(950).unwrap();
        assert_eq!((second.bytes_mut().as_ptr(), second.bytes_mut().len()), (first, 950));
        assert_eq!(pool.idle_bytes(), 0);
    }

    #[test]
    fn a_small_result_does_not_hold_the_memory_of_a_large_one() {
        let pool = BufferPool::default();
        drop(pool.take(1000).unwrap());
        let _small = pool.take(500).unwrap();
        assert_eq!(pool.idle_bytes(), 1000);
    }

    #[test]
    fn the_pool_is_bounded_in_bytes_and_in_buffers() {
        let pool = BufferPool::default();
        let many: Vec<PooledBuffer> = (0..MAX_IDLE_COUNT + 5).map(|_| pool.take(10).unwrap()).collect();
        drop(many);
        assert_eq!(pool.idle_bytes(), 10 * MAX_IDLE_COUNT);
        drop(pool.take(MAX_IDLE_BYTES).unwrap());
        assert_eq!(pool.idle_bytes(), MAX_IDLE_BYTES);
        drop(pool.take(MAX_IDLE_BYTES + 1).unwrap());
        assert_eq!(pool.idle_bytes(), 0);
    }

    #[test]
    fn a_size_beyond_the_memory_of_the_system_is_an_error() {
        // A size beyond the address space, and a size beyond the memory of any machine.
        for length_bytes in [1 << 62, 1 << 46] {
            let error = BufferPool::default().take(length_bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{error}");
        }
    }
}
