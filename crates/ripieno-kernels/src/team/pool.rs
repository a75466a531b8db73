//! The teams of this process, and who has them.

use super::gate::SpinPolicy;
use super::pinning::Pins;
use super::times::{MemberTimes, TeamTimes, ThreadTimes};
use super::worker_threads::{OrderPlace, WorkerContext, WorkerTask, WorkerThreads};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::{Duration, Instant};

/// A caller's place and its helpers, and what they have done.
struct Team {
    crew: WorkerThreads<AtomicU32, JoinHandle<()>>,
    /// Of the caller first.
    diaries: Vec<ThreadTimes>,
    ledger: TeamTimes,
}

/// The teams of a process.
struct Pool {
    free: Mutex<Vec<Team>>,
    pins: Mutex<Arc<Pins>>,
    /// Threads of the teams that work now, callers included.
    working: AtomicUsize,
    core_count: usize,
}

/// Made by the first that needs it, and never freed: helpers live as long as the process. A forked child has none, for
/// it has no thread of its parent's teams.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

extern "C" fn forget_the_parents_pool() {
    POOL.store(ptr::null_mut(), Ordering::Release);
}

impl Pool {
    fn of_this_process() -> &'static Pool {
        // SAFETY: a pool that was published is never freed.
        unsafe { POOL.load(Ordering::Acquire).as_ref() }.unwrap_or_else(Pool::publish)
    }

    fn publish() -> &'static Pool {
        // SAFETY: the handler stores to an atomic, which is all right in a child of threads. More of them do no harm.
        let registered = unsafe { libc::pthread_atfork(None, None, Some(forget_the_parents_pool)) };
        assert_eq!(registered, 0, "out of memory for a handler of forks");
        let core_count = available_parallelism().map_or(1, |count| count.get());
        let own = Box::into_raw(Box::new(Pool {
            free: Mutex::default(),
            pins: Mutex::default(),
            working: AtomicUsize::new(0),
            core_count,
        }));
        let published = POOL.compare_exchange(ptr::null_mut(), own, Ordering::AcqRel, Ordering::Acquire);
        if published.is_err() {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(own) });
        }
        // SAFETY: as in `of_this_process`; a fork would have had to happen on this thread.
        unsafe { &*published.err().unwrap_or(own) }
    }
}

/// As [`super::core_count`].
pub(super) fn core_count() -> usize {
    let pool = Pool::of_this_process();
    match pins().cores.len() {
        0 => pool.core_count,
        pinned => pinned.min(pool.core_count),
    }
}

/// Where members of teams are to be.
pub(super) fn pins() -> Arc<Pins> {
    Pool::of_this_process().pins.lock().expect("taking the pins does not panic").clone()
}

/// Says where members of teams are to be from now on.
pub(super) fn set_pins(pins: Pins) {
    *Pool::of_this_process().pins.lock().expect("taking the pins does not panic") = Arc::new(pins);
}

/// As [`super::thread_times`].
pub(super) fn times() -> Vec<MemberTimes> {
    let free = Pool::of_this_process().free.lock().expect("taking a team does not panic");
    let of_a_team = |team: &Team| {
        let members = team.diaries.iter().enumerate();
        members.map(|(index, diary)| team.ledger.of(index, diary)).collect::<Vec<_>>()
    };
    free.iter().flat_map(of_a_team).collect()
}

/// A team of `count` threads, the caller's included, lent until it is dropped.
pub(super) struct TeamLease {
    /// There until it is given back.
    team: Option<Team>,
    count: usize,
    threads_per_core: usize,
    pins: Arc<Pins>,
    pool: &'static Pool,
}

impl TeamLease {
    /// Takes the team that was given back last, whose memory is most likely in a cache; if there is one that has enough
    /// helpers, of those.
    ///
    /// # Panics
    /// If the system gives no more threads.
    pub(super) fn new(count: usize) -> TeamLease {
        let pool = Pool::of_this_process();
        let team = {
            let mut free = pool.free.lock().expect("taking a team does not panic");
            match free.iter().rposition(|team| team.diaries.len() >= count) {
                Some(index) => Some(free.remove(index)),
                None => free.pop(),
            }
        };
        let working = pool.working.fetch_add(count, Ordering::Relaxed) + count;
        let team = Some(team.unwrap_or_else(Team::of_nobody));
        let pins = pins();
        let mut lent = TeamLease { team, count, threads_per_core: working.div_ceil(pool.core_count), pins, pool };
        lent.fill();
        lent
    }

    /// How many of the threads that work share a core.
    pub(super) fn threads_per_core(&self) -> usize {
        self.threads_per_core
    }

    /// Calls `work`, which does not unwind, with every number below the count of threads, on one of them each. It says
    /// for how long it has waited.
    pub(super) fn run(&mut self, patience: SpinPolicy, work: &(dyn Fn(usize) -> Duration + Sync)) {
        let Team { crew, diaries, ledger } = self.team.as_mut().expect("given back when dropped");
        let (pins, begin) = (&self.pins, Instant::now());
        let caller = pins.bring_caller();
        let noted = |index: usize| {
            if index > 0 {
                pins.bring_helper(index);
            }
            let begin = Instant::now();
            let waited = work(index);
            diaries[index].add(begin.elapsed().saturating_sub(waited));
        };
        // SAFETY: the callers' promise, and there are as many helpers.
        unsafe { crew.run(self.count, patience, &noted) };
        drop(caller);
        ledger.add(self.count, begin.elapsed());
    }

    fn fill(&mut self) {
        let team = self.team.as_mut().expect("given back when dropped");
        while team.diaries.len() < self.count {
            let spawn = |duty: WorkerContext<AtomicU32>| {
                Builder::new().name(format!("ripieno-team-{}", duty.index())).spawn(|| duty.serve())
            };
            if let Err(error) = team.crew.hire(spawn) {
                panic!("thread {} of {} cannot be made: {error}", team.diaries.len() + 1, self.count);
            }
            team.diaries.push(ThreadTimes::default());
        }
    }
}

impl Team {
    /// A place for a caller, without helpers.
    fn of_nobody() -> Team {
        let crew = WorkerThreads::new(|helper: JoinHandle<()>| helper.join().expect("a helper does not panic"));
        Team { crew, diaries: vec![ThreadTimes::default()], ledger: TeamTimes::default() }
    }
}

impl Drop for TeamLease {
    fn drop(&mut self) {
        let team = self.team.take().expect("given back once");
        if !ptr::eq(POOL.load(Ordering::Acquire), self.pool) {
            // A child forked meanwhile: its helpers are not in this process.
            std::mem::forget(team);
            return;
        }
        self.pool.working.fetch_sub(self.count, Ordering::Relaxed);
        self.pool.free.lock().expect("giving a team back does not panic").push(team);
    }
}

/// An order in ordinary memory.
#[derive(Default)]
pub(super) struct OrderMemory(UnsafeCell<Option<WorkerTask>>);

// SAFETY: whoever reads or writes it keeps to what `OrderPlace` says.
unsafe impl Send for OrderMemory {}
// SAFETY: as above.
unsafe impl Sync for OrderMemory {}

impl OrderPlace for OrderMemory {
    unsafe fn put(&self, order: Option<WorkerTask>) {
        // SAFETY: no helper is reading.
        unsafe { *self.0.get() = order };
    }

    unsafe fn get(&self) -> Option<WorkerTask> {
        // SAFETY: the caller is not writing.
        unsafe { *self.0.get() }
    }
}
