//! Signals that arrive while a call waits: their handlers run, and an exception of a handler ends the call.

use crate::errors;
use pyo3::prelude::*;
use ripieno::Error;
use ripieno_kernels::Interrupted;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Milliseconds between two runs of signal handlers during a calculation.
const CALCULATION_CHECK_MS: u64 = 50;

/// Call `work` with the interpreter released. Signal handlers run meanwhile. The exception of a handler ends `work`.
pub fn calculate<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    let interruption = Interruption::default();
    let check = interruption.clone().check_calculation();
    let outcome = py.detach(|| ripieno_kernels::interruptible(check, work));
    outcome.map_err(|Interrupted| interruption.take().expect("the check ended the calculation with an exception"))
}

/// The exception that a signal handler raised while a call waited, if any.
#[derive(Clone, Default)]
pub struct Interruption(Arc<Mutex<Option<PyErr>>>);

impl Interruption {
    /// Return a function that runs the handlers of pending signals, and returns whether one raised an exception.
    pub fn check(self) -> impl Fn() -> bool + Send + Sync {
        move || match Python::attach(|py| py.check_signals()) {
            Ok(()) => false,
            Err(raised) => {
                *self.slot() = Some(raised);
                true
            }
        }
    }

    /// Return a function like [`check`](Interruption::check) for calculations, which call it often. Handlers run every
    /// 50 ms.
    pub fn check_calculation(self) -> impl Fn() -> bool + Send + Sync {
        let (check, start, checked_ms) = (self.check(), Instant::now(), AtomicU64::new(0));
        move || {
            let now_ms = start.elapsed().as_millis() as u64;
            let is_due = now_ms >= checked_ms.load(Ordering::Relaxed) + CALCULATION_CHECK_MS;
            if is_due {
                checked_ms.store(now_ms, Ordering::Relaxed);
            }
            is_due && check()
        }
    }

    /// Return the exception for an error of a collective. For an interrupted collective, it is the exception of the
    /// handler.
    pub fn exception(&self, error: Error) -> PyErr {
        let raised = if error == Error::Interrupted { self.take() } else { None };
        raised.unwrap_or_else(|| errors::from_collective(error))
    }

    /// Take the exception, if there is one.
    pub fn take(&self) -> Option<PyErr> {
        self.slot().take()
    }

    fn slot(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
