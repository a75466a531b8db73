//! Memory of a plan: read-only and writable buffers.

use ripieno_plan::Span;
use std::ops::Range;

/// One buffer of a run.
#[derive(Debug)]
pub enum BufferMemory<'a> {
    /// The plan only reads the buffer.
    Read(&'a [u8]),
    /// The plan may write to the buffer.
    Write(&'a mut [u8]),
}

impl BufferMemory<'_> {
    /// Return the size in bytes.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Return whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return a reborrow of the same memory.
    pub fn reborrow(&mut self) -> BufferMemory<'_> {
        match self {
            BufferMemory::Read(bytes) => BufferMemory::Read(bytes),
            BufferMemory::Write(bytes) => BufferMemory::Write(bytes),
        }
    }

    /// Return the same memory with an unlimited lifetime.
    ///
    /// # Safety
    ///
    /// The caller must not use the result after the memory is freed. Until then the memory must not be accessed
    /// otherwise, except for reads of read-only memory.
    pub unsafe fn extend_lifetime(&mut self) -> BufferMemory<'static> {
        match self {
            // SAFETY: the slice is valid for as long as the caller guarantees.
            BufferMemory::Read(bytes) => {
                BufferMemory::Read(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) })
            }
            BufferMemory::Write(bytes) => {
                // SAFETY: the slice is valid for as long as the caller guarantees, and is not accessed otherwise
                // meanwhile.
                BufferMemory::Write(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr(), bytes.len()) })
            }
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            BufferMemory::Read(bytes) => bytes,
            BufferMemory::Write(bytes) => bytes,
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            BufferMemory::Read(_) => panic!("a plan writes only to writable buffers"),
            BufferMemory::Write(bytes) => bytes,
        }
    }
}

/// Return the bytes `from..to` of `span` as a range of its buffer.
pub(super) fn range(span: Span, from: usize, to: usize) -> Range<usize> {
    span.start_bytes + from..span.start_bytes + to
}

/// Return the largest multiple of `element_bytes`, a power of two, up to `bytes`.
pub(super) fn round_down(bytes: usize, element_bytes: usize) -> usize {
    bytes & !(element_bytes - 1)
}

/// Return the bytes of two disjoint spans, the first for reading, the second for writing.
pub(super) fn source_and_target<'a>(
    buffers: &'a mut [BufferMemory<'_>],
    source: Span,
    target: Span,
) -> (&'a [u8], &'a mut [u8]) {
    let (a, b) = (source.buffer.0 as usize, target.buffer.0 as usize);
    let (read, write) = (range(source, 0, source.length_bytes), range(target, 0, target.length_bytes));
    if a != b {
        let [source, target] = buffers.get_disjoint_mut([a, b]).expect("a run has the buffers of its plan");
        return (&source.bytes()[read], &mut target.bytes_mut()[write]);
    }
    let bytes = buffers[a].bytes_mut();
    if read.start < write.start {
        let (left, right) = bytes.split_at_mut(write.start);
        (&left[read], &mut right[..write.len()])
    } else {
        let (left, right) = bytes.split_at_mut(read.start);
        (&right[..read.len()], &mut left[write])
    }
}

/// Copy the bytes `from..to` of one span to the same position of another.
pub(super) fn copy(buffers: &mut [BufferMemory<'_>], source: Span, target: Span, from: usize, to: usize) {
    let (a, b) = (source.buffer.0 as usize, target.buffer.0 as usize);
    let (read, write) = (range(source, from, to), range(target, from, to));
    match buffers.get_disjoint_mut([a, b]) {
        Ok([source, target]) => target.bytes_mut()[write].copy_from_slice(&source.bytes()[read]),
        Err(_) => buffers[a].bytes_mut().copy_within(read, write.start),
    }
}
