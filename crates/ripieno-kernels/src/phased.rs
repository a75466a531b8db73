//! A slice that the threads of a loop write in one phase, each its parts, and read in the next.

use std::marker::PhantomData;
use std::ops::Range;

/// The slice.
pub(crate) struct Phased<'a, T> {
    start: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: who takes a part has it alone, and who takes the whole has it to read, as the methods ask for.
unsafe impl<T: Send + Sync> Sync for Phased<'_, T> {}

impl<'a, T> Phased<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Phased { start: slice.as_mut_ptr(), length: slice.len(), slice: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// A part, to write.
    ///
    /// # Safety
    /// In this phase, no thread takes another part that overlaps with it, nor the whole.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.length, "a part lies within its slice");
        // SAFETY: within the slice, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// All of it, to read.
    ///
    /// # Safety
    /// In this phase, no thread takes a part.
    pub(crate) unsafe fn whole(&self) -> &[T] {
        // SAFETY: as it was given, and nobody writes.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}
