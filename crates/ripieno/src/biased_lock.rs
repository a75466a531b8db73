//! Biased lock: a thread that makes one call after another enters and leaves without atomic exchanges.
//!
//! A lock takes an atomic exchange on entry and another on exit. Each waits until all earlier stores of the thread have
//! left its core. One of them is the message to a peer, in a cache line that another core holds. This wait is most of
//! the cost of a short call. The lock is therefore biased to a thread that has held it many times in a row. That thread
//! then stores one word and loads another. Any other thread revokes the bias: it stores the other word, makes the
//! kernel fence all cores of this process, and loads the first. At least one of the two threads sees the other's store.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// A word of the lock, so that the same code runs on real memory and in the model checker.
pub(crate) trait BiasWord: Default {
    fn load(&self, ordering: Ordering) -> u64;
    fn store(&self, value: u64, ordering: Ordering);
    /// Fence between a store and a load of the thread that has the bias.
    fn light_fence();
    /// Fence between a store and a load of a thread that revokes the bias.
    fn heavy_fence();
}

impl BiasWord for AtomicU64 {
    #[inline]
    fn load(&self, ordering: Ordering) -> u64 {
        AtomicU64::load(self, ordering)
    }

    #[inline]
    fn store(&self, value: u64, ordering: Ordering) {
        AtomicU64::store(self, value, ordering);
    }

    #[inline]
    fn light_fence() {
        compiler_fence(Ordering::SeqCst);
    }

    fn heavy_fence() {
        ripieno_net::fence_threads();
    }
}

/// The thread that has the bias, and whether it is inside now.
#[derive(Default)]
pub(crate) struct BiasedLock<W> {
    /// Number of the biased thread; 0 for none.
    to: W,
    /// Not 0 while the thread is inside.
    inside: W,
}

impl<W: BiasWord> BiasedLock<W> {
    /// Set the bias to the thread `me`. That thread calls this while it holds the lock.
    pub fn grant(&self, me: u64) {
        self.to.store(me, Relaxed);
    }

    /// Try to enter as thread `me`. On success, the thread has access until it leaves.
    #[inline]
    pub fn enter(&self, me: u64) -> EnterResult {
        // The second condition rejects a nested entry by the same thread.
        if self.to.load(Relaxed) != me || self.inside.load(Relaxed) != 0 {
            return EnterResult::No;
        }
        self.inside.store(1, Relaxed);
        match self.is_given_to(me) {
            true => EnterResult::Yes,
            false => {
                self.inside.store(0, Release);
                EnterResult::TakenBack
            }
        }
    }

    /// Return whether the bias of the thread `me`, which is inside, has not been revoked.
    #[inline]
    pub fn lasts(&self, me: u64) -> bool {
        self.to.load(Relaxed) == me
    }

    /// Leave, and return whether the bias of the thread `me` persists. If not, another thread may wait for this exit.
    #[inline]
    pub fn leave(&self, me: u64) -> bool {
        self.inside.store(0, Release);
        self.is_given_to(me)
    }

    #[inline]
    fn is_given_to(&self, me: u64) -> bool {
        W::light_fence();
        self.to.load(Acquire) == me
    }

    /// Revoke the bias, if set, and return whether no thread is inside. The caller must hold the lock.
    pub fn take_back(&self) -> bool {
        if self.to.load(Relaxed) != 0 {
            self.to.store(0, Release);
            W::heavy_fence();
        }
        self.inside.load(Acquire) == 0
    }

    /// Give up the bias from inside. The caller must hold the lock.
    pub fn end(&self) {
        self.to.store(0, Release);
        self.inside.store(0, Release);
    }
}

/// Result of an attempt to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnterResult {
    Yes,
    /// This thread does not have the bias, or is already inside.
    No,
    /// The bias was revoked. Another thread may have seen this one inside, and may wait for it to leave.
    TakenBack,
}

/// Return this thread's number. It is unique in the process and never reused.
#[inline]
pub(crate) fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Relaxed));
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicU64 as Modeled, fence};
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    #[derive(Default)]
    struct Checked(Modeled);

    impl BiasWord for Checked {
        fn load(&self, ordering: Ordering) -> u64 {
            self.0.load(ordering)
        }

        fn store(&self, value: u64, ordering: Ordering) {
            self.0.store(value, ordering);
        }

        fn light_fence() {
            fence(Ordering::SeqCst);
        }

        fn heavy_fence() {
            fence(Ordering::SeqCst);
        }
    }

    /// A counter that one thread at a time increments: by bias, or under the lock after the bias is revoked.
    struct BiasedCounter {
        bias: BiasedLock<Checked>,
        number: UnsafeCell<u64>,
        /// Whether a thread that entered under the lock is inside.
        lock: Mutex<bool>,
        freed: Condvar,
    }

    // SAFETY: loom checks that no two threads access the number at once.
    unsafe impl Sync for BiasedCounter {}
    // SAFETY: as above.
    unsafe impl Send for BiasedCounter {}

    impl BiasedCounter {
        fn add(&self) {
            // SAFETY: loom checks that no other thread has access.
            self.number.with_mut(|number| unsafe { *number += 1 });
        }

        fn complete(&self) {
            let _locked = self.lock.lock().unwrap();
            self.freed.notify_all();
        }

        fn count_with_bias(&self, me: u64) {
            match self.bias.enter(me) {
                EnterResult::Yes => {
                    self.add();
                    if !self.bias.leave(me) {
                        self.complete();
                    }
                }
                EnterResult::No => self.count(),
                EnterResult::TakenBack => {
                    self.complete();
                    self.count();
                }
            }
        }

        fn count(&self) {
            let mut locked = self.lock.lock().unwrap();
            while !self.bias.take_back() || *locked {
                locked = self.freed.wait(locked).unwrap();
            }
            *locked = true;
            drop(locked);
            self.add();
            *self.lock.lock().unwrap() = false;
            self.freed.notify_all();
        }
    }

    #[test]
    fn one_thread_at_a_time_is_inside_and_waiting_threads_are_notified() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let counted = Arc::new(BiasedCounter {
                bias: BiasedLock::default(),
                number: UnsafeCell::new(0),
                lock: Mutex::new(false),
                freed: Condvar::new(),
            });
            counted.bias.grant(7);
            let other = counted.clone();
            let taker = thread::spawn(move || other.count());
            counted.count_with_bias(7);
            counted.count_with_bias(7);
            taker.join().unwrap();
            // SAFETY: the other thread has ended.
            assert_eq!(counted.number.with(|number| unsafe { *number }), 3);
        });
    }

    #[test]
    fn the_lock_is_not_reentrant() {
        let bias = BiasedLock::<AtomicU64>::default();
        bias.grant(7);
        assert_eq!((bias.enter(8), bias.enter(7), bias.enter(7)), (EnterResult::No, EnterResult::Yes, EnterResult::No));
        assert!(bias.leave(7));
        bias.end();
        assert_eq!(bias.enter(7), EnterResult::No);
    }
}
