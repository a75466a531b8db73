//! Short objects: pickled, moved in a first message and made again, all in one call.
//!
//! A call says whether it is done, and gives what came of it, or what is left to do: a value packed, and what came
//! first. Objects of Python's own classes are pickled here, and short arrays are written as they are; any other object
//! is packed by `ripieno.wire.packing`.

use crate::arrays::{ArrayBytes, empty};
use crate::communicator::Communicator;
use crate::errors;
use crate::frames::{Frames, to_python};
use numpy::PyUntypedArrayMethods;
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use ripieno::frame::{Content, MessageFrame, ShortArray};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A first message with all of a pickle that refers to no buffers.
const PICKLE: u64 = 0;
/// One with the head of a value, or its length; only `ripieno.wire.objects` makes these and reads them.
const HEAD: u64 = 1;
/// One with the length of a blob.
const BLOB: u64 = 2;
/// One with all of an array.
const ARRAY: u64 = 3;

/// Up to here a buffer is part of the pickle: to copy it takes less than to tell of it.
const WITHIN_BYTES: usize = 1 << 10;

/// How long this process has made bytes of objects, and objects of bytes, here.
static SPENT_NANOSECONDS: AtomicU64 = AtomicU64::new(0);

type ObjectValue<'a, 'py> = &'a Bound<'py, PyAny>;

/// Adds the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("WITHIN_BYTES", WITHIN_BYTES)?;
    module.add("PICKLE", PICKLE)?;
    module.add("HEAD", HEAD)?;
    module.add("BLOB", BLOB)?;
    module.add_function(wrap_pyfunction!(send_object, module)?)?;
    module.add_function(wrap_pyfunction!(receive_object, module)?)?;
    module.add_function(wrap_pyfunction!(broadcast_object, module)?)?;
    module.add_function(wrap_pyfunction!(scatter_object, module)?)?;
    module.add_function(wrap_pyfunction!(gather_objects, module)?)?;
    module.add_function(wrap_pyfunction!(seconds_serializing, module)?)
}

/// Sends a value to rank `to`, if it is short; else nothing is sent, and it is given packed.
#[pyfunction]
#[pyo3(signature = (comm, value, to, form, /))]
fn send_object<'py>(
    comm: &Communicator,
    value: ObjectValue<'_, 'py>,
    to: usize,
    form: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let packed = PackedObject::of(value)?;
    match packed.frame() {
        Some(frame) => Frames { py: value.py(), comm, form }.send(frame, to).map(|()| None),
        None => packed.to_python(value.py()).map(Some),
    }
}

/// The next value of rank `source`, if it is short; else what came first.
#[pyfunction]
#[pyo3(signature = (comm, source, form, /))]
fn receive_object<'py>(
    py: Python<'py>,
    comm: &Communicator,
    source: usize,
    form: &str,
) -> PyResult<(bool, Bound<'py, PyAny>)> {
    value_of(py, Frames { py, comm, form }.receive(source)?)
}

/// The root's value, if it is short; else the root has sent nothing and gets it packed, others get what came first.
#[pyfunction]
#[pyo3(signature = (comm, value, root, algorithm, form, /))]
fn broadcast_object<'py>(
    comm: &Communicator,
    value: ObjectValue<'_, 'py>,
    root: usize,
    algorithm: Option<&str>,
    form: &str,
) -> PyResult<(bool, Bound<'py, PyAny>)> {
    let frames = Frames { py: value.py(), comm, form };
    if frames.rank() != root {
        let mut came = [MessageFrame::EMPTY];
        frames.broadcast(&mut came, root, algorithm)?;
        return value_of(value.py(), came[0]);
    }
    let packed = PackedObject::of(value)?;
    match packed.frame() {
        Some(frame) => {
            frames.broadcast(&mut [frame], root, algorithm)?;
            Ok((true, value.clone()))
        }
        None => Ok((false, packed.to_python(value.py())?)),
    }
}

