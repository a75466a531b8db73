//! Detector for threads that wait for each other on the same core although separate cores are available.
//!
//! A kernel may keep such threads together for long. It places a woken thread near the waking one, and neither thread
//! is ever idle. Every wait for the other thread then needs a context switch. The symptom: the awaited event occurs
//! with the thread's first `yield`, many times in a row.
//!
//! Ranks, which are processes, and threads of a team are treated alike.

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// A thread moves to another core after this number of such waits in a row. Depending on the thread number, up to
/// [`EXTRA_WAIT_COUNT_MAX`] is added, so two threads that share a core do not both move.
const WAIT_COUNT: u32 = 24;
const EXTRA_WAIT_COUNT_MAX: u32 = 21;

/// Counter of a thread's consecutive waits that indicate a shared core.
#[derive(Clone, Copy, Debug)]
pub struct CoLocationDetector {
    consecutive: u32,
    limit: u32,
}

impl CoLocationDetector {
    /// Create the detector of thread `number` among the threads that wait for each other.
    pub const fn of(number: usize) -> CoLocationDetector {
        CoLocationDetector { consecutive: 0, limit: WAIT_COUNT + (number % 4) as u32 * EXTRA_WAIT_COUNT_MAX / 3 }
    }

    /// Record a wait of the calling thread.
    ///
    /// The argument is whether the awaited event occurred with the first yield of the core. After a sequence of such
    /// waits the thread moves to another allowed core. Its CPU affinity is the same afterwards as before.
    pub fn record_wait(&mut self, arrived_on_first_poll: bool) {
        self.consecutive = if arrived_on_first_poll { self.consecutive + 1 } else { 0 };
        if self.consecutive >= self.limit {
            self.consecutive = 0;
            move_to_another_core();
        }
    }
}

/// Move the calling thread to another core. On error the thread stays, which is still correct.
fn move_to_another_core() {
    let Ok(allowed_cores) = sched_getaffinity(None) else { return };
    let mut other_cores = allowed_cores;
    other_cores.unset(sched_getcpu());
    if other_cores.count() > 0 && sched_setaffinity(None, &other_cores).is_ok() {
        let _ = sched_setaffinity(None, &allowed_cores);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times_in_a_row(number: usize) -> usize {
        let mut detector = CoLocationDetector::of(number);
        let is_over = |detector: &mut CoLocationDetector| {
            detector.record_wait(true);
            detector.consecutive == 0
        };
        (1..).find(|_| is_over(&mut detector)).unwrap()
    }

    #[test]
    fn a_thread_moves_after_a_row_of_signs_and_neighbors_do_not_move_at_once() {
        assert_eq!([0, 1, 2, 3, 4].map(times_in_a_row), [24, 31, 38, 45, 24]);
    }

    #[test]
    fn a_wait_of_another_kind_ends_the_row() {
        let mut detector = CoLocationDetector::of(0);
        (1..WAIT_COUNT).for_each(|_| detector.record_wait(true));
        assert_eq!(detector.consecutive, WAIT_COUNT - 1);
        detector.record_wait(false);
        assert_eq!(detector.consecutive, 0);
    }

    #[test]
    fn a_thread_has_the_same_allowed_cores_afterwards() {
        let before = sched_getaffinity(None).unwrap();
        move_to_another_core();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
