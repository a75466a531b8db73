//! The short way into a communicator: calls of plain arrays and of numbers, which programs make in every step.
//!
//! Each says whether it was made; of arguments that are not plain nothing is done, and there are other ways for them.
//! What travels is the same by either way.

use crate::arrays::{Bytes, bytes_of_mut};
use crate::communicator::{Communicator, parse_op};
use numpy::npyffi::{NPY_ORDER, PY_ARRAY_API};
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods, dtype};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyString};
use ripieno::{Element, Elements, Memory, NO_MEMORY, Op, Shape, Task, Whole};

/// The counts of so many ranks lie on the stack.
const FEW_RANKS: usize = 16;

/// Whole numbers are added up exactly, in two words; the form of these, which other ways name likewise.
const WHOLE: &str = "int";
/// Of the lower of the two.
const LOW_BITS: i64 = u32::MAX as i64;

/// The calls of a communicator on plain arrays and numbers.
#[pyclass(frozen, module = "ripieno._native")]
pub struct PlainCalls(Py<Communicator>);

type Argument<'a, 'py> = &'a Bound<'py, PyAny>;

#[pymethods]
impl PlainCalls {
    #[new]
    fn new(communicator: Py<Communicator>) -> PlainCalls {
        PlainCalls(communicator)
    }

    /// As the communicator's; the sum without an operation. `value`, if it is given, is copied to the array first.
    #[pyo3(signature = (array, op=None, value=None, /))]
    fn allreduce(&self, array: Argument, op: Option<Argument>, value: Option<Argument>) -> PyResult<bool> {
        let Some(op) = op.map_or(Some(Op::Sum), arithmetic) else { return Ok(false) };
        if value.is_some_and(|value| !value.is(array) && !has_copied(value, array)) {
            return Ok(false);
        }
        let Some((bytes, array)) = Bytes::plain(array) else { return Ok(false) };
        self.perform(bytes, array, &Task::Allreduce { op, vector: Whole })
    }

    /// What comes of it, for a float, a Python number to be added up, or an array, which stays as it is; or nothing.
    #[pyo3(signature = (value, op=None, /))]
    fn allreduced<'py>(&self, value: Argument<'_, 'py>, op: Option<Argument>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(op) = op.map_or(Some(Op::Sum), arithmetic) else { return Ok(None) };
        if let Ok(number) = value.cast::<PyFloat>() {
            return self.float(number, op);
        }
        match value.cast_exact::<PyInt>() {
            Ok(number) if op == Op::Sum => self.sum_of_whole(number),
            Ok(_) => Ok(None),
            Err(_) => self.copied(value, op),
        }
    }

    /// As the communicator's.
    #[pyo3(signature = (array, root, /))]
    fn broadcast(&self, array: Argument, root: Argument) -> PyResult<bool> {
        let root = root.cast_exact::<PyInt>().ok().and_then(|root| root.extract().ok());
        let Some(root) = root.filter(|&root| root < self.world_size()) else { return Ok(false) };
        let Some((bytes, array)) = Bytes::plain(array) else { return Ok(false) };
        self.perform(bytes, array, &Task::Broadcast { root, vector: Whole })
    }

    /// As the communicator's, of a line with as many elements of each rank.
    #[pyo3(signature = (array, /))]
    fn allgather(&self, array: Argument) -> PyResult<bool> {
        let world_size = self.world_size();
        let line = Bytes::plain(array).filter(|(_, line)| line.ndim() == 1 && line.len().is_multiple_of(world_size));
        let Some((bytes, line)) = line else { return Ok(false) };
        let count = line.len() / world_size;
        if let Some(chunks) = [count; FEW_RANKS].get(..world_size) {
            return self.perform(bytes, line, &Task::Allgather { chunks });
        }
        self.perform(bytes, line, &Task::Allgather { chunks: &vec![count; world_size] })
    }

    /// As the communicator's.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, &Task::Barrier { token: Whole }, Element::U8.into(), Memory::Write(&mut [0]))
    }
}

impl PlainCalls {
    fn world_size(&self) -> usize {
        self.0.get().inner().world_size()
    }

