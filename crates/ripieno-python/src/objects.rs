//! Transfer of short objects in a single message.
//!
//! A call reports whether the transfer is complete. It returns the result, or the data for the remaining steps: a
//! packed value, and the contents of the first messages. This module pickles objects of built-in classes, and sends
//! short arrays as raw bytes. `ripieno.wire.packing` packs any other object.

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

/// Kind of a first message with a complete pickle.
const PICKLE: u64 = 0;
/// Kind of a first message with the head of a value or its length. Only `ripieno.wire.objects` uses it.
const HEAD: u64 = 1;
/// Kind of a first message with the length of a blob.
const BLOB: u64 = 2;
/// Kind of a first message with a complete array.
const ARRAY: u64 = 3;

/// Maximum size of a buffer that is copied into the pickle. Larger buffers are sent separately.
const MAX_INLINE_BYTES: usize = 1 << 10;

/// Time that this process has spent here on serialization and deserialization.
static SERIALIZATION_NS: AtomicU64 = AtomicU64::new(0);

type ObjectValue<'a, 'py> = &'a Bound<'py, PyAny>;

/// Add the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("MAX_INLINE_BYTES", MAX_INLINE_BYTES)?;
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

/// Send a value to rank `to` if it is short. Otherwise, send nothing and return the packed value.
#[pyfunction]
#[pyo3(signature = (comm, value, to, signature, /))]
fn send_object<'py>(
    comm: &Communicator,
    value: ObjectValue<'_, 'py>,
    to: usize,
    signature: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let packed = PackedObject::of(value)?;
    match packed.frame() {
        Some(frame) => Frames { py: value.py(), comm, signature }.send(frame, to).map(|()| None),
        None => packed.to_python(value.py()).map(Some),
    }
}

/// Receive the next value of rank `source`, if it is short; otherwise return the contents of the first message.
#[pyfunction]
#[pyo3(signature = (comm, source, signature, /))]
fn receive_object<'py>(
    py: Python<'py>,
    comm: &Communicator,
    source: usize,
    signature: &str,
) -> PyResult<(bool, Bound<'py, PyAny>)> {
    value_of(py, Frames { py, comm, signature }.receive(source)?)
}

/// Broadcast the root's value if it is short. Otherwise, the root sends nothing and gets the packed value; the other
/// ranks get the contents of the first message.
#[pyfunction]
#[pyo3(signature = (comm, value, root, algorithm, signature, /))]
fn broadcast_object<'py>(
    comm: &Communicator,
    value: ObjectValue<'_, 'py>,
    root: usize,
    algorithm: Option<&str>,
    signature: &str,
) -> PyResult<(bool, Bound<'py, PyAny>)> {
    let frames = Frames { py: value.py(), comm, signature };
    if frames.rank() != root {
        let mut received = [MessageFrame::EMPTY];
        frames.broadcast(&mut received, root, algorithm)?;
        return value_of(value.py(), received[0]);
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

/// Scatter the root's values if all are short, and return the value of this rank. Otherwise, return the packed values
/// (none on other ranks) and the contents of the first messages for all ranks.
#[pyfunction]
#[pyo3(signature = (comm, values, root, signature, /))]
fn scatter_object<'py>(
    py: Python<'py>,
    comm: &Communicator,
    values: Vec<Bound<'py, PyAny>>,
    root: usize,
    signature: &str,
) -> PyResult<(bool, Bound<'py, PyAny>)> {
    let frames = Frames { py, comm, signature };
    let empty = MessageFrame::new(BLOB, Content::Separate(0)).expect("the content is separate");
    let mut all = vec![empty; comm.inner().world_size()];
    let packed: Vec<PackedObject> = values.iter().map(PackedObject::of).collect::<PyResult<_>>()?;
    for (frame, packed) in all.iter_mut().zip(&packed) {
        *frame = packed.first_message(py)?;
    }
    frames.broadcast(&mut all, root, None)?;
    if all.iter().all(is_short) {
        return value_of(py, all[frames.rank()]);
    }
    let packed: Vec<_> = packed.iter().map(|packed| packed.to_python(py)).collect::<PyResult<_>>()?;
    Ok((false, (packed, values_of(py, &all)?).into_pyobject(py)?.into_any()))
}

/// Gather every rank's value if all are short. The root, or every rank without a root, gets the values; other ranks get
/// None. Otherwise, return this rank's packed value and the contents of the first messages of all ranks.
#[pyfunction]
#[pyo3(signature = (comm, value, root, algorithm, signature, /))]
fn gather_objects<'py>(
    comm: &Communicator,
    value: ObjectValue<'_, 'py>,
    root: Option<usize>,
    algorithm: Option<&str>,
    signature: &str,
) -> PyResult<(bool, Bound<'py, PyAny>)> {
    let py = value.py();
    let frames = Frames { py, comm, signature };
    let packed = PackedObject::of(value)?;
    let all = frames.allgather(packed.first_message(py)?, algorithm)?;
    if !all.iter().all(is_short) {
        return Ok((false, (packed.to_python(py)?, values_of(py, &all)?).into_pyobject(py)?.into_any()));
    }
    if root.is_some_and(|root| root != frames.rank()) {
        return Ok((true, py.None().into_bound(py)));
    }
    let values: Vec<_> =
        all.iter().map(|frame| value_of(py, *frame).map(|(_, value)| value)).collect::<PyResult<_>>()?;
    Ok((true, PyList::new(py, values)?.into_any()))
}

