//! Frames: the first messages about objects.
//!
//! In a frame are a kind, a number of the program's, and either bytes, at most [`ROOM_BYTES`], or how many are to come.

use crate::communicator::Communicator;
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};
use ripieno::{Element, Elements, Memory, NO_MEMORY, Shape, Task, Whole};

const FRAME_BYTES: usize = 256;
const WORD_BYTES: usize = 8;
/// Bytes of what a frame has room for.
pub const ROOM_BYTES: usize = FRAME_BYTES - 2 * WORD_BYTES;

/// Adds the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("FRAME_ROOM_BYTES", ROOM_BYTES)?;
    module.add_function(wrap_pyfunction!(frame, module)?)?;
    module.add_function(wrap_pyfunction!(send_frame, module)?)?;
    module.add_function(wrap_pyfunction!(broadcast_frame, module)?)
}

/// A first message as it travels: its kind, its length and its room.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Frame([u8; FRAME_BYTES]);

/// What is in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// These bytes.
    Here(&'a [u8]),
    /// How many are to come.
    Later(u64),
}

impl Frame {
    const EMPTY: Frame = Frame([0; FRAME_BYTES]);

    /// A frame of this kind, unless it has no room for so many bytes.
    pub fn new(kind: u64, content: Content<'_>) -> Option<Frame> {
        let mut frame = Frame::EMPTY;
        let (words, room) = frame.0.split_at_mut(2 * WORD_BYTES);
        let (kind_at, length_at) = words.split_at_mut(WORD_BYTES);
        kind_at.copy_from_slice(&kind.to_le_bytes());
        // The complement of a length says that its bytes are elsewhere.
        let length = match content {
            Content::Here(bytes) => {
                room.get_mut(..bytes.len())?.copy_from_slice(bytes);
                bytes.len() as u64
            }
            Content::Later(length) => !length,
        };
        length_at.copy_from_slice(&length.to_le_bytes());
        Some(frame)
    }

    /// The kind of the frame, and what is in it.
    pub fn read(&self) -> (u64, Content<'_>) {
        let (words, room) = self.0.split_at(2 * WORD_BYTES);
        let (kind, length) = words.split_at(WORD_BYTES);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("a word has eight bytes"));
        let length = word(length);
        let here = usize::try_from(length).ok().and_then(|length| room.get(..length));
        (word(kind), here.map_or(Content::Later(!length), Content::Here))
    }

    /// The same for Python: the kind, and bytes or a number.
    pub fn to_python<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let tuple = match self.read() {
            (kind, Content::Here(bytes)) => (kind, PyBytes::new(py, bytes)).into_pyobject(py),
            (kind, Content::Later(length)) => (kind, PyInt::new(py, length)).into_pyobject(py),
        };
        Ok(tuple?.into_any())
    }

    fn of_python(kind: u64, content: &Bound<'_, PyAny>) -> PyResult<Frame> {
        let frame = match content.cast::<PyBytes>() {
            Ok(bytes) => Frame::new(kind, Content::Here(bytes.as_bytes())),
            Err(_) => Frame::new(kind, Content::Later(content.extract()?)),
        };
        frame.ok_or_else(|| PyValueError::new_err(format!("a frame has room for {ROOM_BYTES} bytes")))
    }
}

/// How frames of a communicator move.
pub struct Frames<'a, 'py> {
    pub py: Python<'py>,
    pub comm: &'a Communicator,
    /// What ranks must give alike.
    pub form: &'a str,
}

impl Frames<'_, '_> {
    /// Gives rank `to` a frame.
    pub fn send(&self, mut frame: Frame, to: usize) -> PyResult<()> {
        let task = Task::PointToPoint { from: self.rank(), to, vector: Whole };
        self.run(&task, None, std::slice::from_mut(&mut frame))
    }

    /// The next frame of rank `source`.
    pub fn receive(&self, source: usize) -> PyResult<Frame> {
        let mut frame = Frame::EMPTY;
        let task = Task::PointToPoint { from: source, to: self.rank(), vector: Whole };
        self.run(&task, None, std::slice::from_mut(&mut frame))?;
        Ok(frame)
    }

    /// The root's frames, of which others give as many.
    pub fn broadcast(&self, frames: &mut [Frame], root: usize, algorithm: Option<&str>) -> PyResult<()> {
        self.run(&Task::Broadcast { root, vector: Whole }, algorithm, frames)
    }

    /// The frames of all ranks, of which this one's is given.
    pub fn allgather(&self, mine: Frame, algorithm: Option<&str>) -> PyResult<Vec<Frame>> {
        let mut frames = vec![Frame::EMPTY; self.comm.inner().world_size()];
        frames[self.rank()] = mine;
        let task = Task::Allgather { chunks: &vec![FRAME_BYTES; frames.len()] };
        self.run(&task, algorithm, &mut frames)?;
        Ok(frames)
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.comm.inner().rank()
    }

    fn run(&self, task: &Task<'_>, algorithm: Option<&str>, frames: &mut [Frame]) -> PyResult<()> {
        let elements = Elements { element: Element::U8, shape: Shape::Told(self.form) };
        // SAFETY: a frame is its bytes and nothing else.
        let bytes = unsafe { std::slice::from_raw_parts_mut(frames.as_mut_ptr().cast::<u8>(), size_of_val(frames)) };
        let memory = if task.only_reads(self.rank()) { Memory::Read(bytes) } else { Memory::Write(bytes) };
        self.comm.run(self.py, task, elements, algorithm, [memory, NO_MEMORY])
    }
}

/// A frame, as an array that is sent later.
#[pyfunction]
#[pyo3(signature = (kind, content, /))]
fn frame<'py>(py: Python<'py>, kind: u64, content: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyArray1<u8>>> {
    Ok(Frame::of_python(kind, content)?.0.to_vec().into_pyarray(py))
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
    Frames { py, comm, form }.send(Frame::of_python(kind, content)?, to)
}

/// Gives all others a frame, as the root.
#[pyfunction]
#[pyo3(signature = (comm, kind, content, root, algorithm, form, /))]
fn broadcast_frame(
    py: Python<'_>,
    comm: &Communicator,
    kind: u64,
    content: &Bound<'_, PyAny>,
    root: usize,
    algorithm: Option<&str>,
    form: &str,
) -> PyResult<()> {
    Frames { py, comm, form }.broadcast(&mut [Frame::of_python(kind, content)?], root, algorithm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_frame_comes_out_of_it() {
        let bytes: Vec<u8> = (0..=255).cycle().take(ROOM_BYTES + 1).collect();
        for kind in [0, 7, u64::MAX] {
            for length in [0, 1, ROOM_BYTES] {
                let content = Content::Here(&bytes[..length]);
                assert_eq!(Frame::new(kind, content).expect("there is room").read(), (kind, content));
            }
            for length in [0, 1, 1 << 40] {
                let content = Content::Later(length);
                assert_eq!(Frame::new(kind, content).expect("there is room").read(), (kind, content));
            }
        }
        assert!(Frame::new(0, Content::Here(&bytes)).is_none());
    }

    #[test]
    fn a_damaged_frame_has_no_bytes_that_it_has_no_room_for() {
        let mut frame = Frame::new(0, Content::Here(&[1, 2])).expect("there is room");
        for length in [ROOM_BYTES as u64 + 1, u64::MAX / 2, u64::MAX] {
            frame.0[WORD_BYTES..2 * WORD_BYTES].copy_from_slice(&length.to_le_bytes());
            assert!(matches!(frame.read(), (0, Content::Later(_))));
        }
    }
}
