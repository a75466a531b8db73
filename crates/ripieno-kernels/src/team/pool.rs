//! The teams of this process, and who has them.

use super::crew::{Crew, Duty, Order, OrderPlace};
use super::gate::Patience;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle, available_parallelism};

type Team = Crew<AtomicU32, JoinHandle<()>>;

/// The teams of a process.
struct Pool {
    free: Mutex<Vec<Team>>,
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
        let own = Box::into_raw(Box::new(Pool { free: Mutex::default(), working: AtomicUsize::new(0), core_count }));
        let published = POOL.compare_exchange(ptr::null_mut(), own, Ordering::AcqRel, Ordering::Acquire);
        if published.is_err() {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(own) });
        }
        // SAFETY: as in `of_this_process`; a fork would have had to happen on this thread.
        unsafe { &*published.err().unwrap_or(own) }
    }
}

/// A team of `count` threads, the caller's included, lent until it is dropped.
pub(super) struct Lent {
    /// There until it is given back.
    team: Option<Team>,
    count: usize,
    threads_per_core: usize,
    pool: &'static Pool,
}

impl Lent {
    /// Takes the team that was given back last, whose memory is most likely in a cache.
    ///
    /// # Panics
    /// If the system gives no more threads.
    pub(super) fn new(count: usize) -> Lent {
        let pool = Pool::of_this_process();
        let team = pool.free.lock().expect("taking a team does not panic").pop();
        let working = pool.working.fetch_add(count, Ordering::Relaxed) + count;
        let team = Some(team.unwrap_or_else(|| Crew::new(|helper| helper.join().expect("a helper does not panic"))));
        let mut lent = Lent { team, count, threads_per_core: working.div_ceil(pool.core_count), pool };
        lent.fill();
        lent
    }

    /// How many of the threads that work share a core.
    pub(super) fn threads_per_core(&self) -> usize {
        self.threads_per_core
    }

    /// Calls `work`, which does not unwind, with every number below the count of threads, on one of them each.
    pub(super) fn run(&mut self, patience: Patience, work: &(dyn Fn(usize) + Sync)) {
        let team = self.team.as_mut().expect("given back when dropped");
        // SAFETY: the callers' promise, and there are as many helpers.
        unsafe { team.run(self.count, patience, work) };
    }

    fn fill(&mut self) {
        let team = self.team.as_mut().expect("given back when dropped");
        while team.helper_count() + 1 < self.count {
            let spawn = |duty: Duty<AtomicU32>| {
                Builder::new().name(format!("ripieno-team-{}", duty.index())).spawn(|| duty.serve())
            };
            if let Err(error) = team.hire(spawn) {
                panic!("thread {} of {} cannot be made: {error}", team.helper_count() + 2, self.count);
            }
        }
    }
}

impl Drop for Lent {
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
pub(super) struct Place(UnsafeCell<Option<Order>>);

// SAFETY: whoever reads or writes it keeps to what `OrderPlace` says.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl OrderPlace for Place {
    unsafe fn put(&self, order: Option<Order>) {
        // SAFETY: no helper is reading.
        unsafe { *self.0.get() = order };
    }

    unsafe fn get(&self) -> Option<Order> {
        // SAFETY: the caller is not writing.
        unsafe { *self.0.get() }
    }
}
