//! Measurement of the calls of a communicator, and of the memory of this machine.
//!
//! All ranks measure the same call at the same time. A time is the maximum over ranks, so all ranks get the same
//! values.

use crate::communicator::Communicator;
use crate::error::{Error, argument};
use ripieno_net::links::{Doorbell, LARGE_CAPACITY_BYTES, thread as thread_links};
use ripieno_plan::Op;
use ripieno_run::{Element, Link, PairCosts, reduction::Reduction};
use std::hint::{black_box, spin_loop};
use std::io;
use std::sync::Barrier;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::{Duration, Instant};

/// Number of batches, for calls that are not timed separately.
const BATCH_COUNT: usize = 5;
const MAX_BATCH_CALL_COUNT: f64 = 5000.0;
const MAX_SEPARATE_CALL_COUNT: f64 = 50.0;

const LINE_BUDGET: Duration = Duration::from_millis(20);
const LINE_ROUND_COUNT: usize = 100;
const STOP_TURN: usize = usize::MAX;
const SPIN_COUNT: usize = 10_000;
/// Time limit to measure the costs of a link, and the length of its messages.
const LINK_BUDGET: Duration = Duration::from_millis(100);
const LINK_MESSAGE_BYTES: usize = 64 << 10;
/// Bytes that a memory pass processes between two reads of the clock.
const CLOCK_READ_BYTES: usize = 64 << 10;

/// Measure the time of `call` in seconds. If `is_separate`, time single calls after a barrier; otherwise return the
/// time per call of several batches.
///
/// The number of calls depends on `budget`. A call that takes longer than `budget` is timed once.
pub fn measure(
    comm: &Communicator,
    budget: Duration,
    is_separate: bool,
    mut call: impl FnMut(&Communicator) -> Result<(), Error>,
) -> Result<Vec<f64>, Error> {
    // The first call creates the plan and is not typical.
    batch(comm, 1, &mut call)?;
    let once_s = batch(comm, 1, &mut call)?;
    if once_s >= budget.as_secs_f64() {
        return Ok(vec![once_s]);
    }
    let fitting = |seconds: f64, each_s: f64, max: f64| (seconds / each_s).clamp(1.0, max) as usize;
    if is_separate {
        let call_count = fitting(budget.as_secs_f64(), once_s, MAX_SEPARATE_CALL_COUNT);
        return (0..call_count).map(|_| batch(comm, 1, &mut call)).collect();
    }
    let batch_s = budget.as_secs_f64() / BATCH_COUNT as f64;
    let many_s = batch(comm, fitting(batch_s, once_s, MAX_BATCH_CALL_COUNT), &mut call)?;
    let call_count = fitting(batch_s, many_s, MAX_BATCH_CALL_COUNT);
    (0..BATCH_COUNT).map(|_| batch(comm, call_count, &mut call)).collect()
}

/// Measure the seconds per call of a batch after a barrier; the maximum over ranks.
///
/// Fails for logical ranks, because their replicas would get different times.
pub(crate) fn batch(
    comm: &Communicator,
    call_count: usize,
    call: &mut impl FnMut(&Communicator) -> Result<(), Error>,
) -> Result<f64, Error> {
    if comm.replicas() > 1 {
        return Err(argument("replicas", comm.replicas(), "1: measure on the communicator of the world"));
    }
    comm.barrier(None)?;
    let start = Instant::now();
    for _ in 0..call_count {
        call(comm)?;
    }
    let mut seconds = (start.elapsed().as_secs_f64() / call_count as f64).to_ne_bytes();
    comm.allreduce(&mut seconds, Element::F64, Op::Max, None)?;
    Ok(f64::from_ne_bytes(seconds))
}

/// Measure the time in seconds to move a cache line from core to core: half a round trip of a number between two
/// spinning threads, the best of several batches.
pub fn line_s() -> f64 {
    let turn = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| respond(&turn));
        let (mut best_s, mut sent, start) = (f64::INFINITY, 0, Instant::now());
        while sent == 0 || start.elapsed() < LINE_BUDGET {
            let batch = Instant::now();
            for _ in 0..LINE_ROUND_COUNT {
                turn.store(sent + 1, Release);
                sent += 2;
                wait(|| turn.load(Acquire) == sent);
            }
            best_s = best_s.min(batch.elapsed().as_secs_f64() / (2 * LINE_ROUND_COUNT) as f64);
        }
        turn.store(STOP_TURN, Release);
        best_s
    })
}

