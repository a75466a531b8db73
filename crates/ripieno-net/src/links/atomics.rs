//! The atomic word that the shared-memory protocols are written over, so that the same code runs on real memory and
//! inside the model checker.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A 64-bit atomic.
pub trait AtomicWord {
    /// Memory for a short message beside the word, that only one side uses at a time.
    type Inline;
    /// Its size.
    const INLINE_BYTES: usize;

    /// Atomic load.
    fn load(&self, ordering: Ordering) -> u64;
    /// Atomic store.
    fn store(&self, value: u64, ordering: Ordering);
    /// Atomic swap; returns the value before.
    fn swap(&self, value: u64, ordering: Ordering) -> u64;
    /// A sequentially consistent fence: of two threads that each store, fence and load the other's word, one sees the
    /// other's store.
    fn fence();
    /// Asks for the line of the cache, to read it or, for `ours`, to write it, without waiting for it.
    fn fetch(&self, _ours: bool) {}
}

impl AtomicWord for AtomicU64 {
    /// What a cache line has left.
    type Inline = UnsafeCell<[u64; 7]>;
    const INLINE_BYTES: usize = 56;

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
    fn fetch(&self, ours: bool) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
            let place = std::ptr::from_ref(self).cast();
            // SAFETY: a hint for an address that is ours to use.
            unsafe { if ours { _mm_prefetch(place, _MM_HINT_ET0) } else { _mm_prefetch(place, _MM_HINT_T0) } }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = ours;
    }
}
