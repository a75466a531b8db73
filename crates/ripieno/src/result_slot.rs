//! Result and memory of an asynchronous run, shared by the run and its handle.

use crate::error::Error;
use crate::lock::lock;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Threads that wait for a run to end.
pub(crate) trait Waiters: Send + Sync {
    /// Notify the waiting threads that a run has ended.
    fn notify_waiters(&self);
}

/// Storage for the result of a run.
pub(crate) struct ResultSlot<M> {
    /// The result, once the run has ended.
    ended: OnceLock<Result<(), Error>>,
    /// The memory of the run, after it has ended successfully.
    memory: Mutex<Option<M>>,
}

/// Sets the result of a slot once. If it is dropped before, the result is [`Error::Closed`].
pub(crate) struct Completion<M> {
    result_slot: Option<Arc<ResultSlot<M>>>,
    waiters: Weak<dyn Waiters>,
}

impl<M> Default for ResultSlot<M> {
    fn default() -> Self {
        ResultSlot { ended: OnceLock::new(), memory: Mutex::new(None) }
    }
}

impl<M> ResultSlot<M> {
    /// Return the completion, which sets the result and notifies the threads that wait for a call to end.
    pub fn completion(result_slot: &Arc<ResultSlot<M>>, waiters: &Weak<dyn Waiters>) -> Completion<M> {
        Completion { result_slot: Some(result_slot.clone()), waiters: waiters.clone() }
    }

    /// Return the result, if the run has ended.
    pub fn ended(&self) -> Option<Result<(), Error>> {
        self.ended.get().cloned()
    }

    /// Take the memory of the run; `Some` only once, after the run has ended successfully.
    pub fn take(&self) -> Option<M> {
        lock(&self.memory).take()
    }

    pub fn is_done(&self) -> bool {
        self.ended.get().is_some()
    }
}

impl<M> Completion<M> {
    pub fn complete(mut self, outcome: Result<M, Error>) {
        self.set(outcome);
    }

    fn set(&mut self, outcome: Result<M, Error>) {
        let Some(result_slot) = self.result_slot.take() else { return };
        let ended = outcome.map(|memory| *lock(&result_slot.memory) = Some(memory));
        result_slot.ended.get_or_init(|| ended);
        if let Some(waiters) = self.waiters.upgrade() {
            waiters.notify_waiters();
        }
    }
}

impl<M> Drop for Completion<M> {
    fn drop(&mut self) {
        self.set(Err(Error::Closed));
    }
}
