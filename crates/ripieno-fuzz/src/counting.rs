//! An allocator that knows how much a thread holds, and held at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocator of a test: `#[global_allocator] static ALLOCATOR: FuzzAllocator = FuzzAllocator;`. Without it nothing is
/// counted.
pub struct FuzzAllocator;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// Begins to count anew.
pub(crate) fn begin() {
    HELD.set(0);
    MOST.set(0);
}

/// Bytes that this thread has held at most since then, beside what it held then.
pub(crate) fn most_bytes() -> usize {
    MOST.get().max(0) as usize
}

fn note(bytes: isize) {
    // A thread that ends has no place to count at any more.
    let _ = HELD.try_with(|held| {
        let now = held.get() + bytes;
        held.set(now);
        MOST.set(MOST.get().max(now));
    });
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for FuzzAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as isize - layout.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}
