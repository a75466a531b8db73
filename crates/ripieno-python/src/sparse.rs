//! Sparse reductions for Python.

use crate::arrays::ArrayBytes;
use crate::communicator::{Communicator, parse_op};
use crate::errors;
use numpy::{PyReadonlyArray1, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ripieno::ElementShape;
use ripieno::sparse::{DENSE_ABOVE, SparseOptions, SparseSchema, Volume};
use std::num::NonZeroUsize;

type SparseArray<'a, 'py> = &'a Bound<'py, PyUntypedArray>;

/// Add the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("DENSE_ABOVE", DENSE_ABOVE)?;
    module.add_class::<SparseReduce>()?;
    module.add_function(wrap_pyfunction!(sparse, module)?)?;
    module.add_function(wrap_pyfunction!(sparse_reduce, module)?)
}

/// A configured sparse reduction.
#[pyclass(frozen, module = "ripieno._native")]
pub struct SparseReduce {
    inner: ripieno::sparse::SparseReduce,
}

#[pymethods]
impl SparseReduce {
    /// Reduce `values`, with a row of `width` elements for each out-index, to `into`, with a row for each in-index.
    /// `row` describes the arrangement of a row.
    #[allow(clippy::too_many_arguments)]
    fn reduce(
        &self,
        py: Python<'_>,
        communicator: &Communicator,
        values: SparseArray,
        into: SparseArray,
        width: usize,
        op: &str,
        row: &str,
    ) -> PyResult<()> {
        let (values, into) = (ArrayBytes::of(values)?, ArrayBytes::of(into)?);
        let schema =
            SparseSchema { element: values.element, width, op: parse_op(op)?, row: ElementShape::Described(row) };
        let (values, into) = (values.read(), into.write()?);
        communicator.call(py, |_| self.inner.reduce(values, into, schema))
    }

    /// Exclusive upper bound of the indices.
    #[getter]
    fn size(&self) -> u64 {
        self.inner.size()
    }

    /// The number of ranks that exchange at each layer.
    #[getter]
    fn degrees(&self) -> String {
        self.inner.degrees().to_string()
    }

    #[getter]
    fn out_count(&self) -> usize {
        self.inner.out_count()
    }

    #[getter]
    fn in_count(&self) -> usize {
        self.inner.in_count()
    }

    /// The data volume of this rank before the first layer and after each.
    #[getter]
    fn volumes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let entries = |volume: &Volume| {
            let entries = PyDict::new(py);
            entries.set_item("range", volume.range)?;
            entries.set_item("out_rows", volume.out_rows)?;
            entries.set_item("in_rows", volume.in_rows)?;
            Ok(entries)
        };
        self.inner.volumes().iter().map(entries).collect()
    }
}

/// Configure reductions.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn sparse(
    py: Python<'_>,
    communicator: &Communicator,
    out_indices: PyReadonlyArray1<'_, i64>,
    in_indices: PyReadonlyArray1<'_, i64>,
    size: Option<u64>,
    degrees: Option<&str>,
    missing_is_zero: bool,
    dense_above: f64,
    threads: NonZeroUsize,
) -> PyResult<SparseReduce> {
    let (out_indices, in_indices) = (slice(&out_indices)?, slice(&in_indices)?);
    let inner = communicator.call(py, |comm| {
        let options = SparseOptions::parse(size, degrees, missing_is_zero, dense_above, comm.world_size())?;
        comm.sparse(out_indices, in_indices, &SparseOptions { threads, ..options })
    })?;
    Ok(SparseReduce { inner })
}

/// Configure and reduce in one pass.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn sparse_reduce(
    py: Python<'_>,
    communicator: &Communicator,
    out_indices: PyReadonlyArray1<'_, i64>,
    values: SparseArray,
    in_indices: PyReadonlyArray1<'_, i64>,
    into: SparseArray,
    width: usize,
    op: &str,
    row: &str,
    size: Option<u64>,
    degrees: Option<&str>,
    missing_is_zero: bool,
    dense_above: f64,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let (out_indices, in_indices) = (slice(&out_indices)?, slice(&in_indices)?);
    let (values, into) = (ArrayBytes::of(values)?, ArrayBytes::of(into)?);
    let schema = SparseSchema { element: values.element, width, op: parse_op(op)?, row: ElementShape::Described(row) };
    let (values, into) = (values.read(), into.write()?);
    communicator.call(py, |comm| {
        let options = SparseOptions::parse(size, degrees, missing_is_zero, dense_above, comm.world_size())?;
        comm.sparse_reduce(out_indices, values, in_indices, into, schema, &SparseOptions { threads, ..options })
    })
}

fn slice<'a>(indices: &'a PyReadonlyArray1<'_, i64>) -> PyResult<&'a [i64]> {
    indices.as_slice().map_err(|_| errors::input("expected C-contiguous indices".to_string()))
}
