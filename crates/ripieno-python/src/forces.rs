//! Forces of a graph layout for Python.

use crate::kernels::with_threads;
use crate::pairs::positions;
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray2};
use pyo3::prelude::*;
use ripieno_kernels::{Attraction, BlockShare};
use std::num::NonZeroUsize;

/// Add the kernels to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(fixed_point_scale, module)?)?;
    module.add_function(wrap_pyfunction!(repulsion, module)?)?;
    module.add_function(wrap_pyfunction!(barnes_hut, module)?)?;
    module.add_function(wrap_pyfunction!(attraction, module)?)
}

#[pyfunction]
fn fixed_point_scale(point_count: usize) -> f64 {
    ripieno_kernels::fixed_point_scale(point_count)
}

#[pyfunction]
fn repulsion(
    py: Python<'_>,
    all: PyReadonlyArray2<'_, f32>,
    share: (usize, usize),
    mut out: PyReadwriteArray2<'_, i64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let (index, count) = share;
    let (all, out) = (positions(&all)?, out.as_slice_mut()?);
    with_threads(py, threads, |threads| ripieno_kernels::repulsion(all, BlockShare { index, count }, out, threads))?;
    Ok(())
}

#[pyfunction]
fn barnes_hut(
    py: Python<'_>,
    theta: f32,
    own: (usize, usize),
    all: PyReadonlyArray2<'_, f32>,
    mut out: PyReadwriteArray2<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<u64> {
    let (all, out) = (positions(&all)?, out.as_slice_mut()?);
    with_threads(py, threads, |threads| ripieno_kernels::barnes_hut(theta, own.0..own.1, all, out, threads))
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn attraction(
    py: Python<'_>,
    first: usize,
    starts: PyReadonlyArray1<'_, i64>,
    columns: PyReadonlyArray1<'_, i32>,
    weights: PyReadonlyArray1<'_, f32>,
    length: f64,
    all: PyReadonlyArray2<'_, f32>,
    mut out: PyReadwriteArray2<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let edges =
        Attraction { first, starts: starts.as_slice()?, columns: columns.as_slice()?, weights: weights.as_slice()? };
    let (all, out) = (positions(&all)?, out.as_slice_mut()?);
    with_threads(py, threads, |threads| ripieno_kernels::attraction(edges, length, all, out, threads))?;
    Ok(())
}
