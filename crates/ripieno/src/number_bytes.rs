//! Numbers in their memory representation, as collectives and files take them.

/// A number that may be read and written in its memory representation.
///
/// # Safety
/// Every byte pattern must be a valid value, and the type must have no padding.
pub(crate) unsafe trait Plain: Copy + Default {}
// SAFETY: integers have no padding, and every byte pattern is a value.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for i64 {}
// SAFETY: the same holds for floats.
unsafe impl Plain for f64 {}

pub(crate) fn bytes_of<T: Plain>(numbers: &[T]) -> &[u8] {
    // SAFETY: this is the memory of the numbers, which has no padding.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

pub(crate) fn bytes_of_mut<T: Plain>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: this is the memory of the numbers, for which all bytes are valid.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}
