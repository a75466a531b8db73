//! Memory of the buffer pool, under Python's buffer protocol: an array on it gives it back when it is collected.

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use ripieno::{BufferPool, PooledBuffer};
use std::ffi::c_int;
use std::sync::LazyLock;

static POOL: LazyLock<BufferPool> = LazyLock::new(BufferPool::default);

/// Memory for a result; ``numpy.frombuffer`` makes an array of it.
#[pyclass(module = "ripieno._native")]
pub struct Memory {
    buffer: PooledBuffer,
}

/// `length_bytes` bytes of any content, used before where that is possible.
#[pyfunction]
pub fn pooled(length_bytes: usize) -> PyResult<Memory> {
    let buffer = POOL.take(length_bytes).map_err(|error| {
        PyMemoryError::new_err(format!("an array of {length_bytes} bytes in shared memory: {error}"))
    })?;
    Ok(Memory { buffer })
}

#[pymethods]
impl Memory {
    /// Shows the bytes to whoever asks, for as long as it holds a reference to this object.
    ///
    /// # Safety
    /// `view` is a buffer that the interpreter wants filled.
    unsafe fn __getbuffer__(mut slf: PyRefMut<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slf.buffer.bytes_mut();
        let (data, length) = (bytes.as_mut_ptr().cast(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: the memory stays where it is as long as this object lives, and the view holds a reference to it.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, length, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
