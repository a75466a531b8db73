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
//! `RIPIENO_SEED=n` runs seed `n` alone. `RIPIENO_SEEDS=n` runs the first `n` seeds. `RIPIENO_SIMULATED_HOURS=n` runs
//! seeds, from `RIPIENO_SEED` on if set, until the virtual clocks of all worlds have passed `n` hours.

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

use scheduler::{PlayedWorld, WorldScheduler};
use std::collections::BTreeMap;

/// Counts of faults and of results of the ranks, over all worlds.
#[derive(Default)]
struct WorldCounts {
    worlds: u64,
    simulated_us: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl WorldCounts {
    fn add(&mut self, played: &PlayedWorld) {
        self.worlds += 1;
        self.simulated_us += played.simulated_us;
        played.counts.iter().for_each(|(&event, count)| *self.counts.entry(event).or_default() += count);
    }

    fn hours(&self) -> f64 {
        self.simulated_us as f64 / 3.6e9
    }
}

/// Seeds of worlds that have violated a condition. In the first five, hubs on separated hosts declare different ranks
/// lost. In the sixth, a hub dies before all ranks know that all have joined. In the last, the other ranks receive
/// nothing from one rank, continue without it, and end shortly after it has begun an agreement.
const FORMER_FAILURES: [u64; 7] = [7748, 11373, 16742, 17028, 18088, 19630, 1_012_227];
/// Number of worlds with violated conditions after which the test ends.
const FAILURES_MAX: usize = 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}

#[test]
fn survivors_get_correct_results_or_timely_errors() {
    let hours = number("RIPIENO_SIMULATED_HOURS");
    let seeds = match (number("RIPIENO_SEED"), hours) {
        (Some(seed), None) => seed..seed + 1,
        (first, Some(_)) => first.unwrap_or(0)..u64::MAX,
        (None, None) => 0..number("RIPIENO_SEEDS").unwrap_or(300),
    };
    let (mut counts, mut failures) = (WorldCounts::default(), Vec::new());
    for seed in seeds {
        match WorldScheduler::run_seed(seed) {
            Ok(played) => counts.add(&played),
            Err(description) => failures.push(format!(
                "seed {seed}: {description}\nrepeat it: RIPIENO_SEED={seed} cargo test -p ripieno --test worlds -- \
                 --nocapture"
            )),
        }
        if failures.len() == FAILURES_MAX {
            break;
        }
        if hours.is_some_and(|hours| counts.hours() >= hours as f64) {
            break;
        }
    }
    println!("{} worlds without a violated condition, {:.2} simulated hours", counts.worlds, counts.hours());
    counts.counts.iter().for_each(|(event, count)| println!("{count:>9} {event}"));
    assert!(failures.is_empty(), "{} worlds with violated conditions\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn worlds_of_former_failures_violate_no_condition() {
    for seed in FORMER_FAILURES {
        if let Err(description) = WorldScheduler::run_seed(seed) {
            panic!("seed {seed}: {description}");
        }
    }
}

#[test]
fn equal_seeds_have_equal_runs() {
    for seed in 0..20 {
        assert_eq!(WorldScheduler::run_seed(seed), WorldScheduler::run_seed(seed), "seed {seed}");
    }
}
