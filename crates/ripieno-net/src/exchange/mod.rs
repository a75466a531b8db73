//! The engine contract: every rank gives a string and gets all strings, ordered by rank.
//!
//! That is all that a launcher or an engine supplies. A closure is an exchange, so an engine's own allgather needs no
//! type of its own. Here are the suppliers that need no engine: threads, a TCP store, a shared directory.

mod directory;
mod tcp_store;
mod threads;

pub use directory::DirectoryExchange;
pub use tcp_store::TcpStore;
pub use threads::ThreadExchange;

use crate::error::NetError;
use ripieno_run::JobFailure;

/// One allgather of strings, called once per meeting.
pub trait Exchange {
    /// Gives `mine` and returns every rank's string, ordered by rank. Must not wait for ever.
    fn exchange(&mut self, mine: &str) -> Result<Vec<String>, NetError>;

    /// A rank that the supplier knows to have died since the exchange, before it came to the meeting. Asked while the
    /// ranks connect; a supplier that cannot know says `None`.
    fn lost(&mut self) -> Option<JobFailure> {
        None
    }
}

impl<F: FnMut(&str) -> Result<Vec<String>, NetError>> Exchange for F {
    fn exchange(&mut self, mine: &str) -> Result<Vec<String>, NetError> {
        self(mine)
    }
}
