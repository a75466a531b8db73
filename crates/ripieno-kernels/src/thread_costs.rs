//! Costs of different ways to distribute work to threads, for benchmarks that alternate between them.
//!
//! Source: Ekanayake et al., "Java thread and process performance for parallel machine learning on multicore HPC
//! clusters", section III.A.

use crate::Threads;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Method of distributing the phases of a turn to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseDispatch {
    /// The caller alone computes one thread's share of each phase: the lower bound for every method.
    Share,
    /// Persistent threads: a task per phase, with one share per thread.
    ForkJoin,
    /// Persistent threads: a task per phase, with [`PARTS_PER_THREAD`] parts per thread, taken by free threads.
    Parts,
    /// Persistent threads: one task, with a barrier after each phase.
    Bsp,
    /// Threads created for each phase.
    Spawned,
    /// Threads created for the turn, with the barrier of the standard library.
    StdBarrier,
}

/// Number of parts per thread in a phase that is divided into parts.
pub const PARTS_PER_THREAD: usize = 4;

impl PhaseDispatch {
    /// All methods with their names.
    pub const ALL: [(&'static str, PhaseDispatch); 6] = [
        ("share", PhaseDispatch::Share),
        ("fork-join", PhaseDispatch::ForkJoin),
        ("parts", PhaseDispatch::Parts),
        ("bsp", PhaseDispatch::Bsp),
        ("made", PhaseDispatch::Spawned),
        ("std-barrier", PhaseDispatch::StdBarrier),
    ];
}

/// Return the duration of `phases` phases on `count` threads, which together perform `rounds` rounds of work per phase.
///
/// # Panics
/// If `count` is zero, or the system cannot create more threads.
pub fn turn(dispatch: PhaseDispatch, count: usize, phases: usize, rounds: usize) -> Duration {
    turn_of(dispatch, count, phases, rounds, work)
}

/// Return the duration of the phases with the caller's function for the work.
fn turn_of(
    dispatch: PhaseDispatch,
    count: usize,
    phases: usize,
    rounds: usize,
    work: impl Fn(usize) + Sync + Copy,
) -> Duration {
    let threads = Threads::new(count);
    let share = || work(rounds / count);
    let begin = Instant::now();
    match dispatch {
        PhaseDispatch::Share => (0..phases).for_each(|_| share()),
        PhaseDispatch::ForkJoin => (0..phases).for_each(|_| threads.run(|_| share())),
        PhaseDispatch::Parts => (0..phases).for_each(|_| parts(&threads, rounds, work)),
        PhaseDispatch::Bsp => threads.run(|member| {
            for _ in 0..phases {
                share();
                member.wait();
            }
        }),
        PhaseDispatch::Spawned => (0..phases).for_each(|_| run_on_new_threads(count, share)),
        PhaseDispatch::StdBarrier => {
            let barrier = Barrier::new(count);
            run_on_new_threads(count, || {
                for _ in 0..phases {
                    share();
                    barrier.wait();
                }
            });
        }
    }
    begin.elapsed()
}

/// Return the rounds of work per microsecond on one core: the best of several tries, because other programs may use the
/// cores too.
pub fn rounds_per_us() -> f64 {
    const ROUNDS: usize = 100_000;
    const TRIES: usize = 50;
    let elapsed = |_| {
        let begin = Instant::now();
        work(ROUNDS);
        begin.elapsed().as_secs_f64()
    };
    ROUNDS as f64 / (0..TRIES).map(elapsed).fold(f64::INFINITY, f64::min) / 1e6
}

fn parts(threads: &Threads, rounds: usize, work: impl Fn(usize) + Sync) {
    let part_count = PARTS_PER_THREAD * threads.count();
    let parts = vec![rounds / part_count; part_count];
    // The operations argument makes all threads take part, however short the phase.
    threads.for_each(parts, usize::MAX, || (), |(), rounds| work(rounds));
}

fn run_on_new_threads(count: usize, share: impl Fn() + Sync + Copy + Send) {
    std::thread::scope(|scope| {
        (1..count).for_each(|_| drop(scope.spawn(share)));
        share();
    });
}

/// Perform dependent multiplications, which only occupy the core.
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
    fn every_method_runs_each_share_of_each_phase_once() {
        const PHASES: usize = 3;
        const ROUNDS: usize = 240;
        for (name, dispatch) in PhaseDispatch::ALL {
            for count in [1, 2, 3] {
                let done = AtomicUsize::new(0);
                turn_of(dispatch, count, PHASES, ROUNDS, |rounds| _ = done.fetch_add(rounds, Relaxed));
                let shares = if dispatch == PhaseDispatch::Share { 1 } else { count };
                assert_eq!(done.into_inner(), PHASES * ROUNDS / count * shares, "{name}, {count} threads");
            }
        }
    }
}
