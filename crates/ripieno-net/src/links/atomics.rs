//! The atomic word under the shared-memory protocols, so that the same code runs on real memory and in the model
//! checker.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A 64-bit atomic.
pub trait AtomicWord {
    /// Memory for a short message next to the word, used by only one side at a time.
    type Inline;
    /// Memory for a longer message next to the word, used by only one side at a time.
    type Packet;
    /// Size of `Inline` in bytes.
    const INLINE_BYTES: usize;
    /// Size of `Packet` in bytes.
    const PACKET_BYTES: usize;

    /// Atomic load.
    fn load(&self, ordering: Ordering) -> u64;
    /// Atomic store.
    fn store(&self, value: u64, ordering: Ordering);
    /// Atomic swap; returns the value before.
    fn swap(&self, value: u64, ordering: Ordering) -> u64;
    /// A sequentially consistent fence. If two threads each store, fence and load the other's word, at least one of
    /// them sees the other's store.
    fn fence();
    /// Prefetch the cache line `line` lines after the word for reading or, if `for_writing`, for writing. Does not wait.
    fn prefetch(&self, _line: usize, _for_writing: bool) {}
}

impl AtomicWord for AtomicU64 {
    /// The remaining bytes of a pair of cache lines.
    type Inline = UnsafeCell<[u64; 15]>;
    /// The remaining bytes of nine pairs.
    type Packet = UnsafeCell<[[u64; 13]; 11]>;
    const INLINE_BYTES: usize = size_of::<Self::Inline>();
    const PACKET_BYTES: usize = size_of::<Self::Packet>();

    fn load(&self, ordering: Ordering) -> u64 {
        AtomicU64::load(self, ordering)
    }

    fn store(&self, value: u64, ordering: Ordering) {
        AtomicU64::store(self, value, ordering);
    }

    fn swap(&self, value: u64, ordering: Ordering) -> u64 {
        AtomicU64::swap(self, value, ordering)
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn prefetch(&self, line: usize, for_writing: bool) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
            let place = std::ptr::from_ref(self).cast::<i8>().wrapping_add(64 * line);
            // SAFETY: A prefetch instruction is a hint: it is defined for every address, and never faults.
            unsafe { if for_writing { _mm_prefetch(place, _MM_HINT_ET0) } else { _mm_prefetch(place, _MM_HINT_T0) } }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (line, for_writing);
    }
}
