//! LightGBM's network on a communicator, for the thread that trains.

use crate::communicator::Communicator;
use crate::errors;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ripieno::lightgbm::{self, Trainer};
use std::ffi::c_ulong;

/// Adds the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(lightgbm_enter, module)?)?;
    module.add_function(wrap_pyfunction!(lightgbm_leave, module)?)
}

/// A thread of Python that trains.
struct Training {
    comm: Py<Communicator>,
    thread: c_ulong,
    /// The class of what is raised there when something has failed.
    raises: Py<PyAny>,
}

impl Trainer for Training {
    fn communicator(&self) -> &ripieno::Communicator {
        self.comm.get().inner()
    }

    fn stop(&self) {
        Python::attach(|_| {
            // SAFETY: the interpreter is held; the thread is this one, and the class lives as long as this does.
            unsafe { pyo3::ffi::PyThreadState_SetAsyncExc(self.thread as _, self.raises.as_ptr()) };
        });
    }
}

/// From now on LightGBM of this thread, whose identifier is `thread`, exchanges by the communicator; the addresses of
/// its reduce-scatter and its allgather. When something has failed, an exception of class `raises` is raised there.
#[pyfunction]
fn lightgbm_enter(comm: Py<Communicator>, thread: c_ulong, raises: Py<PyAny>) -> PyResult<(usize, usize)> {
    lightgbm::enter(Box::new(Training { comm, thread, raises })).map_err(errors::from_collective)
}

/// The end of that; calls, reductions among them, bytes and the error, if there was one.
#[pyfunction]
fn lightgbm_leave(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let exchanged = lightgbm::leave();
    let entries = PyDict::new(py);
    entries.set_item("calls", exchanged.calls)?;
    entries.set_item("reductions", exchanged.reductions)?;
    entries.set_item("bytes", exchanged.bytes)?;
    entries.set_item("error", exchanged.error.map(|error| errors::from_collective(error).into_value(py)))?;
    Ok(entries)
}