/// This rank's of the root's values, if all are short; else those packed, which are none elsewhere, and what came first
/// for all ranks.
#[pyfunction]
#[pyo3(signature = (comm, values, root, form, /))]
fn scatter_object<'py>(
    py: Python<'py>,
    comm: &Communicator,
    values: Vec<Bound<'py, PyAny>>,
    root: usize,
    form: &str,
) -> PyResult<(bool, Bound<'py, PyAny>)> {
    let frames = Frames { py, comm, form };
    let empty = MessageFrame::new(BLOB, Content::Later(0)).expect("there is room for no bytes");
    let mut all = vec![empty; comm.inner().world_size()];
    let packed: Vec<PackedObject> = values.iter().map(PackedObject::of).collect::<PyResult<_>>()?;
    for (frame, packed) in all.iter_mut().zip(&packed) {
        *frame = packed.first(py)?;
    }
    frames.broadcast(&mut all, root, None)?;
    if all.iter().all(is_short) {
        return value_of(py, all[frames.rank()]);
    }
    let packed: Vec<_> = packed.iter().map(|packed| packed.to_python(py)).collect::<PyResult<_>>()?;
    Ok((false, (packed, firsts(py, &all)?).into_pyobject(py)?.into_any()))
}

/// Every rank's value, if all are short, at the root, or everywhere without one; None elsewhere. Else this rank's
/// packed, and what came first of all ranks.
#[pyfunction]
#[pyo3(signature = (comm, value, root, algorithm, form, /))]
fn gather_objects<'py>(
    comm: &Communicator,
    value: ObjectValue<'_, 'py>,
    root: Option<usize>,
    algorithm: Option<&str>,
    form: &str,
) -> PyResult<(bool, Bound<'py, PyAny>)> {
    let py = value.py();
    let frames = Frames { py, comm, form };
    let packed = PackedObject::of(value)?;
    let all = frames.allgather(packed.first(py)?, algorithm)?;
    if !all.iter().all(is_short) {
        return Ok((false, (packed.to_python(py)?, firsts(py, &all)?).into_pyobject(py)?.into_any()));
    }
    if root.is_some_and(|root| root != frames.rank()) {
        return Ok((true, py.None().into_bound(py)));
    }
    let values: Vec<_> =
        all.iter().map(|frame| value_of(py, *frame).map(|(_, value)| value)).collect::<PyResult<_>>()?;
    Ok((true, PyList::new(py, values)?.into_any()))
}

/// How long this process has made bytes of objects, and objects of bytes, in the functions above.
#[pyfunction]
fn seconds_serializing() -> f64 {
    SPENT_NANOSECONDS.load(Ordering::Relaxed) as f64 / 1e9
}

/// A value on its way.
enum PackedObject<'py> {
    /// A short array, as it lies in a first message.
    Array(Vec<u8>),
    /// As `ripieno.wire.packing` has it: a pickle, and the long buffers that it refers to.
    Pickle { pickled: Bound<'py, PyBytes>, buffers: Bound<'py, PyList> },
}

