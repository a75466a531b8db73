//! Scheduler of the ranks' threads. One thread runs at a time. A thread that sleeps processes events until one of them
//! wakes a rank, and lets that rank run.

use crate::faults::Scenario;
use crate::final_checks;
use crate::process::ProgramEnding;
use crate::program;
use crate::world::SimulatedWorld;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Panic payload that ends the thread of a killed process.
struct Killed;

/// The outcome of a world without a violated condition.
#[derive(Debug, PartialEq, Eq)]
pub struct PlayedWorld {
    /// Time of the last event.
    pub simulated_us: u64,
    /// Numbers of faults and of results of the ranks.
    pub counts: BTreeMap<&'static str, u64>,
}

pub struct WorldScheduler {
    world: Mutex<SimulatedWorld>,
    /// Wakes the thread of each rank.
    turns: Vec<Condvar>,
    world_is_free: Condvar,
}

impl WorldScheduler {
    /// Simulate the world of a seed. Return its outcome, or the description of a violated condition.
    pub fn run_seed(seed: u64) -> Result<PlayedWorld, String> {
        let world = SimulatedWorld::new(seed);
        let size = world.processes.len();
        let turns = (0..size).map(|_| Condvar::new()).collect();
        let scheduler = Arc::new(WorldScheduler { world: Mutex::new(world), turns, world_is_free: Condvar::new() });
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let scheduler = scheduler.clone();
                std::thread::Builder::new().stack_size(512 << 10).spawn(move || scheduler.run_rank(rank)).unwrap()
            })
            .collect();
        scheduler.run();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let world = scheduler.lock();
        match &world.failure_text {
            Some(failure_text) => Err(format!("{failure_text}\n{:?}", world.scenario)),
            None => Ok(PlayedWorld { simulated_us: world.now_us, counts: world.counts.clone() }),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, SimulatedWorld> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn scenario(&self) -> Scenario {
        self.lock().scenario.clone()
    }

    /// Process all events, end the remaining threads, and check all results.
    fn run(&self) {
        let mut world = self.lock();
        self.advance(&mut world);
        world = self.wait(world);
        world.is_over = true;
        for rank in 0..self.turns.len() {
            if !world.ended[rank] {
                world.turn = Some(rank);
                self.turns[rank].notify_one();
                world = self.wait(world);
            }
        }
        if world.failure_text.is_none() {
            let checked = catch_unwind(AssertUnwindSafe(|| final_checks::check_end(&mut world)));
            world.failure_text = checked.err().map(|panic| panic_text(&*panic));
        }
    }

    /// Wait until no rank has the turn.
    fn wait<'a>(&'a self, world: MutexGuard<'a, SimulatedWorld>) -> MutexGuard<'a, SimulatedWorld> {
        self.world_is_free.wait_while(world, |world| world.turn.is_some()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Process events, and wake the thread of the rank that runs next.
    fn advance(&self, world: &mut SimulatedWorld) {
        let next = catch_unwind(AssertUnwindSafe(|| world.advance()));
        world.turn = next.unwrap_or_else(|panic| {
            world.failure_text.get_or_insert(panic_text(&*panic));
            None
        });
        match world.turn {
            Some(rank) => self.turns[rank].notify_one(),
            None => self.world_is_free.notify_one(),
        }
    }

    /// Run the thread of a rank.
    fn run_rank(self: &Arc<WorldScheduler>, rank: usize) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.wait_for_turn(rank, self.lock());
            program::run(self, rank)
        }));
        let mut world = self.lock();
        match result {
            Ok(ending) => {
                world.processes[rank].ending = Some(ending);
            }
            Err(panic) if panic.is::<Killed>() => {}
            Err(panic) => {
                let failure_text = format!("rank {rank}: {}", panic_text(&*panic));
                world.failure_text.get_or_insert(failure_text);
                world.is_over = true;
            }
        }
        world.processes[rank].activity = None;
        world.ended[rank] = true;
        if world.is_over {
            world.turn = None;
            self.world_is_free.notify_one();
        } else {
            self.advance(&mut world);
        }
    }

    /// Sleep until an event arrives, at most for `for_us`. Return whether an event has arrived.
    pub fn sleep(&self, rank: usize, for_us: u64) -> bool {
        let mut world = self.lock();
        if !world.processes[rank].is_alive() || world.is_over {
            return false;
        }
        if std::mem::take(&mut world.processes[rank].has_events) {
            return true;
        }
        let until_us = world.now_us + for_us;
        world.sleep(rank, until_us);
        self.advance(&mut world);
        self.wait_for_turn(rank, world);
        std::mem::take(&mut self.lock().processes[rank].has_events)
    }

    fn wait_for_turn(&self, rank: usize, world: MutexGuard<'_, SimulatedWorld>) {
        let waited = self.turns[rank].wait_while(world, |world| world.turn != Some(rank));
        let world = waited.unwrap_or_else(PoisonError::into_inner);
        let must_end = world.is_over || !world.processes[rank].is_alive();
        drop(world);
        if must_end {
            resume_unwind(Box::new(Killed));
        }
    }

    /// Wait until `found` returns a value, at most for `for_us`.
    pub fn wait_for<T>(
        &self,
        rank: usize,
        for_us: u64,
        mut found: impl FnMut(&mut SimulatedWorld) -> Option<T>,
    ) -> Option<T> {
        let until_us = self.lock().now_us + for_us;
        loop {
            let now_us = {
                let mut world = self.lock();
                if let Some(found) = found(&mut world) {
                    return Some(found);
                }
                if !world.processes[rank].is_alive() || world.is_over {
                    return None;
                }
                world.now_us
            };
            if now_us >= until_us {
                return None;
            }
            self.sleep(rank, until_us - now_us);
        }
    }

    /// Record the result of a program before its process ends.
    pub fn note_ending(&self, rank: usize, ending: &ProgramEnding) {
        self.lock().processes[rank].ending = Some(ending.clone());
    }
}

/// Return the message of a panic.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_else(|| "a panic".to_string())
}
