//! Handles of asynchronous calls. An array lives until its call has ended, even if the handle is dropped.

use crate::arrays::ArrayBytes;
use crate::communicator::take_raised;
use crate::functions::Raised;
use crate::interruption::Interruption;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use ripieno::{BufferMemory, OwnedBuffers};

/// Memory of an asynchronous call.
pub enum HandleMemory {
    /// Arrays, with a reference to each.
    Arrays { _owners: [Option<Py<PyUntypedArray>>; 2], main: BufferMemory<'static>, output: BufferMemory<'static> },
    /// The byte of a barrier.
    Token([u8; 1]),
}

impl HandleMemory {
    /// Reference the memory of one or two arrays. The call only reads the first if `only_reads`.
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

// SAFETY: the owners reference the arrays, and NumPy does not move their memory. `ripieno` does not move a token until
// its call has ended. Like any NumPy function that releases the interpreter, this requires that the program does not
// use an array during the call.
unsafe impl OwnedBuffers for HandleMemory {
    fn buffers(&mut self) -> [BufferMemory<'_>; 2] {
        match self {
            HandleMemory::Arrays { main, output, .. } => [reborrow(main), reborrow(output)],
            HandleMemory::Token(token) => [BufferMemory::Write(token), BufferMemory::Read(&[])],
        }
    }
}

fn reborrow<'a>(memory: &'a mut BufferMemory<'static>) -> BufferMemory<'a> {
    match memory {
        BufferMemory::Read(bytes) => BufferMemory::Read(bytes),
        BufferMemory::Write(bytes) => BufferMemory::Write(bytes),
    }
}

/// An asynchronous call.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Handle {
    inner: ripieno::Handle<HandleMemory>,
    interruption: Interruption,
    /// Exception of the user-defined function, if there is one.
    raised: Option<Raised>,
}

impl Handle {
    pub fn new(inner: ripieno::Handle<HandleMemory>, interruption: Interruption, raised: Option<Raised>) -> Handle {
        Handle { inner, interruption, raised }
    }
}

/// Wait until one of the handles has ended, and return its index. All must belong to one world.
#[pyfunction]
pub fn wait_any(py: Python<'_>, handles: Vec<Py<Handle>>) -> PyResult<Option<usize>> {
    let Some(first) = handles.first() else { return Ok(None) };
    let inner: Vec<&ripieno::Handle<HandleMemory>> = handles.iter().map(|handle| &handle.get().inner).collect();
    let ended = py.detach(|| ripieno::Handle::join_any(&inner));
    ended.map_err(|error| first.get().interruption.exception(error))
}

#[pymethods]
impl Handle {
    /// Wait until the call has ended, and raise its error if it has failed. A second wait has the same result.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let ended = py.detach(|| self.inner.join());
        // Drop the references while the interpreter is held.
        drop(self.inner.take());
        ended.map_err(|error| {
            let raised = self.raised.as_ref().and_then(take_raised);
            raised.unwrap_or_else(|| self.interruption.exception(error))
        })
    }

    /// Whether the call has ended, with or without an error.
    #[getter]
    fn done(&self) -> bool {
        self.inner.is_done()
    }
}