/// Increment every odd number in `turn`, until it is [`STOP_TURN`].
fn respond(turn: &AtomicUsize) {
    loop {
        wait(|| turn.load(Acquire) % 2 == 1);
        match turn.load(Acquire) {
            STOP_TURN => return,
            received => turn.store(received + 1, Release),
        }
    }
}

/// Measure the costs of a link between two threads of this process, until both kinds of store are known or a time limit
/// is reached.
pub fn link_costs() -> io::Result<PairCosts> {
    let (sender, receiver) = (Doorbell::new()?, Doorbell::new()?);
    let (mut sending, mut receiving) = thread_links::pair(LARGE_CAPACITY_BYTES, sender.waker(), receiver.waker())?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut into = vec![0; LINK_MESSAGE_BYTES];
            while !is_over.load(Relaxed) {
                if !receiving.receive(&mut into).is_ok_and(|count| count > 0) {
                    thread::yield_now();
                }
            }
        });
        let (message, start) = (vec![0; LINK_MESSAGE_BYTES], Instant::now());
        while start.elapsed() < LINK_BUDGET && sending.pair_costs().ring_s_per_byte.contains(&None) {
            if !sending.send(&[&message]).is_ok_and(|count| count > 0) {
                thread::yield_now();
            }
        }
        is_over.store(true, Relaxed);
    });
    Ok(sending.pair_costs())
}

fn wait(is_over: impl Fn() -> bool) {
    let mut spin_count = 0;
    while !is_over() {
        spin_count += 1;
        // Other programs may have forced both threads onto one core.
        if spin_count % SPIN_COUNT == 0 { thread::yield_now() } else { spin_loop() }
    }
}

/// Times in seconds to process a vector in the memory of this machine, with several threads at once.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPass {
    /// Time to add one vector of `f32` to another.
    pub add_s: f64,
    /// Time to copy one vector to another.
    pub copy_s: f64,
}

/// Measure memory passes of `thread_count` threads over vectors of `size_bytes`, for about `budget`. Return the times
/// of the slowest thread.
pub fn memory_pass(thread_count: usize, size_bytes: usize, budget: Duration) -> MemoryPass {
    let barrier = Barrier::new(thread_count);
    let passes: Vec<MemoryPass> = thread::scope(|scope| {
        let run = || one_thread(&barrier, size_bytes, budget / 2);
        let threads: Vec<_> = (0..thread_count).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread does not panic")).collect()
    });
    let slowest = |of: fn(&MemoryPass) -> f64| passes.iter().map(of).fold(0.0, f64::max);
    MemoryPass { add_s: slowest(|pass| pass.add_s), copy_s: slowest(|pass| pass.copy_s) }
}

fn one_thread(barrier: &Barrier, size_bytes: usize, budget: Duration) -> MemoryPass {
    // Nonzero bytes make the system allocate distinct pages.
    let (mut into, from) = (vec![1u8; size_bytes], vec![2u8; size_bytes]);
    // For short calls, reading the clock takes a significant share of the time.
    let calls_per_clock_read = (CLOCK_READ_BYTES / size_bytes.max(1)).clamp(1, 1000) as u32;
    let add = Reduction::of(Element::F32, Op::Sum).expect("a sum of floats").combine;
    let timed = |call: &mut dyn FnMut()| {
        barrier.wait();
        let (start, mut call_count) = (Instant::now(), 0u32);
        while call_count == 0 || start.elapsed() < budget {
            (0..calls_per_clock_read).for_each(|_| call());
            call_count += calls_per_clock_read;
        }
        start.elapsed().as_secs_f64() / f64::from(call_count)
    };
    let add_s = timed(&mut || add(black_box(&mut into), black_box(&from)));
    let copy_s = timed(&mut || black_box(&mut into).copy_from_slice(black_box(&from)));
    MemoryPass { add_s, copy_s }
}
