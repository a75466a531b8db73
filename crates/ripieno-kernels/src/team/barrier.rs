//! Barrier of a team of threads, with an increasing generation number as its sense.
//!
//! Cost: one addition to a shared word per thread, and one store that all other threads see.
//! Source: Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory multiprocessors", ACM
//! TOCS 1991, section 3.1: the centralized sense-reversing barrier. In this variant a waiting thread sleeps after a
//! bounded time.

use super::gate::{Gate, GateWord, SpinPolicy};

/// The barrier. Its generation is the sense.
#[derive(Default)]
pub(super) struct Barrier<W> {
    arrived: PaddedLine<W>,
    generation: Gate<W>,
}

/// A word on its own cache lines.
#[derive(Default)]
#[repr(align(128))]
struct PaddedLine<W>(W);

/// The generation of a broken barrier, at which some thread will never arrive.
const BROKEN: u32 = u32::MAX >> 1;

/// Error: some thread will never arrive at the barrier.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BarrierBroken;

/// The generation of a thread's arrival.
pub(super) struct BarrierGeneration(u32);

impl<W: GateWord> Barrier<W> {
    /// Arrive at the barrier of `count` threads without waiting. The last thread releases the waiting ones.
    pub(super) fn arrive(&self, count: u32) {
        self.arrive_at(self.generation.value(), count);
    }

    /// Arrive at the barrier of `count` threads and wait for all others.
    pub(super) fn wait(&self, count: u32, spin_policy: SpinPolicy) -> Result<(), BarrierBroken> {
        match self.register(count)? {
            Some(generation) => self.wait_for(generation, spin_policy),
            None => Ok(()),
        }
    }

    /// Arrive at the barrier of `count` threads. Return the generation to wait for, or `None` for the last thread.
    pub(super) fn register(&self, count: u32) -> Result<Option<BarrierGeneration>, BarrierBroken> {
        // The generation cannot change before this thread has arrived.
        let generation = self.generation.value();
        if generation == BROKEN {
            return Err(BarrierBroken);
        }
        Ok((!self.arrive_at(generation, count)).then_some(BarrierGeneration(generation)))
    }

    /// Wait for all other threads.
    pub(super) fn wait_for(&self, generation: BarrierGeneration, spin_policy: SpinPolicy) -> Result<(), BarrierBroken> {
        if self.generation.wait_while(generation.0, spin_policy) == BROKEN { Err(BarrierBroken) } else { Ok(()) }
    }

    /// Break the barrier on behalf of a thread that will not arrive. All present and future waits end with an error.
    pub(super) fn mark_broken(&self) {
        self.generation.open(BROKEN);
    }

    /// Return whether some thread will never arrive.
    pub(super) fn is_broken(&self) -> bool {
        self.generation.value() == BROKEN
    }

    /// Count an arrival and return whether this thread is the last.
    fn arrive_at(&self, generation: u32, count: u32) -> bool {
        let is_last = self.arrived.0.add(1) + 1 == count;
        if is_last {
            // No thread arrives again before the generation increases.
            self.arrived.0.swap(0);
            self.generation.open((generation + 1) % BROKEN);
        }
        is_last
    }
}
