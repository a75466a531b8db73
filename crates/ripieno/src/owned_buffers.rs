//! Buffers that an asynchronous call owns until it has ended.

use crate::pool::PooledBuffer;
use ripieno_run::BufferMemory;

/// Placeholder for a buffer that a collective does not use.
pub const NO_MEMORY: BufferMemory<'static> = BufferMemory::Read(&[]);

/// Memory of an asynchronous call: the two buffers of its task.
///
/// # Safety
/// The bytes must stay in place while the owner lives, also when the owner is moved. During this time, other code may
/// only read buffers that the call only reads, and must not use the others.
pub unsafe trait OwnedBuffers: Send + 'static {
    /// Return the buffers. A buffer that the task does not use is empty.
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
