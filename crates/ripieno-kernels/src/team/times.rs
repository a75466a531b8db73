//! Computing and waiting times of the threads of teams.

use super::pool;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// Times of a member of a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberTimes {
    /// Number of its team in the process.
    pub team: usize,
    /// Index in its team; the caller is 0.
    pub index: usize,
    /// Kernel thread ID; for the caller, of the latest calling thread.
    pub tid: i32,
    /// Number of its tasks.
    pub task_count: u64,
    /// Time in its work without waits at barriers.
    pub computing: Duration,
    /// The remaining time of these tasks: at barriers, and while the other members started and finished.
    pub waiting: Duration,
}

/// Return the times of every member of every idle team, team by team.
pub fn thread_times() -> Vec<MemberTimes> {
    pool::times()
}

/// The counters of a member, on their own cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct ThreadTimes {
    tid: AtomicI32,
    computing_ns: AtomicU64,
}

impl ThreadTimes {
    /// Add a computing time of the calling thread.
    pub(super) fn add(&self, computing: Duration) {
        self.tid.store(this_thread(), Ordering::Relaxed);
        self.computing_ns.fetch_add(computing.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Number and duration of a team's tasks, by their number of members.
#[derive(Default)]
pub(super) struct TeamTimes {
    tasks: Vec<(u64, Duration)>,
}

impl TeamTimes {
    /// Record a task for `count` members and its duration.
    pub(super) fn add(&mut self, count: usize, took: Duration) {
        self.tasks.resize(self.tasks.len().max(count + 1), (0, Duration::ZERO));
        let (tasks, time) = &mut self.tasks[count];
        *tasks += 1;
        *time += took;
    }

    /// Return the times of a member.
    pub(super) fn of(&self, team: usize, index: usize, member: &ThreadTimes) -> MemberTimes {
        let own_tasks = self.tasks.iter().skip(index + 1);
        let (task_count, total) = own_tasks.fold((0, Duration::ZERO), |sum, each| (sum.0 + each.0, sum.1 + each.1));
        let computing = Duration::from_nanos(member.computing_ns.load(Ordering::Relaxed));
        let tid = member.tid.load(Ordering::Relaxed);
        MemberTimes { team, index, tid, task_count, computing, waiting: total.saturating_sub(computing) }
    }
}

thread_local! {
    static TID: i32 = rustix::thread::gettid().as_raw_nonzero().get();
}

fn this_thread() -> i32 {
    TID.with(|tid| *tid)
}
