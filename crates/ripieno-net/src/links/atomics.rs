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
    /// Maximum size of a message in `Inline`, in bytes.
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
    /// Prefetch the cache line `line` lines after the word for reading or, if `for_writing`, for writing. Does not
    /// wait.
    fn prefetch(&self, _line: usize, _for_writing: bool) {}
}

impl AtomicWord for AtomicU64 {
    /// The remaining bytes of a pair of cache lines.
    type Inline = UnsafeCell<[u64; 15]>;
    /// The remaining bytes of nine pairs.
    type Packet = UnsafeCell<[[u64; 13]; 11]>;
    /// The remaining bytes of one line. A message on both lines of a pair takes twice as long between caches.
    const INLINE_BYTES: usize = 56;
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
            let place = std::ptr::from_ref(self).cast::<i8>().wrapping_add(64 * line);
            // SAFETY: A prefetch instruction is a hint: it is defined for every address, and never faults. Processors
            // without PREFETCHW ignore it. The intrinsic would compile to a prefetch for reading, because the
            // instruction is not part of the baseline of the architecture.
            unsafe {
                match for_writing {
                    true => {
                        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly))
                    }
                    false => std::arch::x86_64::_mm_prefetch(place, std::arch::x86_64::_MM_HINT_T0),
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (line, for_writing);
    }
}
