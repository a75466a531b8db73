//! The short way into a communicator: calls in place on plain arrays, which programs make in every step.
//!
//! Each says whether it was made; of arguments that are not plain nothing is done, and there are other ways for them.

use crate::arrays::Bytes;
use crate::communicator::{Communicator, parse_op};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use ripieno::{Element, Elements, Memory, NO_MEMORY, Op, Shape, Task, Whole};

/// The counts of so many ranks lie on the stack.
const FEW_RANKS: usize = 16;

/// The calls of a communicator on plain arrays.
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
        let memory = [Memory::Write(&mut [0]), NO_MEMORY];
        self.0.get().run(py, &Task::Barrier { token: Whole }, Element::U8.into(), None, memory)
    }
}

impl PlainCalls {
    fn world_size(&self) -> usize {
        self.0.get().inner().world_size()
    }

    /// Performs a task on all of a plain array to its end.
    #[inline]
    fn perform(&self, bytes: Bytes, array: &Bound<'_, PyUntypedArray>, task: &Task<'_>) -> PyResult<bool> {
        let shape = if array.ndim() == 1 { Shape::Line } else { Shape::Axes(array.shape()) };
        let elements = Elements { element: bytes.element, shape };
        let communicator = self.0.get();
        let memory = bytes.memory(task.only_reads(communicator.inner().rank()))?;
        communicator.run(array.py(), task, elements, None, [memory, NO_MEMORY])?;
        Ok(true)
    }
}

/// Copies `value` to `array`, if both are short plain arrays of one form.
fn has_copied(value: Argument, array: Argument) -> bool {
    let (Some((from, given)), Some((into, array))) = (Bytes::plain_to_read(value), Bytes::plain(array)) else {
        return false;
    };
    from.element == into.element && given.shape() == array.shape() && from.copied_to(into)
}

/// The operation of this name, if it is one of arithmetic, which all numbers know.
fn arithmetic(name: Argument) -> Option<Op> {
    let op = parse_op(name.cast_exact::<PyString>().ok()?.to_str().ok()?).ok();
    op.filter(|op| matches!(op, Op::Sum | Op::Prod | Op::Min | Op::Max))
}
