//! LightGBM's network on a communicator, for the training thread.

use crate::communicator::Communicator;
use crate::errors;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ripieno::lightgbm::{self, Trainer};
use std::ffi::c_ulong;

/// Add the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(lightgbm_enter, module)?)?;
    module.add_function(wrap_pyfunction!(lightgbm_leave, module)?)
}

/// A training thread of Python.
struct Training {
    comm: Py<Communicator>,
    thread: c_ulong,
    /// Class of the exception that is raised in the thread after a failure.
    raises: Py<PyAny>,
}

impl Trainer for Training {
    fn communicator(&self) -> &ripieno::Communicator {
        self.comm.get().inner()
    }

    fn stop(&self) {
        Python::attach(|_| {
            // SAFETY: the interpreter is held. The thread is this one, and the class lives as long as this object.
            unsafe { pyo3::ffi::PyThreadState_SetAsyncExc(self.thread as _, self.raises.as_ptr()) };
        });
    }
}

/// Route the network calls of LightGBM on this thread through the communicator. `thread` identifies the thread. Return
/// the addresses of the reduce-scatter and the allgather. After a failure, the thread gets an exception of class
/// `raises`.
#[pyfunction]
fn lightgbm_enter(comm: Py<Communicator>, thread: c_ulong, raises: Py<PyAny>) -> PyResult<(usize, usize)> {
    lightgbm::enter(Box::new(Training { comm, thread, raises })).map_err(errors::from_collective)
}

/// End the routing. Return the number of calls and reductions, the bytes, and the error, if any.
#[pyfunction]
fn lightgbm_leave(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let statistics = lightgbm::leave();
    let entries = PyDict::new(py);
    entries.set_item("calls", statistics.calls)?;
    entries.set_item("reductions", statistics.reductions)?;
    entries.set_item("bytes", statistics.bytes)?;
    entries.set_item("error", statistics.error.map(|error| errors::from_collective(error).into_value(py)))?;
    Ok(entries)
}
