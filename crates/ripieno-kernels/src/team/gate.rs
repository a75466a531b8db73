//! Gate: a number that threads wait on. They spin for a bounded time and then sleep until it changes.

use super::worker_threads::TaskStorage;
use ripieno_cores::CoLocationDetector;
use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A shared word of a team. The trait lets the same code run on real memory and in the model checker.
pub(super) trait GateWord: Default {
    /// Storage of a team's task.
    type Storage: TaskStorage;

    /// Atomic load with acquire ordering.
    fn load(&self) -> u32;
    /// Atomic swap with acquire-release ordering; returns the previous value.
    fn swap(&self, value: u32) -> u32;
    /// Atomic addition with acquire-release ordering; returns the previous value.
    fn add(&self, value: u32) -> u32;
    /// Replace `current` by `value`, or return the other value found, with acquire ordering.
    fn replace(&self, current: u32, value: u32) -> Result<u32, u32>;
    /// Sleep if the word equals `value`, until [`GateWord::wake`]. May return early.
    fn sleep_while(&self, value: u32);
    /// Wake all threads that sleep on this word.
    fn wake(&self);
    /// Call `poll` until it returns a value or `spin_policy` is exhausted.
    fn spin<R>(spin_policy: SpinPolicy, poll: impl FnMut() -> Option<R>) -> Option<R>;
}

/// Limits on spinning before a thread sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpinPolicy {
    /// Duration of spinning, with a yield after every few polls.
    pub(super) spin: Duration,
    /// Number of polls after spinning, each preceded by a yield.
    pub(super) yields: u32,
}

/// The number: 31 bits, plus one bit that is set if a thread sleeps. On its own cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Gate<W>(W);

const ASLEEP: u32 = 1;

/// A poll takes some nanoseconds, a clock reading some tens of nanoseconds.
const POLLS_PER_CLOCK_READ: usize = 32;

impl<W: GateWord> Gate<W> {
    pub(super) fn value(&self) -> u32 {
        self.0.load() >> 1
    }

    /// Set the number and wake sleeping threads. Waiting threads see all previous writes of this thread.
    pub(super) fn open(&self, value: u32) {
        if self.0.swap(value << 1) & ASLEEP != 0 {
            self.0.wake();
        }
    }

    /// Wait until the number differs from `value`, and return it. Without a time limit, since a sleeping thread costs
    /// nothing.
    pub(super) fn wait_while(&self, value: u32, spin_policy: SpinPolicy) -> u32 {
        let changed = || Some(self.value()).filter(|&now| now != value);
        if let Some(now) = W::spin(spin_policy, changed) {
            return now;
        }
        let (awake, asleep) = (value << 1, value << 1 | ASLEEP);
        loop {
            match self.0.replace(awake, asleep) {
                Err(now) if now != asleep => return now >> 1,
                _ => self.0.sleep_while(asleep),
            }
        }
    }
}

impl GateWord for AtomicU32 {
    type Storage = super::pool::TaskCell;

    fn load(&self) -> u32 {
        AtomicU32::load(self, Ordering::Acquire)
    }

    fn swap(&self, value: u32) -> u32 {
        AtomicU32::swap(self, value, Ordering::AcqRel)
    }

    fn add(&self, value: u32) -> u32 {
        self.fetch_add(value, Ordering::AcqRel)
    }

    fn replace(&self, current: u32, value: u32) -> Result<u32, u32> {
        self.compare_exchange(current, value, Ordering::AcqRel, Ordering::Acquire)
    }

    fn sleep_while(&self, value: u32) {
        // An error means a signal or a changed value: the caller polls again.
        let _ = rustix::thread::futex::wait(self, rustix::thread::futex::Flags::PRIVATE, value, None);
    }

    fn wake(&self) {
        let all = i32::MAX as u32;
        rustix::thread::futex::wake(self, rustix::thread::futex::Flags::PRIVATE, all).expect("the word is ours");
    }

    fn spin<R>(spin_policy: SpinPolicy, mut poll: impl FnMut() -> Option<R>) -> Option<R> {
        let mut began = None;
        let mut has_expired = || began.get_or_insert_with(Instant::now).elapsed() >= spin_policy.spin;
        let mut yields = 0;
        while !spin_policy.spin.is_zero() {
            for spin in 0..POLLS_PER_CLOCK_READ {
                if let Some(value) = poll() {
                    note_wait(yields == 1 && spin == 0);
                    return Some(value);
                }
                spin_loop();
            }
            if has_expired() {
                break;
            }
            // The awaited thread may need this core, if other programs made the scheduler place both threads on it.
            std::thread::yield_now();
            yields += 1;
        }
        (0..spin_policy.yields).find_map(|_| {
            std::thread::yield_now();
            poll()
        })
    }
}

/// Counter that numbers the waiting threads.
static WAITING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static DETECTOR: Cell<CoLocationDetector> =
        Cell::new(CoLocationDetector::of(WAITING.fetch_add(1, Ordering::Relaxed) as usize));
}

fn note_wait(arrived_on_first_poll: bool) {
    let mut detector = DETECTOR.get();
    detector.record_wait(arrived_on_first_poll);
    DETECTOR.set(detector);
}
