//! Signals that arrive while a call waits: their handlers run, and an exception of a handler ends the call.

use crate::errors;
use pyo3::prelude::*;
use ripieno::Error;
use std::sync::{Arc, Mutex, MutexGuard};

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
