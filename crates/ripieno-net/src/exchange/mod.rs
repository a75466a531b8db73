//! The engine contract: every rank passes a string and receives all strings, ordered by rank.
//!
//! A launcher or an engine supplies only this function. A closure is an exchange, so an engine's own allgather needs no
//! separate type. This module contains the implementations that need no engine: threads, a TCP store, a shared
//! directory.

mod directory;
mod tcp_store;
mod threads;

pub use directory::DirectoryExchange;
pub use tcp_store::TcpStore;
pub use threads::ThreadExchange;

use crate::error::NetError;
use ripieno_run::JobFailure;

/// An allgather of strings, called once per rendezvous.
pub trait Exchange {
    /// Pass `mine` and return every rank's string, ordered by rank. Must not wait forever.
    fn exchange(&mut self, mine: &str) -> Result<Vec<String>, NetError>;

    /// Return a rank that has died since the exchange, before it connected. Called while the ranks connect; an
    /// implementation without this knowledge returns `None`.
    fn lost(&mut self) -> Option<JobFailure> {
        None
    }
}

impl<F: FnMut(&str) -> Result<Vec<String>, NetError>> Exchange for F {
    fn exchange(&mut self, mine: &str) -> Result<Vec<String>, NetError> {
        self(mine)
    }
}
