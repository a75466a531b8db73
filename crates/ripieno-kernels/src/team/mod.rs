//! Threads that stay: made by the first kernel that needs them, used by all that follow, until the process ends.
//!
//! A team is a caller and helpers, who sleep between orders. A process has as many teams as callers compute at once; a
//! caller takes one that is free, and gives it back. A forked child makes its own. Two models (Ekanayake et al., "Java
//! thread and process performance for parallel machine learning on multicore HPC clusters", section III.A): fork-join
//! is [`run`] for each phase, BSP is one [`run`] for all of them, with a [`TeamThread::wait`] between.
//!
//! Cost of a fork-join: a swap per helper and an addition by each, where nobody sleeps; a system call more for each one
//! that does. A thread sleeps after it has looked for [`SPIN`], or, where threads share cores, [`YIELDS`] times. Each
//! member looks at the clock before and after its work, and around every wait that is not over at once.

mod barrier;
mod gate;
#[cfg(test)]
mod model;
mod pinning;
mod pool;
mod times;
mod worker_threads;

use barrier::{Barrier, BarrierBroken, BarrierGeneration};
use gate::SpinPolicy;
use pool::TeamLease;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

pub use pinning::{NotAllowed, pin_threads, pinned_cores};
pub use times::{MemberTimes, thread_times};

/// How long a thread looks before it sleeps: some times what waking it costs, so that it wastes little and sleeps
/// seldom between the kernels of an iteration.
const SPIN: Duration = Duration::from_micros(50);

/// Where threads have to share cores, those that wait let the others work, and look this often meanwhile.
const YIELDS: u32 = 4;

/// A thread of a team while it works.
pub struct TeamThread<'a> {
    index: usize,
    count: usize,
    barrier: &'a Barrier<AtomicU32>,
    patience: SpinPolicy,
    waited: Cell<Duration>,
}

impl TeamThread<'_> {
    /// Which one of the team this is; the caller is 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many work.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Waits until every member has come here: all that they wrote before is then seen by all.
    ///
    /// # Panics
    /// If another member panics instead of coming. The caller of the team gets that one's panic.
    pub fn wait(&self) {
        if self.barrier.come(self.count as u32).and_then(|pass| self.wait_for(pass)) == Err(BarrierBroken) {
            resume_unwind(Box::new(BarrierBroken));
        }
    }

    /// Whoever waits has the time to look at the clock.
    fn wait_for(&self, pass: Option<BarrierGeneration>) -> Result<(), BarrierBroken> {
        let Some(pass) = pass else { return Ok(()) };
        let begin = Instant::now();
        let outcome = self.barrier.wait_for(pass, self.patience);
        self.waited.set(self.waited.get() + begin.elapsed());
        outcome
    }
}

/// How many threads can compute at once in this process: cores that it may use, its container's CPU quota, and cores
/// that its threads are pinned to. Kernels give their parts to no more.
pub(crate) fn core_count() -> usize {
    pool::core_count()
}

/// Calls `work` once on each of `count` threads, the caller's included, and returns when all are done.
///
/// # Panics
/// With the first panic of `work`, once all are done. Also if the system gives no more threads.
pub(crate) fn run(count: usize, work: impl Fn(&TeamThread) + Sync) {
    let barrier = Barrier::default();
    let panic: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);
    let mut team = TeamLease::new(count);
    let patience = SpinPolicy::of(team.threads_per_core());
    team.run(patience, &|index| {
        let member = TeamThread { index, count, barrier: &barrier, patience, waited: Cell::default() };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(&member))) {
            // The first one: those that wait for it only leave after this.
            panic.lock().expect("taking note does not panic").get_or_insert(payload);
            barrier.break_up();
        }
        member.waited.get()
    });
    drop(team);
    if let Some(payload) = panic.into_inner().expect("taking note does not panic") {
        resume_unwind(payload);
    }
}

impl SpinPolicy {
    /// The patience of threads of which so many share a core.
    fn of(threads_per_core: usize) -> SpinPolicy {
        match threads_per_core {
            1 => SpinPolicy { spin: SPIN, yields: 0 },
            _ => SpinPolicy { spin: Duration::ZERO, yields: YIELDS },
        }
    }
}
