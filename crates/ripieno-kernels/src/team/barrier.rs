//! A barrier whose sense is a number that goes up: nobody leaves before all have come.
//!
//! Cost: an addition to one word per thread, and one store that all the others see.
//! Source: Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory multiprocessors", ACM
//! TOCS 1991, section 3.1: the centralized sense-reversing barrier. Here a thread that has looked long enough sleeps.

use super::gate::{Gate, GateWord, SpinPolicy};

/// The barrier. Its generation is the sense.
#[derive(Default)]
pub(super) struct Barrier<W> {
    arrived: PaddedLine<W>,
    generation: Gate<W>,
}

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct PaddedLine<W>(W);

/// The generation of a barrier that somebody will never come to.
const BROKEN: u32 = u32::MAX >> 1;

/// Somebody will never come to the barrier.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BarrierBroken;

/// The generation in which a thread has come.
pub(super) struct BarrierGeneration(u32);

impl<W: GateWord> Barrier<W> {
    /// Comes to the barrier of `count` threads and goes on, whoever is missing. The last one lets those go that wait.
    pub(super) fn arrive(&self, count: u32) {
        self.arrive_at(self.generation.value(), count);
    }

    /// Comes to the barrier of `count` threads, and waits for all the others.
    pub(super) fn wait(&self, count: u32, patience: SpinPolicy) -> Result<(), BarrierBroken> {
        match self.come(count)? {
            Some(pass) => self.wait_for(pass, patience),
            None => Ok(()),
        }
    }

    /// Comes to the barrier of `count` threads; what to wait for, unless this thread is the last.
    pub(super) fn come(&self, count: u32) -> Result<Option<BarrierGeneration>, BarrierBroken> {
        // It cannot change before this thread has come.
        let generation = self.generation.value();
        if generation == BROKEN {
            return Err(BarrierBroken);
        }
        Ok((!self.arrive_at(generation, count)).then_some(BarrierGeneration(generation)))
    }

    /// Waits for all the others.
    pub(super) fn wait_for(&self, pass: BarrierGeneration, patience: SpinPolicy) -> Result<(), BarrierBroken> {
        if self.generation.wait_while(pass.0, patience) == BROKEN { Err(BarrierBroken) } else { Ok(()) }
    }

    /// For a thread that will not come again: ends the waiting of all, now and later.
    pub(super) fn break_up(&self) {
        self.generation.open(BROKEN);
    }

    /// Whether this thread is the last.
    fn arrive_at(&self, generation: u32, count: u32) -> bool {
        let is_last = self.arrived.0.add(1) + 1 == count;
        if is_last {
            // Nobody comes again before the generation goes up.
            self.arrived.0.swap(0);
            self.generation.open((generation + 1) % BROKEN);
        }
        is_last
    }
}
