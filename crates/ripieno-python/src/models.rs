//! Kernels of regression, principal components and alternating least squares for Python.

use crate::arrays::{bytes_of, bytes_of_mut};
use crate::communicator::Communicator;
use crate::errors;
use crate::kernels::{matrix, with_threads};
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1,
    PyReadwriteArray2, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use ripieno::Element;
use ripieno_kernels::{
    DescentOptions, FeatureState, Feedback, Loss, Matrix, OrderedColumns, Ratings, RegressionRows, Solver, SparseRows,
    StepNumbers, StepRows,
};
use std::num::NonZeroUsize;

/// Add the kernels to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(logistic_loss, module)?)?;
    module.add_function(wrap_pyfunction!(logistic_curvature, module)?)?;
    module.add_function(wrap_pyfunction!(sgd_epoch, module)?)?;
    module.add_function(wrap_pyfunction!(sgd_occurrences, module)?)?;
    module.add_function(wrap_pyfunction!(sgd_places, module)?)?;
    module.add_function(wrap_pyfunction!(sgd_needed_features, module)?)?;
    module.add_function(wrap_pyfunction!(solve_factors, module)?)?;
    module.add_function(wrap_pyfunction!(scatter, module)?)?;
    module.add_function(wrap_pyfunction!(column_sums, module)?)?;
    module.add_function(wrap_pyfunction!(add_products, module)?)?;
    module.add_function(wrap_pyfunction!(add_gradients, module)?)
}

/// Sparse rows as arrays, see `ripieno.kernels.SparseRows`.
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
    mut probabilities: PyReadwriteArray2<'_, f64>,
    mut gradient: PyReadwriteArray2<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<f64> {
    let (rows, classes, coef) = (rows.parts()?, classes.as_slice()?, coef.as_slice()?);
    let (probabilities, gradient) = (probabilities.as_slice_mut()?, gradient.as_slice_mut()?);
    with_threads(py, threads, |threads| {
        ripieno_kernels::logistic_loss(rows, classes, coef, probabilities, gradient, threads)
    })
}

#[pyfunction]
fn logistic_curvature(
    py: Python<'_>,
    rows: RowArrays<'_>,
    probabilities: PyReadonlyArray2<'_, f64>,
    direction: PyReadonlyArray2<'_, f64>,
    mut product: PyReadwriteArray2<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let (rows, probabilities, direction) = (rows.parts()?, probabilities.as_slice()?, direction.as_slice()?);
    let product = product.as_slice_mut()?;
    with_threads(py, threads, |threads| {
        ripieno_kernels::logistic_curvature(rows, probabilities, direction, product, threads);
    })?;
    Ok(())
}

/// Columns in the order of steps as arrays, see `ripieno.kernels.sgd.OrderedColumns`.
#[derive(FromPyObject)]
struct OrderedColumnArrays<'py> {
    starts: PyReadonlyArray1<'py, i64>,
    columns: PyReadonlyArray1<'py, i32>,
    step_count: usize,
}

impl OrderedColumnArrays<'_> {
    fn parts(&self) -> PyResult<OrderedColumns<'_>> {
        Ok(OrderedColumns {
            starts: self.starts.as_slice()?,
            columns: self.columns.as_slice()?,
            step_count: self.step_count,
        })
    }
}

/// Numbers by rank and step as arrays, see `ripieno.kernels.sgd.StepNumbers`.
#[derive(FromPyObject)]
struct StepNumberArrays<'py> {
    numbers: PyReadonlyArray1<'py, i32>,
    counts: PyReadonlyArray2<'py, i64>,
}

impl StepNumberArrays<'_> {
    fn parts(&self) -> PyResult<StepNumbers<'_>> {
        Ok(StepNumbers { numbers: self.numbers.as_slice()?, counts: self.counts.as_slice()? })
    }
}

type Occurrences<'py> = (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray2<i64>>);

#[pyfunction]
fn sgd_occurrences<'py>(
    py: Python<'py>,
    rows: OrderedColumnArrays<'_>,
    owners: PyReadonlyArray1<'_, i32>,
    owner_count: usize,
) -> PyResult<Occurrences<'py>> {
    let (rows, owners) = (rows.parts()?, owners.as_slice()?);
    let (features, counts) = py.detach(|| ripieno_kernels::sgd_occurrences(rows, owners, owner_count));
    Ok((features.into_pyarray(py), counts.into_pyarray(py).reshape([owner_count, rows.step_count])?))
}

