//! Detector for threads that wait for each other on the same core although separate cores are available.
//!
//! The operating system may keep such threads on one core for a long time, because it places a woken thread near the
//! waking thread. Every wait for the other thread then needs a context switch. The symptom: the awaited event occurs
//! with the first `yield` of the waiting thread, many times in a row.
//!
//! The detector serves ranks, which are processes, and threads of a team.

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// A thread moves to another core after this number of such waits in a row. The detector adds up to
/// [`EXTRA_WAIT_COUNT_MAX`], depending on the thread number, so two threads that share a core do not both move.
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
    /// `arrived_on_first_poll` is whether the awaited event occurred with the first yield of the core. After many such
    /// waits in a row the thread moves to another allowed core. Its CPU affinity is the same afterwards as before.
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

    fn waits_until_move(number: usize) -> usize {
        let mut detector = CoLocationDetector::of(number);
        let has_moved = |detector: &mut CoLocationDetector| {
            detector.record_wait(true);
            detector.consecutive == 0
        };
        (1..).find(|_| has_moved(&mut detector)).unwrap()
    }

    #[test]
    fn threads_move_after_different_numbers_of_waits() {
        assert_eq!([0, 1, 2, 3, 4].map(waits_until_move), [24, 31, 38, 45, 24]);
    }

    #[test]
    fn a_longer_wait_resets_the_count() {
        let mut detector = CoLocationDetector::of(0);
        (1..WAIT_COUNT).for_each(|_| detector.record_wait(true));
        assert_eq!(detector.consecutive, WAIT_COUNT - 1);
        detector.record_wait(false);
        assert_eq!(detector.consecutive, 0);
    }

    #[test]
    fn a_move_keeps_the_affinity() {
        let before = sched_getaffinity(None).unwrap();
        move_to_another_core();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
