//! Handles: what an asynchronous call gives back at once, and its result later.

use crate::core::{Core, Shared, lock};
use crate::error::Error;
use crate::pool::PooledBuffer;
use crate::seat::NO_MEMORY;
use ripieno_run::{Memory, RunError};
use std::sync::{Arc, Mutex, OnceLock, Weak};

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
    /// How it has ended, if it has.
    ended: OnceLock<Result<(), Error>>,
    /// What it worked on, from a good end on.
    memory: Mutex<Option<M>>,
}

/// Tells a ticket once; that the communicator is closed if nothing else was told.
pub(crate) struct Completion<M> {
    ticket: Option<Arc<Ticket<M>>>,
    shared: Weak<Shared>,
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
        self.join()?;
        self.take().ok_or(Error::Closed)
    }

    /// Waits for the end, moving on whatever is in flight, and says how it was, each time it is asked. Who is interrupted
    /// has told the job, whose failure is then the end.
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
        self.ticket.ended.get().cloned().unwrap_or(Err(Error::Closed))
    }

    /// The memory of a call that has ended well, once.
    pub fn take(&self) -> Option<M> {
        lock(&self.ticket.memory).take()
    }
}

impl<M> Default for Ticket<M> {
    fn default() -> Self {
        Ticket { ended: OnceLock::new(), memory: Mutex::new(None) }
    }
}

impl<M> Ticket<M> {
    pub fn completion(ticket: &Arc<Ticket<M>>, shared: &Arc<Shared>) -> Completion<M> {
        Completion { ticket: Some(ticket.clone()), shared: Arc::downgrade(shared) }
    }

    fn is_done(&self) -> bool {
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
        if let Some(shared) = self.shared.upgrade() {
            shared.tell_end();
        }
    }
}

impl<M> Drop for Completion<M> {
    fn drop(&mut self) {
        self.put(Err(Error::Closed));
    }
}