/// Return the seconds that this process has spent on serialization and deserialization in the functions above.
#[pyfunction]
fn seconds_serializing() -> f64 {
    SERIALIZATION_NS.load(Ordering::Relaxed) as f64 / 1e9
}

/// A packed value.
enum PackedObject<'py> {
    /// A short array, in the encoding of a first message.
    Array(Vec<u8>),
    /// A pickle and the long buffers that it refers to, as in `ripieno.wire.packing`.
    Pickle { pickled: Bound<'py, PyBytes>, buffers: Bound<'py, PyList> },
}

impl<'py> PackedObject<'py> {
    fn of(value: &Bound<'py, PyAny>) -> PyResult<PackedObject<'py>> {
        let py = value.py();
        if let Some(content) = short_array(value) {
            return Ok(PackedObject::Array(content));
        }
        if is_builtin(value) {
            match timed(|| PackedObject::pickle(value)) {
                // The value may contain objects of other classes, which need another pickler.
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

    /// Return a first message with the complete value, if it fits.
    fn frame(&self) -> Option<MessageFrame> {
        match self {
            PackedObject::Array(content) => MessageFrame::new(ARRAY, Content::Inline(content)),
            PackedObject::Pickle { pickled, buffers } if buffers.is_empty() => {
                MessageFrame::new(PICKLE, Content::Inline(pickled.as_bytes()))
            }
            PackedObject::Pickle { .. } => None,
        }
    }

    /// Return a first message with the complete value, or with the length of its blob.
    fn first_message(&self, py: Python<'py>) -> PyResult<MessageFrame> {
        if let Some(frame) = self.frame() {
            return Ok(frame);
        }
        let blob_bytes = BLOB_BYTES.import(py, "ripieno.wire.packing", "blob_bytes")?;
        let length = blob_bytes.call1((self.to_python(py)?,))?.extract()?;
        Ok(MessageFrame::new(BLOB, Content::Separate(length)).expect("the content is separate"))
    }

    /// Convert to a value of `ripieno.wire.packing`; None if a first message contains the complete value.
    fn to_python(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            PackedObject::Array(_) => Ok(py.None().into_bound(py)),
            PackedObject::Pickle { pickled, buffers } => {
                PACKED.import(py, "ripieno.wire.packing", "PackedValue")?.call1((pickled, buffers))
            }
        }
    }
}

/// Buffer callback of a pickler. It returns true for a short buffer, which becomes part of the pickle, and collects the
/// others.
#[pyclass(frozen, module = "ripieno._native")]
struct ShortBuffers {
    long: Py<PyList>,
}

#[pymethods]
impl ShortBuffers {
    fn __call__(&self, buffer: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = buffer.py();
        let raw = buffer.call_method0(intern!(py, "raw"))?;
        if raw.getattr(intern!(py, "nbytes"))?.extract::<usize>()? <= MAX_INLINE_BYTES {
            return Ok(true);
        }
        let bytes = FROM_BUFFER.import(py, "numpy", "frombuffer")?.call1((raw, intern!(py, "u1")))?;
        self.long.bind(py).append(bytes)?;
        Ok(false)
    }
}

/// Return whether the class of a value is a built-in class, which is pickled directly.
fn is_builtin(value: &Bound<'_, PyAny>) -> bool {
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
    matches!(frame.read(), (PICKLE | ARRAY, Content::Inline(_)))
}

/// Return whether a first message has a complete value, and the value or the contents of the message.
fn value_of<'py>(py: Python<'py>, frame: MessageFrame) -> PyResult<(bool, Bound<'py, PyAny>)> {
    match frame.read() {
        (PICKLE, Content::Inline(pickled)) => {
            let loads = LOADS.import(py, "pickle", "loads")?;
            timed(|| loads.call1((PyBytes::new(py, pickled),))).map(|value| (true, value))
        }
        (ARRAY, Content::Inline(content)) => Ok((true, array_of(py, content)?)),
        _ => Ok((false, to_python(py, &frame)?)),
    }
}

/// Encode an array, if it is plain and fits in a first message.
fn short_array(value: ObjectValue<'_, '_>) -> Option<Vec<u8>> {
    let (bytes, array) = ArrayBytes::plain_to_read(value)?;
    ShortArray::encode(bytes.element, array.shape(), bytes.read())
}

/// Create an array from its encoding.
fn array_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let Some(ShortArray { element, shape, data }) = ShortArray::decode(bytes) else {
        return Err(errors::serialization("the array in a first message is malformed".to_string()));
    };
    let array = empty(py, element, &shape)?;
    let (into, _) = ArrayBytes::plain(&array).expect("a new array of numbers is plain");
    into.write()?.copy_from_slice(data);
    Ok(array)
}

/// Return the result of [`value_of`] for each first message.
fn values_of<'py>(py: Python<'py>, frames: &[MessageFrame]) -> PyResult<Vec<(bool, Bound<'py, PyAny>)>> {
    frames.iter().map(|frame| value_of(py, *frame)).collect()
}

/// Add the time of serialization or deserialization to the counter.
fn timed<T>(work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    SERIALIZATION_NS.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
    result
}

/// Pickle protocol with out-of-band buffers.
const PROTOCOL: u8 = 5;

static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static FROM_BUFFER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static MOVABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static PACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static PACKED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static BLOB_BYTES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
