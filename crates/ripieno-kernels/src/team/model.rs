//! Model checks of the barrier and the worker threads: every interleaving of two or three threads, with every value
//! allowed by weak memory ordering. A lost wake-up is reported as a deadlock. A task that is read while it is written
//! is reported as a data race.

use super::barrier::{Barrier, BarrierBroken};
use super::gate::{GateWord, SpinPolicy};
use super::worker_threads::{TaskStorage, WorkerTask, WorkerThreads};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread::{self, JoinHandle};
use std::time::Duration;

/// Largest number of involuntary context switches in an interleaving. With more, a check takes hours.
const MAX_PREEMPTIONS: usize = 3;

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(MAX_PREEMPTIONS);
    builder.check(check);
}

/// The shortest policy: every waiting thread sleeps.
const NONE: SpinPolicy = SpinPolicy { spin: Duration::ZERO, yields: 0 };

/// A word with a model of the kernel's futex: a lock for comparing and sleeping.
#[derive(Default)]
struct ModeledWord {
    word: AtomicU32,
    lock: Mutex<()>,
    condvar: Condvar,
}

impl GateWord for ModeledWord {
    type Storage = ModeledStorage;

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

    fn spin<R>(_: SpinPolicy, mut poll: impl FnMut() -> Option<R>) -> Option<R> {
        poll()
    }
}

#[derive(Default)]
struct ModeledStorage(UnsafeCell<Option<WorkerTask>>);

// SAFETY: loom checks that no thread reads while another writes.
unsafe impl Send for ModeledStorage {}
// SAFETY: as above.
unsafe impl Sync for ModeledStorage {}

impl TaskStorage for ModeledStorage {
    unsafe fn put(&self, task: Option<WorkerTask>) {
        // SAFETY: loom checks that no thread reads.
        self.0.with_mut(|place| unsafe { *place = task });
    }

    unsafe fn get(&self) -> Option<WorkerTask> {
        // SAFETY: loom checks that no thread writes.
        self.0.with(|place| unsafe { *place })
    }
}

/// A value observed by loom, which reports a read concurrent with a write.
#[derive(Default)]
struct CheckedCell(UnsafeCell<u32>);

// SAFETY: loom checks every use.
unsafe impl Sync for CheckedCell {}

impl CheckedCell {
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
fn writes_before_a_barrier_are_visible_after_it() {
    model(|| {
        let shared: Arc<(Barrier<ModeledWord>, [CheckedCell; 2])> = Arc::default();
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
fn a_broken_barrier_ends_all_waits() {
    model(|| {
        let barrier: Arc<Barrier<ModeledWord>> = Arc::default();
        let other = {
            let barrier = barrier.clone();
            thread::spawn(move || barrier.mark_broken())
        };
        assert_eq!(barrier.wait(2, NONE), Err(BarrierBroken));
        assert_eq!(barrier.wait(2, NONE), Err(BarrierBroken));
        other.join().unwrap();
    });
}

fn workers(helper_count: usize) -> WorkerThreads<ModeledWord, JoinHandle<()>> {
    let mut workers = WorkerThreads::new(|helper: JoinHandle<()>| helper.join().unwrap());
    for _ in 0..helper_count {
        workers.spawn_worker(|context| Ok::<_, ()>(thread::spawn(|| context.serve()))).unwrap();
    }
    workers
}

#[test]
fn every_worker_runs_each_task_once() {
    model(|| {
        let mut workers = workers(1);
        for task in 1..=2 {
            let done: [CheckedCell; 2] = Default::default();
            // SAFETY: it unwinds only when the test fails, and one helper exists.
            unsafe { workers.run(2, NONE, &|index| done[index].set(done[index].get() + task)) };
            assert_eq!([done[0].get(), done[1].get()], [task, task]);
        }
    });
}

#[test]
fn helpers_without_a_share_of_the_task_keep_sleeping() {
    model(|| {
        let mut workers = workers(2);
        let done: [CheckedCell; 3] = Default::default();
        // SAFETY: as above.
        unsafe { workers.run(2, NONE, &|index| done[index].set(1)) };
        assert_eq!([0, 1, 2].map(|index: usize| done[index].get()), [1, 1, 0]);
    });
}
