//! The threads of one rank, and a loop over parts of the work.

use crate::Simd;
use crate::team::{self, Member};
use std::sync::Mutex;

/// The threads, and the SIMD level, that a kernel may use.
///
/// A description, cheap to make: the threads themselves stay from kernel to kernel. The caller's own is one of them.
#[derive(Debug)]
pub struct Threads {
    count: usize,
    simd: Simd,
}

/// Below this many operations, about 50 µs of them, a thread that sleeps costs more to wake than it saves.
const OPERATIONS_WORTH_A_THREAD: usize = 1 << 21;

impl Threads {
    /// `count` threads, the caller's included, with the best SIMD level of this machine.
    ///
    /// # Panics
    /// If `count` is zero.
    pub fn new(count: usize) -> Threads {
        Threads::with_simd(count, Simd::best())
    }

    /// As [`Threads::new`], with a chosen SIMD level.
    ///
    /// # Panics
    /// If `count` is zero or the machine lacks the level.
    pub fn with_simd(count: usize, simd: Simd) -> Threads {
        assert!(count > 0, "the caller's own thread is one");
        simd.check();
        Threads { count, simd }
    }

    /// How many threads, the caller's included.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The SIMD level.
    pub fn simd(&self) -> Simd {
        self.simd
    }

    /// Calls `work` once for each part, on whichever thread is free, and returns when all are done.
    ///
    /// `operations` is the work of one part. Each thread makes its own `scratch` and keeps it from part to part.
    ///
    /// # Panics
    /// With the first panic of `work`, once no thread works any more. Also if the system gives no more threads.
    pub fn for_each<T: Send, S>(
        &self,
        parts: Vec<T>,
        operations: usize,
        scratch: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, T) + Sync,
    ) {
        let worth = parts.len().saturating_mul(operations) / OPERATIONS_WORTH_A_THREAD;
        let helper_count = self.count.min(parts.len()).min(worth + 1).saturating_sub(1);
        let parts = Mutex::new(parts.into_iter());
        let next = || parts.lock().expect("taking a part does not panic").next();
        team::run(helper_count + 1, |_| {
            let mut scratch = scratch();
            while let Some(part) = next() {
                work(&mut scratch, part);
            }
        });
    }

    /// Calls `work` once on every thread, and returns when all are done: a loop whose threads meet in [`Member::wait`].
    ///
    /// # Panics
    /// With the first panic of `work`; a member that waits for the one that panics ends its work there. Also if the
    /// system gives no more threads.
    pub fn run(&self, work: impl Fn(&Member) + Sync) {
        team::run(self.count, work);
    }
}
