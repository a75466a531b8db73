//! A bias: the thread that makes one call after another goes in and out without a lock.
//!
//! A lock takes an atomic exchange on the way in and one on the way out. Each waits until what the thread has stored
//! has left its core, the message to a peer among it, whose line another core has: most of what a short call costs. So
//! the lock is given to a thread that has had it many times in a row. It then stores a word, and loads another. Any
//! other thread takes the bias back: it stores the other word, has the kernel make this process's cores fence, and
//! loads the first. Of the two one sees the other's store.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// A word of a bias, so that the same code runs on real memory and in the model checker.
pub(crate) trait BiasWord: Default {
    fn load(&self, ordering: Ordering) -> u64;
    fn store(&self, value: u64, ordering: Ordering);
    /// Between a store and a load of a thread that has the bias.
    fn light_fence();
    /// Between a store and a load of a thread that takes it back.
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

/// To which thread something is given, and whether that is at it now.
#[derive(Default)]
pub(crate) struct BiasedLock<W> {
    /// 0 if it is given to nobody.
    to: W,
    /// Not 0 while the thread is at it.
    inside: W,
}

impl<W: BiasWord> BiasedLock<W> {
    /// Gives it to the thread `me`. Called by that, which has it, under the lock.
    pub fn give(&self, me: u64) {
        self.to.store(me, Relaxed);
    }

    /// Whether the thread `me` has it now, until it leaves.
    #[inline]
    pub fn enter(&self, me: u64) -> EnterResult {
        // The second is this thread's own: it asks for what it has.
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

    /// Whether the bias of the thread `me`, which is inside, was not taken back so far.
    #[inline]
    pub fn lasts(&self, me: u64) -> bool {
        self.to.load(Relaxed) == me
    }

    /// Leaves; whether the bias of the thread `me` goes on. If not, somebody may wait for it to leave.
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

    /// Takes the bias back, if it is given; whether nobody is inside. Called under the lock.
    pub fn take_back(&self) -> bool {
        if self.to.load(Relaxed) != 0 {
            self.to.store(0, Release);
            W::heavy_fence();
        }
        self.inside.load(Acquire) == 0
    }

    /// Gives the bias up from inside, under the lock.
    pub fn end(&self) {
        self.to.store(0, Release);
        self.inside.store(0, Release);
    }
}

/// What came of a try to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnterResult {
    Yes,
    /// It is not this thread's.
    No,
    /// As before, and somebody may have seen this thread inside and wait for it to leave.
    TakenBack,
}

/// This thread's number: no other thread of the process has it, or ever had.
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
    use loom::sync::atomic::{AtomicU64 as Modelled, fence};
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    #[derive(Default)]
    struct Checked(Modelled);

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

    /// A number that one thread at a time counts up: with the bias, or under the lock once that is taken back.
    struct BiasedCounter {
        bias: BiasedLock<Checked>,
        number: UnsafeCell<u64>,
        /// Whether somebody has it who went in under the lock.
        lock: Mutex<bool>,
        freed: Condvar,
    }

    // SAFETY: loom checks that nobody has the number while another does.
    unsafe impl Sync for BiasedCounter {}
    // SAFETY: as above.
    unsafe impl Send for BiasedCounter {}

    impl BiasedCounter {
        fn add(&self) {
            // SAFETY: loom checks that nobody else has it.
            self.number.with_mut(|number| unsafe { *number += 1 });
        }

        fn tell(&self) {
            let _locked = self.lock.lock().unwrap();
            self.freed.notify_all();
        }

        fn count_with_bias(&self, me: u64) {
            match self.bias.enter(me) {
                EnterResult::Yes => {
                    self.add();
                    if !self.bias.leave(me) {
                        self.tell();
                    }
                }
                EnterResult::No => self.count(),
                EnterResult::TakenBack => {
                    self.tell();
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
    fn one_thread_at_a_time_is_inside_and_who_waits_is_told() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let counted = Arc::new(BiasedCounter {
                bias: BiasedLock::default(),
                number: UnsafeCell::new(0),
                lock: Mutex::new(false),
                freed: Condvar::new(),
            });
            counted.bias.give(7);
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
    fn who_is_inside_does_not_enter_again() {
        let bias = BiasedLock::<AtomicU64>::default();
        bias.give(7);
        assert_eq!((bias.enter(8), bias.enter(7), bias.enter(7)), (EnterResult::No, EnterResult::Yes, EnterResult::No));
        assert!(bias.leave(7));
        bias.end();
        assert_eq!(bias.enter(7), EnterResult::No);
    }
}
