//! Errors of collectives.

use ripieno_run::{JobFailure, RunError, ShrinkError, reduction::UnsupportedOp};
use std::path::PathBuf;

/// Reason why a collective failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The job has failed. Every later call on this communicator returns the same error.
    #[error(transparent)]
    Failed(#[from] JobFailure),
    /// The operation is not defined for the element type.
    #[error(transparent)]
    Unsupported(UnsupportedOp),
    /// The user interrupted the wait. The other ranks were notified.
    #[error("interrupted")]
    Interrupted,
    /// The communicator, or the world that contains it, has been closed.
    #[error("this communicator is closed")]
    Closed,
    /// `shrink` was called although no rank has failed.
    #[error("no rank has failed: call shrink() only after a failure")]
    NothingFailed,
    /// The background thread for asynchronous calls could not be started.
    #[error("no thread for asynchronous calls: {cause}")]
    NoThread {
        /// Error of the operating system.
        cause: String,
    },
    /// The system has no memory for the scratch buffers of an algorithm; another algorithm may need less.
    #[error("no memory for {length_bytes} bytes of scratch: {cause}")]
    Memory {
        /// Requested size.
        length_bytes: usize,
        /// Error of the operating system.
        cause: String,
    },
    /// Ranks passed different options where all must be equal; every rank gets this error.
    #[error("rank {rank} passed {options}, rank 0 passed {first}: expected the same on every rank")]
    Disagreement {
        /// The first rank that differs from rank 0.
        rank: usize,
        /// Its options.
        options: String,
        /// The options of rank 0.
        first: String,
    },
    /// Ranks differ in the schema of their rows or the options of a regroup. Every rank gets this error, before any row
    /// is sent.
    #[error("ranks differ in a regroup: {description}; expected the same on every rank that has rows")]
    RowsDiffer {
        /// The schema and options of each group of ranks.
        description: String,
    },
    /// A sparse reduction requests indices that no rank contributes. Every rank gets this error.
    #[error(
        "{count} requested {} that no rank contributes: {}; contribute them, leave them out, or accept zeros for them \
         (missing=\"zero\")",
        plural(*count),
        listed(*count, .examples)
    )]
    MissingIndices {
        /// Number of distinct missing indices.
        count: u64,
        /// The smallest missing indices, ascending.
        examples: Vec<u64>,
    },
    /// The rows of a fit are invalid, on this rank or another. Every rank gets this error.
    #[error("{description}")]
    Rows {
        /// The rank, the place and the remedy.
        description: String,
    },
    /// Data of a peer in a sparse reduction or a regroup is invalid: the peer runs another version.
    #[error("data from another rank cannot be read: {cause}")]
    Malformed {
        /// The reason.
        cause: String,
    },
    /// A callback of the caller failed.
    #[error("{cause}")]
    Callback {
        /// The reason.
        cause: String,
        /// Traceback, if known.
        traceback: String,
    },
    /// Keyed data above the memory limit could not be written to a spill file, or not be read back.
    #[error("{task} a spill file of {}: {cause}; {}choose another spill_directory, or allow a larger memory_limit",
            .directory.display(), if *.is_full { "free space there, " } else { "" })]
    Spill {
        /// The operation: "opening", "writing 16 bytes to", "reading 16 bytes from".
        task: String,
        /// The directory of the file.
        directory: PathBuf,
        /// Error of the operating system.
        cause: String,
        /// Whether the disk is full.
        is_full: bool,
    },
    /// An argument is invalid.
    #[error("{name}={value}: expected {expected}")]
    Argument {
        /// Name of the argument.
        name: &'static str,
        /// Its value.
        value: String,
        /// The values allowed.
        expected: String,
    },
}

impl Error {
    /// Return whether no later call on this communicator can succeed.
    pub fn ends_job(&self) -> bool {
        matches!(self, Error::Failed(_) | Error::Interrupted)
    }
}

impl Error {
    /// Return the traceback of a failed callback, or an empty string.
    pub(crate) fn traceback(&self) -> &str {
        if let Error::Callback { traceback, .. } = self { traceback } else { "" }
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

impl From<ShrinkError> for Error {
    fn from(error: ShrinkError) -> Error {
        match error {
            ShrinkError::Failed(failure) => Error::Failed(failure),
            ShrinkError::Interrupted => Error::Interrupted,
            ShrinkError::Unsupported(_) => argument("shrink", "this world", &error.to_string()),
        }
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "index" } else { "indices" }
}

/// List the examples, followed by an ellipsis if there are more.
fn listed(count: u64, examples: &[u64]) -> String {
    let mut text = examples.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    if count > examples.len() as u64 {
        text += ", …";
    }
    text
}

pub(crate) fn argument(name: &'static str, value: impl ToString, expected: &str) -> Error {
    Error::Argument { name, value: value.to_string(), expected: expected.to_string() }
}
