//! The threads of one rank, and a loop over parts of the work.

use crate::Simd;
use crate::team::{self, TeamThread};
use std::sync::Mutex;

/// How the threads of a rank go through the phases of a kernel.
///
/// Source: Ekanayake et al., "Java thread and process performance for parallel machine learning on multicore HPC
/// clusters", section III.A: LRT-FJ and LRT-BSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadModel {
    /// Each phase is an order to the helpers. What lies between is the caller's.
    ForkJoin,
    /// All phases are one order, with barriers between. What lies between, every thread does for itself.
    Bsp,
}

/// The threads, and the SIMD level, that a kernel may use.
///
/// A description, cheap to make: the threads themselves stay from kernel to kernel. The caller's own is one of them.
#[derive(Debug)]
pub struct Threads {
    count: usize,
    simd: Simd,
    model: ThreadModel,
}

/// Below this many operations, about 50 µs of them, a thread that sleeps costs more to wake than it saves.
const OPERATIONS_WORTH_A_THREAD: usize = 1 << 21;

/// Parts per thread, so that the thread that is done first has something left to take.
const PARTS_PER_THREAD: usize = 4;

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
        Threads { count, simd, model: ThreadModel::ForkJoin }
    }

    /// The same threads in another model, for the kernels that know it: [`crate::assign_accumulate`]. The others fork
    /// and join.
    pub fn in_model(self, model: ThreadModel) -> Threads {
        Threads { model, ..self }
    }

    /// How many threads, the caller's included.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The SIMD level.
    pub fn simd(&self) -> Simd {
        self.simd
    }

    /// The model.
    pub fn model(&self) -> ThreadModel {
        self.model
    }

    /// Those of the threads that are worth it for `part_count` parts of `operations` each: never more than can compute
    /// at once, for parts go to whoever is free, and a thread that waits for a core only keeps its part from others.
    pub(crate) fn worth(&self, part_count: usize, operations: usize) -> Threads {
        let worth = (part_count.saturating_mul(operations) / OPERATIONS_WORTH_A_THREAD + 1).min(part_count);
        let count = if worth <= 1 { 1 } else { self.count.min(worth).min(team::core_count()) };
        Threads { count, ..*self }
    }

    /// Into how many parts work of so many operations in all is best cut for [`Threads::for_each`]: one, if no other
    /// thread is worth it.
    pub fn part_count(&self, operations: usize) -> usize {
        match self.worth(self.count, operations / self.count).count {
            1 => 1,
            count => PARTS_PER_THREAD * count,
        }
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
        let threads = self.worth(parts.len(), operations);
        let parts = Mutex::new(parts.into_iter());
        let next = || parts.lock().expect("taking a part does not panic").next();
        threads.run(|_| {
            let mut scratch = scratch();
            while let Some(part) = next() {
                work(&mut scratch, part);
            }
        });
    }

    /// Calls `work` once on every thread, and returns when all are done: a loop whose threads meet in [`TeamThread::wait`].
    ///
    /// # Panics
    /// With the first panic of `work`; a member that waits for the one that panics ends its work there. Also if the
    /// system gives no more threads.
    pub fn run(&self, work: impl Fn(&TeamThread) + Sync) {
        team::run(self.count, work);
    }
}
