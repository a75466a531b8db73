//! The threads of one rank, and a parallel loop over parts of the work.

use crate::Simd;
use crate::interruption;
use crate::team::{self, TeamThread};
use std::sync::Mutex;

/// How the threads of a rank execute the phases of a kernel.
///
/// Source: Ekanayake et al., "Java thread and process performance for parallel machine learning on multicore HPC
/// clusters", section III.A: LRT-FJ and LRT-BSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadModel {
    /// Each phase is a separate task for the helpers. The caller executes the code between phases.
    ForkJoin,
    /// All phases are one task, separated by barriers. Every thread executes the code between phases.
    Bsp,
}

/// The threads and the SIMD level that a kernel may use.
///
/// A cheap description: the threads themselves persist between kernels. The caller's thread is one of them.
#[derive(Debug)]
pub struct Threads {
    count: usize,
    simd: Simd,
    model: ThreadModel,
}

/// Number of operations, about 50 µs, below which waking a sleeping thread costs more than it saves.
const MIN_OPERATIONS_PER_THREAD: usize = 1 << 21;

/// Number of parts per thread, so that the thread that finishes first can take another part.
const PARTS_PER_THREAD: usize = 4;

impl Threads {
    /// Create a description of `count` threads, including the caller's, with the best SIMD level of this machine. The
    /// model is BSP if the calling thread holds a team, else fork-join.
    ///
    /// # Panics
    /// If `count` is zero.
    pub fn new(count: usize) -> Threads {
        Threads::with_simd(count, Simd::best())
    }

    /// Create a description of `count` threads with a chosen SIMD level.
    ///
    /// # Panics
    /// If `count` is zero or the machine lacks the level.
    pub fn with_simd(count: usize, simd: Simd) -> Threads {
        assert!(count > 0, "the caller's own thread is one");
        simd.check();
        let model = if team::is_held() { ThreadModel::Bsp } else { ThreadModel::ForkJoin };
        Threads { count, simd, model }
    }

    /// Select the model for the kernels that support it: [`crate::assign_accumulate`], [`crate::guttman`] and
    /// [`crate::weighted_differences`]. In other kernels each phase is a separate task.
    pub fn in_model(self, model: ThreadModel) -> Threads {
        Threads { model, ..self }
    }

    /// Return the number of threads, including the caller's.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Return the SIMD level.
    pub fn simd(&self) -> Simd {
        self.simd
    }

    /// Return the model.
    pub fn model(&self) -> ThreadModel {
        self.model
    }

    /// Limit the threads to the number that is worth waking for `part_count` parts of `operations` each. It never
    /// exceeds the number of threads that can compute concurrently. Free threads take the parts, and a thread that
    /// waits for a core only keeps its part from others.
    pub(crate) fn worth(&self, part_count: usize, operations: usize) -> Threads {
        let worth = (part_count.saturating_mul(operations) / MIN_OPERATIONS_PER_THREAD + 1).min(part_count);
        let count = if worth <= 1 { 1 } else { self.count.min(worth).min(team::core_count()) };
        Threads { count, ..*self }
    }

    /// Return the best number of parts for [`Threads::for_each`] with `operations` in total: 1 if no further thread is
    /// worth waking.
    pub fn part_count(&self, operations: usize) -> usize {
        match self.worth(self.count, operations / self.count).count {
            1 => 1,
            count => PARTS_PER_THREAD * count,
        }
    }

    /// Call `work` once for each part, on any free thread, and return when all are done.
    ///
    /// `operations` is the work of one part. Each thread creates its own `scratch` and reuses it for its parts.
    ///
    /// # Panics
    /// With the first panic of `work`, once no thread works any more. Also if the system cannot create more threads.
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
        threads.run(|member| {
            let mut scratch = scratch();
            while !member.is_cancelled()
                && let Some(part) = next()
            {
                work(&mut scratch, part);
                interruption::poll();
            }
        });
    }

    /// Call `work` once on every thread and return when all are done. The threads synchronize with
    /// [`TeamThread::wait`].
    ///
    /// # Panics
    /// With the first panic of `work`. A member that waits for the panicking one ends its work there. Also if the
    /// system cannot create more threads.
    pub fn run(&self, work: impl Fn(&TeamThread) + Sync) {
        team::run(self.count, work);
    }
}
