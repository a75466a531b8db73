//! What the memory of this machine allows: the physical limit beside the figures of `benches/`.
//!
//!     memory_limits THREADS BYTES:CALLS:BATCHES …
//!
//! Prints "0 SECONDS 0" first, SECONDS being what a cache line takes to change cores, then per batch
//! "BYTES ADD COPY": the seconds that each of THREADS threads, all at once, takes to add a vector of so many bytes of f32
//! to another, and to copy it.

use ripieno::{Element, Op};
use ripieno_run::reduction;
use std::error::Error;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::Instant;

const LINE_BATCH_COUNT: usize = 9;
const LINE_ROUND_COUNT: usize = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (threads, cases) = arguments.split_first().ok_or("no number of threads")?;
    let thread_count: usize = threads.parse()?;
    if thread_count > 1 {
        println!("0 {:.9} 0", line_s());
    }
    for case in cases {
        let numbers = case.split(':').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let [bytes, call_count, batch_count] = numbers[..] else {
            return Err(format!("{case}: expected BYTES:CALLS:BATCHES").into());
        };
        for (add_s, copy_s) in at_once(thread_count, bytes, call_count, batch_count) {
            println!("{bytes} {add_s:.9} {copy_s:.9}");
        }
    }
    Ok(())
}

/// Half a round trip of a number between two threads that spin on it; the best batch.
fn line_s() -> f64 {
    let turn = AtomicUsize::new(0);
    let mut best_s = f64::INFINITY;
    for _ in 0..LINE_BATCH_COUNT {
        turn.store(0, Release);
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| bounce(&turn, 1));
            bounce(&turn, 0);
        });
        best_s = best_s.min(start.elapsed().as_secs_f64() / LINE_ROUND_COUNT as f64);
    }
    best_s
}

/// Takes every other turn.
fn bounce(turn: &AtomicUsize, parity: usize) {
    for mine in (parity..LINE_ROUND_COUNT).step_by(2) {
        while turn.load(Acquire) != mine {
            std::hint::spin_loop();
        }
        turn.store(mine + 1, Release);
    }
}

/// Per batch, the slowest thread's seconds per addition and per copy.
fn at_once(thread_count: usize, bytes: usize, call_count: usize, batch_count: usize) -> Vec<(f64, f64)> {
    let barrier = Barrier::new(thread_count);
    let run = || one_thread(&barrier, bytes, call_count, batch_count);
    let all: Vec<Vec<(f64, f64)>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..thread_count).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that adds and copies")).collect()
    });
    let slowest = |batch: usize, of: fn(&(f64, f64)) -> f64| all.iter().map(|t| of(&t[batch])).fold(0.0, f64::max);
    (0..batch_count).map(|batch| (slowest(batch, |t| t.0), slowest(batch, |t| t.1))).collect()
}

fn one_thread(barrier: &Barrier, bytes: usize, call_count: usize, batch_count: usize) -> Vec<(f64, f64)> {
    let (mut into, from) = (vec![0u8; bytes], vec![0u8; bytes].into_iter().map(black_box).collect::<Vec<u8>>());
    let add = reduction::combine(Element::F32, Op::Sum).expect("a sum of floats");
    add(&mut into, &from);
    let timed = |call: &mut dyn FnMut()| {
        barrier.wait();
        let start = Instant::now();
        for _ in 0..call_count {
            call();
        }
        start.elapsed().as_secs_f64() / call_count as f64
    };
    let batch = |_| {
        let add_s = timed(&mut || add(black_box(&mut into), black_box(&from)));
        let copy_s = timed(&mut || black_box(&mut into).copy_from_slice(black_box(&from)));
        (add_s, copy_s)
    };
    (0..batch_count).map(batch).collect()
}
