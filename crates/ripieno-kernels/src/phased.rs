//! A slice that threads write in one phase of a loop, each its own parts, and read as a whole in the next phase.

use std::marker::PhantomData;
use std::ops::Range;

/// The slice.
pub(crate) struct Phased<'a, T> {
    start: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: a part is accessed exclusively by one thread, and the whole is only read, as the methods require.
unsafe impl<T: Send + Sync> Sync for Phased<'_, T> {}

impl<'a, T> Phased<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Phased { start: slice.as_mut_ptr(), length: slice.len(), slice: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Return a part for writing.
    ///
    /// # Safety
    /// In this phase, no thread takes an overlapping part or the whole.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.length, "a part lies within its slice");
        // SAFETY: the range lies within the slice, and no other thread has it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// Return the whole slice for reading.
    ///
    /// # Safety
    /// In this phase, no thread takes a part.
    pub(crate) unsafe fn whole(&self) -> &[T] {
        // SAFETY: pointer and length come from the given slice, and no thread writes.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}
