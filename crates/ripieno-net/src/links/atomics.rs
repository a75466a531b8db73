//! The atomic word under the shared-memory protocols, so that the same code runs on real memory and in the model
//! checker.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A 64-bit atomic.
pub trait AtomicWord {
    /// Memory for a short message next to the word, used by only one side at a time.
    type Inline;
    /// Size of `Inline` in bytes.
    const INLINE_BYTES: usize;

    /// Atomic load.
    fn load(&self, ordering: Ordering) -> u64;
    /// Atomic store.
    fn store(&self, value: u64, ordering: Ordering);
    /// Atomic swap; returns the value before.
    fn swap(&self, value: u64, ordering: Ordering) -> u64;
    /// A sequentially consistent fence. If two threads each store, fence and load the other's word, at least one of
    /// them sees the other's store.
    fn fence();
    /// Prefetch the cache line for reading or, if `ours`, for writing, without waiting for it.
    fn fetch(&self, _ours: bool) {}
}

impl AtomicWord for AtomicU64 {
    /// The remaining bytes of the cache line.
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
            // SAFETY: A prefetch hint for an address that we may access.
            unsafe { if ours { _mm_prefetch(place, _MM_HINT_ET0) } else { _mm_prefetch(place, _MM_HINT_T0) } }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = ours;
    }
}
