//! The kernels of regression, of principal components and of alternating least squares for Python.

use crate::arrays::{bytes_of, bytes_of_mut};
use crate::communicator::Communicator;
use crate::errors;
use crate::kernels::{matrix, with_threads};
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray2,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use ripieno::Element;
use ripieno_kernels::{Aim, Descent, Division, Loss, Ratings, Solver, SparseRows, StepNumbers};
use std::num::NonZeroUsize;

/// Adds the kernels to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(logistic_loss, module)?)?;
    module.add_function(wrap_pyfunction!(logistic_curvature, module)?)?;
    module.add_function(wrap_pyfunction!(sgd_epoch, module)?)?;
    module.add_function(wrap_pyfunction!(sgd_occurrences, module)?)?;
    module.add_function(wrap_pyfunction!(sgd_divided_epoch, module)?)?;
    module.add_function(wrap_pyfunction!(solve_factors, module)?)?;
    module.add_function(wrap_pyfunction!(scatter, module)?)?;
    module.add_function(wrap_pyfunction!(add_products, module)?)
}

/// Rows of few entries as arrays, see `ripieno.kernels.SparseRows`.
#[derive(FromPyObject)]
pub(crate) struct RowArrays<'py> {
    starts: PyReadonlyArray1<'py, i64>,
    columns: PyReadonlyArray1<'py, i32>,
    values: PyReadonlyArray1<'py, f64>,
    column_count: usize,
    weights: PyReadonlyArray1<'py, f64>,
}

impl RowArrays<'_> {
    pub(crate) fn parts(&self) -> PyResult<SparseRows<'_>> {
        Ok(SparseRows {
            starts: self.starts.as_slice()?,
            columns: self.columns.as_slice()?,
            values: self.values.as_slice()?,
            column_count: self.column_count,
            weights: self.weights.as_slice()?,
        })
    }
}

#[pyfunction]
fn logistic_loss(
    py: Python<'_>,
    rows: RowArrays<'_>,
    classes: PyReadonlyArray1<'_, i32>,
    coef: PyReadonlyArray2<'_, f64>,
    mut chances: PyReadwriteArray2<'_, f64>,
    mut gradient: PyReadwriteArray2<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<f64> {
    let (rows, classes, coef) = (rows.parts()?, classes.as_slice()?, coef.as_slice()?);
    let (chances, gradient) = (chances.as_slice_mut()?, gradient.as_slice_mut()?);
    Ok(with_threads(py, threads, |threads| {
        ripieno_kernels::logistic_loss(rows, classes, coef, chances, gradient, threads)
    }))
}

#[pyfunction]
fn logistic_curvature(
    py: Python<'_>,
    rows: RowArrays<'_>,
    chances: PyReadonlyArray2<'_, f64>,
    direction: PyReadonlyArray2<'_, f64>,
    mut product: PyReadwriteArray2<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let (rows, chances, direction) = (rows.parts()?, chances.as_slice()?, direction.as_slice()?);
    let product = product.as_slice_mut()?;
    with_threads(py, threads, |threads| {
        ripieno_kernels::logistic_curvature(rows, chances, direction, product, threads);
    });
    Ok(())
}

/// Rows to descend over as arrays, see `ripieno.kernels.Descent`.
#[derive(FromPyObject)]
struct DescentArrays<'py> {
    starts: PyReadonlyArray1<'py, i64>,
    columns: PyReadonlyArray1<'py, i32>,
    values: PyReadonlyArray1<'py, f64>,
    classes: PyReadonlyArray1<'py, i32>,
    penalties: PyReadonlyArray1<'py, f64>,
    eta0: f64,
    loss: String,
}

impl DescentArrays<'_> {
    fn parts(&self) -> PyResult<Descent<'_>> {
        let loss = match self.loss.as_str() {
            "log_loss" => Loss::Logistic,
            "hinge" => Loss::Hinge,
            "squared_error" => Loss::Squared,
            other => return Err(errors::input(format!("loss={other}: there is no such loss"))),
        };
        Ok(Descent {
            starts: self.starts.as_slice()?,
            columns: self.columns.as_slice()?,
            values: self.values.as_slice()?,
            classes: self.classes.as_slice()?,
            penalties: self.penalties.as_slice()?,
            eta0: self.eta0,
            loss,
        })
    }
}

#[pyfunction]
fn sgd_epoch(
    py: Python<'_>,
    rows: DescentArrays<'_>,
    order: PyReadonlyArray1<'_, i64>,
    step_count: usize,
    mut weights: PyReadwriteArray2<'_, f64>,
    mut squares: PyReadwriteArray2<'_, f64>,
) -> PyResult<f64> {
    let k = weights.shape()[1];
    let (rows, order) = (rows.parts()?, order.as_slice()?);
    let (weights, squares) = (weights.as_slice_mut()?, squares.as_slice_mut()?);
    Ok(py.detach(|| ripieno_kernels::sgd_epoch(&rows, order, step_count, k, weights, squares)))
}

type Occurrences<'py> = (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray2<i64>>);

