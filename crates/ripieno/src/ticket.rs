//! Tickets: where the end of an asynchronous run is told, and its memory put.

use crate::error::Error;
use crate::lock::lock;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Threads that wait for a run to end.
pub(crate) trait Waiters: Send + Sync {
    /// Says to them that one has ended.
    fn tell_end(&self);
}

/// Where the result of a run is put.
pub(crate) struct ResultSlot<M> {
    /// How it has ended, if it has.
    ended: OnceLock<Result<(), Error>>,
    /// What it worked on, from a good end on.
    memory: Mutex<Option<M>>,
}

/// Tells a ticket once; that the communicator is closed if nothing else was told.
pub(crate) struct Completion<M> {
    ticket: Option<Arc<ResultSlot<M>>>,
    waiters: Weak<dyn Waiters>,
}

impl<M> Default for ResultSlot<M> {
    fn default() -> Self {
        ResultSlot { ended: OnceLock::new(), memory: Mutex::new(None) }
    }
}

impl<M> ResultSlot<M> {
    /// What tells the ticket, and those who wait for a call to end.
    pub fn completion(ticket: &Arc<ResultSlot<M>>, waiters: &Weak<dyn Waiters>) -> Completion<M> {
        Completion { ticket: Some(ticket.clone()), waiters: waiters.clone() }
    }

    /// How the run has ended, if it has.
    pub fn ended(&self) -> Option<Result<(), Error>> {
        self.ended.get().cloned()
    }

    /// What the run worked on, once, after a good end.
    pub fn take(&self) -> Option<M> {
        lock(&self.memory).take()
    }

    pub fn is_done(&self) -> bool {
        self.ended.get().is_some()
    }
}

impl<M> Completion<M> {
    pub fn tell(mut self, outcome: Result<M, Error>) {
        self.put(outcome);
    }

    fn put(&mut self, outcome: Result<M, Error>) {
        let Some(ticket) = self.ticket.take() else { return };
        let ended = outcome.map(|memory| *lock(&ticket.memory) = Some(memory));
        ticket.ended.get_or_init(|| ended);
        if let Some(waiters) = self.waiters.upgrade() {
            waiters.tell_end();
        }
    }
}

impl<M> Drop for Completion<M> {
    fn drop(&mut self) {
        self.put(Err(Error::Closed));
    }
}