type FactorPlaces<'py> = (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<f64>>);

#[pyfunction]
fn sgd_places<'py>(
    py: Python<'py>,
    rows: OrderedColumnArrays<'_>,
    occurring: StepNumberArrays<'_>,
    chunk_lens: PyReadonlyArray1<'_, i64>,
    penalties: PyReadonlyArray1<'_, f64>,
) -> PyResult<FactorPlaces<'py>> {
    let (rows, occurring) = (rows.parts()?, occurring.parts()?);
    let (chunk_lens, penalties) = (chunk_lens.as_slice()?, penalties.as_slice()?);
    let (places, penalties) = py.detach(|| ripieno_kernels::sgd_places(rows, occurring, chunk_lens, penalties));
    Ok((places.into_pyarray(py), penalties.into_pyarray(py)))
}

type NeededFeatures<'py> = (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i32>>);

#[pyfunction]
fn sgd_needed_features<'py>(
    py: Python<'py>,
    requested: StepNumberArrays<'_>,
    feature_count: usize,
    step_count: usize,
) -> PyResult<NeededFeatures<'py>> {
    let requested = requested.parts()?;
    let (features, counts, places) =
        py.detach(|| ripieno_kernels::sgd_needed_features(requested, feature_count, step_count));
    Ok((features.into_pyarray(py), counts.into_pyarray(py), places.into_pyarray(py)))
}

/// Rows in the order of steps as arrays, see `ripieno.kernels.sgd.StepRows`.
#[derive(FromPyObject)]
struct BatchArrays<'py> {
    starts: PyReadonlyArray1<'py, i64>,
    places: PyReadonlyArray1<'py, i32>,
    values: PyReadonlyArray1<'py, f64>,
    classes: PyReadonlyArray1<'py, i32>,
    counts: PyReadonlyArray2<'py, i64>,
    penalties: PyReadonlyArray1<'py, f64>,
    needed: StepNumberArrays<'py>,
    requested: StepNumberArrays<'py>,
    chunk_lens: PyReadonlyArray1<'py, i64>,
}

impl BatchArrays<'_> {
    fn parts(&self) -> PyResult<StepRows<'_>> {
        Ok(StepRows {
            starts: self.starts.as_slice()?,
            places: self.places.as_slice()?,
            values: self.values.as_slice()?,
            classes: self.classes.as_slice()?,
            counts: self.counts.as_slice()?,
            penalties: self.penalties.as_slice()?,
            needed: self.needed.parts()?,
            requested: self.requested.parts()?,
            chunk_lens: self.chunk_lens.as_slice()?,
        })
    }
}

/// Options of the descent, see `ripieno.kernels.sgd.DescentOptions`.
#[derive(FromPyObject)]
struct DescentNumbers {
    loss: String,
    eta0: f64,
    rows_per_step: f64,
}

impl DescentNumbers {
    fn parts(&self) -> PyResult<DescentOptions> {
        let loss = match self.loss.as_str() {
            "log_loss" => Loss::Logistic,
            "hinge" => Loss::Hinge,
            "squared_error" => Loss::Squared,
            other => return Err(errors::input(format!("loss={other}: expected log_loss, hinge or squared_error"))),
        };
        Ok(DescentOptions { loss, eta0: self.eta0, rows_per_step: self.rows_per_step })
    }
}

