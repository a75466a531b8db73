//! Handles of asynchronous calls: the arrays live until the call has ended, whoever forgets them.

use crate::arrays::Bytes;
use crate::communicator::raised_by;
use crate::functions::Raised;
use crate::interruption::Interruption;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use ripieno::{Memory, OwnedBuffers};

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

// SAFETY: the owners hold references to the arrays, whose memory NumPy does not move; `ripieno` keeps a token in one
// place until its call has ended. As for any NumPy function that releases the interpreter, not using an array that a
// call works on is up to the program.
unsafe impl OwnedBuffers for Kept {
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
    inner: ripieno::Handle<Kept>,
    interruption: Interruption,
    /// What the function that combines raised, where there is one.
    raised: Option<Raised>,
}

impl Handle {
    pub fn new(inner: ripieno::Handle<Kept>, interruption: Interruption, raised: Option<Raised>) -> Handle {
        Handle { inner, interruption, raised }
    }
}

/// Waits until one of the handles, of one world, has ended; its place.
#[pyfunction]
pub fn wait_any(py: Python<'_>, handles: Vec<Py<Handle>>) -> PyResult<Option<usize>> {
    let Some(first) = handles.first() else { return Ok(None) };
    let inner: Vec<&ripieno::Handle<Kept>> = handles.iter().map(|handle| &handle.get().inner).collect();
    let ended = py.detach(|| ripieno::Handle::join_any(&inner));
    ended.map_err(|error| first.get().interruption.exception(error))
}

#[pymethods]
impl Handle {
    /// Returns when the call has ended, or raises how it has failed; a second wait for the same call does the same.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let ended = py.detach(|| self.inner.join());
        // The references go with the interpreter held.
        drop(self.inner.take());
        ended.map_err(|error| {
            let raised = self.raised.as_ref().and_then(raised_by);
            raised.unwrap_or_else(|| self.interruption.exception(error))
        })
    }

    /// Whether the call has ended, well or not.
    #[getter]
    fn done(&self) -> bool {
        self.inner.is_done()
    }
}