impl<'py> PackedObject<'py> {
    fn of(value: &Bound<'py, PyAny>) -> PyResult<PackedObject<'py>> {
        let py = value.py();
        if let Some(content) = short_array(value) {
            return Ok(PackedObject::Array(content));
        }
        if is_of_python(value) {
            match timed(|| PackedObject::pickle(value)) {
                // What has classes of the program in it may be pickled otherwise.
                Err(error) if error.is_instance_of::<PyException>(py) => {}
                packed => return packed,
            }
        }
        let value = MOVABLE.import(py, "ripieno.wire.objects", "movable")?.call1((value,))?;
        let (pickled, buffers) = PACK.import(py, "ripieno.wire.packing", "pack")?.call1((value,))?.extract()?;
        Ok(PackedObject::Pickle { pickled, buffers })
    }

    fn pickle(value: &Bound<'py, PyAny>) -> PyResult<PackedObject<'py>> {
        let py = value.py();
        let buffers = PyList::empty(py);
        let options = PyDict::new(py);
        options.set_item(intern!(py, "protocol"), PROTOCOL)?;
        options.set_item(intern!(py, "buffer_callback"), ShortBuffers { long: buffers.clone().unbind() })?;
        let pickled = DUMPS.import(py, "pickle", "dumps")?.call((value,), Some(&options))?.cast_into()?;
        Ok(PackedObject::Pickle { pickled, buffers })
    }

    /// All of it as a first message, if there is room.
    fn frame(&self) -> Option<MessageFrame> {
        match self {
            PackedObject::Array(content) => MessageFrame::new(ARRAY, Content::Here(content)),
            PackedObject::Pickle { pickled, buffers } if buffers.is_empty() => {
                MessageFrame::new(PICKLE, Content::Here(pickled.as_bytes()))
            }
            PackedObject::Pickle { .. } => None,
        }
    }

    /// The same, or a first message that says how long its blob is.
    fn first(&self, py: Python<'py>) -> PyResult<MessageFrame> {
        if let Some(frame) = self.frame() {
            return Ok(frame);
        }
        let blob_bytes = BLOB_BYTES.import(py, "ripieno.wire.packing", "blob_bytes")?;
        let length = blob_bytes.call1((self.to_python(py)?,))?.extract()?;
        Ok(MessageFrame::new(BLOB, Content::Later(length)).expect("there is room for no bytes"))
    }

    /// The same for `ripieno.wire.packing`; None if a first message has all of it.
    fn to_python(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            PackedObject::Array(_) => Ok(py.None().into_bound(py)),
            PackedObject::Pickle { pickled, buffers } => {
                PACKED.import(py, "ripieno.wire.packing", "PackedValue")?.call1((pickled, buffers))
            }
        }
    }
}

/// Asked by a pickler for each buffer: whether it is short enough to be part of the pickle. Keeps the long ones.
#[pyclass(frozen, module = "ripieno._native")]
struct ShortBuffers {
    long: Py<PyList>,
}

#[pymethods]
impl ShortBuffers {
    fn __call__(&self, buffer: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = buffer.py();
        let raw = buffer.call_method0(intern!(py, "raw"))?;
        if raw.getattr(intern!(py, "nbytes"))?.extract::<usize>()? <= WITHIN_BYTES {
            return Ok(true);
        }
        let bytes = FROM_BUFFER.import(py, "numpy", "frombuffer")?.call1((raw, intern!(py, "u1")))?;
        self.long.bind(py).append(bytes)?;
        Ok(false)
    }
}

/// Whether the class of a value is one of Python's own, which are pickled as they are.
fn is_of_python(value: &Bound<'_, PyAny>) -> bool {
    value.is_none()
        || value.is_exact_instance_of::<PyDict>()
        || value.is_exact_instance_of::<PyTuple>()
        || value.is_exact_instance_of::<PyList>()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
}

fn is_short(frame: &MessageFrame) -> bool {
    matches!(frame.read(), (PICKLE | ARRAY, Content::Here(_)))
}

/// The value of a first message, if it is all there; else what is in it.
fn value_of<'py>(py: Python<'py>, frame: MessageFrame) -> PyResult<(bool, Bound<'py, PyAny>)> {
    match frame.read() {
        (PICKLE, Content::Here(pickled)) => {
            let loads = LOADS.import(py, "pickle", "loads")?;
            timed(|| loads.call1((PyBytes::new(py, pickled),))).map(|value| (true, value))
        }
        (ARRAY, Content::Here(content)) => Ok((true, array_of(py, content)?)),
        _ => Ok((false, to_python(py, &frame)?)),
    }
}

/// The bytes of an array, if it is plain and a first message has room for it.
fn short_array(value: ObjectValue<'_, '_>) -> Option<Vec<u8>> {
    let (bytes, array) = ArrayBytes::plain_to_read(value)?;
    ShortArray::encode(bytes.element, array.shape(), bytes.read())
}

/// A new array of such bytes.
fn array_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let Some(ShortArray { element, shape, data }) = ShortArray::decode(bytes) else {
        return Err(errors::serialization("a first message says that it has an array, and has none".to_string()));
    };
    let array = empty(py, element, &shape)?;
    let (into, _) = ArrayBytes::plain(&array).expect("a new array of numbers is plain");
    into.write()?.copy_from_slice(data);
    Ok(array)
}

/// Of each first message whether it has all of a value, and that, or what is in it.
fn firsts<'py>(py: Python<'py>, frames: &[MessageFrame]) -> PyResult<Vec<(bool, Bound<'py, PyAny>)>> {
    frames.iter().map(|frame| value_of(py, *frame)).collect()
}

/// Counts how long bytes are made of objects, or objects of bytes.
fn timed<T>(work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let made = work();
    SPENT_NANOSECONDS.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    made
}

/// Of pickles whose buffers may lie elsewhere.
const PROTOCOL: u8 = 5;

static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static FROM_BUFFER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static MOVABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static PACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static PACKED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static BLOB_BYTES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
