//! Persistent thread teams: created by the first kernel that needs them and reused until the process ends.
//!
//! A team consists of a caller and helpers, which sleep between tasks. A process has as many teams as callers that
//! compute concurrently. A caller takes a free team and returns it. A forked child creates its own teams.
//!
//! There are two models. Fork-join is one [`run`] per phase, and helpers sleep between phases that are far apart. BSP
//! is one [`run`] for all phases of a kernel, separated by [`TeamThread::wait`]. Between kernels the threads stay busy
//! if the caller has called [`hold`].
//!
//! Cost of a fork-join: one swap per helper and one addition by each helper, plus a system call for each sleeping
//! helper. A thread sleeps after it has polled for [`SPIN`], or [`YIELDS`] times if threads share cores. Each member
//! reads the clock before and after its work, and around every wait that does not end at once.
//!
//! Source: Ekanayake et al., "Java thread and process performance for parallel machine learning on multicore HPC
//! clusters", section III.A.

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
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

pub use pinning::{NotAllowed, pin_threads, pinned_cores};
pub use times::{MemberTimes, thread_times};

/// Spinning time of a thread before it sleeps. It is a few times the cost of a wake-up, so little time is wasted and
/// threads seldom sleep between the kernels of an iteration.
const SPIN: Duration = Duration::from_micros(50);

/// Number of polls of a waiting thread if threads share cores, with a yield before each poll.
const YIELDS: u32 = 4;

/// Policy of a held team: its threads never sleep. They yield their core after every few polls.
const BUSY: SpinPolicy = SpinPolicy { spin: Duration::MAX, yields: 0 };

/// A thread of a team during its work.
pub struct TeamThread<'a> {
    index: usize,
    count: usize,
    barrier: &'a Barrier<AtomicU32>,
    spin_policy: SpinPolicy,
    waited: Cell<Duration>,
}

impl TeamThread<'_> {
    /// Return the index of this thread in the team; the caller is 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Return the number of working threads.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Return whether another member has panicked, or was interrupted. This member then need not finish its work.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.barrier.is_broken()
    }

    /// Wait until every member has arrived. All members then see all writes made before.
    ///
    /// # Panics
    /// If another member panics instead of arriving. The caller of the team gets that panic.
    pub fn wait(&self) {
        if self.barrier.register(self.count as u32).and_then(|generation| self.wait_for(generation))
            == Err(BarrierBroken)
        {
            resume_unwind(Box::new(BarrierBroken));
        }
    }

    /// A waiting thread has time to read the clock.
    fn wait_for(&self, generation: Option<BarrierGeneration>) -> Result<(), BarrierBroken> {
        let Some(generation) = generation else { return Ok(()) };
        let begin = Instant::now();
        let outcome = self.barrier.wait_for(generation, self.spin_policy);
        self.waited.set(self.waited.get() + begin.elapsed());
        outcome
    }
}

/// Return the number of threads that can compute concurrently in this process. It is limited by the allowed cores, the
/// CPU quota of the container, and the cores used for pinning. Kernels use no more threads.
pub(crate) fn core_count() -> usize {
    pool::core_count()
}

thread_local! {
    /// The team that this thread holds.
    static HELD: RefCell<Option<HeldTeam>> = const { RefCell::new(None) };
}

/// A team with busy threads until it is dropped, also by the end of the thread that holds it.
struct HeldTeam(TeamLease);

impl Drop for HeldTeam {
    fn drop(&mut self) {
        // In a forked child the threads of the team do not exist.
        if self.0.is_of_this_process() {
            let spin_policy = SpinPolicy::of(self.0.threads_per_core());
            self.0.run(self.0.count(), spin_policy, &|_| Duration::ZERO);
        }
    }
}

/// Let the calling thread hold a team of `count` threads until [`release`] or the end of the thread. All threads are
/// busy meanwhile: between tasks they spin instead of sleeping. The calling thread holds at most one team, so another
/// call does nothing.
///
/// # Panics
/// If the system cannot create more threads.
pub fn hold(count: usize) {
    if !is_held() {
        let mut team = TeamLease::new(count);
        team.run(count, BUSY, &|_| Duration::ZERO);
        HELD.set(Some(HeldTeam(team)));
    }
}

/// Release the held team, if there is any. Its threads sleep again between tasks.
pub fn release() {
    drop(HELD.take());
}

/// Return whether the calling thread holds a team.
pub(crate) fn is_held() -> bool {
    held_count() > 0
}

/// Return the number of threads of the held team, or 0.
fn held_count() -> usize {
    HELD.with_borrow(|held| held.as_ref().filter(|held| held.0.is_of_this_process()).map_or(0, |held| held.0.count()))
}

/// Call `work` once on each of `count` threads, including the caller's, and return when all are done. Uses the threads
/// of the held team, if it has enough.
///
/// # Panics
/// With the first panic of `work`, once all are done. Also if the system cannot create more threads.
pub(crate) fn run(count: usize, work: impl Fn(&TeamThread) + Sync) {
    let barrier = Barrier::default();
    let panic: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);
    // A nested call takes another team.
    let mut held = if held_count() >= count { HELD.take() } else { None };
    let mut own = None;
    let (team, spin_policy) = match &mut held {
        Some(held) => (&mut held.0, BUSY),
        None => {
            let team = own.insert(TeamLease::new(count));
            let spin_policy = SpinPolicy::of(team.threads_per_core());
            (team, spin_policy)
        }
    };
    team.run(count, spin_policy, &|index| {
        let member = TeamThread { index, count, barrier: &barrier, spin_policy, waited: Cell::default() };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(&member))) {
            // This is the first panic: waiting members only leave after it.
            panic.lock().expect("storing the panic does not panic").get_or_insert(payload);
            barrier.mark_broken();
        }
        member.waited.get()
    });
    drop(own);
    if held.is_some() {
        HELD.set(held);
    }
    if let Some(payload) = panic.into_inner().expect("storing the panic does not panic") {
        resume_unwind(payload);
    }
}

impl SpinPolicy {
    /// Return the policy for a number of threads per core.
    fn of(threads_per_core: usize) -> SpinPolicy {
        match threads_per_core {
            1 => SpinPolicy { spin: SPIN, yields: 0 },
            _ => SpinPolicy { spin: Duration::ZERO, yields: YIELDS },
        }
    }
}
