//! Transfer of [frames](ripieno::frame), the first messages of object transfers.

use crate::communicator::Communicator;
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};
use ripieno::frame::{Content, MAX_CONTENT_BYTES, MessageFrame};
use ripieno::{BufferMemory, CollectiveTask, Element, ElementShape, ElementType, NO_MEMORY, WholeBuffer};

/// Add the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("FRAME_ROOM_BYTES", MAX_CONTENT_BYTES)?;
    module.add_function(wrap_pyfunction!(frame, module)?)?;
    module.add_function(wrap_pyfunction!(send_frame, module)?)?;
    module.add_function(wrap_pyfunction!(broadcast_frame, module)?)
}

/// Convert a frame to its kind, and its bytes or their number.
pub fn to_python<'py>(py: Python<'py>, frame: &MessageFrame) -> PyResult<Bound<'py, PyAny>> {
    let tuple = match frame.read() {
        (kind, Content::Inline(bytes)) => (kind, PyBytes::new(py, bytes)).into_pyobject(py),
        (kind, Content::Separate(length)) => (kind, PyInt::new(py, length)).into_pyobject(py),
    };
    Ok(tuple?.into_any())
}

fn from_python(kind: u64, content: &Bound<'_, PyAny>) -> PyResult<MessageFrame> {
    let frame = match content.cast::<PyBytes>() {
        Ok(bytes) => MessageFrame::new(kind, Content::Inline(bytes.as_bytes())),
        Err(_) => MessageFrame::new(kind, Content::Separate(content.extract()?)),
    };
    frame.ok_or_else(|| PyValueError::new_err(format!("a frame has at most {MAX_CONTENT_BYTES} bytes of content")))
}

/// Sends and receives the frames of a communicator.
pub struct Frames<'a, 'py> {
    pub py: Python<'py>,
    pub comm: &'a Communicator,
    /// The signature that ranks compare.
    pub signature: &'a str,
}

impl Frames<'_, '_> {
    /// Send a frame to rank `to`.
    pub fn send(&self, mut frame: MessageFrame, to: usize) -> PyResult<()> {
        let task = CollectiveTask::PointToPoint { from: self.rank(), to, vector: WholeBuffer };
        self.run(&task, None, std::slice::from_mut(&mut frame))
    }

    /// Receive the next frame of rank `source`.
    pub fn receive(&self, source: usize) -> PyResult<MessageFrame> {
        let mut frame = MessageFrame::EMPTY;
        let task = CollectiveTask::PointToPoint { from: source, to: self.rank(), vector: WholeBuffer };
        self.run(&task, None, std::slice::from_mut(&mut frame))?;
        Ok(frame)
    }

    /// Broadcast the root's frames. The number of frames is equal on all ranks.
    pub fn broadcast(&self, frames: &mut [MessageFrame], root: usize, algorithm: Option<&str>) -> PyResult<()> {
        self.run(&CollectiveTask::Broadcast { root, vector: WholeBuffer }, algorithm, frames)
    }

    /// Gather the frames of all ranks; `mine` is the frame of this rank.
    pub fn allgather(&self, mine: MessageFrame, algorithm: Option<&str>) -> PyResult<Vec<MessageFrame>> {
        let mut frames = vec![MessageFrame::EMPTY; self.comm.inner().world_size()];
        frames[self.rank()] = mine;
        let task = CollectiveTask::Allgather { chunks: &vec![size_of::<MessageFrame>(); frames.len()] };
        self.run(&task, algorithm, &mut frames)?;
        Ok(frames)
    }

    /// Return the rank of this process.
    pub fn rank(&self) -> usize {
        self.comm.inner().rank()
    }

    fn run(&self, task: &CollectiveTask<'_>, algorithm: Option<&str>, frames: &mut [MessageFrame]) -> PyResult<()> {
        let elements = ElementType { element: Element::U8, shape: ElementShape::Described(self.signature) };
        let bytes = MessageFrame::bytes_of_mut(frames);
        let memory = if task.only_reads(self.rank()) { BufferMemory::Read(bytes) } else { BufferMemory::Write(bytes) };
        self.comm.run(self.py, task, elements, algorithm, [memory, NO_MEMORY])
    }
}

/// Create a frame as an array, to send it later.
#[pyfunction]
#[pyo3(signature = (kind, content, /))]
fn frame<'py>(py: Python<'py>, kind: u64, content: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyArray1<u8>>> {
    Ok(from_python(kind, content)?.as_bytes().to_vec().into_pyarray(py))
}

/// Send a frame to rank `to`.
#[pyfunction]
#[pyo3(signature = (comm, kind, content, to, signature, /))]
fn send_frame(
    py: Python<'_>,
    comm: &Communicator,
    kind: u64,
    content: &Bound<'_, PyAny>,
    to: usize,
    signature: &str,
) -> PyResult<()> {
    Frames { py, comm, signature }.send(from_python(kind, content)?, to)
}

/// Broadcast a frame, as the root.
#[pyfunction]
#[pyo3(signature = (comm, kind, content, root, algorithm, signature, /))]
fn broadcast_frame(
    py: Python<'_>,
    comm: &Communicator,
    kind: u64,
    content: &Bound<'_, PyAny>,
    root: usize,
    algorithm: Option<&str>,
    signature: &str,
) -> PyResult<()> {
    Frames { py, comm, signature }.broadcast(&mut [from_python(kind, content)?], root, algorithm)
}
