//! Measurement for Python: loops of collectives with the interpreter released, and memory bandwidth.

use crate::arrays::ArrayBytes;
use crate::communicator::{Communicator, parse_collective, seconds};
use crate::errors;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ripieno::{BufferMemory, Collective, Error, Op, PairCosts, measuring};

/// Add the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(measure, module)?)?;
    module.add_function(wrap_pyfunction!(choice, module)?)?;
    module.add_function(wrap_pyfunction!(distinct_algorithms, module)?)?;
    module.add_function(wrap_pyfunction!(prefer, module)?)?;
    module.add_function(wrap_pyfunction!(line_s, module)?)?;
    module.add_function(wrap_pyfunction!(link_costs, module)?)?;
    module.add_function(wrap_pyfunction!(memory_pass, module)?)
}

/// Measure calls of `collective` on `array` in seconds, with sums, root 0 and equal chunks. An alltoall receives into
/// `into`. If `separate`, measure single calls, otherwise batches.
#[pyfunction]
#[pyo3(signature = (communicator, collective, array, into=None, *, budget_s, separate=false, algorithm=None))]
#[allow(clippy::too_many_arguments)]
fn measure(
    py: Python<'_>,
    communicator: &Communicator,
    collective: &str,
    array: &Bound<'_, PyUntypedArray>,
    into: Option<&Bound<'_, PyUntypedArray>>,
    budget_s: f64,
    separate: bool,
    algorithm: Option<&str>,
) -> PyResult<Vec<f64>> {
    let (collective, budget) = (parse_collective(collective)?, seconds("budget_s", budget_s)?);
    let bytes = ArrayBytes::of(array)?;
    let (vector, element) = (bytes.write()?, bytes.element);
    let output = into.map(|into| ArrayBytes::of(into)?.write()).transpose()?.unwrap_or_default();
    communicator.call(py, |comm| {
        let counts = vec![vector.len() / element.size_bytes() / comm.world_size(); comm.world_size()];
        measuring::measure(comm, budget, separate, |comm| match collective {
            Collective::Broadcast => comm.broadcast(BufferMemory::Write(vector), element, 0, algorithm),
            Collective::Reduce => comm.reduce(vector, element, Op::Sum, 0, algorithm),
            Collective::Allreduce => comm.allreduce(vector, element, Op::Sum, algorithm),
            Collective::Allgather => comm.allgather(vector, element, &counts, algorithm),
            Collective::ReduceScatter => comm.reduce_scatter(vector, element, &counts, Op::Sum, algorithm),
            Collective::Gather => comm.gather(vector, element, &counts, 0, algorithm),
            Collective::Scatter => comm.scatter(BufferMemory::Write(vector), element, &counts, 0, algorithm),
            Collective::Alltoall => comm.alltoall(vector, &counts, output, &counts, element, algorithm),
            Collective::Barrier => comm.barrier(algorithm),
            other => Err(Error::Argument {
                name: "collective",
                value: other.name().to_string(),
                expected: "a collective that all ranks call with equal arguments".to_string(),
            }),
        })
    })
}

/// Return the name of the algorithm for calls of `collective` that name none.
#[pyfunction]
fn choice(py: Python<'_>, communicator: &Communicator, collective: &str, size_bytes: usize) -> PyResult<&'static str> {
    let collective = parse_collective(collective)?;
    communicator.call(py, |comm| Ok(comm.choice(collective, size_bytes)?.name))
}

/// Return the algorithms that may be preferred, grouped by equal plans. `bytes` is defined like in `explain`.
#[pyfunction]
fn distinct_algorithms(
    py: Python<'_>,
    communicator: &Communicator,
    collective: &str,
    bytes: usize,
) -> PyResult<Vec<Vec<&'static str>>> {
    let collective = parse_collective(collective)?;
    communicator.call(py, |comm| Ok(comm.distinct_algorithms(collective, bytes)))
}

/// Set the algorithms for calls that name none. `rows` are (maximum total bytes, algorithm), ascending.
#[pyfunction]
fn prefer(py: Python<'_>, communicator: &Communicator, collective: &str, rows: Vec<(usize, String)>) -> PyResult<()> {
    let collective = parse_collective(collective)?;
    communicator.call(py, |comm| comm.prefer(collective, &rows))
}

/// Measure the time in seconds to move a cache line from core to core.
#[pyfunction]
fn line_s(py: Python<'_>) -> f64 {
    py.detach(measuring::line_s)
}

/// Measure the times in seconds in which a thread adds one vector to another, and copies it, with several threads at
/// once.
#[pyfunction]
fn memory_pass(py: Python<'_>, thread_count: usize, size_bytes: usize, budget_s: f64) -> PyResult<(f64, f64)> {
    if thread_count == 0 {
        return Err(errors::input("thread_count=0: expected a positive number".to_string()));
    }
    let budget = seconds("budget_s", budget_s)?;
    let pass = py.detach(|| measuring::memory_pass(thread_count, size_bytes, budget));
    Ok((pass.add_s, pass.copy_s))
}

/// Measure the costs of a link between two threads.
#[pyfunction]
fn link_costs(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    pair_entries(py, py.detach(measuring::link_costs)?)
}

/// Return the costs of a pair as entries of Python.
pub fn pair_entries(py: Python<'_>, costs: PairCosts) -> PyResult<Bound<'_, PyDict>> {
    let entries = PyDict::new(py);
    entries.set_item("line_s", costs.line_s)?;
    entries.set_item("ring_s_per_byte", costs.ring_s_per_byte)?;
    entries.set_item("zero_copy_s_per_byte", costs.zero_copy_s_per_byte)?;
    Ok(entries)
}
