//! The buffer pool: memory that results lived in and nobody needs any more, kept for the next.
//!
//! Memory that is fresh from the system costs a page fault every few KiB, which is more than moving the bytes does. An
//! iteration asks for the same sizes again and again, so what one result leaves behind fits the next.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// The pool keeps at most so many bytes that nobody uses.
const KEPT_BYTES: usize = 512 << 20;
/// The pool keeps at most so many buffers that nobody uses.
const KEPT_COUNT: usize = 32;

/// Buffers that wait to be used again. A clone is the same pool.
#[derive(Clone, Debug, Default)]
pub struct BufferPool {
    kept: Arc<Mutex<VecDeque<Vec<u8>>>>,
}

/// Memory of a pool; goes back there when it is dropped.
#[derive(Debug)]
pub struct PooledBuffer {
    memory: Vec<u8>,
    length_bytes: usize,
    pool: BufferPool,
}

impl BufferPool {
    /// `length_bytes` bytes of any content.
    pub fn take(&self, length_bytes: usize) -> PooledBuffer {
        let mut kept = self.kept();
        // At most an eighth may lie idle, lest a small result hold the memory of a large one.
        let fits = |memory: &Vec<u8>| (length_bytes..=length_bytes + length_bytes / 8).contains(&memory.len());
        let found = kept.iter().position(fits).and_then(|at| kept.remove(at));
        drop(kept);
        let memory = found.unwrap_or_else(|| vec![0; length_bytes]);
        PooledBuffer { memory, length_bytes, pool: self.clone() }
    }

    /// Bytes that wait to be used again.
    pub fn kept_bytes(&self) -> usize {
        self.kept().iter().map(Vec::len).sum()
    }

    fn give_back(&self, memory: Vec<u8>) {
        let mut kept = self.kept();
        kept.push_back(memory);
        while kept.len() > KEPT_COUNT || kept.iter().map(Vec::len).sum::<usize>() > KEPT_BYTES {
            kept.pop_front();
        }
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
        self.pool.give_back(std::mem::take(&mut self.memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_result_leaves_behind_fits_the_next() {
        let pool = BufferPool::default();
        let first = pool.take(1000).bytes_mut().as_ptr();
        assert_eq!(pool.kept_bytes(), 1000);
        let mut second = pool.take(950);
        assert_eq!((second.bytes_mut().as_ptr(), second.bytes_mut().len()), (first, 950));
        assert_eq!(pool.kept_bytes(), 0);
    }

    #[test]
    fn a_small_result_does_not_hold_the_memory_of_a_large_one() {
        let pool = BufferPool::default();
        drop(pool.take(1000));
        let _small = pool.take(500);
        assert_eq!(pool.kept_bytes(), 1000);
    }

    #[test]
    fn the_pool_is_bounded_in_bytes_and_in_buffers() {
        let pool = BufferPool::default();
        let many: Vec<PooledBuffer> = (0..KEPT_COUNT + 5).map(|_| pool.take(10)).collect();
        drop(many);
        assert_eq!(pool.kept_bytes(), 10 * KEPT_COUNT);
        drop(pool.take(KEPT_BYTES));
        assert_eq!(pool.kept_bytes(), KEPT_BYTES);
        drop(pool.take(KEPT_BYTES + 1));
        assert_eq!(pool.kept_bytes(), 0);
    }
}
