//! Interruption of kernels between two parts of their work, as by a signal.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    /// The check of the calculation that this thread performs.
    static CHECK: Cell<Option<Box<dyn Fn() -> bool>>> = const { Cell::new(None) };
}

/// Error: the check has ended the calculation. Its outputs have unspecified values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// Call `work`. Its kernels call `check` after each part of their work on this thread, and end if it returns true.
///
/// The check itself may call kernels.
///
/// # Panics
/// With the panic of `work`.
pub fn interruptible<R>(check: impl Fn() -> bool + 'static, work: impl FnOnce() -> R) -> Result<R, Interrupted> {
    let outer = CHECK.replace(Some(Box::new(check)));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    CHECK.set(outer);
    outcome.map_err(|payload| match payload.downcast() {
        Ok(interrupted) => *interrupted,
        Err(payload) => resume_unwind(payload),
    })
}

/// End the calculation of this thread if its check returns true. Helpers of a team have no check.
///
/// # Panics
/// With [`Interrupted`], which [`interruptible`] catches.
pub(crate) fn poll() {
    let Some(check) = CHECK.take() else { return };
    let is_interrupted = check();
    CHECK.set(Some(check));
    if is_interrupted {
        resume_unwind(Box::new(Interrupted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Threads;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_loop_of_one_thread_ends_after_the_part_in_which_its_check_is_true() {
        let (done, checks) = (AtomicUsize::new(0), Cell::new(0));
        let check = move || checks.replace(checks.get() + 1) == 2;
        let outcome = interruptible(check, || {
            Threads::new(1).for_each(
                vec![(); 1000],
                usize::MAX,
                || (),
                |(), ()| {
                    done.fetch_add(1, Ordering::Relaxed);
                },
            );
        });
        assert_eq!((done.into_inner(), outcome), (3, Err(Interrupted)));
    }

    #[test]
    fn helpers_of_an_interrupted_calculation_learn_of_its_end() {
        let outcome = interruptible(
            || true,
            || {
                Threads::new(2).run(|member| {
                    if member.index() == 0 {
                        poll();
                    }
                    while !member.is_cancelled() {
                        std::thread::yield_now();
                    }
                });
            },
        );
        assert_eq!(outcome, Err(Interrupted));
    }

    #[test]
    fn a_check_may_call_kernels_and_is_called_only_within_its_calculation() {
        let calls = Rc::new(Cell::new(0));
        let counted = calls.clone();
        let check = move || {
            counted.set(counted.get() + 1);
            assert_eq!(interruptible(|| true, poll), Err(Interrupted));
            poll();
            false
        };
        assert_eq!(interruptible(check, || (poll(), poll(), 7).2), Ok(7));
        poll();
        assert_eq!(calls.get(), 2);
    }
}
