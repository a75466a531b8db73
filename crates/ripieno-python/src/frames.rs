//! First messages about objects: what is to come, and all of it if it is short.
//!
//! What goes into a frame is a kind, a number of the program's, and either bytes, at most [`ROOM_BYTES`], or how many are
//! to come. What comes out of it are the same two. How they lie in it is known here alone.

use crate::communicator::Communicator;
use crate::errors;
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyTuple};
use ripieno::{Element, Elements, Memory, NO_MEMORY, Shape, Task, Whole};

/// Bytes of a frame.
const FRAME_BYTES: usize = 256;
const WORD_BYTES: usize = 8;
/// Bytes of what a frame has room for.
const ROOM_BYTES: usize = FRAME_BYTES - 2 * WORD_BYTES;

type Frame = [u8; FRAME_BYTES];

/// Adds the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(frame, module)?)?;
    module.add_function(wrap_pyfunction!(send_frame, module)?)?;
    module.add_function(wrap_pyfunction!(receive_frame, module)?)?;
    module.add_function(wrap_pyfunction!(broadcast_frame, module)?)?;
    module.add_function(wrap_pyfunction!(broadcast_frames, module)?)?;
    module.add_function(wrap_pyfunction!(allgather_frames, module)?)?;
    module.add("FRAME_ROOM_BYTES", ROOM_BYTES)
}

/// Gives rank `to` a frame.
#[pyfunction]
#[pyo3(signature = (comm, kind, content, to, form, /))]
fn send_frame(
    py: Python<'_>,
    comm: &Communicator,
    kind: u64,
    content: &Bound<'_, PyAny>,
    to: usize,
    form: &str,
) -> PyResult<()> {
    let task = Task::PointToPoint { from: comm.inner().rank(), to, vector: Whole };
    run(py, comm, &task, form, None, Memory::Read(&framed(kind, content)?))
}

/// What is in the next frame of rank `source`.
#[pyfunction]
#[pyo3(signature = (comm, source, form, /))]
fn receive_frame<'py>(
    py: Python<'py>,
    comm: &Communicator,
    source: usize,
    form: &str,
) -> PyResult<Bound<'py, PyTuple>> {
    let mut frame = [0; FRAME_BYTES];
    let task = Task::PointToPoint { from: source, to: comm.inner().rank(), vector: Whole };
    run(py, comm, &task, form, None, Memory::Write(&mut frame))?;
    content_of(py, &frame)
}

/// What is in the root's frame.
#[pyfunction]
#[pyo3(signature = (comm, kind, content, root, algorithm, form, /))]
fn broadcast_frame<'py>(
    py: Python<'py>,
    comm: &Communicator,
    kind: u64,
    content: &Bound<'py, PyAny>,
    root: usize,
    algorithm: Option<&str>,
    form: &str,
) -> PyResult<Bound<'py, PyTuple>> {
    let task = Task::Broadcast { root, vector: Whole };
    if comm.inner().rank() == root {
        run(py, comm, &task, form, algorithm, Memory::Read(&framed(kind, content)?))?;
        return (kind, content).into_pyobject(py);
    }
    let mut frame = [0; FRAME_BYTES];
    run(py, comm, &task, form, algorithm, Memory::Write(&mut frame))?;
    content_of(py, &frame)
}

/// What is in the frames of the root, of which there is one for each rank; what others give is not looked at.
#[pyfunction]
#[pyo3(signature = (comm, contents, root, form, /))]
fn broadcast_frames<'py>(
    py: Python<'py>,
    comm: &Communicator,
    contents: Vec<(u64, Bound<'py, PyAny>)>,
    root: usize,
    form: &str,
) -> PyResult<Bound<'py, PyList>> {
    let mut frames = frames_of(comm);
    let task = Task::Broadcast { root, vector: Whole };
    if comm.inner().rank() == root {
        for (frame, (kind, content)) in frames.iter_mut().zip(&contents) {
            *frame = framed(*kind, content)?;
        }
        run(py, comm, &task, form, None, Memory::Read(frames.as_flattened()))?;
    } else {
        run(py, comm, &task, form, None, Memory::Write(frames.as_flattened_mut()))?;
    }
    contents_of(py, &frames)
}