    /// The combination of floats of Python or NumPy.
    fn float<'py>(&self, number: &Bound<'py, PyFloat>, op: Op) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, class) = (number.py(), number.get_type());
        let is_numpys = class.is(dtype::<f64>(py).typeobj());
        if !is_numpys && !number.is_exact_instance_of::<PyFloat>() {
            return Ok(None);
        }
        let mut numbers = [number.value()];
        let elements = Elements { element: Element::F64, shape: Shape::Axes(&[]) };
        self.run(py, &Task::Allreduce { op, vector: Whole }, elements, Memory::Write(bytes_of_mut(&mut numbers)))?;
        match is_numpys {
            true => class.call1((numbers[0],)).map(Some),
            false => Ok(Some(PyFloat::new(py, numbers[0]).into_any())),
        }
    }

    /// The sum of whole numbers, unless this one is large.
    fn sum_of_whole<'py>(&self, number: &Bound<'py, PyInt>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = number.py();
        let Ok(number) = number.extract::<i64>() else { return Ok(None) };
        let mut words = [number & LOW_BITS, number >> LOW_BITS.count_ones()].map(i64::to_ne_bytes);
        let elements = Elements { element: Element::I64, shape: Shape::Told(WHOLE) };
        let memory = Memory::Write(words.as_flattened_mut());
        self.run(py, &Task::Allreduce { op: Op::Sum, vector: Whole }, elements, memory)?;
        let [low, high] = words.map(|word| i128::from(i64::from_ne_bytes(word)));
        Ok(Some((low + (high << LOW_BITS.count_ones())).into_pyobject(py)?.into_any()))
    }

    /// The combination of short plain arrays, in a new one.
    fn copied<'py>(&self, value: Argument<'_, 'py>, op: Op) -> PyResult<Option<Bound<'py, PyAny>>> {
        let plain = Bytes::plain_to_read(value).filter(|(bytes, _)| bytes.is_short());
        let Some((_, array)) = plain else { return Ok(None) };
        // SAFETY: the pointer is that of a live array object, and what comes of it is a new reference or none.
        let copy = unsafe {
            let copy = PY_ARRAY_API.PyArray_NewCopy(value.py(), array.as_array_ptr(), NPY_ORDER::NPY_CORDER);
            Bound::from_owned_ptr_or_err(value.py(), copy)?
        };
        let (bytes, array) = Bytes::plain(&copy).expect("the copy of a plain array is one");
        self.perform(bytes, array, &Task::Allreduce { op, vector: Whole })?;
        Ok(Some(copy))
    }

    /// Performs a task on all of a plain array to its end.
    #[inline]
    fn perform(&self, bytes: Bytes, array: &Bound<'_, PyUntypedArray>, task: &Task<'_>) -> PyResult<bool> {
        let shape = if array.ndim() == 1 { Shape::Line } else { Shape::Axes(array.shape()) };
        let elements = Elements { element: bytes.element, shape };
        self.run(array.py(), task, elements, bytes.memory(task.only_reads(self.0.get().inner().rank()))?)?;
        Ok(true)
    }

    #[inline]
    fn run(&self, py: Python<'_>, task: &Task<'_>, elements: Elements<'_>, memory: Memory<'_>) -> PyResult<()> {
        self.0.get().run(py, task, elements, None, [memory, NO_MEMORY])
    }
}

/// Copies `value` to `array`, if both are short plain arrays of one form.
fn has_copied(value: Argument, array: Argument) -> bool {
    let (Some((from, given)), Some((into, array))) = (Bytes::plain_to_read(value), Bytes::plain(array)) else {
        return false;
    };
    let has_copied = from.is_short() && from.element == into.element && given.shape() == array.shape();
    if has_copied {
        from.copy_to(into);
    }
    has_copied
}

/// The operation of this name, if it is one of arithmetic, which all numbers know.
fn arithmetic(name: Argument) -> Option<Op> {
    let op = parse_op(name.cast_exact::<PyString>().ok()?.to_str().ok()?).ok();
    op.filter(|op| matches!(op, Op::Sum | Op::Prod | Op::Min | Op::Max))
}
