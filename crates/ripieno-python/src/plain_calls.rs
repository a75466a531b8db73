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
use std::ops::Range;

/// Maximum number of ranks for which the counts are on the stack.
const MAX_STACK_RANKS: usize = 16;

/// Maximum number of rows of a rank, and of bytes of the rows of all ranks, on the fast path.
const MAX_ROWS: usize = 1 << 30;

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

    /// Run `allgather` in place on a vector. `counts` are the elements per rank, by default equally many. If `value` is
    /// given, copy it to its place first.
    #[pyo3(signature = (array, counts=None, value=None, /))]
    fn allgather(&self, array: Argument, counts: Option<Argument>, value: Option<Argument>) -> PyResult<bool> {
        let Some((bytes, array)) = vector(array) else { return Ok(false) };
        let Some(counts) = self.counts(counts, array.len()) else { return Ok(false) };
        if let Some(value) = value {
            let own = bytes.range(counts.range(self.own_rank()));
            let Some((value, _)) = readable_vector(value).filter(|(value, _)| value.is_short() && value.fits(own))
            else {
                return Ok(false);
            };
            value.copy_to(own);
        }
        self.perform(bytes, array, &CollectiveTask::Allgather { chunks: counts.of_ranks() })
    }

    /// Run `gather` of vectors. `out` is used at the root only.
    #[pyo3(signature = (value, root, out, counts, /))]
    fn gather(
        &self,
        value: Argument,
        root: Argument,
        out: Option<Argument>,
        counts: Option<Argument>,
    ) -> PyResult<bool> {
        let (Some(root), Some((value, array))) = (self.rank(root), readable_vector(value)) else { return Ok(false) };
        let Some(counts) = self.counts_of_rows(counts, value, array) else { return Ok(false) };
        let (own, task) = (counts.range(self.own_rank()), CollectiveTask::Gather { chunks: counts.of_ranks(), root });
        if root != self.own_rank() {
            return self.run_on_vector(array.py(), &task, value, BufferMemory::Read(value.read()));
        }
        let Some((out, _)) = out.and_then(vector).filter(|(out, all)| counts.fit(all) && out.element == value.element)
        else {
            return Ok(false);
        };
        value.copy_to(out.range(own));
        self.run_on_vector(array.py(), &task, value, BufferMemory::Write(out.write()?))
    }

    /// Run `scatter` of vectors. `values` are used at the root only.
    #[pyo3(signature = (values, root, out, counts, /))]
    fn scatter(
        &self,
        values: Option<Argument>,
        root: Argument,
        out: Argument,
        counts: Option<Argument>,
    ) -> PyResult<bool> {
        let (Some(root), Some((out, array))) = (self.rank(root), vector(out)) else { return Ok(false) };
        let Some(counts) = self.counts_of_rows(counts, out, array) else { return Ok(false) };
        let (own, task) = (counts.range(self.own_rank()), CollectiveTask::Scatter { chunks: counts.of_ranks(), root });
        if root != self.own_rank() {
            return self.run_on_vector(array.py(), &task, out, BufferMemory::Write(out.write()?));
        }
        let values = values.and_then(readable_vector);
        let Some((values, _)) = values.filter(|(values, all)| counts.fit(all) && values.element == out.element) else {
            return Ok(false);
        };
        self.run_on_vector(array.py(), &task, out, values.memory(task.only_reads(root))?)?;
        values.range(own).copy_to(out);
        Ok(true)
    }

    /// Run `reduce_scatter` of a short vector. The value stays unchanged.
    #[pyo3(signature = (value, op, out, counts, /))]
    fn reduce_scatter(&self, value: Argument, op: Argument, out: Argument, counts: Option<Argument>) -> PyResult<bool> {
        let (Some(op), Some((value, array)), Some((out, part))) = (arithmetic(op), readable_vector(value), vector(out))
        else {
            return Ok(false);
        };
        let Some(counts) = self.counts(counts, array.len()) else { return Ok(false) };
        let (own, size) = (counts.range(self.own_rank()), value.element.size_bytes());
        if out.element != value.element || part.len() != own.len() || !value.is_short() {
            return Ok(false);
        }
        let mut rows = value.read().to_vec();
        let task = CollectiveTask::ReduceScatter { chunks: counts.of_ranks(), op };
        self.run_on_vector(array.py(), &task, value, BufferMemory::Write(&mut rows))?;
        out.write()?.copy_from_slice(&rows[own.start * size..own.end * size]);
        Ok(true)
    }

    /// Run `alltoall` between vectors that do not overlap. Counts are by default equal for all ranks.
    #[pyo3(signature = (values, out, counts, out_counts, /))]
    fn alltoall(
        &self,
        values: Argument,
        out: Argument,
        counts: Option<Argument>,
        out_counts: Option<Argument>,
    ) -> PyResult<bool> {
        let (Some((values, sent)), Some((out, received))) = (readable_vector(values), vector(out)) else {
            return Ok(false);
        };
        let (Some(counts), Some(out_counts)) =
            (self.counts(counts, sent.len()), self.counts(out_counts, received.len()))
        else {
            return Ok(false);
        };
        if values.element != out.element || values.overlaps(out) {
            return Ok(false);
        }
        let task = CollectiveTask::Alltoall { out_chunks: counts.of_ranks(), in_chunks: out_counts.of_ranks() };
        let elements = ElementType { element: values.element, shape: ElementShape::Vector };
        let memory = [values.memory(task.only_reads(self.own_rank()))?, BufferMemory::Write(out.write()?)];
        self.0.get().run(sent.py(), &task, elements, None, memory)?;
        Ok(true)
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

    fn own_rank(&self) -> usize {
        self.0.get().inner().rank()
    }

    /// Parse the elements per rank of a vector of `length` elements; without counts, divide it evenly. Return
    /// `None` if the counts do not fit, and for more than [`MAX_STACK_RANKS`] ranks.
    fn counts(&self, counts: Option<Argument>, length: usize) -> Option<Counts> {
        let world_size = self.world_size();
        match counts {
            Some(counts) => self.parsed_counts(counts).filter(|found| found.sum() == length),
            None if world_size <= MAX_STACK_RANKS && length.is_multiple_of(world_size) => {
                Some(Counts { of_ranks: [length / world_size; MAX_STACK_RANKS], world_size })
            }
            None => None,
        }
    }

    /// Parse the elements per rank from a list of Python integers. Return `None` for anything else, and for more than
    /// [`MAX_STACK_RANKS`] ranks.
    fn parsed_counts(&self, counts: Argument) -> Option<Counts> {
        let (list, world_size) = (counts.cast_exact::<PyList>().ok()?, self.world_size());
        let mut of_ranks = [0; MAX_STACK_RANKS];
        let each = of_ranks.get_mut(..world_size).filter(|each| each.len() == list.len())?;
        for (count, item) in each.iter_mut().zip(list) {
            *count = item.cast_exact::<PyInt>().ok()?.extract().ok().filter(|&count| count <= MAX_ROWS)?;
        }
        Some(Counts { of_ranks, world_size })
    }

    /// Parse the elements per rank of a call in which this rank has `rows`. Return `None` if they do not fit.
    fn counts_of_rows(
        &self,
        counts: Option<Argument>,
        rows: ArrayBytes,
        array: &Bound<'_, PyUntypedArray>,
    ) -> Option<Counts> {
        let counts = self.parsed_counts(counts?)?;
        let fits = array.len() == counts.range(self.own_rank()).len();
        (fits && counts.sum() * rows.element.size_bytes() <= MAX_ROWS).then_some(counts)
    }

    /// Run `task` on a vector of the elements of `like`.
    fn run_on_vector(
        &self,
        py: Python<'_>,
        task: &CollectiveTask<'_>,
        like: ArrayBytes,
        memory: BufferMemory<'_>,
    ) -> PyResult<bool> {
        self.run(py, task, ElementType { element: like.element, shape: ElementShape::Vector }, memory)?;
        Ok(true)
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
        let mut buffer = Vec::new();
        leaf.put(&mut buffer);
        self.run(py, task, ElementType { element: leaf.element(), shape }, BufferMemory::Write(&mut buffer))?;
        leaf.take(py, &mut &*buffer)
    }

    /// Perform `task` on several leaves, with one call for each element type.
    fn leaves<'py>(
        &self,
        py: Python<'py>,
        leaves: &[Leaf<'_, 'py>],
        signature: &str,
        task: &CollectiveTask<'_>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut buffers: Vec<(Element, Vec<u8>)> = Vec::new();
        for leaf in leaves {
            let element = leaf.element();
            let index = buffers.iter().position(|(other, _)| *other == element).unwrap_or_else(|| {
                buffers.push((element, Vec::new()));
                buffers.len() - 1
            });
            leaf.put(&mut buffers[index].1);
        }
        for (element, buffer) in &mut buffers {
            self.run(
                py,
                task,
                ElementType { element: *element, shape: ElementShape::Described(signature) },
                BufferMemory::Write(buffer),
            )?;
        }
        let mut rest: Vec<(Element, &[u8])> = buffers.iter().map(|(element, buffer)| (*element, &**buffer)).collect();
        let mut combined = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            let (_, buffer) = rest
                .iter_mut()
                .find(|(element, _)| *element == leaf.element())
                .expect("every element type has a buffer");
            combined.push(leaf.take(py, buffer)?);
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
        let shape = if array.ndim() == 1 { ElementShape::Vector } else { ElementShape::Axes(array.shape()) };
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

/// The elements of a vector per rank.
struct Counts {
    of_ranks: [usize; MAX_STACK_RANKS],
    world_size: usize,
}

impl Counts {
    fn of_ranks(&self) -> &[usize] {
        &self.of_ranks[..self.world_size]
    }

    fn sum(&self) -> usize {
        self.of_ranks().iter().sum()
    }

    /// Return whether a vector has the elements of all ranks.
    fn fit(&self, vector: &Bound<'_, PyUntypedArray>) -> bool {
        vector.len() == self.sum()
    }

    /// Return the elements of a rank in the vector.
    fn range(&self, rank: usize) -> Range<usize> {
        let begin = self.of_ranks[..rank].iter().sum();
        begin..begin + self.of_ranks[rank]
    }
}

/// Return the memory of a plain 1-D array for writing.
fn vector<'a, 'py>(value: &'a Bound<'py, PyAny>) -> Option<(ArrayBytes, &'a Bound<'py, PyUntypedArray>)> {
    ArrayBytes::plain(value).filter(|(_, array)| array.ndim() == 1)
}

/// Return the memory of a plain 1-D array for reading.
fn readable_vector<'a, 'py>(value: &'a Bound<'py, PyAny>) -> Option<(ArrayBytes, &'a Bound<'py, PyUntypedArray>)> {
    ArrayBytes::plain_to_read(value).filter(|(_, array)| array.ndim() == 1)
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
