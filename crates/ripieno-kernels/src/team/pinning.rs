//! Pinning of threads to cores: member `i` of every team computes only on the `i`th of the given cores.
//!
//! A helper is pinned when a task first finds it on another core, and stays pinned. The caller is pinned for the
//! duration of a task. Threads that it starts between tasks may run on every core of the process.
//! Source: Ekanayake et al., "Java thread and process performance for parallel machine learning on multicore HPC
//! clusters", table I: explicit thread affinity.

use super::pool;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::Cell;
use std::fmt::{self, Display, Formatter};

/// Cores of the threads of teams.
#[derive(Default)]
pub(super) struct Pins {
    /// Core of each member; empty without pinning.
    pub(super) cores: Vec<usize>,
    /// Allowed cores of a thread that is no longer pinned.
    unpinned_cores: Option<CpuSet>,
}

thread_local! {
    /// The core of this helper.
    static PINNED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Error: a core does not exist, or this process may not use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAllowed {
    /// Number of the core.
    pub core: usize,
}

impl Display for NotAllowed {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "this thread may not run on core {}", self.core)
    }
}

impl std::error::Error for NotAllowed {}

/// Pin member `i` of every team of this process to `cores[i % cores.len()]`. An empty list ends the pinning. A forked
/// child starts without pinning.
///
/// # Errors
/// If the calling thread may not use one of the cores. Then nothing changes.
pub fn pin_threads(cores: &[usize]) -> Result<(), NotAllowed> {
    let unpinned_cores = allowed();
    match cores.iter().find(|&&core| core >= CpuSet::MAX_CPU || !unpinned_cores.is_set(core)) {
        Some(&core) => Err(NotAllowed { core }),
        None => {
            pool::set_pins(Pins { cores: cores.to_vec(), unpinned_cores: Some(unpinned_cores) });
            Ok(())
        }
    }
}

/// Return the cores last passed to [`pin_threads`].
pub fn pinned_cores() -> Vec<usize> {
    pool::pins().cores.clone()
}

impl Pins {
    /// Move the calling thread, a caller of a team, to its core until the returned value is dropped.
    pub(super) fn pin_caller(&self) -> Pinned {
        let before = self.core(0).map(|_| allowed());
        self.core(0).map(only).iter().for_each(set_affinity);
        Pinned { before }
    }

    /// Move the calling thread, helper `index`, to its core.
    pub(super) fn pin_helper(&self, index: usize) {
        let core = self.core(index);
        if PINNED.replace(core) != core {
            core.map(only).or(self.unpinned_cores).iter().for_each(set_affinity);
        }
    }

    fn core(&self, index: usize) -> Option<usize> {
        self.cores.get(index % self.cores.len().max(1)).copied()
    }
}

/// A caller pinned to its core.
pub(super) struct Pinned {
    before: Option<CpuSet>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.before.iter().for_each(set_affinity);
    }
}

fn allowed() -> CpuSet {
    sched_getaffinity(None).expect("a thread may ask where it may run")
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

/// Set the affinity of the calling thread. On error, for example after a change of the container's cores, the thread
/// stays on a core chosen by the kernel, which is still correct.
fn set_affinity(set: &CpuSet) {
    let _ = sched_setaffinity(None, set);
}
