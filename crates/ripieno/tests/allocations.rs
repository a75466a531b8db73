//! Repeated collectives allocate no memory per call. The allocator counts the allocations of each rank.
//!
//! The first wait of each kind allocates memory, and may occur late. `WAIT_ALLOCATION_COUNT` allows for these
//! allocations and is far below one allocation per call.

use ripieno::ElementShape;
use ripieno::net::ThreadFabric;
use ripieno::sparse::{SparseOptions, SparseSchema};
use ripieno::{BufferMemory, Communicator, Element, Op};
use ripieno_plan::{Buffer, Constant, Plan, Rows, Span};
use ripieno_run::{Call, CallKind, Executor, PreparedCall, Schedule};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

const ROUND_COUNT: usize = 400;
const WAIT_ALLOCATION_COUNT: usize = 4 * ROUND_COUNT / 100;

struct CountingAllocator;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the requirements of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the requirements of the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Return the number of allocations of this thread during `calls`.
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
                        comm.broadcast(BufferMemory::Write(&mut vector), Element::F32, 0, None).unwrap();
                        comm.allgather(&mut vector, Element::F32, &counts, None).unwrap();
                        comm.barrier(None).unwrap();
                    };
                    (0..20).for_each(|_| round());
                    let count = counted(|| (0..ROUND_COUNT).for_each(|_| round()));
                    assert!(count <= WAIT_ALLOCATION_COUNT, "p={p} length={length}: {count} allocations");
                });
            }
        });
    }
}

/// Return the rows that `rank` has among `count`. Each row is missing on at most one rank.
fn rows_of(rank: usize, p: usize, count: usize) -> Rows {
    let numbers: Vec<u32> = (0..count as u32).filter(|row| *row as usize % (p + 1) != rank).collect();
    Rows::new(numbers.into(), 8)
}

/// Return a plan that sums the rows of all ranks on each rank, and then sends each rank's rows to the next rank.
fn plan_of_rows(rank: usize, p: usize, count: usize) -> Plan {
    let table = Span::whole(Buffer::SCRATCH, count, 8);
    let packed = |buffer, rank| Span::whole(buffer, rows_of(rank, p, count).numbers().len(), 8);
    let mut plan = Plan::new();
    plan.fill(table, Constant::Identity(Op::Sum));
    plan.combine_rows(packed(Buffer::MAIN, rank), table, rows_of(rank, p, count), Op::Sum);
    for offset in 1..p {
        plan.send((rank + offset) % p, packed(Buffer::MAIN, rank));
        let from = (rank + p - offset) % p;
        plan.reduce_rows(from, table, rows_of(from, p, count), Op::Sum);
    }
    plan.send_rows((rank + 1) % p, table, rows_of(rank, p, count));
    let left = (rank + p - 1) % p;
    plan.receive(left, packed(Buffer::OUTPUT, left));
    plan
}

#[test]
fn repeated_plans_of_rows_allocate_nothing() {
    for (p, count) in [(2, 10), (3, 200_000)] {
        let fabrics = ThreadFabric::group(p).unwrap();
        std::thread::scope(|scope| {
            for (rank, mut fabric) in fabrics.into_iter().enumerate() {
                scope.spawn(move || {
                    let schedule = Arc::new(Schedule::new(&plan_of_rows(rank, p, count)));
                    let row_count = |rank: usize| rows_of(rank, p, count).numbers().len();
                    let main = 1f64.to_ne_bytes().repeat(row_count(rank));
                    let mut output = vec![0; 8 * row_count((rank + p - 1) % p)];
                    let mut scratch = vec![0; schedule.scratch_bytes()];
                    let kind = CallKind::Sparse { configuration: 1, op: Op::Sum, width: 1 };
                    let call = Call { kind, element: Element::F64, signature: 0 };
                    let prepared = PreparedCall::new(0, call, schedule).unwrap();
                    let mut executor = Executor::default();
                    let mut rounds = |sequences: std::ops::Range<u64>| {
                        for sequence in sequences {
                            let output = BufferMemory::Write(&mut output);
                            let mut buffers = [BufferMemory::Read(&main), output, BufferMemory::Write(&mut scratch)];
                            executor.run(&mut fabric, sequence, &prepared, &mut buffers).unwrap();
                        }
                    };
                    rounds(0..5);
                    let allocated = counted(|| rounds(5..45));
                    assert!(allocated <= WAIT_ALLOCATION_COUNT, "p={p} count={count}: {allocated} allocations");
                    // In each group of `p + 1` rows, all ranks have the last row, and one rank lacks each other row.
                    let left = rows_of((rank + p - 1) % p, p, count);
                    for (row, sum) in left.numbers().iter().zip(output.chunks_exact(8)) {
                        let rank_count = if *row as usize % (p + 1) == p { p } else { p - 1 };
                        assert_eq!(f64::from_ne_bytes(sum.try_into().unwrap()), rank_count as f64, "row {row}");
                    }
                });
            }
        });
    }
}

#[test]
fn repeated_sparse_reductions_allocate_nothing() {
    let schema = SparseSchema { element: Element::F32, width: 1, op: Op::Sum, row: ElementShape::Vector };
    for (p, count, degrees) in [(2, 50, "2"), (4, 3000, "2x2"), (4, 3000, "4")] {
        let fabrics = ThreadFabric::group(p).unwrap();
        std::thread::scope(|scope| {
            for (rank, fabric) in fabrics.into_iter().enumerate() {
                scope.spawn(move || {
                    let comm = Communicator::new(Box::new(fabric));
                    let options = SparseOptions { degrees: Some(degrees.parse().unwrap()), ..SparseOptions::default() };
                    // Every second index is contributed twice.
                    let out: Vec<i64> = (0..count).chain((0..count).step_by(2)).map(|i| 2 * i + rank as i64).collect();
                    let configured = comm.sparse(&out, &out, &options).unwrap();
                    let (values, mut into) = (vec![0; 4 * out.len()], vec![0; 4 * out.len()]);
                    let mut round = || configured.reduce(&values, &mut into, schema).unwrap();
                    (0..20).for_each(|_| round());
                    let allocated = counted(|| (0..ROUND_COUNT).for_each(|_| round()));
                    assert!(allocated <= WAIT_ALLOCATION_COUNT, "p={p} count={count}: {allocated} allocations");
                });
            }
        });
    }
}
