//! Simulation of whole worlds on a virtual clock. The real communicators, executors and membership state machines run
//! over simulated links. Each seed determines a run.
//!
//! A seed determines a world (hosts, delays, buffers, clock offsets), a program of all kinds of collectives, and
//! faults. Ranks are killed, or stopped and resumed. Programs raise errors. Connections between hosts are cut in one or
//! both directions, or a host is cut off from all others. In some programs, one rank calls a different collective.
//!
//! Each rank has a thread. One thread runs at a time; the others wait for an event of the virtual clock. The tests
//! check:
//! - after each event: no rank waits beyond its bound, and links and queues stay within their limits;
//! - after each call: the bytes are right;
//! - at each failure: the ranks of a world receive the same failure;
//! - at the end: each surviving rank has finished or received a reason.
//!
//! `RIPIENO_SEED=n` runs seed `n` alone. `RIPIENO_SEEDS=n` runs the first `n` seeds.

mod calls;
mod connections;
mod drivers;
mod fabric;
mod faults;
mod final_checks;
mod link;
mod monitor;
mod process;
mod program;
mod random;
mod rendezvous;
mod scheduler;
mod traffic;
mod verdicts;
mod world;

use scheduler::WorldScheduler;
use std::collections::BTreeMap;

/// Counts of the results of the ranks, over all worlds.
#[derive(Default)]
struct WorldCounts(BTreeMap<&'static str, u64>);

impl WorldCounts {
    fn add(&mut self, played: &BTreeMap<&'static str, u64>) {
        played.iter().for_each(|(&what, count)| *self.0.entry(what).or_default() += count);
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}

#[test]
fn survivors_get_correct_results_or_timely_errors() {
    let seeds = match number("RIPIENO_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RIPIENO_SEEDS").unwrap_or(300),
    };
    let (mut counts, count) = (WorldCounts::default(), seeds.end - seeds.start);
    for seed in seeds {
        match WorldScheduler::run_seed(seed) {
            Ok(played) => counts.add(&played),
            Err(description) => panic!(
                "seed {seed}: {description}\nrepeat it: RIPIENO_SEED={seed} cargo test -p ripieno --test worlds -- \
                 --nocapture"
            ),
        }
    }
    let counted: Vec<String> = counts.0.iter().map(|(what, count)| format!("{count} {what}")).collect();
    println!("{count} worlds: {}", counted.join(", "));
}

#[test]
fn equal_seeds_have_equal_runs() {
    for seed in 0..20 {
        assert_eq!(WorldScheduler::run_seed(seed), WorldScheduler::run_seed(seed), "seed {seed}");
    }
}
