//! Handles of asynchronous calls: the arrays live until the call has ended, whoever forgets them.

use crate::arrays::ArrayBytes;
use crate::communicator::raised_by;
use crate::functions::Raised;
use crate::interruption::Interruption;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use ripieno::{BufferMemory, OwnedBuffers};

/// What an asynchronous call works on.
pub enum HandleMemory {
    /// Arrays, with a reference to each.
    Arrays { _owners: [Option<Py<PyUntypedArray>>; 2], main: BufferMemory<'static>, output: BufferMemory<'static> },
    /// The byte of a barrier.
    Token([u8; 1]),
}

impl HandleMemory {
    /// Keeps the memory of one or two arrays; only reads the first if `only_reads`.
    pub fn arrays(
        main: &Bound<'_, PyUntypedArray>,
        output: Option<&Bound<'_, PyUntypedArray>>,
        only_reads: bool,
    ) -> PyResult<HandleMemory> {
        let into = output.map(|output| ArrayBytes::of(output)?.write()).transpose()?;
        Ok(HandleMemory::Arrays {
            main: ArrayBytes::of(main)?.memory(only_reads)?,
            output: into.map_or(BufferMemory::Read(&[]), BufferMemory::Write),
            _owners: [Some(main.clone().unbind()), output.map(|output| output.clone().unbind())],
        })
    }
}

// SAFETY: the owners hold references to the arrays, whose memory NumPy does not move; `ripieno` keeps a token in one
// place until its call has ended. As for any NumPy function that releases the interpreter, not using an array that a
// call works on is up to the program.
unsafe impl OwnedBuffers for HandleMemory {
    fn buffers(&mut self) -> [BufferMemory<'_>; 2] {
        match self {
            HandleMemory::Arrays { main, output, .. } => [again(main), again(output)],
            HandleMemory::Token(token) => [BufferMemory::Write(token), BufferMemory::Read(&[])],
        }
    }
}

fn again<'a>(memory: &'a mut BufferMemory<'static>) -> BufferMemory<'a> {
    match memory {
        BufferMemory::Read(bytes) => BufferMemory::Read(bytes),
        BufferMemory::Write(bytes) => BufferMemory::Write(bytes),
    }
}

/// An asynchronous call on its way.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Handle {
    inner: ripieno::Handle<HandleMemory>,
    interruption: Interruption,
    /// What the function that combines raised, where there is one.
    raised: Option<Raised>,
}

impl Handle {
    pub fn new(inner: ripieno::Handle<HandleMemory>, interruption: Interruption, raised: Option<Raised>) -> Handle {
        Handle { inner, interruption, raised }
    }
}

/// Waits until one of the handles, of one world, has ended; its place.
#[pyfunction]
pub fn wait_any(py: Python<'_>, handles: Vec<Py<Handle>>) -> PyResult<Option<usize>> {
    let Some(first) = handles.first() else { return Ok(None) };
    let inner: Vec<&ripieno::Handle<HandleMemory>> = handles.iter().map(|handle| &handle.get().inner).collect();
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
