//! User functions that combine rows: written in another language, or for a type unknown to this crate.

use std::fmt;
use std::sync::Arc;

/// Combines the rows of the second slice into the rows of the first slice, which has the same length and comes from
/// lower ranks. Returns whether this succeeded. A failed call has already reported its error to the job.
type CombineFunction = dyn Fn(&mut [u8], &[u8]) -> bool + Send + Sync;

/// A user-defined reduction of rows. Rows are never split.
#[derive(Clone)]
pub struct Function {
    /// Size of a row in bytes, at least 1.
    pub row_bytes: usize,
    combine: Arc<CombineFunction>,
}

impl Function {
    /// Create a reduction of rows of `row_bytes` bytes. `combine` receives any number of whole rows. If it fails, it
    /// must report the error to the job, because the run cannot continue. Later calls must fail as well.
    pub fn new(row_bytes: usize, combine: impl Fn(&mut [u8], &[u8]) -> bool + Send + Sync + 'static) -> Function {
        assert!(row_bytes > 0, "a row has at least one byte");
        Function { row_bytes, combine: Arc::new(combine) }
    }

    /// Combine rows. Return whether this succeeded.
    pub fn combine(&self, into: &mut [u8], from: &[u8]) -> bool {
        (self.combine)(into, from)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("row_bytes", &self.row_bytes).finish_non_exhaustive()
    }
}
