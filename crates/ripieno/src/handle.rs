//! Handles of asynchronous calls.

use crate::core::{Core, CoreShared};
use crate::error::Error;
use crate::ticket::ResultSlot;
use ripieno_run::RunError;
use std::sync::Arc;

/// An asynchronous call. Dropping the handle does not end the call, and the memory lives until the call has ended.
pub struct Handle<M> {
    ticket: Arc<ResultSlot<M>>,
    shared: Arc<CoreShared>,
}

impl<M> Handle<M> {
    pub(crate) fn new(ticket: Arc<ResultSlot<M>>, shared: Arc<CoreShared>) -> Handle<M> {
        Handle { ticket, shared }
    }

    /// Return whether the call has ended, with or without an error.
    pub fn is_done(&self) -> bool {
        self.ticket.is_done()
    }

    /// Wait for the call and return its memory. Makes progress on all runs in flight meanwhile.
    pub fn wait(self) -> Result<M, Error> {
        self.join()?;
        self.take().ok_or(Error::Closed)
    }

    /// Wait for the call and return its result; may be called repeatedly. Makes progress on all runs in flight
    /// meanwhile. An interruption is reported to the job, and fails it.
    pub fn join(&self) -> Result<(), Error> {
        if !self.is_done() {
            match self.shared.hold_unless(&|| self.is_done()) {
                Ok(Some(mut held)) => {
                    let Core { fabric, executor, .. } = held.core();
                    let driven = executor.drive(&mut **fabric, true, &|| self.is_done());
                    if driven == Err(RunError::Interrupted) {
                        return Err(Error::Interrupted);
                    }
                }
                // The world may have been closed because this call has ended.
                Ok(None) | Err(Error::Closed) => {}
                Err(error) => return Err(error),
            }
        }
        self.ticket.ended().unwrap_or(Err(Error::Closed))
    }

    /// Wait until one of `handles`, all of one world, has ended, and return its index. Makes progress on all runs in
    /// flight meanwhile.
    pub fn join_any(handles: &[&Handle<M>]) -> Result<Option<usize>, Error> {
        let done = || handles.iter().position(|handle| handle.is_done());
        let Some(first) = handles.first() else { return Ok(None) };
        if done().is_none() {
            match first.shared.hold_unless(&|| done().is_some()) {
                Ok(Some(mut held)) => {
                    let Core { fabric, executor, .. } = held.core();
                    let driven = executor.drive(&mut **fabric, true, &|| done().is_some());
                    if driven == Err(RunError::Interrupted) {
                        return Err(Error::Interrupted);
                    }
                }
                Ok(None) | Err(Error::Closed) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done())
    }

    /// Take the memory of a successful call. Returns `Some` only once.
    pub fn take(&self) -> Option<M> {
        self.ticket.take()
    }
}
