//! Fast path of a communicator: calls on plain arrays and numbers.
//!
//! Each method reports whether it made the call. If the arguments are not plain, it does nothing, and the caller uses
//! the general path. Both paths send the same data.

use crate::arrays::{ArrayBytes, MAX_SHORT_BYTES};
use crate::communicator::{Communicator, parse_op};
use crate::plain_leaves::{Leaf, NUMBER_SIGNATURE, copied};
use crate::signatures;
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyString, PyTuple};
use ripieno::{BufferMemory, CollectiveTask, Element, ElementShape, ElementType, NO_MEMORY, Op, WholeBuffer};

/// Maximum number of ranks for which the counts are on the stack.
const MAX_STACK_RANKS: usize = 16;

/// Maximum number of leaves on the fast path.
const MAX_LEAVES: usize = 64;

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

    /// Run `allreduce` in place; without `op`, a sum. If `value` is given, copy it to the array first.
    #[pyo3(signature = (array, op=None, value=None, /))]
    fn allreduce(&self, array: Argument, op: Option<Argument>, value: Option<Argument>) -> PyResult<bool> {
        let Some(op) = op.map_or(Some(Op::Sum), arithmetic) else { return Ok(false) };
        if value.is_some_and(|value| !value.is(array) && !copy_if_short(value, array)) {
            return Ok(false);
        }
        let Some((bytes, array)) = ArrayBytes::plain(array) else { return Ok(false) };
        self.perform(bytes, array, &CollectiveTask::Allreduce { op, vector: WholeBuffer })
    }

    /// Return the allreduce of a Python number (with any operation except the product), a short array, or a tuple or
    /// list of these. The value stays unchanged.
    #[pyo3(signature = (value, op=None, /))]
    fn allreduced<'py>(&self, value: Argument<'_, 'py>, op: Option<Argument>) -> PyResult<Bound<'py, PyAny>> {
        let found = match op.map_or(Some(Op::Sum), arithmetic) {
            Some(op) => self.combined(value, &CollectiveTask::Allreduce { op, vector: WholeBuffer })?,
            None => None,
        };
        Ok(found.unwrap_or_else(|| value.py().NotImplemented().into_bound(value.py())))
    }

    /// Return the result of `allreduced` at the root, and None elsewhere.
    #[pyo3(signature = (value, root, op=None, /))]
    fn reduced<'py>(
        &self,
        value: Argument<'_, 'py>,
        root: Argument,
        op: Option<Argument>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = value.py();
        let found = match (op.map_or(Some(Op::Sum), arithmetic), self.rank(root)) {
            (Some(op), Some(root)) => {
                let found = self.combined(value, &CollectiveTask::Reduce { op, root, vector: WholeBuffer })?;
                found.map(|found| if root == self.0.get().inner().rank() { found } else { py.None().into_bound(py) })
            }
            _ => None,
        };
        Ok(found.unwrap_or_else(|| py.NotImplemented().into_bound(py)))
    }

    /// Run `broadcast` in place.
    #[pyo3(signature = (array, root, /))]
    fn broadcast(&self, array: Argument, root: Argument) -> PyResult<bool> {
        let Some(root) = self.rank(root) else { return Ok(false) };
        let Some((bytes, array)) = ArrayBytes::plain(array) else { return Ok(false) };
        self.perform(bytes, array, &CollectiveTask::Broadcast { root, vector: WholeBuffer })
    }

    /// Run `allgather` in place on a 1-D array with equally many elements per rank.
    #[pyo3(signature = (array, /))]
    fn allgather(&self, array: Argument) -> PyResult<bool> {
        let world_size = self.world_size();
        let line =
            ArrayBytes::plain(array).filter(|(_, line)| line.ndim() == 1 && line.len().is_multiple_of(world_size));
        let Some((bytes, line)) = line else { return Ok(false) };
        let count = line.len() / world_size;
        if let Some(chunks) = [count; MAX_STACK_RANKS].get(..world_size) {
            return self.perform(bytes, line, &CollectiveTask::Allgather { chunks });
        }
        self.perform(bytes, line, &CollectiveTask::Allgather { chunks: &vec![count; world_size] })
    }

    /// Run `barrier`.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, &CollectiveTask::Barrier { token: WholeBuffer }, Element::U8.into(), BufferMemory::Write(&mut [0]))
    }
}

impl PlainCalls {
    fn world_size(&self) -> usize {
        self.0.get().inner().world_size()
    }

    /// Parse a rank of this communicator from a Python integer.
    fn rank(&self, rank: Argument) -> Option<usize> {
        let rank = rank.cast_exact::<PyInt>().ok()?.extract().ok();
        rank.filter(|&rank| rank < self.world_size())
    }

