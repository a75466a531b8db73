//! Sums over all pairs of points for Python.

use crate::errors;
use crate::kernels::with_threads;
use numpy::{PyReadonlyArray2, PyReadwriteArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use ripieno_kernels::{Dissimilarity, Matrix, PairData};
use std::num::NonZeroUsize;

/// Add the kernels to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("MAX_DIMENSIONS", ripieno_kernels::MAX_DIMENSIONS)?;
    module.add_function(wrap_pyfunction!(guttman, module)?)?;
    module.add_function(wrap_pyfunction!(weighted_differences, module)?)
}

/// Dissimilarities of either type.
#[derive(FromPyObject)]
enum Dissimilarities<'py> {
    I16(PyReadonlyArray2<'py, i16>),
    F32(PyReadonlyArray2<'py, f32>),
}

/// Positions with at least one dimension, and at most `MAX_DIMENSIONS`.
pub(crate) fn positions<'a>(array: &'a PyReadonlyArray2<'_, f32>) -> PyResult<Matrix<'a, f32>> {
    let (rows, columns) = (array.shape()[0], array.shape()[1]);
    if columns == 0 || columns > ripieno_kernels::MAX_DIMENSIONS {
        return Err(errors::input(format!("{columns} dimensions: expected 1 … {}", ripieno_kernels::MAX_DIMENSIONS)));
    }
    Ok(Matrix::new(array.as_slice()?, rows, columns))
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn guttman(
    py: Python<'_>,
    dissimilarities: Dissimilarities<'_>,
    weights: Option<PyReadonlyArray2<'_, f32>>,
    shift: f32,
    own: PyReadonlyArray2<'_, f32>,
    all: PyReadonlyArray2<'_, f32>,
    out: PyReadwriteArray2<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    match dissimilarities {
        Dissimilarities::I16(array) => guttman_of(py, array, weights, shift, own, all, out, threads),
        Dissimilarities::F32(array) => guttman_of(py, array, weights, shift, own, all, out, threads),
    }
}

#[allow(clippy::too_many_arguments)]
fn guttman_of<D: Dissimilarity + numpy::Element>(
    py: Python<'_>,
    dissimilarities: PyReadonlyArray2<'_, D>,
    weights: Option<PyReadonlyArray2<'_, f32>>,
    shift: f32,
    own: PyReadonlyArray2<'_, f32>,
    all: PyReadonlyArray2<'_, f32>,
    mut out: PyReadwriteArray2<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
    let wanted = PairData { dissimilarities: dissimilarities.as_slice()?, weights, shift };
    let (own, all, out) = (positions(&own)?, positions(&all)?, out.as_slice_mut()?);
    with_threads(py, threads, |threads| ripieno_kernels::guttman(wanted, own, all, out, threads))?;
    Ok(())
}

#[pyfunction]
fn weighted_differences(
    py: Python<'_>,
    weights: PyReadonlyArray2<'_, f32>,
    own: PyReadonlyArray2<'_, f32>,
    all: PyReadonlyArray2<'_, f32>,
    mut out: PyReadwriteArray2<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let weights = weights.as_slice()?;
    let (own, all, out) = (positions(&own)?, positions(&all)?, out.as_slice_mut()?);
    with_threads(py, threads, |threads| ripieno_kernels::weighted_differences(weights, own, all, out, threads))?;
    Ok(())
}
