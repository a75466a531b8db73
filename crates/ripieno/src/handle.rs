//! Handles: what an asynchronous call gives back at once, and its result later.

use crate::core::Shared;
use crate::error::Error;
use crate::pool::PooledBuffer;
use crate::seat::NO_MEMORY;
use ripieno_run::{Memory, RunError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Memory that an asynchronous call works on: the first buffer of its task, and the second.
///
/// # Safety
/// The bytes stay where they are as long as the owner lives, also when it is moved, and nobody else uses them meanwhile
/// (nobody writes to those that are only read).
pub unsafe trait Lasting: Send + 'static {
    /// The buffers; an empty one where the task has none.
    fn buffers(&mut self) -> [Memory<'_>; 2];
}

// SAFETY: a vector owns its bytes, and moving it does not move them.
unsafe impl Lasting for Vec<u8> {
    fn buffers(&mut self) -> [Memory<'_>; 2] {
        [Memory::Write(self), NO_MEMORY]
    }
}

// SAFETY: as above.
unsafe impl Lasting for (Vec<u8>, Vec<u8>) {
    fn buffers(&mut self) -> [Memory<'_>; 2] {
        [Memory::Read(&self.0), Memory::Write(&mut self.1)]
    }
}

// SAFETY: a pooled buffer owns its bytes as a vector does.
unsafe impl Lasting for PooledBuffer {
    fn buffers(&mut self) -> [Memory<'_>; 2] {
        [Memory::Write(self.bytes_mut()), NO_MEMORY]
    }
}

/// A call that goes on by itself. Dropping the handle does not end it, and its memory lives until it has ended.
pub struct Handle<M> {
    ticket: Arc<Ticket<M>>,
    shared: Arc<Shared>,
}

/// Where the result of a run is put.
pub(crate) struct Ticket<M> {
    is_done: AtomicBool,
    outcome: Mutex<Option<Result<M, Error>>>,
}

/// Tells a ticket once; that the communicator is closed if nothing else was told.
pub(crate) struct Completion<M> {
    ticket: Option<Arc<Ticket<M>>>,
}

impl<M> Handle<M> {
    pub(crate) fn new(ticket: Arc<Ticket<M>>, shared: Arc<Shared>) -> Handle<M> {
        Handle { ticket, shared }
    }

    /// Whether it has ended, well or not.
    pub fn is_done(&self) -> bool {
        self.ticket.is_done()
    }

    /// Waits for the end, moving on whatever is in flight, and gives the memory back.
    pub fn wait(self) -> Result<M, Error> {
        if !self.is_done() {
            let mut held = self.shared.hold();
            if let Ok(core) = held.core() {
                let driven = core.executor.drive(&mut *core.fabric, true, &|| self.ticket.is_done());
                if driven == Err(RunError::Interrupted) {
                    return Err(Error::Interrupted);
                }
            }
        }
        self.ticket.take().unwrap_or(Err(Error::Closed))
    }
}

impl<M> Default for Ticket<M> {
    fn default() -> Self {
        Ticket { is_done: AtomicBool::new(false), outcome: Mutex::new(None) }
    }
}

impl<M> Ticket<M> {
    pub fn completion(ticket: &Arc<Ticket<M>>) -> Completion<M> {
        Completion { ticket: Some(ticket.clone()) }
    }

    fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    fn put(&self, outcome: Result<M, Error>) {
        *crate::core::lock(&self.outcome) = Some(outcome);
        self.is_done.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<Result<M, Error>> {
        crate::core::lock(&self.outcome).take()
    }
}

impl<M> Completion<M> {
    pub fn tell(mut self, outcome: Result<M, Error>) {
        if let Some(ticket) = self.ticket.take() {
            ticket.put(outcome);
        }
    }
}

impl<M> Drop for Completion<M> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            ticket.put(Err(Error::Closed));
        }
    }
}