/// What is in the frame of each rank.
#[pyfunction]
#[pyo3(signature = (comm, kind, content, algorithm, form, /))]
fn allgather_frames<'py>(
    py: Python<'py>,
    comm: &Communicator,
    kind: u64,
    content: &Bound<'py, PyAny>,
    algorithm: Option<&str>,
    form: &str,
) -> PyResult<Bound<'py, PyList>> {
    let mut frames = frames_of(comm);
    frames[comm.inner().rank()] = framed(kind, content)?;
    let task = Task::Allgather { chunks: &vec![FRAME_BYTES; frames.len()] };
    run(py, comm, &task, form, algorithm, Memory::Write(frames.as_flattened_mut()))?;
    contents_of(py, &frames)
}

fn run(
    py: Python<'_>,
    comm: &Communicator,
    task: &Task<'_>,
    form: &str,
    algorithm: Option<&str>,
    memory: Memory<'_>,
) -> PyResult<()> {
    let elements = Elements { element: Element::U8, shape: Shape::Told(form) };
    comm.run(py, task, elements, algorithm, [memory, NO_MEMORY])
}

/// One for each rank.
fn frames_of(comm: &Communicator) -> Vec<Frame> {
    vec![[0; FRAME_BYTES]; comm.inner().world_size()]
}

/// A frame, as an array that is sent later.
#[pyfunction]
#[pyo3(signature = (kind, content, /))]
fn frame<'py>(py: Python<'py>, kind: u64, content: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyArray1<u8>>> {
    Ok(framed(kind, content)?.to_vec().into_pyarray(py))
}

/// A frame of this kind with these bytes, or with a number of those that are to come.
fn framed(kind: u64, content: &Bound<'_, PyAny>) -> PyResult<Frame> {
    let mut frame = [0; FRAME_BYTES];
    let (words, room) = frame.split_at_mut(2 * WORD_BYTES);
    words[..WORD_BYTES].copy_from_slice(&kind.to_le_bytes());
    // The bytes of a frame are as many as its length says, that of others is negative.
    let length = match content.cast::<PyBytes>() {
        Ok(bytes) => {
            let bytes = bytes.as_bytes();
            let Some(room) = room.get_mut(..bytes.len()) else {
                return Err(PyValueError::new_err(format!("{} bytes do not fit into a frame", bytes.len())));
            };
            room.copy_from_slice(bytes);
            bytes.len() as i64
        }
        Err(_) => !content.extract::<i64>()?,
    };
    words[WORD_BYTES..].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// The kind of a frame, and its bytes or how many are to come.
fn content_of<'py>(py: Python<'py>, frame: &Frame) -> PyResult<Bound<'py, PyTuple>> {
    let (words, room) = frame.split_at(2 * WORD_BYTES);
    let (kind, length) = words.split_at(WORD_BYTES);
    let word = |bytes: &[u8]| <[u8; WORD_BYTES]>::try_from(bytes).expect("a word has eight bytes");
    let (kind, length) = (u64::from_le_bytes(word(kind)), i64::from_le_bytes(word(length)));
    if length < 0 {
        return (kind, PyInt::new(py, !length)).into_pyobject(py);
    }
    match room.get(..length as usize) {
        Some(bytes) => (kind, PyBytes::new(py, bytes)).into_pyobject(py),
        None => Err(errors::input(format!("a first message says that it has {length} bytes of {ROOM_BYTES}"))),
    }
}

fn contents_of<'py>(py: Python<'py>, frames: &[Frame]) -> PyResult<Bound<'py, PyList>> {
    let contents: Vec<_> = frames.iter().map(|frame| content_of(py, frame)).collect::<PyResult<_>>()?;
    PyList::new(py, contents)
}
