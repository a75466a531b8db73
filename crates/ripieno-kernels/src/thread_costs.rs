//! What ways of giving work to threads cost: turns of so many phases, for benchmarks that alternate them.
//!
//! Source: Ekanayake et al., "Java thread and process performance for parallel machine learning on multicore HPC
//! clusters", section III.A.

use crate::Threads;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// How the phases of a turn are given to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseDispatch {
    /// The caller does one thread's share of each phase, and nobody else works: what no way can beat.
    Share,
    /// Threads that stay: an order for each phase, with a share for each thread.
    ForkJoin,
    /// The same, with parts for whoever is free: [`PARTS_PER_THREAD`] for each thread.
    Parts,
    /// Threads that stay: one order, with a barrier after each phase.
    Bsp,
    /// Threads made for each phase.
    Made,
    /// Threads made for the turn, which meet at the barrier of the standard library.
    StdBarrier,
}

/// Of a phase that is given out in parts.
pub const PARTS_PER_THREAD: usize = 4;

impl PhaseDispatch {
    /// All of them, with their names.
    pub const ALL: [(&'static str, PhaseDispatch); 6] = [
        ("share", PhaseDispatch::Share),
        ("fork-join", PhaseDispatch::ForkJoin),
        ("parts", PhaseDispatch::Parts),
        ("bsp", PhaseDispatch::Bsp),
        ("made", PhaseDispatch::Made),
        ("std-barrier", PhaseDispatch::StdBarrier),
    ];
}

/// How long `phases` phases take on `count` threads, in each of which they do `rounds` rounds of work together.
///
/// # Panics
/// If `count` is zero, or the system gives no more threads.
pub fn turn(way: PhaseDispatch, count: usize, phases: usize, rounds: usize) -> Duration {
    turn_of(way, count, phases, rounds, work)
}

/// The same, with work of the caller's for so many rounds.
fn turn_of(
    way: PhaseDispatch,
    count: usize,
    phases: usize,
    rounds: usize,
    work: impl Fn(usize) + Sync + Copy,
) -> Duration {
    let threads = Threads::new(count);
    let share = || work(rounds / count);
    let begin = Instant::now();
    match way {
        PhaseDispatch::Share => (0..phases).for_each(|_| share()),
        PhaseDispatch::ForkJoin => (0..phases).for_each(|_| threads.run(|_| share())),
        PhaseDispatch::Parts => (0..phases).for_each(|_| parts(&threads, rounds, work)),
        PhaseDispatch::Bsp => threads.run(|member| {
            for _ in 0..phases {
                share();
                member.wait();
            }
        }),
        PhaseDispatch::Made => (0..phases).for_each(|_| made(count, share)),
        PhaseDispatch::StdBarrier => {
            let barrier = Barrier::new(count);
            made(count, || {
                for _ in 0..phases {
                    share();
                    barrier.wait();
                }
            });
        }
    }
    begin.elapsed()
}

/// How many rounds of work a core does in a microsecond, in the best of some tries: others may have the cores, too.
pub fn rounds_per_us() -> f64 {
    const ROUNDS: usize = 100_000;
    const TRIES: usize = 50;
    let took = |_| {
        let begin = Instant::now();
        work(ROUNDS);
        begin.elapsed().as_secs_f64()
    };
    ROUNDS as f64 / (0..TRIES).map(took).fold(f64::INFINITY, f64::min) / 1e6
}

fn parts(threads: &Threads, rounds: usize, work: impl Fn(usize) + Sync) {
    let part_count = PARTS_PER_THREAD * threads.count();
    let parts = vec![rounds / part_count; part_count];
    // Told as work that is worth all threads, however short the phase.
    threads.for_each(parts, usize::MAX, || (), |(), rounds| work(rounds));
}

fn made(count: usize, share: impl Fn() + Sync + Copy + Send) {
    std::thread::scope(|scope| {
        (1..count).for_each(|_| drop(scope.spawn(share)));
        share();
    });
}

/// Dependent multiplications, which keep a core busy and nothing else.
fn work(rounds: usize) {
    let mut state = black_box(1u64);
    for _ in 0..rounds {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(state);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn every_way_does_all_shares_of_all_phases_and_none_twice() {
        const PHASES: usize = 3;
        const ROUNDS: usize = 240;
        for (name, way) in PhaseDispatch::ALL {
            for count in [1, 2, 3] {
                let done = AtomicUsize::new(0);
                turn_of(way, count, PHASES, ROUNDS, |rounds| _ = done.fetch_add(rounds, Relaxed));
                let shares = if way == PhaseDispatch::Share { 1 } else { count };
                assert_eq!(done.into_inner(), PHASES * ROUNDS / count * shares, "{name}, {count} threads");
            }
        }
    }
}
