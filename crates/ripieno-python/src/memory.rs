//! Buffers of the pool for Python. A buffer returns to the pool when Python collects its array.

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use ripieno::{BufferPool, PooledBuffer};
use std::ffi::c_int;
use std::sync::LazyLock;

static POOL: LazyLock<BufferPool> = LazyLock::new(BufferPool::default);

/// Writable buffer for a result. ``numpy.frombuffer`` creates an array on it.
#[pyclass(module = "ripieno._native")]
pub struct Memory {
    buffer: PooledBuffer,
}

/// Take `length_bytes` bytes with unspecified content, from the pool if possible.
#[pyfunction]
pub fn pooled(length_bytes: usize) -> PyResult<Memory> {
    let taken = POOL.take(length_bytes);
    let buffer = taken.map_err(|error| {
        PyMemoryError::new_err(format!("an array of {length_bytes} bytes in shared memory: {error}"))
    })?;
    Ok(Memory { buffer })
}

#[pymethods]
impl Memory {
    /// Export the bytes as a buffer, which holds a reference to this object.
    ///
    /// # Safety
    /// `view` must be a buffer that the interpreter has passed to be filled.
    unsafe fn __getbuffer__(mut slf: PyRefMut<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slf.buffer.bytes_mut();
        let (data, length) = (bytes.as_mut_ptr().cast(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: the memory stays in place while this object lives, and the view holds a reference to the object.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, length, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
