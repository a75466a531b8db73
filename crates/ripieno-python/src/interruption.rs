//! Signals that come while a call waits: their handlers run, and what one raises ends the call.

use crate::errors;
use pyo3::prelude::*;
use ripieno::Error;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a signal's handler raised while a call waited.
#[derive(Clone, Default)]
pub struct Interruption(Arc<Mutex<Option<PyErr>>>);

impl Interruption {
    /// Runs the handlers of signals that have come; whether one raised.
    pub fn check(self) -> impl Fn() -> bool + Send + Sync {
        move || match Python::attach(|py| py.check_signals()) {
            Ok(()) => false,
            Err(raised) => {
                *self.slot() = Some(raised);
                true
            }
        }
    }

    /// The exception for an error of a collective: for an interrupted one what was raised.
    pub fn exception(&self, error: Error) -> PyErr {
        let raised = if error == Error::Interrupted { self.take() } else { None };
        raised.unwrap_or_else(|| errors::from_collective(error))
    }

    /// What was raised, once.
    pub fn take(&self) -> Option<PyErr> {
        self.slot().take()
    }

    fn slot(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
