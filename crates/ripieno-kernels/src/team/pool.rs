//! Pool of the teams of this process.

use super::gate::SpinPolicy;
use super::pinning::Pins;
use super::times::{MemberTimes, TeamTimes, ThreadTimes};
use super::worker_threads::{TaskStorage, WorkerContext, WorkerTask, WorkerThreads};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::{Duration, Instant};

/// The state of a caller and its helpers, with their times.
struct PooledTeam {
    /// Number in the process.
    number: usize,
    workers: WorkerThreads<AtomicU32, JoinHandle<()>>,
    /// Times per member, caller first.
    member_times: Vec<ThreadTimes>,
    totals: TeamTimes,
}

/// The teams of a process.
struct TeamPool {
    free: Mutex<Vec<PooledTeam>>,
    pins: Mutex<Arc<Pins>>,
    /// Number of threads of the currently working teams, including callers.
    working: AtomicUsize,
    core_count: usize,
}

/// Created on first use and never freed: helpers live as long as the process. A forked child has no pool, because the
/// threads of its parent's teams do not exist in it.
static POOL: AtomicPtr<TeamPool> = AtomicPtr::new(ptr::null_mut());

extern "C" fn discard_pool_after_fork() {
    POOL.store(ptr::null_mut(), Ordering::Release);
}

impl TeamPool {
    fn of_this_process() -> &'static TeamPool {
        // SAFETY: a published pool is never freed.
        unsafe { POOL.load(Ordering::Acquire).as_ref() }.unwrap_or_else(TeamPool::publish)
    }

    fn publish() -> &'static TeamPool {
        // SAFETY: the handler only stores to an atomic, which is allowed in a forked child of a process with threads.
        // Repeated registration is harmless.
        let registered = unsafe { libc::pthread_atfork(None, None, Some(discard_pool_after_fork)) };
        assert_eq!(registered, 0, "out of memory for a handler of forks");
        let core_count = available_parallelism().map_or(1, |count| count.get());
        let own = Box::into_raw(Box::new(TeamPool {
            free: Mutex::default(),
            pins: Mutex::default(),
            working: AtomicUsize::new(0),
            core_count,
        }));
        let published = POOL.compare_exchange(ptr::null_mut(), own, Ordering::AcqRel, Ordering::Acquire);
        if published.is_err() {
            // SAFETY: no other thread has seen it.
            drop(unsafe { Box::from_raw(own) });
        }
        // SAFETY: as in `of_this_process`. A fork in between could only happen on this thread.
        unsafe { &*published.err().unwrap_or(own) }
    }
}

/// See [`super::core_count`].
pub(super) fn core_count() -> usize {
    let pool = TeamPool::of_this_process();
    match pins().cores.len() {
        0 => pool.core_count,
        pinned => pinned.min(pool.core_count),
    }
}

/// Return the cores of the members of teams.
pub(super) fn pins() -> Arc<Pins> {
    TeamPool::of_this_process().pins.lock().expect("taking the pins does not panic").clone()
}

/// Set the cores of the members of teams.
pub(super) fn set_pins(pins: Pins) {
    *TeamPool::of_this_process().pins.lock().expect("taking the pins does not panic") = Arc::new(pins);
}

/// See [`super::thread_times`].
pub(super) fn times() -> Vec<MemberTimes> {
    let free = TeamPool::of_this_process().free.lock().expect("taking a team does not panic");
    let team_times = |team: &PooledTeam| {
        let members = team.member_times.iter().enumerate();
        members.map(|(index, member)| team.totals.of(team.number, index, member)).collect::<Vec<_>>()
    };
    free.iter().flat_map(team_times).collect()
}

/// A team of `count` threads, including the caller's, borrowed until it is dropped.
pub(super) struct TeamLease {
    /// `Some` until the team is returned.
    team: Option<PooledTeam>,
    count: usize,
    threads_per_core: usize,
    pins: Arc<Pins>,
    pool: &'static TeamPool,
}

