//! A number that threads wait for: they look for a bounded time, and then sleep until it changes.

use super::worker_threads::OrderPlace;
use ripieno_cores::CoLocationDetector;
use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What the threads of a team share, so that the same code runs on real memory and inside the model checker.
pub(super) trait GateWord: Default {
    /// Where an order to a team lies.
    type Place: OrderPlace;

    /// Atomic load, acquiring.
    fn load(&self) -> u32;
    /// Atomic swap, acquiring and releasing; returns the value before.
    fn swap(&self, value: u32) -> u32;
    /// Atomic addition, acquiring and releasing; returns the value before.
    fn add(&self, value: u32) -> u32;
    /// Replaces `current` by `value`, or returns what else is there, acquired.
    fn replace(&self, current: u32, value: u32) -> Result<u32, u32>;
    /// Sleeps if the word is `value`, until [`GateWord::wake`]; it may also return earlier.
    fn sleep_while(&self, value: u32);
    /// Wakes all that sleep at this word.
    fn wake(&self);
    /// Calls `found` until it gives something or `patience` has come to its end.
    fn look<R>(patience: SpinPolicy, found: impl FnMut() -> Option<R>) -> Option<R>;
}

/// How long a thread looks before it sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpinPolicy {
    /// Looking, with the core offered to others every few looks.
    pub(super) spin: Duration,
    /// Looks after that, before each of which others may have the core.
    pub(super) yields: u32,
}

/// The number: 31 bits, and one that says that somebody sleeps. On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Gate<W>(W);

const ASLEEP: u32 = 1;

/// A look takes some nanoseconds, a glance at the clock some tens.
const LOOKS_PER_GLANCE_AT_THE_CLOCK: usize = 32;

impl<W: GateWord> Gate<W> {
    pub(super) fn value(&self) -> u32 {
        self.0.load() >> 1
    }

    /// Makes the number `value`, and wakes those that sleep. What this thread wrote before is seen by those that wait.
    pub(super) fn open(&self, value: u32) {
        if self.0.swap(value << 1) & ASLEEP != 0 {
            self.0.wake();
        }
    }

    /// Waits until the number is another than `value`, and returns it. As long as it takes: a sleeper costs nothing.
    pub(super) fn wait_while(&self, value: u32, patience: SpinPolicy) -> u32 {
        let changed = || Some(self.value()).filter(|&now| now != value);
        if let Some(now) = W::look(patience, changed) {
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
    type Place = super::pool::OrderMemory;

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
        // An error is a signal, or another value: the caller looks again.
        let _ = rustix::thread::futex::wait(self, rustix::thread::futex::Flags::PRIVATE, value, None);
    }

    fn wake(&self) {
        let all = i32::MAX as u32;
        rustix::thread::futex::wake(self, rustix::thread::futex::Flags::PRIVATE, all).expect("the word is ours");
    }

    fn look<R>(patience: SpinPolicy, mut found: impl FnMut() -> Option<R>) -> Option<R> {
        let mut began = None;
        let mut is_over = || began.get_or_insert_with(Instant::now).elapsed() >= patience.spin;
        let mut yields = 0;
        while !patience.spin.is_zero() {
            for look in 0..LOOKS_PER_GLANCE_AT_THE_CLOCK {
                if let Some(found) = found() {
                    note_wait(yields == 1 && look == 0);
                    return Some(found);
                }
                spin_loop();
            }
            if is_over() {
                break;
            }
            // What this thread waits for may be waiting for its core, on which other programs have put both.
            std::thread::yield_now();
            yields += 1;
        }
        (0..patience.yields).find_map(|_| {
            std::thread::yield_now();
            found()
        })
    }
}

/// Numbers those that wait.
static WAITING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static COMPANY: Cell<CoLocationDetector> = Cell::new(CoLocationDetector::of(WAITING.fetch_add(1, Ordering::Relaxed) as usize));
}

fn note_wait(came_with_the_first_offer: bool) {
    let mut company = COMPANY.get();
    company.note(came_with_the_first_offer);
    COMPANY.set(company);
}
