//! How long the threads of teams have computed, and waited for each other.

use super::pool;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// What a member of a team has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberTimes {
    /// Which one of its team; the caller is 0.
    pub index: usize,
    /// Its thread as the kernel numbers it; that of the latest caller.
    pub tid: i32,
    /// Orders that it was part of.
    pub order_count: u64,
    /// Time in its work, but for waits at barriers.
    pub computing: Duration,
    /// The rest of these orders: at barriers, and until the others had begun and ended.
    pub waiting: Duration,
}

/// Of every member of every team that does not work right now, team by team.
pub fn thread_times() -> Vec<MemberTimes> {
    pool::times()
}

/// What each member notes for itself, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct ThreadTimes {
    tid: AtomicI32,
    computing_ns: AtomicU64,
}

impl ThreadTimes {
    /// Notes that the calling thread has computed for so long.
    pub(super) fn add(&self, computing: Duration) {
        self.tid.store(this_thread(), Ordering::Relaxed);
        self.computing_ns.fetch_add(computing.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// The orders of a team, by how many members they were for.
#[derive(Default)]
pub(super) struct TeamTimes {
    orders: Vec<(u64, Duration)>,
}

impl TeamTimes {
    /// Notes an order for `count` members that has taken so long.
    pub(super) fn add(&mut self, count: usize, took: Duration) {
        self.orders.resize(self.orders.len().max(count + 1), (0, Duration::ZERO));
        let (orders, time) = &mut self.orders[count];
        *orders += 1;
        *time += took;
    }

    /// What a member has done.
    pub(super) fn of(&self, index: usize, diary: &ThreadTimes) -> MemberTimes {
        let mine = self.orders.iter().skip(index + 1);
        let (order_count, engaged) = mine.fold((0, Duration::ZERO), |sum, each| (sum.0 + each.0, sum.1 + each.1));
        let computing = Duration::from_nanos(diary.computing_ns.load(Ordering::Relaxed));
        let tid = diary.tid.load(Ordering::Relaxed);
        MemberTimes { index, tid, order_count, computing, waiting: engaged.saturating_sub(computing) }
    }
}

thread_local! {
    static TID: i32 = rustix::thread::gettid().as_raw_nonzero().get();
}

fn this_thread() -> i32 {
    TID.with(|tid| *tid)
}
