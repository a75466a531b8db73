//! Collectives that repeat allocate nothing per call: counted by the allocator, on every rank.
//!
//! Memory that a rank waits with is made when it first waits in that way, which may be late; calls that allocate each time
//! would allocate a hundred times as often as is allowed.

use ripieno::net::ThreadFabric;
use ripieno::{Communicator, Element, Memory, Op};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

const ROUND_COUNT: usize = 400;
const FIRST_WAITS: usize = 4 * ROUND_COUNT / 100;

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: as the system's allocator, which does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread during `calls`.
fn counted(calls: impl FnOnce()) -> usize {
    let before = COUNT.get();
    calls();
    COUNT.get() - before
}

#[test]
fn repeated_collectives_allocate_nothing() {
    assert!(counted(|| drop(vec![0u8; 10])) > 0, "the allocator counts");
    for (p, length) in [(2, 1), (2, 100_000), (4, 100), (4, 100_000)] {
        let fabrics = ThreadFabric::group(p).unwrap();
        std::thread::scope(|scope| {
            for fabric in fabrics {
                scope.spawn(move || {
                    let comm = Communicator::new(Box::new(fabric));
                    let (mut vector, counts) = (vec![0; 4 * length * p], vec![length; p]);
                    let mut round = || {
                        comm.allreduce(&mut vector[..4 * length], Element::F32, Op::Sum, None).unwrap();
                        comm.broadcast(Memory::Write(&mut vector), Element::F32, 0, None).unwrap();
                        comm.allgather(&mut vector, Element::F32, &counts, None).unwrap();
                        comm.barrier(None).unwrap();
                    };
                    (0..20).for_each(|_| round());
                    let count = counted(|| (0..ROUND_COUNT).for_each(|_| round()));
                    assert!(count <= FIRST_WAITS, "p={p} length={length}: {count} allocations");
                });
            }
        });
    }
}
