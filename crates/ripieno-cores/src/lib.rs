//! Detector for threads that wait for each other on the same core although separate cores are available.
//!
//! A kernel may keep such threads together for long. It places a woken thread near the waking one, and neither thread
//! is ever idle. Every wait for the other thread then needs a context switch. The symptom: the awaited event occurs
//! with the thread's first `yield`, many times in a row.
//!
//! Ranks, which are processes, and threads of a team are treated alike.

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// A thread moves to another core after this number of such waits in a row. Depending on the thread number, up to
/// [`MOST_MORE`] is added, so two threads that share a core do not both move.
const TIMES: u32 = 24;
const MOST_MORE: u32 = 21;

/// Counter of a thread's consecutive waits that indicate a shared core.
#[derive(Clone, Copy, Debug)]
pub struct CoLocationDetector {
    consecutive: u32,
    most: u32,
}

impl CoLocationDetector {
    /// Create the detector of thread `number` among the threads that wait for each other.
    pub const fn of(number: usize) -> CoLocationDetector {
        CoLocationDetector { consecutive: 0, most: TIMES + (number % 4) as u32 * MOST_MORE / 3 }
    }

    /// Record a wait of the calling thread.
    ///
    /// The argument is whether the awaited event occurred with the first yield of the core. After a sequence of such
    /// waits the thread moves to another allowed core. Its CPU affinity is the same afterwards as before.
    pub fn note(&mut self, arrived_on_first_poll: bool) {
        self.consecutive = if arrived_on_first_poll { self.consecutive + 1 } else { 0 };
        if self.consecutive >= self.most {
            self.consecutive = 0;
            go_elsewhere();
        }
    }
}

/// Move the calling thread to another core. On error the thread stays, which is still correct.
fn go_elsewhere() {
    let Ok(anywhere) = sched_getaffinity(None) else { return };
    let mut elsewhere = anywhere;
    elsewhere.unset(sched_getcpu());
    if elsewhere.count() > 0 && sched_setaffinity(None, &elsewhere).is_ok() {
        let _ = sched_setaffinity(None, &anywhere);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times_in_a_row(number: usize) -> usize {
        let mut detector = CoLocationDetector::of(number);
        let is_over = |detector: &mut CoLocationDetector| {
            detector.note(true);
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
        (1..TIMES).for_each(|_| detector.note(true));
        assert_eq!(detector.consecutive, TIMES - 1);
        detector.note(false);
        assert_eq!(detector.consecutive, 0);
    }

    #[test]
    fn a_thread_has_the_same_allowed_cores_afterwards() {
        let before = sched_getaffinity(None).unwrap();
        go_elsewhere();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
