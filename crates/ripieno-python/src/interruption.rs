//! Signals that come while a call waits: their handlers run, and what one raises ends the call.

use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a signal's handler raised while a call waited.
#[derive(Clone, Default)]
pub struct Interruption(Arc<Mutex<Option<PyErr>>>);

impl Interruption {
    /// Runs the handlers of signals that have come; whether one raised.
    pub fn check(self) -> impl FnMut() -> bool + Send {
        move || {
            let raised = Python::attach(|py| py.check_signals()).err();
            let has_raised = raised.is_some();
            *self.slot() = raised;
            has_raised
        }
    }

    /// What was raised, once.
    pub fn take(&self) -> Option<PyErr> {
        self.slot().take()
    }

    fn slot(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
