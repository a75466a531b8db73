//! Whole worlds on a virtual clock: communicators, executors, membership, meetings, agreements and shrinking as they
//! are, over simulated links. One seed is one run.
//!
//! A seed draws a world (hosts, delays, buffers, clocks that are apart), a program of collectives of all kinds, and
//! what goes wrong: ranks are killed, stopped and resumed, programs raise, cables between hosts are cut one way or
//! both, hosts are parted from all others, and in some programs one rank calls something else. Every rank has a thread,
//! of which one runs at a time; the others wait for an event of the virtual clock. After each event it is checked that
//! nobody waits beyond the bound, and that links and queues hold no more than they may; after each call, that the bytes
//! are right; at each failure, that ranks of a world are told the same; at the end, that whoever lives has finished, or
//! was told why not.
//!
//! `RIPIENO_SEED=n` plays that seed alone, `RIPIENO_SEEDS=n` so many.

mod cables;
mod calls;
mod dice;
mod ends;
mod fabric;
mod faults;
mod link;
mod meeting;
mod monitor;
mod process;
mod program;
mod stage;
mod traffic;
mod verdicts;
mod watching;
mod world;

use stage::WorldStage;
use std::collections::BTreeMap;

/// What has become of the ranks of all worlds.
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
fn whoever_lives_has_right_results_or_is_told_in_time_whatever_happens() {
    let seeds = match number("RIPIENO_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RIPIENO_SEEDS").unwrap_or(300),
    };
    let (mut counts, count) = (WorldCounts::default(), seeds.end - seeds.start);
    for seed in seeds {
        match WorldStage::play(seed) {
            Ok(played) => counts.add(&played),
            Err(what) => panic!(
                "seed {seed}: {what}\nplay it again: RIPIENO_SEED={seed} cargo test -p ripieno --test worlds -- \
                 --nocapture"
            ),
        }
    }
    let counted: Vec<String> = counts.0.iter().map(|(what, count)| format!("{count} {what}")).collect();
    println!("{count} worlds: {}", counted.join(", "));
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..20 {
        assert_eq!(WorldStage::play(seed), WorldStage::play(seed), "seed {seed}");
    }
}
