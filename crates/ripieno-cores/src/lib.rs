//! Threads that wait for each other on one core, although each could have a core of its own.
//!
//! A kernel may leave them so for long, as it wakes a thread beside the one that wakes it, and neither is ever idle.
//! Whatever one waits for from the other then takes a switch of threads. What tells it: that is there as soon as the
//! thread has offered its core to others, time after time.
//!
//! Ranks, which are processes, and threads of a team are alike here.

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// So often in a row before a thread goes to another core, and by its number up to [`MOST_MORE`] times more often: two
/// that share one do not both go.
const TIMES: u32 = 24;
const MOST_MORE: u32 = 21;

/// What a thread's waits have told.
#[derive(Clone, Copy, Debug)]
pub struct CoLocationDetector {
    in_a_row: u32,
    most: u32,
}

impl CoLocationDetector {
    /// That of the thread of this number among those that wait for each other.
    pub const fn of(number: usize) -> CoLocationDetector {
        CoLocationDetector { in_a_row: 0, most: TIMES + (number % 4) as u32 * MOST_MORE / 3 }
    }

    /// The calling thread has waited, and what it waited for came, or not, with the first offer of its core. After a
    /// row of those that did it goes to another core that it may use, and may be anywhere afterwards that it could be
    /// before.
    pub fn note(&mut self, came_with_the_first_offer: bool) {
        self.in_a_row = if came_with_the_first_offer { self.in_a_row + 1 } else { 0 };
        if self.in_a_row >= self.most {
            self.in_a_row = 0;
            go_elsewhere();
        }
    }
}

/// Where this is refused the thread stays: its work is not less right there.
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
        let mut company = CoLocationDetector::of(number);
        let is_over = |company: &mut CoLocationDetector| {
            company.note(true);
            company.in_a_row == 0
        };
        (1..).find(|_| is_over(&mut company)).unwrap()
    }

    #[test]
    fn a_thread_goes_after_a_row_of_signs_and_neighbours_do_not_go_at_once() {
        assert_eq!([0, 1, 2, 3, 4].map(times_in_a_row), [24, 31, 38, 45, 24]);
    }

    #[test]
    fn a_wait_of_another_kind_ends_the_row() {
        let mut company = CoLocationDetector::of(0);
        (1..TIMES).for_each(|_| company.note(true));
        assert_eq!(company.in_a_row, TIMES - 1);
        company.note(false);
        assert_eq!(company.in_a_row, 0);
    }

    #[test]
    fn a_thread_may_be_anywhere_afterwards_that_it_could_be_before() {
        let before = sched_getaffinity(None).unwrap();
        go_elsewhere();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
