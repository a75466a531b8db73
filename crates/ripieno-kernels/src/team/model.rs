//! Model checks of the barrier and the worker threads: every interleaving of two or three threads, with every value
//! allowed by weak memory ordering. A lost wake-up is reported as a deadlock. A task that is read while it is written
//! is reported as a data race.

use super::barrier::{Barrier, BarrierBroken};
use super::gate::{GateWord, SpinPolicy};
use super::worker_threads::{OrderPlace, WorkerTask, WorkerThreads};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread::{self, JoinHandle};
use std::time::Duration;

/// Largest number of involuntary context switches in an interleaving. With more, a check takes hours.
const MOST_PREEMPTIONS: usize = 3;

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(MOST_PREEMPTIONS);
    builder.check(check);
}

/// The shortest policy: every waiting thread sleeps.
const NONE: SpinPolicy = SpinPolicy { spin: Duration::ZERO, yields: 0 };

/// A word with a model of the kernel's futex: a lock for comparing and sleeping.
#[derive(Default)]
struct Modeled {
    word: AtomicU32,
    lock: Mutex<()>,
    condvar: Condvar,
}

impl GateWord for Modeled {
    type Place = ModeledPlace;

    fn load(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    fn swap(&self, value: u32) -> u32 {
        self.word.swap(value, Ordering::AcqRel)
    }

    fn add(&self, value: u32) -> u32 {
        self.word.fetch_add(value, Ordering::AcqRel)
    }

    fn replace(&self, current: u32, value: u32) -> Result<u32, u32> {
        self.word.compare_exchange(current, value, Ordering::AcqRel, Ordering::Acquire)
    }

    fn sleep_while(&self, value: u32) {
        let lock = self.lock.lock().unwrap();
        if self.word.load(Ordering::SeqCst) == value {
            drop(self.condvar.wait(lock).unwrap());
        }
    }

    fn wake(&self) {
        let _lock = self.lock.lock().unwrap();
        self.condvar.notify_all();
    }

    fn spin<R>(_: SpinPolicy, mut found: impl FnMut() -> Option<R>) -> Option<R> {
        found()
    }
}

#[derive(Default)]
struct ModeledPlace(UnsafeCell<Option<WorkerTask>>);

// SAFETY: loom checks that no thread reads while another writes.
unsafe impl Send for ModeledPlace {}
// SAFETY: as above.
unsafe impl Sync for ModeledPlace {}

impl OrderPlace for ModeledPlace {
    unsafe fn put(&self, order: Option<WorkerTask>) {
        // SAFETY: loom checks that no thread reads.
        self.0.with_mut(|place| unsafe { *place = order });
    }

    unsafe fn get(&self) -> Option<WorkerTask> {
        // SAFETY: loom checks that no thread writes.
        self.0.with(|place| unsafe { *place })
    }
}

/// A value observed by loom, which reports a read concurrent with a write.
#[derive(Default)]
struct Watched(UnsafeCell<u32>);

// SAFETY: loom checks every use.
unsafe impl Sync for Watched {}

impl Watched {
    fn set(&self, value: u32) {
        // SAFETY: loom checks that no other thread accesses it.
        self.0.with_mut(|place| unsafe { *place = value });
    }

    fn get(&self) -> u32 {
        // SAFETY: loom checks that no thread writes it.
        self.0.with(|place| unsafe { *place })
    }
}

#[test]
fn writes_before_a_barrier_are_visible_to_all_after_it() {
    model(|| {
        let shared: Arc<(Barrier<Modeled>, [Watched; 2])> = Arc::default();
        let member = |own: usize| {
            let shared = shared.clone();
            move || {
                let (barrier, written) = &*shared;
                for round in 1..=2 {
                    written[own].set(round);
                    assert_eq!(barrier.wait(2, NONE), Ok(()));
                    assert_eq!(written[1 - own].get(), round);
                    assert_eq!(barrier.wait(2, NONE), Ok(()));
                }
            }
        };
        let other = thread::spawn(member(1));
        member(0)();
        other.join().unwrap();
    });
}

#[test]
fn no_thread_waits_for_one_that_breaks_the_barrier() {
    model(|| {
        let barrier: Arc<Barrier<Modeled>> = Arc::default();
        let other = {
            let barrier = barrier.clone();
            thread::spawn(move || barrier.break_up())
        };
        assert_eq!(barrier.wait(2, NONE), Err(BarrierBroken));
        assert_eq!(barrier.wait(2, NONE), Err(BarrierBroken));
        other.join().unwrap();
    });
}

fn workers(helper_count: usize) -> WorkerThreads<Modeled, JoinHandle<()>> {
    let mut workers = WorkerThreads::new(|helper: JoinHandle<()>| helper.join().unwrap());
    for _ in 0..helper_count {
        workers.spawn_worker(|context| Ok::<_, ()>(thread::spawn(|| context.serve()))).unwrap();
    }
    workers
}

#[test]
fn every_thread_of_a_crew_works_once_for_each_order_and_ends_with_it() {
    model(|| {
        let mut workers = workers(1);
        for order in 1..=2 {
            let done: [Watched; 2] = Default::default();
            // SAFETY: it unwinds only when the test fails, and one helper exists.
            unsafe { workers.run(2, NONE, &|index| done[index].set(done[index].get() + order)) };
            assert_eq!([done[0].get(), done[1].get()], [order, order]);
        }
    });
}

#[test]
fn helpers_that_an_order_does_not_concern_sleep_on() {
    model(|| {
        let mut workers = workers(2);
        let done: [Watched; 3] = Default::default();
        // SAFETY: as above.
        unsafe { workers.run(2, NONE, &|index| done[index].set(1)) };
        assert_eq!([0, 1, 2].map(|index: usize| done[index].get()), [1, 1, 0]);
    });
}
