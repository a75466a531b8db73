//! Buffers that an asynchronous call owns until it has ended.

use crate::pool::PooledBuffer;
use ripieno_run::BufferMemory;

/// What takes the place of a buffer that a collective does not have.
pub const NO_MEMORY: BufferMemory<'static> = BufferMemory::Read(&[]);

/// Memory that an asynchronous call works on: the first buffer of its task, and the second.
///
/// # Safety
/// The bytes stay where they are as long as the owner lives, also when it is moved, and nobody else uses them meanwhile
/// (nobody writes to those that are only read).
pub unsafe trait OwnedBuffers: Send + 'static {
    /// The buffers; an empty one where the task has none.
    fn buffers(&mut self) -> [BufferMemory<'_>; 2];
}

// SAFETY: a vector owns its bytes, and moving it does not move them.
unsafe impl OwnedBuffers for Vec<u8> {
    fn buffers(&mut self) -> [BufferMemory<'_>; 2] {
        [BufferMemory::Write(self), NO_MEMORY]
    }
}

// SAFETY: as above.
unsafe impl OwnedBuffers for (Vec<u8>, Vec<u8>) {
    fn buffers(&mut self) -> [BufferMemory<'_>; 2] {
        [BufferMemory::Read(&self.0), BufferMemory::Write(&mut self.1)]
    }
}

// SAFETY: a pooled buffer owns its bytes as a vector does.
unsafe impl OwnedBuffers for PooledBuffer {
    fn buffers(&mut self) -> [BufferMemory<'_>; 2] {
        [BufferMemory::Write(self.bytes_mut()), NO_MEMORY]
    }
}
