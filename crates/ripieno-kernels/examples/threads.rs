//! Benchmark of persistent threads, compared with rayon, threads created for each phase, and the standard library's
//! barrier.
//!
//!     cargo run --release --example threads -- [turns] [µs of a phase]
//!
//! The methods run alternately. A time is the median of the turns, with its quartiles. The context switches of the
//! process in a turn are also printed, because they depend less on other load. `ripieno bench threads` has more methods
//! and plots them, but without rayon.

use ripieno_kernels::thread_costs::{PhaseDispatch, rounds_per_us, turn};
use std::time::{Duration, Instant};

/// Phases of a turn: as many iterations as in the study of thread models that docs/threads.md cites.
const PHASES: usize = 64;

/// Fork-joins or waits of a turn.
const ROUNDS: usize = 2000;

/// The same for created threads, which take longer.
const SPAWNED_ROUNDS: usize = 100;

fn main() {
    let number = |index: usize, default: usize| {
        std::env::args().nth(index).map_or(default, |text| text.parse().expect("a whole number"))
    };
    let (turns, phase_us) = (number(1, 21), number(2, 1000));
    let cores = std::thread::available_parallelism().expect("a count of cores");
    println!("{cores} cores, {turns} turns: µs, median (quartiles); voluntary + other context switches of a turn");
    for count in [2, 4, 8] {
        let nothing =
            [("a team", PhaseDispatch::ForkJoin, ROUNDS), ("threads made", PhaseDispatch::Spawned, SPAWNED_ROUNDS)];
        let mut cases: Vec<ThreadsCase> =
            nothing.map(|(name, dispatch, phases)| ThreadsCase::new(name, dispatch, count, phases, 0)).into();
        cases.push(ThreadsCase::of_rayon("rayon::broadcast", count, ROUNDS));
        compare(&format!("empty fork-join, {count} threads"), turns, &cases);
        let barriers = [("Member::wait", PhaseDispatch::Bsp), ("std::sync::Barrier", PhaseDispatch::StdBarrier)];
        let cases = barriers.map(|(name, dispatch)| ThreadsCase::new(name, dispatch, count, ROUNDS, 0));
        compare(&format!("barrier, {count} threads"), turns, &cases);
    }

    let rounds = (phase_us as f64 * rounds_per_us()) as usize;
    let case = |name, dispatch, count| ThreadsCase::new(name, dispatch, count, PHASES, rounds);
    compare(
        &format!("phase, {phase_us} µs of one thread's work"),
        turns,
        &[
            case("1 thread, half of it", PhaseDispatch::Share, 2),
            case("fork-join, 2 threads", PhaseDispatch::ForkJoin, 2),
            case("parts, 2 threads", PhaseDispatch::Parts, 2),
            case("BSP, 2 threads", PhaseDispatch::Bsp, 2),
            case("threads made, 2", PhaseDispatch::Spawned, 2),
            case("fork-join, 8 threads", PhaseDispatch::ForkJoin, 8),
            case("parts, 8 threads", PhaseDispatch::Parts, 8),
            case("BSP, 8 threads", PhaseDispatch::Bsp, 8),
            case("threads made, 8", PhaseDispatch::Spawned, 8),
        ],
    );
}

/// A benchmark case: its turn and the number of repetitions in it.
struct ThreadsCase<'a> {
    name: &'static str,
    count: usize,
    turn: Box<dyn Fn() -> Duration + 'a>,
}

impl<'a> ThreadsCase<'a> {
    fn new(
        name: &'static str,
        dispatch: PhaseDispatch,
        threads: usize,
        count: usize,
        rounds: usize,
    ) -> ThreadsCase<'a> {
        ThreadsCase { name, count, turn: Box::new(move || turn(dispatch, threads, count, rounds)) }
    }

    fn of_rayon(name: &'static str, threads: usize, count: usize) -> ThreadsCase<'a> {
        // As many threads as a team has; the caller only waits.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads of rayon");
        let turn = move || {
            let begin = Instant::now();
            (0..count).for_each(|_| drop(pool.broadcast(|_| ())));
            begin.elapsed()
        };
        ThreadsCase { name, count, turn: Box::new(turn) }
    }
}

fn compare(title: &str, turns: usize, cases: &[ThreadsCase]) {
    println!("\n{title}");
    let mut found: Vec<Vec<(f64, [i64; 2])>> = vec![Vec::new(); cases.len()];
    for _ in 0..turns {
        for (case, found) in cases.iter().zip(&mut found) {
            let before = switches();
            let elapsed = (case.turn)();
            let after = switches();
            found.push((elapsed.as_secs_f64() * 1e6 / case.count as f64, [after[0] - before[0], after[1] - before[1]]));
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

/// Return the context switches of this process so far: voluntary and involuntary ones.
fn switches() -> [i64; 2] {
    // SAFETY: zeros are valid numbers, and the call fills them in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0, "a process may ask about itself");
        [usage.ru_nvcsw, usage.ru_nivcsw]
    }
}
