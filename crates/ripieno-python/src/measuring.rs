//! Measuring for Python: loops of collectives with the interpreter released, and what the memory allows.

use crate::arrays::ArrayBytes;
use crate::communicator::{Communicator, parse_collective, seconds};
use crate::errors;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use ripieno::{BufferMemory, Collective, Error, Op, measuring};

/// Adds the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(measure, module)?)?;
    module.add_function(wrap_pyfunction!(choice, module)?)?;
    module.add_function(wrap_pyfunction!(distinct_algorithms, module)?)?;
    module.add_function(wrap_pyfunction!(prefer, module)?)?;
    module.add_function(wrap_pyfunction!(line_s, module)?)?;
    module.add_function(wrap_pyfunction!(memory_pass, module)?)
}

/// Seconds that calls of `collective` take on `array`, sums, root 0, even chunks; `into` is what alltoall fills.
#[pyfunction]
#[pyo3(signature = (communicator, collective, array, into=None, *, budget_s, apart=false, algorithm=None))]
#[allow(clippy::too_many_arguments)]
fn measure(
    py: Python<'_>,
    communicator: &Communicator,
    collective: &str,
    array: &Bound<'_, PyUntypedArray>,
    into: Option<&Bound<'_, PyUntypedArray>>,
    budget_s: f64,
    apart: bool,
    algorithm: Option<&str>,
) -> PyResult<Vec<f64>> {
    let (collective, budget) = (parse_collective(collective)?, seconds("budget_s", budget_s)?);
    let bytes = ArrayBytes::of(array)?;
    let (vector, element) = (bytes.write()?, bytes.element);
    let output = into.map(|into| ArrayBytes::of(into)?.write()).transpose()?.unwrap_or_default();
    communicator.call(py, |comm| {
        let counts = vec![vector.len() / element.size_bytes() / comm.world_size(); comm.world_size()];
        measuring::measure(comm, budget, apart, |comm| match collective {
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
                expected: "one that all ranks call alike".to_string(),
            }),
        })
    })
}

/// The name of the algorithm that runs when the caller of `collective` names none.
#[pyfunction]
fn choice(py: Python<'_>, communicator: &Communicator, collective: &str, size_bytes: usize) -> PyResult<&'static str> {
    let collective = parse_collective(collective)?;
    communicator.call(py, |comm| Ok(comm.choice(collective, size_bytes)?.name))
}

/// The algorithms that may be preferred, those of equal plans together; bytes as in an explanation.
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

/// What runs from now on when the caller names none: (up to so many bytes in all, algorithm), ascending.
#[pyfunction]
fn prefer(py: Python<'_>, communicator: &Communicator, collective: &str, rows: Vec<(usize, String)>) -> PyResult<()> {
    let collective = parse_collective(collective)?;
    communicator.call(py, |comm| comm.prefer(collective, &rows))
}

/// Seconds that a cache line takes from core to core.
#[pyfunction]
fn line_s(py: Python<'_>) -> f64 {
    py.detach(measuring::line_s)
}

/// Seconds that each of some threads, all at once, takes to add a vector to another, and to copy it.
#[pyfunction]
fn memory_pass(py: Python<'_>, thread_count: usize, size_bytes: usize, budget_s: f64) -> PyResult<(f64, f64)> {
    if thread_count == 0 {
        return Err(errors::input("thread_count=0: expected a positive number".to_string()));
    }
    let budget = seconds("budget_s", budget_s)?;
    let pass = py.detach(|| measuring::memory_pass(thread_count, size_bytes, budget));
    Ok((pass.add_s, pass.copy_s))
}
