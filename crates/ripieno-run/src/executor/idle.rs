//! What a rank does while nothing moves: it spins for a bounded time, offers its core, then parks; now and then it asks
//! those it waits for what they are at.

use super::{InterruptCheck, RELAY_UNIT_BYTES, RunError};
use crate::fabric::{Fabric, Want};
use std::time::Duration;

/// How long a rank with a core of its own spins on memory before it yields. If a stranger is there, who yields is away
/// for milliseconds; two ranks that are on one core by chance soon go apart ([`Fabric::note_wait`]).
pub(super) const SPIN: Duration = Duration::from_micros(50);
/// How long it then offers its core to others before it parks.
const YIELD: Duration = Duration::from_micros(50);
/// How long a rank parks before it looks around once more.
const PARK: Duration = Duration::from_millis(250);
/// How long a rank waits without a byte moving before it asks its peers what they are at.
const STALL: Duration = Duration::from_secs(1);

/// What there is to finish: one run, or all that are in flight.
pub(super) trait Work {
    /// Moves what can be moved now; whether anything did.
    fn progress(&mut self) -> Result<bool, RunError>;
    /// Whether nobody waits for this any longer.
    fn is_over(&self) -> bool;
    /// How the job has failed, or what this cannot go on without, if so.
    fn failure(&mut self) -> Option<RunError>;
    /// The world.
    fn fabric(&mut self) -> &mut dyn Fabric;
    /// Which links could move it on.
    fn wants(&mut self, wants: &mut Vec<Want>);
    /// Whether news can come through memory alone: no lane waits for a link that needs the system, or has none yet.
    fn waits_on_memory(&mut self) -> Result<bool, RunError>;
    /// Notes that the rank began to wait, at the latest now.
    fn waits_since(&mut self, now: Duration);
    /// Sets what a relay has at least before it sends on, given what it was.
    fn set_relay_unit_bytes(&mut self, change: fn(usize) -> usize);
    /// Has those asked whom it has waited for in vain.
    fn ask(&mut self);
    /// Tells the other ranks that this one goes no further, and returns what ends it.
    fn interrupt(&mut self) -> RunError;
}

/// Brings `work` to its end.
pub(super) fn finish<W: Work>(
    work: &mut W,
    wants: &mut Vec<Want>,
    interrupt: &mut Option<InterruptCheck>,
) -> Result<(), RunError> {
    let mut idle = Idle::default();
    loop {
        let moved = work.progress()?;
        if moved && idle.rounds > 0 {
            work.fabric().note_wait(idle.first_offer == Some(idle.rounds));
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
        let slept = idle.wait(work, wants)?;
        if slept && interrupt.as_mut().is_some_and(|interrupted| interrupted()) {
            return Err(work.interrupt());
        }
    }
}

/// How the job has failed, if it has. Who `needs_all` cannot go on when a rank has died, though a replica of it lives:
/// what is half done ends the job.
pub(super) fn failure(fabric: &mut dyn Fabric, needs_all: bool) -> Option<RunError> {
    if needs_all && fabric.has_losses() && !fabric.has_failed() {
        let loss = fabric.losses().into_iter().next();
        loss.into_iter().for_each(|loss| fabric.report(loss));
    }
    fabric.has_failed().then(|| fabric.failure().expect("a fabric that has failed knows how").into())
}

/// How long nothing has moved.
#[derive(Default)]
struct Idle {
    rounds: u32,
    /// The round in which the rank first offered its core to others.
    first_offer: Option<u32>,
    /// Whether it offers its core at once, because what it waits for in memory may have to run there.
    shares_core: bool,
    since: Option<Duration>,
    asked: Option<Duration>,
}

impl Idle {
    /// Rounds between two looks at the clock, which costs as much as some of them.
    const ROUNDS_PER_LOOK: u32 = 8;

    /// Lets time pass; whether this rank has slept.
    fn wait<W: Work>(&mut self, work: &mut W, wants: &mut Vec<Want>) -> Result<bool, RunError> {
        self.rounds += 1;
        if self.rounds == 1 {
            self.shares_core = !work.fabric().has_core_per_rank() && work.waits_on_memory()?;
        }
        if !self.shares_core && !self.rounds.is_multiple_of(Self::ROUNDS_PER_LOOK) {
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
                self.first_offer.get_or_insert(self.rounds);
                return Ok(false);
            }
        }
        if idle >= PARK {
            // A plan may need less than a unit to go round before more can come: after a sleep in vain any byte goes.
            work.set_relay_unit_bytes(|_| 1);
        }
        work.fabric().prepare_park();
        let moved = work.progress();
        let mut slept = false;
        if matches!(moved, Ok(false)) && !work.is_over() && !work.fabric().has_failed() {
            if now - *self.asked.get_or_insert(now) >= STALL {
                self.asked = Some(now);
                work.ask();
            }
            work.wants(wants);
            work.fabric().park(wants, PARK);
            slept = true;
        }
        work.fabric().cancel_park();
        if moved? {
            *self = Idle::default();
        }
        Ok(slept)
    }
}
