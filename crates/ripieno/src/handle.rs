//! Handles: what an asynchronous call gives back at once, and its result later.

use crate::core::{Core, CoreShared};
use crate::error::Error;
use crate::ticket::ResultSlot;
use ripieno_run::RunError;
use std::sync::Arc;

/// A call that goes on by itself. Dropping the handle does not end it, and its memory lives until it has ended.
pub struct Handle<M> {
    ticket: Arc<ResultSlot<M>>,
    shared: Arc<CoreShared>,
}

impl<M> Handle<M> {
    pub(crate) fn new(ticket: Arc<ResultSlot<M>>, shared: Arc<CoreShared>) -> Handle<M> {
        Handle { ticket, shared }
    }

    /// Whether it has ended, well or not.
    pub fn is_done(&self) -> bool {
        self.ticket.is_done()
    }

    /// Waits for the end, moving on whatever is in flight, and gives the memory back.
    pub fn wait(self) -> Result<M, Error> {
        self.join()?;
        self.take().ok_or(Error::Closed)
    }

    /// Waits for the end, moving on whatever is in flight, and says how it was, each time it is asked. Who is
    /// interrupted has told the job, whose failure is then the end.
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
                // The world may have been closed because this has ended.
                Ok(None) | Err(Error::Closed) => {}
                Err(error) => return Err(error),
            }
        }
        self.ticket.ended().unwrap_or(Err(Error::Closed))
    }

    /// Waits until one of `handles`, of one world, has ended, moving on whatever is in flight; its place.
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

    /// The memory of a call that has ended well, once.
    pub fn take(&self) -> Option<M> {
        self.ticket.take()
    }
}
