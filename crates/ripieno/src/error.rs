//! What can go wrong in a collective.

use ripieno_run::{JobFailure, NotShrunk, RunError, reduction::UnsupportedOp};
use std::path::PathBuf;

/// Why a collective did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The job has failed; every later call on this communicator gives the same error.
    #[error(transparent)]
    Failed(#[from] JobFailure),
    /// The reduction has no meaning.
    #[error(transparent)]
    Unsupported(UnsupportedOp),
    /// The user does not want to wait any longer; the other ranks have been told.
    #[error("interrupted")]
    Interrupted,
    /// The communicator, or the world that it is part of, has been closed.
    #[error("this communicator is closed")]
    Closed,
    /// Nothing has failed, so there are no survivors to go on with.
    #[error("no rank has failed: shrink() is for those who are left when one has")]
    NothingFailed,
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
    /// Ranks asked for different things where all must ask for the same; every rank gets this error.
    #[error("rank {rank} asked for {asked}, rank 0 for {first}: expected the same on every rank")]
    Disagreement {
        /// The first that differs from rank 0.
        rank: usize,
        /// What it asked for.
        asked: String,
        /// What rank 0 asked for.
        first: String,
    },
    /// Ranks differ in what they regroup; every rank gets this error, and no row has travelled.
    #[error("ranks differ in a regroup: {description}; expected the same on every rank that has rows")]
    RowsDiffer {
        /// Which ranks gave what.
        description: String,
    },
    /// Indices are wanted that no rank contributes; every rank gets this error.
    #[error("{count} wanted {} that no rank contributes: {}; contribute them, do not ask for them, or take zeros for \
             them (missing=\"zero\")", plural(*count), listed(*count, .examples))]
    MissingIndices {
        /// How many different ones.
        count: u64,
        /// The smallest of those that ranks named, ascending.
        examples: Vec<u64>,
    },
    /// What a peer sent of a sparse reduction or a regroup has no meaning: it runs another version.
    #[error("what another rank sent cannot be read: {cause}")]
    Malformed {
        /// What is wrong with it.
        cause: String,
    },
    /// What a call was given to do with its results has failed.
    #[error("{cause}")]
    Callback {
        /// Why.
        cause: String,
        /// Where, if that is known.
        traceback: String,
    },
    /// Keyed data that is more than the memory limit could not be kept in a file, or not be read back.
    #[error("{task} a spill file of {}: {cause}; {}choose another spill_directory, or allow a larger memory_limit",
            .directory.display(), if *.is_full { "make room there, " } else { "" })]
    Spill {
        /// What was tried: "opening", "writing 16 bytes to", "reading 16 bytes from".
        task: String,
        /// Where.
        directory: PathBuf,
        /// What the system said.
        cause: String,
        /// Whether there is no room.
        is_full: bool,
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

impl Error {
    /// Where what was called back has failed, if that is known.
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

impl From<NotShrunk> for Error {
    fn from(error: NotShrunk) -> Error {
        match error {
            NotShrunk::Failed(failure) => Error::Failed(failure),
            NotShrunk::Interrupted => Error::Interrupted,
            NotShrunk::Unsupported(_) => argument("shrink", "this world", &error.to_string()),
        }
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "index" } else { "indices" }
}

/// Examples, and whether there are more.
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
