//! Conversion of runtime errors to Python exceptions.

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use ripieno::broadcasts::{BroadcastError, TransferError};
use ripieno::{Error, JobFailure, net::NetError};
use std::io;
use std::path::Path;

/// Return the Python exception for an error of a collective.
pub fn from_collective(error: Error) -> PyErr {
    match error {
        Error::Failed(failure) => from_failure(failure),
        Error::Closed => raise("CommunicatorClosed", (error.to_string(),)),
        Error::NoThread { .. } => PyRuntimeError::new_err(error.to_string()),
        Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        Error::Memory { .. } => PyMemoryError::new_err(error.to_string()),
        Error::MissingIndices { count, examples } => raise("MissingIndicesError", (count, examples)),
        Error::Spill { .. } => raise("SpillError", (error.to_string(),)),
        Error::RowsDiffer { .. } => raise("CollectiveMismatch", (error.to_string(),)),
        Error::Malformed { .. } | Error::Callback { .. } => raise("RipienoError", (error.to_string(),)),
        Error::NothingFailed
        | Error::Unsupported(_)
        | Error::Argument { .. }
        | Error::Disagreement { .. }
        | Error::Rows { .. } => raise("InputError", (error.to_string(),)),
    }
}

/// Return the Python exception for an error during the rendezvous of ranks.
pub fn from_rendezvous(error: NetError) -> PyErr {
    match error {
        NetError::Failed(failure) => from_failure(failure),
        NetError::Config { .. } => raise("InputError", (error.to_string(),)),
        _ => raise("RendezvousError", (error.to_string(),)),
    }
}

/// Return the Python exception for a broadcast variable without a value.
pub fn from_broadcast(error: &BroadcastError) -> PyErr {
    match error {
        BroadcastError::Closed => raise("CommunicatorClosed", (error.to_string(),)),
        BroadcastError::Interrupted => PyKeyboardInterrupt::new_err(()),
        BroadcastError::Ended(TransferError::Memory { .. }) => PyMemoryError::new_err(error.to_string()),
        BroadcastError::Ended(_) => raise("BroadcastError", (error.to_string(),)),
    }
}

/// Return the Python exception for a system error of a file.
pub fn from_file(error: &io::Error, path: &Path) -> PyErr {
    match error.raw_os_error() {
        Some(number) => Python::attach(|py| {
            let exception = py.import("os").and_then(|os| os.getattr("strerror")?.call1((number,)));
            exception
                .map_or_else(|failed| failed, |text| PyOSError::new_err((number, text.unbind(), path.to_path_buf())))
        }),
        None => PyOSError::new_err(format!("{}: {error}", path.display())),
    }
}

/// Return the Python exception for an invalid argument.
pub fn input(message: String) -> PyErr {
    raise("InputError", (message,))
}

/// Return the Python exception for wrong plans, from its arguments.
pub fn plan(arguments: impl for<'py> PyCallArgs<'py>) -> PyErr {
    raise("PlanError", arguments)
}

/// Return the Python exception for data of another rank that cannot be deserialized.
pub fn serialization(message: String) -> PyErr {
    raise("SerializationError", (message,))
}

fn from_failure(failure: JobFailure) -> PyErr {
    match failure {
        JobFailure::RankFailed { rank, host, cause, traceback } => raise("RankFailed", (rank, host, cause, traceback)),
        JobFailure::Mismatch { .. } => raise("CollectiveMismatch", (failure.to_string(),)),
    }
}

fn raise(class: &str, args: impl for<'py> PyCallArgs<'py>) -> PyErr {
    Python::attach(|py| {
        let exception = py.import("ripieno.errors").and_then(|errors| errors.getattr(class)?.call1(args));
        exception.map_or_else(|error| error, PyErr::from_value)
    })
}
