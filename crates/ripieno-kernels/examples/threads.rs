//! What threads that stay cost, beside threads that are made for each kernel and the barrier of the standard library.
//!
//!     cargo run --release --example threads -- [turns] [µs of a phase]
//!
//! What is compared runs by turns; a time is the median of the turns, with its quartiles. Beside it stand the context
//! switches of the process in a turn, which depend less on what else the machine does.

use ripieno_kernels::{Member, Threads};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Phases of a turn: as many iterations as in the study of thread models that docs/threads.md cites.
const PHASES: usize = 64;

/// Fork-joins or waits of a turn.
const ROUNDS: usize = 2000;

/// Threads are made less often: it takes long.
const MADE_ROUNDS: usize = 100;

fn main() {
    let number = |index: usize, default: usize| {
        std::env::args().nth(index).map_or(default, |text| text.parse().expect("a whole number"))
    };
    let (turns, phase_us) = (number(1, 21), number(2, 1000));
    let cores = std::thread::available_parallelism().expect("a count of cores");
    println!("{cores} cores, {turns} turns: µs, median (quartiles); voluntary + other context switches of a turn");
    for count in [2, 4, 8] {
        compare(
            &format!("fork-join of nothing, {count} threads"),
            turns,
            &[
                Case::new("a team", ROUNDS, || (0..ROUNDS).for_each(|_| Threads::new(count).run(|_| ()))),
                Case::new("threads made", MADE_ROUNDS, || (0..MADE_ROUNDS).for_each(|_| made(count, || ()))),
            ],
        );
        let barrier = Barrier::new(count);
        compare(
            &format!("barrier, {count} threads"),
            turns,
            &[
                Case::new("Member::wait", ROUNDS, || waits(count, |member| member.wait())),
                Case::new("std::sync::Barrier", ROUNDS, || waits(count, |_| _ = barrier.wait())),
            ],
        );
    }

    let rounds = phase_us * rounds_per_us();
    let share = |count: usize| work(rounds / count);
    compare(
        &format!("phase, {phase_us} µs of one thread's work"),
        turns,
        &[
            Case::new("1 thread, half of it", PHASES, || (0..PHASES).for_each(|_| share(2))),
            Case::new("fork-join, 2 threads", PHASES, || fork_join(2, || share(2))),
            Case::new("BSP, 2 threads", PHASES, || bsp(2, || share(2))),
            Case::new("threads made, 2", PHASES, || (0..PHASES).for_each(|_| made(2, || share(2)))),
            Case::new("fork-join, 8 threads", PHASES, || fork_join(8, || share(8))),
            Case::new("BSP, 8 threads", PHASES, || bsp(8, || share(8))),
            Case::new("threads made, 8", PHASES, || (0..PHASES).for_each(|_| made(8, || share(8)))),
        ],
    );
}

/// What a turn does, and how often.
struct Case<'a> {
    name: &'static str,
    count: usize,
    turn: Box<dyn Fn() + 'a>,
}

impl<'a> Case<'a> {
    fn new(name: &'static str, count: usize, turn: impl Fn() + 'a) -> Case<'a> {
        Case { name, count, turn: Box::new(turn) }
    }
}

fn fork_join(count: usize, share: impl Fn() + Sync) {
    (0..PHASES).for_each(|_| Threads::new(count).run(|_| share()));
}

fn bsp(count: usize, share: impl Fn() + Sync) {
    Threads::new(count).run(|member| {
        for _ in 0..PHASES {
            share();
            member.wait();
        }
    });
}

fn made(count: usize, share: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        (1..count).for_each(|_| drop(scope.spawn(&share)));
        share();
    });
}

fn waits(count: usize, wait: impl Fn(&Member) + Sync) {
    Threads::new(count).run(|member| (0..ROUNDS).for_each(|_| wait(member)));
}

/// Dependent multiplications, which keep a core busy and nothing else.
fn work(rounds: usize) {
    let mut state = black_box(1u64);
    for _ in 0..rounds {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(state);
}

/// In the best of some tries, as other programs have the cores, too.
fn rounds_per_us() -> usize {
    const ROUNDS: usize = 100_000;
    let took = |_| {
        let start = Instant::now();
        work(ROUNDS);
        start.elapsed().as_secs_f64()
    };
    (ROUNDS as f64 / (0..50).map(took).fold(f64::INFINITY, f64::min) / 1e6) as usize
}

fn compare(what: &str, turns: usize, cases: &[Case]) {
    println!("\n{what}");
    let mut found: Vec<Vec<(f64, [i64; 2])>> = vec![Vec::new(); cases.len()];
    for _ in 0..turns {
        for (case, found) in cases.iter().zip(&mut found) {
            let (start, before) = (Instant::now(), switches());
            (case.turn)();
            let (took, after) = (start.elapsed(), switches());
            found.push((took.as_secs_f64() * 1e6 / case.count as f64, [after[0] - before[0], after[1] - before[1]]));
        }
    }
    for (case, mut found) in cases.iter().zip(found) {
        let quartile = |values: &mut [f64], at: usize| {
            values.sort_by(f64::total_cmp);
            values[(values.len() - 1) * at / 4]
        };
        let mut times: Vec<f64> = found.iter().map(|(time, _)| *time).collect();
        let [low, median, high] = [1, 2, 3].map(|at| quartile(&mut times, at));
        let [own, other] = [0, 1].map(|kind| {
            found.sort_by_key(|(_, switches)| switches[kind]);
            found[found.len() / 2].1[kind]
        });
        println!("  {:<22}{median:>10.2}  ({low:.2} … {high:.2}); {own} + {other} switches", case.name);
    }
}

/// Context switches of this process so far: those that it asked for by waiting, and the others.
fn switches() -> [i64; 2] {
    // SAFETY: numbers may be zeros, and the call fills them in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0, "a process may ask about itself");
        [usage.ru_nvcsw, usage.ru_nivcsw]
    }
}
