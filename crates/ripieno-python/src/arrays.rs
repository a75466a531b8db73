//! Access to the bytes of NumPy arrays for collectives.

use crate::errors;
use numpy::npyffi::flags::{NPY_ARRAY_CARRAY_RO, NPY_ARRAY_WRITEABLE};
use numpy::npyffi::{PY_ARRAY_API, PyArray_CheckExact, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use ripieno::{BufferMemory, Element};
use std::ffi::c_int;
use std::ops::Range;

/// Maximum size of a short array. Copying it takes a few microseconds, so the interpreter need not be released.
pub const MAX_SHORT_BYTES: usize = 64 << 10;

/// The memory of an array, valid during the call that received the array.
#[derive(Clone, Copy)]
pub struct ArrayBytes {
    data: *mut u8,
    length_bytes: usize,
    writable: bool,
    /// The type of the elements.
    pub element: Element,
}

// SAFETY: the memory belongs to an array that the calling thread references until the call returns, and NumPy does not
// move it. Like any NumPy function that releases the interpreter, this requires that the program does not write to an
// array that another thread uses.
unsafe impl Send for ArrayBytes {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for ArrayBytes {}

impl ArrayBytes {
    /// Return the memory of `array`, which must be C-contiguous.
    pub fn of(array: &Bound<'_, PyUntypedArray>) -> PyResult<ArrayBytes> {
        if !array.is_c_contiguous() {
            return Err(errors::input(format!("array of shape {:?}: expected a C-contiguous array", array.shape())));
        }
        Ok(ArrayBytes::of_elements(array, element(array)?))
    }

    fn of_elements(array: &Bound<'_, PyUntypedArray>, element: Element) -> ArrayBytes {
        let length_bytes = array.len() * element.size_bytes();
        // SAFETY: the pointer refers to a live array object.
        let fields = unsafe { &(*array.as_array_ptr()).fields };
        // An empty array may have any pointer, but a slice must not have a null pointer.
        let data = if length_bytes == 0 { std::ptr::dangling_mut() } else { fields.data.cast() };
        ArrayBytes { data, length_bytes, writable: fields.flags & NPY_ARRAY_WRITEABLE != 0, element }
    }

    /// Return the memory of `value` for writing, if `value` is a contiguous, writable NumPy array (no subclass) of
    /// numbers in native byte order.
    #[inline]
    pub fn plain<'a, 'py>(value: &'a Bound<'py, PyAny>) -> Option<(ArrayBytes, &'a Bound<'py, PyUntypedArray>)> {
        ArrayBytes::plain_to_read(value).filter(|(bytes, _)| bytes.writable)
    }

    /// Return the memory of `value` for reading, if `value` is such an array, writable or not.
    #[inline]
    pub fn plain_to_read<'a, 'py>(
        value: &'a Bound<'py, PyAny>,
    ) -> Option<(ArrayBytes, &'a Bound<'py, PyUntypedArray>)> {
        // SAFETY: the pointer refers to a live object.
        if unsafe { PyArray_CheckExact(value.py(), value.as_ptr()) } == 0 {
            return None;
        }
        // SAFETY: the object has just been checked to be an array.
        let array = unsafe { value.cast_unchecked::<PyUntypedArray>() };
        // SAFETY: the pointer refers to a live array object.
        let flags = unsafe { (*array.as_array_ptr()).fields.flags };
        let element = number(&array.dtype()).filter(|_| flags & NPY_ARRAY_CARRAY_RO == NPY_ARRAY_CARRAY_RO)?;
        Some((ArrayBytes::of_elements(array, element), array))
    }

    /// Return whether the array has at most [`MAX_SHORT_BYTES`].
    pub fn is_short(self) -> bool {
        self.length_bytes <= MAX_SHORT_BYTES
    }

    /// Return the memory of some elements.
    ///
    /// # Panics
    /// If the array has fewer elements.
    pub fn range(self, elements: Range<usize>) -> ArrayBytes {
        let size = self.element.size_bytes();
        assert!(elements.start <= elements.end && elements.end * size <= self.length_bytes, "elements of the array");
        // SAFETY: the elements are within the array.
        let data = unsafe { self.data.add(elements.start * size) };
        ArrayBytes { data, length_bytes: elements.len() * size, ..self }
    }

    /// Return whether `other` has the same length and type.
    pub fn fits(self, other: ArrayBytes) -> bool {
        self.length_bytes == other.length_bytes && self.element == other.element
    }

    /// Return whether both arrays share memory.
    pub fn overlaps(self, other: ArrayBytes) -> bool {
        let (own, others) = (self.data.addr(), other.data.addr());
        own < others + other.length_bytes && others < own + self.length_bytes
    }

    /// Copy the bytes to `other`, which must have the same length and be writable.
    pub fn copy_to(self, other: ArrayBytes) {
        assert!(other.writable && self.length_bytes == other.length_bytes);
        // SAFETY: see `Send`; both are `length_bytes` long, and may overlap.
        unsafe { std::ptr::copy(self.data, other.data, self.length_bytes) };
    }

    /// Return the bytes for reading.
    pub fn read<'a>(self) -> &'a [u8] {
        // SAFETY: see `Send`; the memory is contiguous and `length_bytes` long.
        unsafe { std::slice::from_raw_parts(self.data, self.length_bytes) }
    }

    /// Return the bytes for writing.
    pub fn write<'a>(self) -> PyResult<&'a mut [u8]> {
        if !self.writable {
            return Err(errors::input("the array is read-only: expected a writable array for the result".to_string()));
        }
        // SAFETY: see `Send`; the memory is contiguous, `length_bytes` long and NumPy says that it may be written.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.data, self.length_bytes) })
    }

    /// Return the bytes for reading if `read_only`, else for writing.
    pub fn memory<'a>(self, read_only: bool) -> PyResult<BufferMemory<'a>> {
        if read_only { Ok(BufferMemory::Read(self.read())) } else { Ok(BufferMemory::Write(self.write()?)) }
    }
}

/// Create an array with uninitialized elements.
pub fn empty<'py>(py: Python<'py>, element: Element, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    static TYPES: [PyOnceLock<Py<PyArrayDescr>>; Element::ALL.len()] =
        [const { PyOnceLock::new() }; Element::ALL.len()];
    let descr =
        TYPES[element as usize].get_or_try_init(py, || PyArrayDescr::new(py, element.name()).map(Bound::unbind))?;
    let mut axes: Vec<npy_intp> = shape.iter().map(|&axis| axis as npy_intp).collect();
    // SAFETY: the shape has the given number of axes, and the array takes over a reference to the type. The result is a
    // new reference or null.
    unsafe {
        let descr = descr.bind(py).clone().into_dtype_ptr();
        let array = PY_ARRAY_API.PyArray_Empty(py, axes.len() as c_int, axes.as_mut_ptr(), descr, 0);
        Bound::from_owned_ptr_or_err(py, array)
    }
}

/// Return the bytes of numbers for reading.
pub fn bytes_of(numbers: &[f64]) -> &[u8] {
    // SAFETY: a number has no padding, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// Return the bytes of numbers for writing.
pub fn bytes_of_mut(numbers: &mut [f64]) -> &mut [u8] {
    // SAFETY: as above, and any eight bytes are a number.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// Return the element type of an array, if it is a built-in NumPy type in native byte order.
#[inline]
fn number(dtype: &Bound<'_, PyArrayDescr>) -> Option<Element> {
    let element = match (dtype.kind(), dtype.itemsize()) {
        (b'i', 1) => Element::I8,
        (b'i', 2) => Element::I16,
        (b'i', 4) => Element::I32,
        (b'i', 8) => Element::I64,
        (b'u', 1) => Element::U8,
        (b'u', 2) => Element::U16,
        (b'u', 4) => Element::U32,
        (b'u', 8) => Element::U64,
        (b'f', 2) => Element::F16,
        (b'f', 4) => Element::F32,
        (b'f', 8) => Element::F64,
        _ => return None,
    };
    (dtype.is_native_byteorder() != Some(false)).then_some(element)
}

/// Return the element type of an array, if the runtime knows it.
pub fn known_element(array: &Bound<'_, PyUntypedArray>) -> PyResult<Option<Element>> {
    let dtype = array.dtype();
    if let Some(element) = number(&dtype) {
        return Ok(Some(element));
    }
    // A type that is not built into NumPy can only be identified by name.
    let may_be_known = dtype.itemsize() == 2 && dtype.is_native_byteorder() != Some(false);
    Ok((may_be_known && dtype.getattr("name")?.eq(Element::Bf16.name())?).then_some(Element::Bf16))
}

fn element(array: &Bound<'_, PyUntypedArray>) -> PyResult<Element> {
    known_element(array)?.ok_or_else(|| {
        let names = Element::ALL.map(Element::name).join(", ");
        errors::input(format!("dtype {}: expected one of {names} in this machine's byte order", array.dtype()))
    })
}
