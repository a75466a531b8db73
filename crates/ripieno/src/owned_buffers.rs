//! Buffers that an asynchronous call owns until it has ended.

use crate::pool::PooledBuffer;
use ripieno_run::BufferMemory;

/// Placeholder for a buffer that a collective does not use.
pub const NO_MEMORY: BufferMemory<'static> = BufferMemory::Read(&[]);

/// Memory of an asynchronous call: the first buffer of its task, and the second.
///
/// # Safety
/// The bytes must stay in place while the owner lives, also when the owner is moved. No other code may use them
/// meanwhile, except to read the buffers that are only read.
pub unsafe trait OwnedBuffers: Send + 'static {
    /// Return the buffers; empty for a buffer that the task does not use.
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

// SAFETY: a pooled buffer owns its bytes like a vector.
unsafe impl OwnedBuffers for PooledBuffer {
    fn buffers(&mut self) -> [BufferMemory<'_>; 2] {
        [BufferMemory::Write(self.bytes_mut()), NO_MEMORY]
    }
}
