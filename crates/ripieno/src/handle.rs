//! Handles of asynchronous calls.

use crate::core::{CoreShared, RankCore};
use crate::error::Error;
use crate::result_slot::ResultSlot;
use ripieno_run::RunError;
use std::sync::Arc;

/// An asynchronous call. Dropping the handle does not end the call, and the memory lives until the call has ended.
pub struct Handle<M> {
    result_slot: Arc<ResultSlot<M>>,
    shared: Arc<CoreShared>,
}

impl<M> Handle<M> {
    pub(crate) fn new(result_slot: Arc<ResultSlot<M>>, shared: Arc<CoreShared>) -> Handle<M> {
        Handle { result_slot, shared }
    }

    /// Return whether the call has ended, with or without an error.
    pub fn is_done(&self) -> bool {
        self.result_slot.is_done()
    }

    /// Make progress on all runs in flight until the call has ended, and return its memory.
    pub fn wait(self) -> Result<M, Error> {
        self.join()?;
        self.take().ok_or(Error::Closed)
    }

    /// Make progress on all runs in flight until the call has ended, and return its result. May be called repeatedly.
    /// An interruption is reported to the job, and fails it.
    pub fn join(&self) -> Result<(), Error> {
        if !self.is_done() {
            match self.shared.hold_unless(&|| self.is_done()) {
                Ok(Some(mut held)) => {
                    let RankCore { fabric, executor, .. } = held.core();
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
        self.result_slot.ended().unwrap_or(Err(Error::Closed))
    }

    /// Make progress on all runs in flight until one of `handles` has ended, and return its index. All handles must
    /// belong to one world.
    pub fn join_any(handles: &[&Handle<M>]) -> Result<Option<usize>, Error> {
        let done = || handles.iter().position(|handle| handle.is_done());
        let Some(first) = handles.first() else { return Ok(None) };
        if done().is_none() {
            match first.shared.hold_unless(&|| done().is_some()) {
                Ok(Some(mut held)) => {
                    let RankCore { fabric, executor, .. } = held.core();
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

    /// Take the memory of a successful call. Return `Some` only once.
    pub fn take(&self) -> Option<M> {
        self.result_slot.take()
    }
}
