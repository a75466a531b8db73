//! Allocator that counts the current and peak memory of a thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocator of a test: `#[global_allocator] static ALLOCATOR: FuzzAllocator = FuzzAllocator;`. Without it, memory
/// is not counted.
pub struct FuzzAllocator;

thread_local! {
    static CURRENT_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

/// Reset the counters of the calling thread.
pub(crate) fn reset() {
    CURRENT_BYTES.set(0);
    PEAK_BYTES.set(0);
}

/// Return the peak memory of this thread in bytes, relative to the last [`reset`].
pub(crate) fn peak_bytes() -> usize {
    PEAK_BYTES.get().max(0) as usize
}

fn count(bytes: isize) {
    // The counters of a thread that is ending are no longer accessible.
    let _ = CURRENT_BYTES.try_with(|current_bytes| {
        let now = current_bytes.get() + bytes;
        current_bytes.set(now);
        PEAK_BYTES.set(PEAK_BYTES.get().max(now));
    });
}

// SAFETY: all methods delegate to the system allocator.
unsafe impl GlobalAlloc for FuzzAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller guarantees the requirements of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller guarantees the requirements of the system allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller guarantees the requirements of the system allocator.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller guarantees the requirements of the system allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}