/// Run an epoch of all ranks, which exchange data through the communicator.
#[pyfunction]
fn sgd_epoch(
    py: Python<'_>,
    communicator: &Communicator,
    batches: BatchArrays<'_>,
    order: PyReadonlyArray1<'_, i64>,
    descent: DescentNumbers,
    mut weights: PyReadwriteArray2<'_, f64>,
    mut squares: PyReadwriteArray2<'_, f64>,
) -> PyResult<f64> {
    let k = weights.shape()[1];
    let (batches, order, descent) = (batches.parts()?, order.as_slice()?, descent.parts()?);
    let state = FeatureState { k, weights: weights.as_slice_mut()?, squares: squares.as_slice_mut()? };
    communicator.call(py, |comm| {
        let exchange = |sent: &mut Vec<f64>, received: &mut Vec<f64>| {
            if comm.world_size() == 1 {
                std::mem::swap(sent, received);
                return Ok(());
            }
            let counts = vec![sent.len() / comm.world_size(); comm.world_size()];
            comm.alltoall(bytes_of(sent), &counts, bytes_of_mut(received), &counts, Element::F64, None)
        };
        ripieno_kernels::sgd_epoch(&batches, order, descent, state, exchange)
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
    let feedback = match (alpha, &gram) {
        (None, None) => Feedback::Explicit { reg },
        (Some(alpha), Some(gram)) => Feedback::Implicit { reg, alpha, gram: gram.as_slice()? },
        _ => return Err(errors::input("alpha and gram: expected both or neither".to_string())),
    };
    let solver = steps.map_or(Solver::Cholesky, |steps| Solver::Conjugate { steps });
    let objective = with_threads(py, threads, |threads| {
        ripieno_kernels::solve_factors(ratings, factors, rank, feedback, solver, out, threads)
    })?;
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
    with_threads(py, threads, |threads| ripieno_kernels::scatter(factors, rank, anchor, out, threads))?;
    Ok(())
}

/// Rows of numbers.
#[derive(FromPyObject)]
enum PointsArgument<'py> {
    U8(PyReadonlyArray2<'py, u8>),
    F32(PyReadonlyArray2<'py, f32>),
    F64(PyReadonlyArray2<'py, f64>),
}

/// Evaluate an expression with `$matrix` as the matrix of `$points`, whatever its type.
macro_rules! with_points {
    ($points:expr, $matrix:ident => $work:expr) => {
        match $points {
            PointsArgument::U8(array) => {
                let $matrix = matrix(array)?;
                $work
            }
            PointsArgument::F32(array) => {
                let $matrix = matrix(array)?;
                $work
            }
            PointsArgument::F64(array) => {
                let $matrix = matrix(array)?;
                $work
            }
        }
    };
}

/// The targets and the weights of rows.
#[derive(FromPyObject)]
struct TargetArrays<'py>(Option<PyReadonlyArray2<'py, f64>>, Option<PyReadonlyArray1<'py, f64>>);

impl TargetArrays<'_> {
    fn of<'a, P>(&'a self, points: Matrix<'a, P>) -> PyResult<RegressionRows<'a, P>> {
        Ok(RegressionRows {
            points,
            targets: self.0.as_ref().map(matrix).transpose()?,
            weights: self.1.as_ref().map(|weights| weights.as_slice()).transpose()?,
        })
    }
}

#[pyfunction]
fn column_sums(
    py: Python<'_>,
    points: PointsArgument<'_>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    mut sums: PyReadwriteArray1<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<f64> {
    let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
    let sums = sums.as_slice_mut()?;
    with_points!(&points, points => {
        with_threads(py, threads, |threads| ripieno_kernels::column_sums(points, weights, sums, threads))
    })
}

/// Products are computed in f32 if `is_single`, else in f64.
#[pyfunction]
fn add_products(
    py: Python<'_>,
    points: PointsArgument<'_>,
    rows: TargetArrays<'_>,
    center: PyReadonlyArray1<'_, f64>,
    mut sums: PyReadwriteArray2<'_, f64>,
    is_single: bool,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let (center, sums) = (center.as_slice()?, sums.as_slice_mut()?);
    with_points!(&points, points => {
        let rows = rows.of(points)?;
        with_threads(py, threads, |threads| {
            if is_single {
                ripieno_kernels::add_products::<f32, _>(rows, center, sums, threads);
            } else {
                ripieno_kernels::add_products::<f64, _>(rows, center, sums, threads);
            }
        })?;
    });
    Ok(())
}

#[pyfunction]
fn add_gradients(
    py: Python<'_>,
    points: PointsArgument<'_>,
    rows: TargetArrays<'_>,
    center: PyReadonlyArray1<'_, f64>,
    coef: PyReadonlyArray2<'_, f64>,
    mut sums: PyReadwriteArray2<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let (center, coef, sums) = (center.as_slice()?, matrix(&coef)?, sums.as_slice_mut()?);
    with_points!(&points, points => {
        let rows = rows.of(points)?;
        with_threads(py, threads, |threads| ripieno_kernels::add_gradients(rows, center, coef, sums, threads))?;
    });
    Ok(())
}
