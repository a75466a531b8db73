//! What can go wrong in a collective.

use ripieno_run::{Failure, RunError, reduction::UnsupportedOp};

/// Why a collective did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The job has failed; every later call on this communicator gives the same error.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The reduction has no meaning.
    #[error(transparent)]
    Unsupported(UnsupportedOp),
    /// The user does not want to wait any longer; the other ranks have been told.
    #[error("interrupted")]
    Interrupted,
    /// The communicator, or the world that it is part of, has been closed.
    #[error("this communicator is closed")]
    Closed,
    /// The thread that moves asynchronous calls on could not be started.
    #[error("no thread for asynchronous calls: {cause}")]
    NoThread {
        /// What the operating system said.
        cause: String,
    },
    /// The system has no memory for the scratch of an algorithm; another one may do with less.
    #[error("no memory for {length_bytes} bytes of scratch: {cause}")]
    Memory {
        /// How many bytes.
        length_bytes: usize,
        /// What the system said.
        cause: String,
    },
    /// An argument cannot be right.
    #[error("{name}={value}: expected {expected}")]
    Argument {
        /// Which argument.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        expected: String,
    },
}

impl Error {
    /// Whether no later call on this communicator can succeed.
    pub fn ends_job(&self) -> bool {
        matches!(self, Error::Failed(_) | Error::Interrupted)
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Error {
        match error {
            RunError::Failed(failure) => Error::Failed(failure),
            RunError::Unsupported(unsupported) => Error::Unsupported(unsupported),
            RunError::Interrupted => Error::Interrupted,
        }
    }
}

pub(crate) fn argument(name: &'static str, value: impl ToString, expected: &str) -> Error {
    Error::Argument { name, value: value.to_string(), expected: expected.to_string() }
}
