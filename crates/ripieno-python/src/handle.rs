//! Handles of asynchronous calls: the arrays live until the call has ended, whoever forgets them.

use crate::arrays::Bytes;
use crate::errors;
use crate::interruption::Interruption;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use ripieno::{Error, Lasting, Memory};
use std::sync::{Mutex, MutexGuard};

/// What an asynchronous call works on.
pub enum Kept {
    /// Arrays, with a reference to each.
    Arrays { _owners: [Option<Py<PyUntypedArray>>; 2], main: Memory<'static>, output: Memory<'static> },
    /// The byte of a barrier.
    Token([u8; 1]),
}

impl Kept {
    /// Keeps the memory of one or two arrays; only reads the first if `only_reads`.
    pub fn arrays(
        main: &Bound<'_, PyUntypedArray>,
        output: Option<&Bound<'_, PyUntypedArray>>,
        only_reads: bool,
    ) -> PyResult<Kept> {
        let into = output.map(|output| Bytes::of(output)?.write()).transpose()?;
        Ok(Kept::Arrays {
            main: Bytes::of(main)?.memory(only_reads)?,
            output: into.map_or(Memory::Read(&[]), Memory::Write),
            _owners: [Some(main.clone().unbind()), output.map(|output| output.clone().unbind())],
        })
    }
}

// SAFETY: the owners hold references to the arrays, whose memory NumPy does not move; `ripieno` keeps a token in one place
// until its call has ended. As for any NumPy function that releases the interpreter, not using an array that a call works
// on is up to the program.
unsafe impl Lasting for Kept {
    fn buffers(&mut self) -> [Memory<'_>; 2] {
        match self {
            Kept::Arrays { main, output, .. } => [again(main), again(output)],
            Kept::Token(token) => [Memory::Write(token), Memory::Read(&[])],
        }
    }
}

fn again<'a>(memory: &'a mut Memory<'static>) -> Memory<'a> {
    match memory {
        Memory::Read(bytes) => Memory::Read(bytes),
        Memory::Write(bytes) => Memory::Write(bytes),
    }
}

/// An asynchronous call on its way.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Handle {
    inner: Mutex<Option<ripieno::Handle<Kept>>>,
    interruption: Interruption,
}

impl Handle {
    pub fn new(inner: ripieno::Handle<Kept>, interruption: Interruption) -> Handle {
        Handle { inner: Mutex::new(Some(inner)), interruption }
    }

    fn lock(&self) -> MutexGuard<'_, Option<ripieno::Handle<Kept>>> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[pymethods]
impl Handle {
    /// Returns when the call has ended; a second wait for the same call returns at once.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let Some(handle) = self.lock().take() else { return Ok(()) };
        let ended = py.detach(|| handle.wait().map(drop));
        ended.map_err(|error: Error| self.interruption.take().unwrap_or_else(|| errors::from_collective(error)))
    }

    /// Whether the call has ended, well or not.
    #[getter]
    fn done(&self) -> bool {
        self.lock().as_ref().is_none_or(ripieno::Handle::is_done)
    }
}
