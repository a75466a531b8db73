//! Biased lock: the thread that usually holds the lock enters and leaves without atomic exchanges.
//!
//! An ordinary lock needs an atomic exchange on entry and another on exit. Each exchange waits until all earlier stores
//! of the thread have left its core, including the message to a peer. This wait is most of the cost of a short call.
//!
//! The lock is therefore biased to a thread that has held it many times in a row. That thread stores the word `inside`
//! and loads the word `to`. Any other thread revokes the bias: it stores `to`, makes the kernel fence all cores of this
//! process, and loads `inside`. At least one of the two threads sees the other's store.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// A word of the lock: an atomic integer, or its model in the model checker.
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

/// The biased thread, and whether it is inside now.
#[derive(Default)]
pub(crate) struct BiasedLock<W> {
    /// Number of the biased thread; 0 for none.
    to: W,
    /// Not 0 while the thread is inside.
    inside: W,
}

impl<W: BiasWord> BiasedLock<W> {
    /// Bias the lock to `thread`. That thread calls this while it holds the lock.
    pub fn grant(&self, thread: u64) {
        self.to.store(thread, Relaxed);
    }

    /// Try to enter as `thread`. On success, the thread has access until it leaves.
    #[inline]
    pub fn enter(&self, thread: u64) -> EnterResult {
        // The second condition rejects a nested entry by the same thread.
        if self.to.load(Relaxed) != thread || self.inside.load(Relaxed) != 0 {
            return EnterResult::No;
        }
        self.inside.store(1, Relaxed);
        match self.is_biased_to(thread) {
            true => EnterResult::Yes,
            false => {
                self.inside.store(0, Release);
                EnterResult::Revoked
            }
        }
    }

    /// Return whether the lock is still biased to `thread`, which is inside.
    #[inline]
    pub fn is_still_biased_to(&self, thread: u64) -> bool {
        self.to.load(Relaxed) == thread
    }

    /// Leave, and return whether the lock is still biased to `thread`. If not, another thread may wait for this exit.
    #[inline]
    pub fn leave(&self, thread: u64) -> bool {
        self.inside.store(0, Release);
        self.is_biased_to(thread)
    }

    #[inline]
    fn is_biased_to(&self, thread: u64) -> bool {
        W::light_fence();
        self.to.load(Acquire) == thread
    }

    /// Revoke the bias, if set, and return whether no thread is inside. The caller must hold the lock.
    pub fn revoke(&self) -> bool {
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
    Revoked,
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

        fn count_with_bias(&self, thread: u64) {
            match self.bias.enter(thread) {
                EnterResult::Yes => {
                    self.add();
                    if !self.bias.leave(thread) {
                        self.complete();
                    }
                }
                EnterResult::No => self.count(),
                EnterResult::Revoked => {
                    self.complete();
                    self.count();
                }
            }
        }

        fn count(&self) {
            let mut locked = self.lock.lock().unwrap();
            while !self.bias.revoke() || *locked {
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