    /// Perform `task` on a leaf, or a tuple or list of leaves. Return `None` for any other value.
    fn combined<'py>(
        &self,
        value: Argument<'_, 'py>,
        task: &CollectiveTask<'_>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = value.py();
        let Some(op) = task.op() else { return Ok(None) };
        if let Some(leaf) = Leaf::of(value, op) {
            return self.leaf(py, &leaf, task).map(Some);
        }
        let items: Vec<Bound<'py, PyAny>> = match (value.cast_exact::<PyTuple>(), value.cast_exact::<PyList>()) {
            (Ok(tuple), _) if tuple.len() <= MAX_LEAVES => tuple.iter().collect(),
            (_, Ok(list)) if list.len() <= MAX_LEAVES => list.iter().collect(),
            _ => return Ok(None),
        };
        let leaves: Option<Vec<Leaf>> = items.iter().map(|item| Leaf::of(item, op)).collect();
        let are_short = |leaves: &[Leaf]| leaves.iter().map(Leaf::length_bytes).sum::<usize>() <= MAX_SHORT_BYTES;
        let Some(leaves) = leaves.filter(|leaves| !leaves.is_empty() && are_short(leaves)) else { return Ok(None) };
        let is_tuple = value.is_instance_of::<PyTuple>();
        let (mut signature, mut parts) = (String::new(), leaves.iter());
        signatures::put_tree(&mut signature, value, &mut |signature| {
            parts.next().expect("each part of the value is a leaf").put_signature(signature);
        })?;
        let combined = self.leaves(py, &leaves, &signature, task)?;
        Ok(Some(if is_tuple { PyTuple::new(py, combined)?.into_any() } else { PyList::new(py, combined)?.into_any() }))
    }

    /// Perform `task` on one leaf.
    fn leaf<'py>(
        &self,
        py: Python<'py>,
        leaf: &Leaf<'_, 'py>,
        task: &CollectiveTask<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Leaf::Array(_, array) = leaf {
            let copy = copied(array)?;
            let (bytes, array) = ArrayBytes::plain(&copy).expect("the copy of a plain array is plain");
            self.perform(bytes, array, task)?;
            return Ok(copy);
        }
        let shape = ElementShape::Described(NUMBER_SIGNATURE);
        let mut line = Vec::new();
        leaf.put(&mut line);
        self.run(py, task, ElementType { element: leaf.element(), shape }, BufferMemory::Write(&mut line))?;
        leaf.take(py, &mut &*line)
    }

    /// Perform `task` on several leaves, with one call for each element type.
    fn leaves<'py>(
        &self,
        py: Python<'py>,
        leaves: &[Leaf<'_, 'py>],
        signature: &str,
        task: &CollectiveTask<'_>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut lines: Vec<(Element, Vec<u8>)> = Vec::new();
        for leaf in leaves {
            let element = leaf.element();
            let line = lines.iter().position(|(other, _)| *other == element).unwrap_or_else(|| {
                lines.push((element, Vec::new()));
                lines.len() - 1
            });
            leaf.put(&mut lines[line].1);
        }
        for (element, line) in &mut lines {
            self.run(
                py,
                task,
                ElementType { element: *element, shape: ElementShape::Described(signature) },
                BufferMemory::Write(line),
            )?;
        }
        let mut rest: Vec<(Element, &[u8])> = lines.iter().map(|(element, line)| (*element, &**line)).collect();
        let mut combined = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            let (_, line) =
                rest.iter_mut().find(|(element, _)| *element == leaf.element()).expect("every element type has a line");
            combined.push(leaf.take(py, line)?);
        }
        Ok(combined)
    }

    /// Perform `task` on a plain array.
    #[inline]
    fn perform(
        &self,
        bytes: ArrayBytes,
        array: &Bound<'_, PyUntypedArray>,
        task: &CollectiveTask<'_>,
    ) -> PyResult<bool> {
        let shape = if array.ndim() == 1 { ElementShape::Line } else { ElementShape::Axes(array.shape()) };
        let elements = ElementType { element: bytes.element, shape };
        self.run(array.py(), task, elements, bytes.memory(task.only_reads(self.0.get().inner().rank()))?)?;
        Ok(true)
    }

    #[inline]
    fn run(
        &self,
        py: Python<'_>,
        task: &CollectiveTask<'_>,
        elements: ElementType<'_>,
        memory: BufferMemory<'_>,
    ) -> PyResult<()> {
        self.0.get().run(py, task, elements, None, [memory, NO_MEMORY])
    }
}

/// Copy `value` to `array` and return true, if both are short plain arrays of equal type and shape.
fn copy_if_short(value: Argument, array: Argument) -> bool {
    let (Some((from, source)), Some((into, array))) = (ArrayBytes::plain_to_read(value), ArrayBytes::plain(array))
    else {
        return false;
    };
    let is_copied = from.is_short() && from.element == into.element && source.shape() == array.shape();
    if is_copied {
        from.copy_to(into);
    }
    is_copied
}

/// Parse an arithmetic operation, which all numbers support.
fn arithmetic(name: Argument) -> Option<Op> {
    let op = parse_op(name.cast_exact::<PyString>().ok()?.to_str().ok()?).ok();
    op.filter(|op| matches!(op, Op::Sum | Op::Prod | Op::Min | Op::Max))
}