#[pyfunction]
fn sgd_occurrences<'py>(
    py: Python<'py>,
    rows: DescentArrays<'_>,
    order: PyReadonlyArray1<'_, i64>,
    step_count: usize,
    homes: PyReadonlyArray1<'_, i32>,
    home_count: usize,
) -> PyResult<Occurrences<'py>> {
    let (rows, order, homes) = (rows.parts()?, order.as_slice()?, homes.as_slice()?);
    let (features, counts) =
        py.detach(|| ripieno_kernels::sgd_occurrences(&rows, order, step_count, homes, home_count));
    Ok((features.into_pyarray(py), counts.into_pyarray(py).reshape([home_count, step_count])?))
}

/// Where features are at home as arrays, see `ripieno.kernels.Division`.
#[derive(FromPyObject)]
struct DivisionArrays<'py> {
    features: PyReadonlyArray1<'py, i32>,
    feature_counts: PyReadonlyArray2<'py, i64>,
    places: PyReadonlyArray1<'py, i32>,
    place_counts: PyReadonlyArray2<'py, i64>,
    chunk_lens: PyReadonlyArray1<'py, i64>,
    rows_per_step: f64,
}

impl DivisionArrays<'_> {
    fn parts(&self) -> PyResult<Division<'_>> {
        let (features, places) = (self.features.as_slice()?, self.places.as_slice()?);
        Ok(Division {
            occurring: StepNumbers { numbers: features, counts: self.feature_counts.as_slice()? },
            asked: StepNumbers { numbers: places, counts: self.place_counts.as_slice()? },
            chunk_lens: self.chunk_lens.as_slice()?,
            rows_per_step: self.rows_per_step,
        })
    }
}

/// An epoch of all ranks; what they give each other goes through the communicator.
#[pyfunction]
fn sgd_divided_epoch(
    py: Python<'_>,
    communicator: &Communicator,
    rows: DescentArrays<'_>,
    order: PyReadonlyArray1<'_, i64>,
    division: DivisionArrays<'_>,
    mut weights: PyReadwriteArray2<'_, f64>,
    mut squares: PyReadwriteArray2<'_, f64>,
) -> PyResult<f64> {
    let k = weights.shape()[1];
    let (rows, order, division) = (rows.parts()?, order.as_slice()?, division.parts()?);
    let (weights, squares) = (weights.as_slice_mut()?, squares.as_slice_mut()?);
    communicator.call(py, |comm| {
        let exchange = |given: &[f64], got: &mut [f64]| {
            let counts = vec![given.len() / comm.world_size(); comm.world_size()];
            comm.alltoall(bytes_of(given), &counts, bytes_of_mut(got), &counts, Element::F64, None)
        };
        ripieno_kernels::sgd_divided_epoch(&rows, order, &division, k, weights, squares, exchange)
    })
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn solve_factors(
    py: Python<'_>,
    starts: PyReadonlyArray1<'_, i64>,
    columns: PyReadonlyArray1<'_, i32>,
    values: PyReadonlyArray1<'_, f32>,
    factors: PyReadonlyArray2<'_, f32>,
    reg: f32,
    alpha: Option<f32>,
    gram: Option<PyReadonlyArray2<'_, f32>>,
    steps: Option<usize>,
    mut out: PyReadwriteArray2<'_, f32>,
    threads: NonZeroUsize,
) -> PyResult<(f64, f64)> {
    let rank = factors.shape()[1];
    let ratings = Ratings { starts: starts.as_slice()?, columns: columns.as_slice()?, values: values.as_slice()? };
    let (factors, out) = (factors.as_slice()?, out.as_slice_mut()?);
    let aim = match (alpha, &gram) {
        (None, None) => Aim::Explicit { reg },
        (Some(alpha), Some(gram)) => Aim::Implicit { reg, alpha, gram: gram.as_slice()? },
        _ => return Err(errors::input("alpha and gram: expected both or neither".to_string())),
    };
    let solver = steps.map_or(Solver::Cholesky, |steps| Solver::Conjugate { steps });
    let objective = with_threads(py, threads, |threads| {
        ripieno_kernels::solve_factors(ratings, factors, rank, aim, solver, out, threads)
    });
    Ok((objective.loss, objective.penalty))
}

#[pyfunction]
fn scatter(
    py: Python<'_>,
    factors: PyReadonlyArray2<'_, f32>,
    anchor: f64,
    mut out: PyReadwriteArray2<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let rank = factors.shape()[1];
    let (factors, out) = (factors.as_slice()?, out.as_slice_mut()?);
    with_threads(py, threads, |threads| ripieno_kernels::scatter(factors, rank, anchor, out, threads));
    Ok(())
}

/// Rows of numbers that products are made of.
#[derive(FromPyObject)]
enum Reals<'py> {
    F32(PyReadonlyArray2<'py, f32>),
    F64(PyReadonlyArray2<'py, f64>),
}

#[pyfunction]
fn add_products(
    py: Python<'_>,
    rows: Reals<'_>,
    center: PyReadonlyArray1<'_, f64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    mut sums: PyReadwriteArray2<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
    let (center, sums) = (center.as_slice()?, sums.as_slice_mut()?);
    match &rows {
        Reals::F32(array) => {
            let rows = matrix(array)?;
            with_threads(py, threads, |threads| ripieno_kernels::add_products(rows, center, weights, sums, threads));
        }
        Reals::F64(array) => {
            let rows = matrix(array)?;
            with_threads(py, threads, |threads| ripieno_kernels::add_products(rows, center, weights, sums, threads));
        }
    }
    Ok(())
}
