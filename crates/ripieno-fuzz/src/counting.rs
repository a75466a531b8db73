//! Allocator that counts the current and peak memory of a thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocator of a test: `#[global_allocator] static ALLOCATOR: FuzzAllocator = FuzzAllocator;`. Without it, memory
/// is not counted.
pub struct FuzzAllocator;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// Reset the counters of the calling thread.
pub(crate) fn begin() {
    HELD.set(0);
    MOST.set(0);
}

/// Return the peak memory of this thread in bytes, relative to the last [`begin`].
pub(crate) fn most_bytes() -> usize {
    MOST.get().max(0) as usize
}

fn note(bytes: isize) {
    // The counters of a thread that is ending are no longer accessible.
    let _ = HELD.try_with(|held| {
        let now = held.get() + bytes;
        held.set(now);
        MOST.set(MOST.get().max(now));
    });
}

// SAFETY: all methods delegate to the system allocator.
unsafe impl GlobalAlloc for FuzzAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as isize - layout.size() as isize);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}
