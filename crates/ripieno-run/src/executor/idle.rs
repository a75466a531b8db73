//! Idle policy of a rank: it spins for a bounded time, yields its core, then parks. From time to time it queries the
//! peers that it waits for.

use super::{InterruptCheck, RELAY_UNIT_BYTES, RunError};
use crate::fabric::{Fabric, LinkInterest};
use std::time::Duration;

/// Time that a rank with its own core spins on memory before it yields. If another process uses the core, a
/// yield can take milliseconds. Two ranks that share a core by chance are soon separated ([`Fabric::note_wait`]).
pub(super) const SPIN: Duration = Duration::from_micros(50);
/// Duration of yielding before the rank parks.
const YIELD: Duration = Duration::from_micros(50);
/// Maximum time parked before the rank polls again.
const PARK: Duration = Duration::from_millis(250);
/// A rank queries its peers after this time without progress.
const STALL: Duration = Duration::from_secs(1);

/// Work to complete: one run, or all runs in flight.
pub(super) trait Work {
    /// Make as much progress as possible without waiting. Return whether any bytes moved.
    fn progress(&mut self) -> Result<bool, RunError>;
    /// Return whether no caller waits for this work any longer.
    fn is_over(&self) -> bool;
    /// Return the failure of the job, or of a resource that this work needs.
    fn failure(&mut self) -> Option<RunError>;
    /// Return the fabric.
    fn fabric(&mut self) -> &mut dyn Fabric;
    /// Add the links that could make progress.
    fn interests(&mut self, interests: &mut Vec<LinkInterest>);
    /// Return whether progress can only come through memory. This is false if a lane waits for a link that needs system
    /// calls or is not open yet.
    fn waits_on_memory(&mut self) -> Result<bool, RunError>;
    /// Record that the rank waits, at the latest since `now`.
    fn waits_since(&mut self, now: Duration);
    /// Change the minimum number of bytes that a relay forwards, given the current value.
    fn set_relay_unit_bytes(&mut self, change: fn(usize) -> usize);
    /// Query the awaited peers.
    fn query_peers(&mut self);
    /// Report to the other ranks that this rank stops, and return the resulting error.
    fn interrupt(&mut self) -> RunError;
}

/// Drive `work` to completion.
pub(super) fn finish<W: Work>(
    work: &mut W,
    interests: &mut Vec<LinkInterest>,
    interrupt: &mut Option<InterruptCheck>,
) -> Result<(), RunError> {
    let mut idle = Idle::default();
    loop {
        let moved = work.progress()?;
        if moved && idle.rounds > 0 {
            work.fabric().note_wait(idle.first_yield == Some(idle.rounds));
        }
        if work.is_over() {
            return Ok(());
        }
        if moved {
            idle = Idle::default();
            work.set_relay_unit_bytes(|unit_bytes| RELAY_UNIT_BYTES.min(2 * unit_bytes));
            continue;
        }
        if let Some(failure) = work.failure() {
            return Err(failure);
        }
        let slept = idle.wait(work, interests)?;
        if slept && interrupt.as_mut().is_some_and(|interrupted| interrupted()) {
            return Err(work.interrupt());
        }
    }
}

/// Return the failure of the job, if any. With `needs_all`, a dead rank fails the job even if a replica of it is alive,
/// because partial work cannot be resumed.
pub(super) fn failure(fabric: &mut dyn Fabric, needs_all: bool) -> Option<RunError> {
    if needs_all && fabric.has_losses() && !fabric.has_failed() {
        let loss = fabric.losses().into_iter().next();
        loss.into_iter().for_each(|loss| fabric.report(loss));
    }
    fabric.has_failed().then(|| fabric.failure().expect("a failed fabric returns its failure").into())
}

/// State of a rank without progress.
#[derive(Default)]
struct Idle {
    rounds: u32,
    /// Number of the round that first yielded the core.
    first_yield: Option<u32>,
    /// Whether the rank yields immediately, because the awaited rank may need this core.
    shares_core: bool,
    since: Option<Duration>,
    last_query: Option<Duration>,
}

impl Idle {
    /// Rounds between two clock reads. One read costs as much as several rounds.
    const ROUNDS_PER_CLOCK_READ: u32 = 8;

    /// Wait for a moment. Return whether the rank slept.
    fn wait<W: Work>(&mut self, work: &mut W, interests: &mut Vec<LinkInterest>) -> Result<bool, RunError> {
        self.rounds += 1;
        if self.rounds == 1 {
            self.shares_core = !work.fabric().has_core_per_rank() && work.waits_on_memory()?;
        }
        if !self.shares_core && !self.rounds.is_multiple_of(Self::ROUNDS_PER_CLOCK_READ) {
            std::hint::spin_loop();
            return Ok(false);
        }
        let now = work.fabric().now();
        work.waits_since(now);
        let idle = now - *self.since.get_or_insert(now);
        if work.waits_on_memory()? {
            let spin = if work.fabric().has_core_per_rank() { SPIN } else { Duration::ZERO };
            if idle < spin {
                return Ok(false);
            }
            if idle < spin + YIELD {
                work.fabric().yield_now();
                self.first_yield.get_or_insert(self.rounds);
                return Ok(false);
            }
        }
        if idle >= PARK {
            // A plan may need less than one unit to make progress. After a sleep without progress, forward any bytes.
            work.set_relay_unit_bytes(|_| 1);
        }
        work.fabric().prepare_park();
        let moved = work.progress();
        let mut slept = false;
        if matches!(moved, Ok(false)) && !work.is_over() && !work.fabric().has_failed() {
            if now - *self.last_query.get_or_insert(now) >= STALL {
                self.last_query = Some(now);
                work.query_peers();
            }
            work.interests(interests);
            work.fabric().park(interests, PARK);
            slept = true;
        }
        work.fabric().cancel_park();
        if moved? {
            *self = Idle::default();
        }
        Ok(slept)
    }
}
