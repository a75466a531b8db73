//! Threads pinned to cores: member `i` of every team computes on the `i`th of some cores, and on no other.
//!
//! A helper is pinned when an order first finds it elsewhere, and stays. The caller is pinned for the time of an order:
//! what its thread starts in between may run wherever the process may.
//! Source: Ekanayake et al., "Java thread and process performance for parallel machine learning on multicore HPC
//! clusters", table I: explicit thread affinity.

use super::pool;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::Cell;
use std::fmt::{self, Display, Formatter};

/// Where threads of teams are to be.
#[derive(Default)]
pub(super) struct Pins {
    /// Of each member; empty where threads are wherever they like.
    pub(super) cores: Vec<usize>,
    /// What a thread may use that is pinned no more.
    anywhere: Option<CpuSet>,
}

thread_local! {
    /// The core that this helper is pinned to.
    static PINNED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A core that this process may not use, or that there is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAllowed {
    /// Its number.
    pub core: usize,
}

impl Display for NotAllowed {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "core {} is none that this thread may use", self.core)
    }
}

impl std::error::Error for NotAllowed {}

/// From now on, member `i` of every team of this process computes on `cores[i % cores.len()]`; with no core, threads
/// are wherever they like. A forked child begins without.
///
/// # Errors
/// If the calling thread may not use one of the cores; then nothing changes.
pub fn pin_threads(cores: &[usize]) -> Result<(), NotAllowed> {
    let anywhere = allowed();
    match cores.iter().find(|&&core| core >= CpuSet::MAX_CPU || !anywhere.is_set(core)) {
        Some(&core) => Err(NotAllowed { core }),
        None => {
            pool::set_pins(Pins { cores: cores.to_vec(), anywhere: Some(anywhere) });
            Ok(())
        }
    }
}

/// What [`pin_threads`] was last given.
pub fn pinned_cores() -> Vec<usize> {
    pool::pins().cores.clone()
}

impl Pins {
    /// Brings the calling thread, a caller of a team, to its core until the value is dropped.
    pub(super) fn bring_caller(&self) -> Pinned {
        let before = self.core(0).map(|_| allowed());
        self.core(0).map(only).iter().for_each(go_to);
        Pinned { before }
    }

    /// Brings the calling thread, that of helper `index`, to its core.
    pub(super) fn bring_helper(&self, index: usize) {
        let core = self.core(index);
        if PINNED.replace(core) != core {
            core.map(only).or(self.anywhere).iter().for_each(go_to);
        }
    }

    fn core(&self, index: usize) -> Option<usize> {
        self.cores.get(index % self.cores.len().max(1)).copied()
    }
}

/// A caller on its core.
pub(super) struct Pinned {
    before: Option<CpuSet>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.before.iter().for_each(go_to);
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

/// Where it is not let go, as when a container has been given other cores since, a thread stays where it may be: the
/// kernel has moved it, and its work is not less right there.
fn go_to(set: &CpuSet) {
    let _ = sched_setaffinity(None, set);
}
