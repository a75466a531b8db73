//! Functions of the caller that combine rows: of another language, or of a type that nobody here knows.

use std::fmt;
use std::sync::Arc;

/// Combines the rows of the second slice, as long as the first, into those of the first, which come of lower ranks;
/// whether it could. One that could not has told the job why.
type CombineFunction = dyn Fn(&mut [u8], &[u8]) -> bool + Send + Sync;

/// How rows combine that only the caller understands. Rows are never cut.
#[derive(Clone)]
pub struct Function {
    /// Size of a row, at least 1.
    pub row_bytes: usize,
    combine: Arc<CombineFunction>,
}

impl Function {
    /// Of rows of `row_bytes`. `combine` is given whole rows, any number of them; when it has failed it has the job
    /// told, for the run goes no further, and is asked again only to say so once more.
    pub fn new(row_bytes: usize, combine: impl Fn(&mut [u8], &[u8]) -> bool + Send + Sync + 'static) -> Function {
        assert!(row_bytes > 0, "a row has a byte");
        Function { row_bytes, combine: Arc::new(combine) }
    }

    /// Combines rows; whether that could be done.
    pub fn combine(&self, into: &mut [u8], from: &[u8]) -> bool {
        (self.combine)(into, from)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("row_bytes", &self.row_bytes).finish_non_exhaustive()
    }
}