impl TeamLease {
    /// Take the most recently returned team, because its memory is most likely cached. Teams with enough helpers are
    /// preferred.
    ///
    /// # Panics
    /// If the system cannot create more threads.
    pub(super) fn new(count: usize) -> TeamLease {
        let pool = TeamPool::of_this_process();
        let team = {
            let mut free = pool.free.lock().expect("taking a team does not panic");
            match free.iter().rposition(|team| team.member_times.len() >= count) {
                Some(index) => Some(free.remove(index)),
                None => free.pop(),
            }
        };
        let working = pool.working.fetch_add(count, Ordering::Relaxed) + count;
        let team = Some(team.unwrap_or_else(PooledTeam::empty));
        let pins = pins();
        let mut lease = TeamLease { team, count, threads_per_core: working.div_ceil(pool.core_count), pins, pool };
        lease.fill();
        lease
    }

    /// Return the number of threads of the team.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Return whether the helpers exist: a forked child has none of them.
    pub(super) fn is_of_this_process(&self) -> bool {
        ptr::eq(POOL.load(Ordering::Acquire), self.pool)
    }

    /// Return the number of working threads per core.
    pub(super) fn threads_per_core(&self) -> usize {
        self.threads_per_core
    }

    /// Call `work`, which must not unwind, on each of the first `count` threads with its number. `work` returns the
    /// time it has waited.
    ///
    /// # Panics
    /// If the team has fewer threads.
    pub(super) fn run(&mut self, count: usize, spin_policy: SpinPolicy, work: &(dyn Fn(usize) -> Duration + Sync)) {
        assert!(count <= self.count, "{count} threads of {}", self.count);
        let PooledTeam { workers, member_times, totals, .. } = self.team.as_mut().expect("returned only when dropped");
        let (pins, begin) = (&self.pins, Instant::now());
        let caller = pins.pin_caller();
        let timed_work = |index: usize| {
            if index > 0 {
                pins.pin_helper(index);
            }
            let begin = Instant::now();
            let waited = work(index);
            member_times[index].add(begin.elapsed().saturating_sub(waited));
        };
        // SAFETY: as promised by the callers, and enough helpers exist.
        unsafe { workers.run(count, spin_policy, &timed_work) };
        drop(caller);
        totals.add(count, begin.elapsed());
    }

    fn fill(&mut self) {
        let team = self.team.as_mut().expect("returned only when dropped");
        while team.member_times.len() < self.count {
            let spawn = |context: WorkerContext<AtomicU32>| {
                Builder::new().name(format!("ripieno-team-{}", context.index())).spawn(|| context.serve())
            };
            if let Err(error) = team.workers.spawn_worker(spawn) {
                panic!("thread {} of {} could not be started: {error}", team.member_times.len() + 1, self.count);
            }
            team.member_times.push(ThreadTimes::default());
        }
    }
}

impl PooledTeam {
    /// Create the team of a caller without helpers.
    fn empty() -> PooledTeam {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let workers = WorkerThreads::new(|helper: JoinHandle<()>| helper.join().expect("a helper does not panic"));
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        PooledTeam { number, workers, member_times: vec![ThreadTimes::default()], totals: TeamTimes::default() }
    }
}

impl Drop for TeamLease {
    fn drop(&mut self) {
        let team = self.team.take().expect("returned once");
        if !self.is_of_this_process() {
            // In a forked child the helpers do not exist.
            std::mem::forget(team);
            return;
        }
        self.pool.working.fetch_sub(self.count, Ordering::Relaxed);
        self.pool.free.lock().expect("giving a team back does not panic").push(team);
    }
}

/// Task storage in ordinary memory.
#[derive(Default)]
pub(super) struct TaskCell(UnsafeCell<Option<WorkerTask>>);

// SAFETY: readers and writers follow the rules of `TaskStorage`.
unsafe impl Send for TaskCell {}
// SAFETY: as above.
unsafe impl Sync for TaskCell {}

impl TaskStorage for TaskCell {
    unsafe fn put(&self, task: Option<WorkerTask>) {
        // SAFETY: no helper is reading.
        unsafe { *self.0.get() = task };
    }

    unsafe fn get(&self) -> Option<WorkerTask> {
        // SAFETY: the caller is not writing.
        unsafe { *self.0.get() }
    }
}
