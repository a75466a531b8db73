//! K-means kernels for Python, for points of three element types.

use crate::errors;
use crate::interruption;
use crate::models::RowArrays;
use numpy::{
    PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1, PyReadwriteArray2,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use ripieno_kernels::{Cells, Center, Centroid, DistanceBounds, Growth, Matrix, PassOutput, Point, Threads};
use std::num::NonZeroUsize;

/// Add the kernels to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(simd_level, module)?)?;
    module.add_class::<PassBounds>()?;
    module.add_function(wrap_pyfunction!(assign_accumulate, module)?)?;
    module.add_class::<NearIndex>()?;
    module.add_function(wrap_pyfunction!(assign_accumulate_near, module)?)?;
    module.add_class::<Probing>()?;
    module.add_function(wrap_pyfunction!(compare_groups, module)?)?;
    module.add_function(wrap_pyfunction!(accumulate_run, module)?)?;
    module.add_function(wrap_pyfunction!(inertia_of, module)?)?;
    module.add_function(wrap_pyfunction!(assign_sparse, module)?)?;
    module.add_function(wrap_pyfunction!(accumulate_sparse, module)?)?;
    module.add_function(wrap_pyfunction!(assign, module)?)?;
    module.add_function(wrap_pyfunction!(update_min_distances, module)?)?;
    module.add_function(wrap_pyfunction!(grow_cells, module)?)?;
    module.add_function(wrap_pyfunction!(distances, module)?)?;
    module.add_function(wrap_pyfunction!(recenter, module)?)?;
    module.add_function(wrap_pyfunction!(first_non_finite, module)?)
}

/// Points of any of the three types.
#[derive(FromPyObject)]
enum KernelPoints<'py> {
    F32(PyReadonlyArray2<'py, f32>),
    F64(PyReadonlyArray2<'py, f64>),
    U8(PyReadonlyArray2<'py, u8>),
}

/// Run a generic function for the type of the points.
macro_rules! for_points {
    ($points:expr, $array:ident => $call:expr) => {
        match $points {
            KernelPoints::F32($array) => $call,
            KernelPoints::F64($array) => $call,
            KernelPoints::U8($array) => $call,
        }
    };
}

pub(crate) fn matrix<'a, T: numpy::Element>(array: &'a PyReadonlyArray2<'_, T>) -> PyResult<Matrix<'a, T>> {
    let (rows, columns) = (array.shape()[0], array.shape()[1]);
    if columns == 0 {
        return Err(errors::input(format!("shape ({rows}, 0): expected at least one column")));
    }
    let values = array.as_slice().map_err(|_| errors::input("expected a C-contiguous matrix".to_string()))?;
    Ok(Matrix::new(values, rows, columns))
}

/// Call `work` with `count` threads and the interpreter released. The exception of a signal handler ends it.
pub(crate) fn with_threads<R: Send>(
    py: Python<'_>,
    count: NonZeroUsize,
    work: impl FnOnce(&Threads) -> R + Send,
) -> PyResult<R> {
    interruption::calculate(py, || work(&Threads::new(count.get())))
}

/// Return the SIMD level that the kernels use on this machine.
#[pyfunction]
fn simd_level() -> String {
    format!("{:?}", ripieno_kernels::Simd::best())
}

/// Distance bounds carried between K-means passes over the same points.
#[pyclass]
struct PassBounds(DistanceBounds);

#[pymethods]
impl PassBounds {
    #[new]
    fn new(limit_bytes: usize) -> Self {
        PassBounds(DistanceBounds::new(limit_bytes))
    }

    #[getter]
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    #[getter]
    fn compared(&self) -> f64 {
        self.0.compared()
    }
}

type KMeansSums<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray1<f64>>, f64);

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn assign_accumulate<'py>(
    py: Python<'py>,
    points: KernelPoints<'py>,
    centroids: &Bound<'py, PyAny>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    labels: PyReadwriteArray1<'py, i32>,
    threads: NonZeroUsize,
    squared_distances: Option<PyReadwriteArray1<'py, f64>>,
    mut bounds: Option<PyRefMut<'py, PassBounds>>,
) -> PyResult<KMeansSums<'py>> {
    let threads = Threads::new(threads.get());
    let bounds = bounds.as_mut().map(|bounds| &mut bounds.0);
    for_points!(points, array => {
        assign_accumulate_of(py, array, centroids.extract()?, weights, labels, threads, squared_distances, bounds)
    })
}

#[allow(clippy::too_many_arguments)]
fn assign_accumulate_of<'py, P: Point + numpy::Element>(
    py: Python<'py>,
    points: PyReadonlyArray2<'py, P>,
    centroids: PyReadonlyArray2<'py, P::Centroid>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    mut labels: PyReadwriteArray1<'py, i32>,
    threads: Threads,
    mut squared_distances: Option<PyReadwriteArray1<'py, f64>>,
    bounds: Option<&mut DistanceBounds>,
) -> PyResult<KMeansSums<'py>>
where
    P::Centroid: numpy::Element,
{
    let (points, centroids) = (matrix(&points)?, matrix(&centroids)?);
    let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
    let squared_distances = squared_distances.as_mut().map(|distances| distances.as_slice_mut()).transpose()?;
    let labels = labels.as_slice_mut()?;
    let mut sums = vec![0.0; centroids.rows() * centroids.columns()];
    let mut weight_sums = vec![0.0; centroids.rows()];
    let pass = PassOutput { labels, squared_distances, sums: &mut sums, weight_sums: &mut weight_sums };
    let inertia = interruption::calculate(py, || match bounds {
        Some(bounds) => ripieno_kernels::assign_accumulate_within(points, centroids, weights, pass, bounds, &threads),
        None => ripieno_kernels::assign_accumulate(points, centroids, weights, pass, &threads),
    })?;
    let shape = [centroids.rows(), centroids.columns()];
    Ok((PyArray1::from_vec(py, sums).reshape(shape)?, PyArray1::from_vec(py, weight_sums), inertia))
}

/// Index carried between near passes of K-means over the same points.
#[pyclass]
struct NearIndex(ripieno_kernels::NearIndex);

#[pymethods]
impl NearIndex {
    #[new]
    fn new() -> Self {
        NearIndex(ripieno_kernels::NearIndex::new())
    }

    #[staticmethod]
    fn group_count(centroid_count: usize) -> usize {
        ripieno_kernels::NearIndex::group_count(centroid_count)
    }
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn assign_accumulate_near<'py>(
    py: Python<'py>,
    points: KernelPoints<'py>,
    centroids: &Bound<'py, PyAny>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    labels: PyReadwriteArray1<'py, i32>,
    squared_distances: PyReadwriteArray1<'py, f64>,
    mut index: PyRefMut<'py, NearIndex>,
    probes: NonZeroUsize,
    threads: NonZeroUsize,
) -> PyResult<KMeansSums<'py>> {
    let index = &mut index.0;
    for_points!(points, array => {
        let centroids = centroids.extract()?;
        assign_accumulate_near_of(py, array, centroids, weights, labels, squared_distances, index, probes, threads)
    })
}

#[allow(clippy::too_many_arguments)]
fn assign_accumulate_near_of<'py, P: Point + numpy::Element>(
    py: Python<'py>,
    points: PyReadonlyArray2<'py, P>,
    centroids: PyReadonlyArray2<'py, P::Centroid>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    mut labels: PyReadwriteArray1<'py, i32>,
    mut squared_distances: PyReadwriteArray1<'py, f64>,
    index: &mut ripieno_kernels::NearIndex,
    probes: NonZeroUsize,
    threads: NonZeroUsize,
) -> PyResult<KMeansSums<'py>>
where
    P::Centroid: numpy::Element,
{
    let (points, centroids) = (matrix(&points)?, matrix(&centroids)?);
    let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
    let (labels, distances) = (labels.as_slice_mut()?, squared_distances.as_slice_mut()?);
    let mut sums = vec![0.0; centroids.rows() * centroids.columns()];
    let mut weight_sums = vec![0.0; centroids.rows()];
    let squared_distances = Some(distances);
    let pass = PassOutput { labels, squared_distances, sums: &mut sums, weight_sums: &mut weight_sums };
    let inertia = with_threads(py, threads, |threads| {
        ripieno_kernels::assign_accumulate_near(points, centroids, weights, pass, index, probes.get(), threads)
    })?;
    let shape = [centroids.rows(), centroids.columns()];
    Ok((PyArray1::from_vec(py, sums).reshape(shape)?, PyArray1::from_vec(py, weight_sums), inertia))
}

/// The groups that the rows of a near pass probe.
#[pyclass]
struct Probing(ripieno_kernels::Probing);

#[pymethods]
impl Probing {
    #[new]
    fn new(
        py: Python<'_>,
        points: KernelPoints<'_>,
        means: &Bound<'_, PyAny>,
        probes: NonZeroUsize,
        threads: NonZeroUsize,
    ) -> PyResult<Self> {
        for_points!(points, array => probing_of(py, array, means.extract()?, probes, threads))
    }

    #[getter]
    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

fn probing_of<'py, P: Point + numpy::Element>(
    py: Python<'py>,
    points: PyReadonlyArray2<'py, P>,
    means: PyReadonlyArray2<'py, P::Centroid>,
    probes: NonZeroUsize,
    threads: NonZeroUsize,
) -> PyResult<Probing>
where
    P::Centroid: numpy::Element,
{
    let (points, means) = (matrix(&points)?, matrix(&means)?);
    Ok(Probing(with_threads(py, threads, |threads| {
        ripieno_kernels::Probing::new(points, means, probes.get(), threads)
    })?))
}

/// Groups of centroids, as arrays.
#[derive(FromPyObject)]
struct GroupArrays<'py> {
    first: usize,
    centroids: Bound<'py, PyAny>,
    numbers: PyReadonlyArray1<'py, u32>,
    starts: Vec<usize>,
}

/// The centroids of the previous pass as arrays.
#[derive(FromPyObject)]
struct PreviousCentroidArrays<'py> {
    places: PyReadonlyArray1<'py, i32>,
    labels: PyReadonlyArray1<'py, i32>,
    first: usize,
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn compare_groups<'py>(
    py: Python<'py>,
    points: KernelPoints<'py>,
    probing: PyRef<'py, Probing>,
    groups: GroupArrays<'py>,
    previous: Option<PreviousCentroidArrays<'py>>,
    labels: PyReadwriteArray1<'py, i32>,
    squared_distances: PyReadwriteArray1<'py, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    for_points!(points, array => {
        compare_groups_of(py, array, &probing.0, &groups, previous, labels, squared_distances, threads)
    })
}

#[allow(clippy::too_many_arguments)]
fn compare_groups_of<'py, P: Point + numpy::Element>(
    py: Python<'py>,
    points: PyReadonlyArray2<'py, P>,
    probing: &ripieno_kernels::Probing,
    groups: &GroupArrays<'py>,
    previous: Option<PreviousCentroidArrays<'py>>,
    mut labels: PyReadwriteArray1<'py, i32>,
    mut squared_distances: PyReadwriteArray1<'py, f64>,
    threads: NonZeroUsize,
) -> PyResult<()>
where
    P::Centroid: numpy::Element,
{
    let centroids: PyReadonlyArray2<'py, P::Centroid> = groups.centroids.extract()?;
    let (points, centroids) = (matrix(&points)?, matrix(&centroids)?);
    let (first, numbers, starts) = (groups.first, groups.numbers.as_slice()?, &groups.starts[..]);
    let compared = ripieno_kernels::CentroidGroups { first, centroids, numbers, starts };
    let previous = match &previous {
        Some(PreviousCentroidArrays { places, labels, first }) => Some(ripieno_kernels::PreviousCentroids {
            places: places.as_slice()?,
            labels: labels.as_slice()?,
            first: *first,
        }),
        None => None,
    };
    let into = (labels.as_slice_mut()?, squared_distances.as_slice_mut()?);
    with_threads(py, threads, |threads| {
        ripieno_kernels::compare_groups(points, probing, compared, previous, into, threads)
    })?;
    Ok(())
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn accumulate_run<'py>(
    py: Python<'py>,
    points: KernelPoints<'py>,
    labels: PyReadonlyArray1<'py, i32>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    first: usize,
    mut sums: PyReadwriteArray2<'py, f64>,
    mut weight_sums: PyReadwriteArray1<'py, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
    let (labels, into) = (labels.as_slice()?, (sums.as_slice_mut()?, weight_sums.as_slice_mut()?));
    for_points!(points, array => {
        let points = matrix(&array)?;
        with_threads(py, threads, |threads| {
            ripieno_kernels::accumulate_run(points, labels, weights, first, into, threads);
        })?;
        Ok(())
    })
}

#[pyfunction]
fn inertia_of(
    squared_distances: PyReadonlyArray1<'_, f64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    columns: usize,
) -> PyResult<f64> {
    let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
    Ok(ripieno_kernels::inertia_of(squared_distances.as_slice()?, weights, columns))
}

#[pyfunction]
fn assign_sparse(
    py: Python<'_>,
    rows: RowArrays<'_>,
    centroids: PyReadonlyArray2<'_, f64>,
    first_index: i32,
    mut labels: PyReadwriteArray1<'_, i32>,
    mut squared_distances: PyReadwriteArray1<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let (rows, centroids) = (rows.parts()?, matrix(&centroids)?);
    let into = (labels.as_slice_mut()?, squared_distances.as_slice_mut()?);
    with_threads(py, threads, |threads| ripieno_kernels::assign_sparse(rows, centroids, first_index, into, threads))?;
    Ok(())
}

#[pyfunction]
fn accumulate_sparse(
    py: Python<'_>,
    rows: RowArrays<'_>,
    labels: PyReadonlyArray1<'_, i32>,
    first: usize,
    mut sums: PyReadwriteArray2<'_, f64>,
    mut weight_sums: PyReadwriteArray1<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    let (rows, labels) = (rows.parts()?, labels.as_slice()?);
    let into = (sums.as_slice_mut()?, weight_sums.as_slice_mut()?);
    with_threads(py, threads, |threads| ripieno_kernels::accumulate_sparse(rows, labels, first, into, threads))?;
    Ok(())
}

#[pyfunction]
fn assign<'py>(
    py: Python<'py>,
    points: KernelPoints<'py>,
    centroids: &Bound<'py, PyAny>,
    labels: PyReadwriteArray1<'py, i32>,
    squared_distances: Option<PyReadwriteArray1<'py, f64>>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    for_points!(points, array => assign_of(py, array, centroids.extract()?, labels, squared_distances, threads))
}

fn assign_of<'py, P: Point + numpy::Element>(
    py: Python<'py>,
    points: PyReadonlyArray2<'py, P>,
    centroids: PyReadonlyArray2<'py, P::Centroid>,
    mut labels: PyReadwriteArray1<'py, i32>,
    mut squared_distances: Option<PyReadwriteArray1<'py, f64>>,
    threads: NonZeroUsize,
) -> PyResult<()>
where
    P::Centroid: numpy::Element,
{
    let (points, centroids) = (matrix(&points)?, matrix(&centroids)?);
    let squared_distances = squared_distances.as_mut().map(|distances| distances.as_slice_mut()).transpose()?;
    let labels = labels.as_slice_mut()?;
    with_threads(py, threads, |threads| {
        ripieno_kernels::assign(points, centroids, labels, squared_distances, threads);
    })?;
    Ok(())
}

#[pyfunction]
fn update_min_distances<'py>(
    py: Python<'py>,
    points: KernelPoints<'py>,
    new_centroids: &Bound<'py, PyAny>,
    first_index: i32,
    min_squared_distances: PyReadwriteArray1<'py, f64>,
    closest: Option<PyReadwriteArray1<'py, i32>>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    for_points!(points, array => {
        let new_centroids = new_centroids.extract()?;
        update_min_distances_of(py, array, new_centroids, first_index, min_squared_distances, closest, threads)
    })
}

fn update_min_distances_of<'py, P: Point + numpy::Element>(
    py: Python<'py>,
    points: PyReadonlyArray2<'py, P>,
    new_centroids: PyReadonlyArray2<'py, P::Centroid>,
    first_index: i32,
    mut min_squared_distances: PyReadwriteArray1<'py, f64>,
    mut closest: Option<PyReadwriteArray1<'py, i32>>,
    threads: NonZeroUsize,
) -> PyResult<()>
where
    P::Centroid: numpy::Element,
{
    let (points, new_centroids) = (matrix(&points)?, matrix(&new_centroids)?);
    let closest = closest.as_mut().map(|closest| closest.as_slice_mut()).transpose()?;
    let distances = min_squared_distances.as_slice_mut()?;
    with_threads(py, threads, |threads| {
        ripieno_kernels::update_min_distances(points, new_centroids, first_index, distances, closest, threads);
    })?;
    Ok(())
}

/// Cells as arrays: the rows, the centers, the times and the random streams of each.
#[derive(FromPyObject)]
struct CellArrays<'py> {
    row_weights: PyReadonlyArray1<'py, f64>,
    ends: PyReadonlyArray1<'py, i64>,
    chosen: PyReadonlyArray1<'py, i64>,
    chosen_ends: PyReadonlyArray1<'py, i64>,
    times: PyReadonlyArray1<'py, f64>,
    streams: PyReadonlyArray1<'py, u64>,
}

type Grown<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>);

#[pyfunction]
fn grow_cells<'py>(
    py: Python<'py>,
    points: KernelPoints<'py>,
    cells: CellArrays<'py>,
    trial_count: usize,
    center_count: usize,
    until: f64,
    threads: NonZeroUsize,
) -> PyResult<Grown<'py>> {
    let growth = Growth { trial_count, center_count, until };
    for_points!(points, array => grow_cells_of(py, array, &cells, growth, threads))
}

fn grow_cells_of<'py, P: Point + numpy::Element>(
    py: Python<'py>,
    points: PyReadonlyArray2<'py, P>,
    cells: &CellArrays<'py>,
    growth: Growth,
    threads: NonZeroUsize,
) -> PyResult<Grown<'py>> {
    let cells = Cells {
        points: matrix(&points)?,
        row_weights: cells.row_weights.as_slice()?,
        ends: cells.ends.as_slice()?,
        chosen: cells.chosen.as_slice()?,
        chosen_ends: cells.chosen_ends.as_slice()?,
        times: cells.times.as_slice()?,
        streams: cells.streams.as_slice()?,
    };
    let grown = with_threads(py, threads, |threads| ripieno_kernels::grow_cells(cells, growth, threads))?;
    let centers: Vec<&Center> = grown.iter().flatten().collect();
    Ok((
        PyArray1::from_iter(py, grown.iter().map(|centers| centers.len() as i64)),
        PyArray1::from_iter(py, centers.iter().map(|center| center.row)),
        PyArray1::from_iter(py, centers.iter().map(|center| center.time)),
    ))
}

#[pyfunction]
fn distances<'py>(
    py: Python<'py>,
    points: KernelPoints<'py>,
    centroids: &Bound<'py, PyAny>,
    out: &Bound<'py, PyAny>,
    threads: NonZeroUsize,
) -> PyResult<()> {
    for_points!(points, array => distances_of(py, array, centroids.extract()?, out.extract()?, threads))
}

fn distances_of<'py, P: Point + numpy::Element>(
    py: Python<'py>,
    points: PyReadonlyArray2<'py, P>,
    centroids: PyReadonlyArray2<'py, P::Centroid>,
    mut out: PyReadwriteArray2<'py, P::Centroid>,
    threads: NonZeroUsize,
) -> PyResult<()>
where
    P::Centroid: numpy::Element,
{
    let (points, centroids) = (matrix(&points)?, matrix(&centroids)?);
    let out = out.as_slice_mut()?;
    with_threads(py, threads, |threads| ripieno_kernels::distances(points, centroids, out, threads))?;
    Ok(())
}

/// Centroids of either type.
#[derive(FromPyObject)]
enum Centroids<'py> {
    F32(PyReadwriteArray2<'py, f32>),
    F64(PyReadwriteArray2<'py, f64>),
}

#[pyfunction]
fn recenter(
    py: Python<'_>,
    centroids: Centroids<'_>,
    sums: PyReadonlyArray2<'_, f64>,
    weight_sums: PyReadonlyArray1<'_, f64>,
) -> PyResult<f64> {
    match centroids {
        Centroids::F32(array) => recenter_of(py, array, sums, weight_sums),
        Centroids::F64(array) => recenter_of(py, array, sums, weight_sums),
    }
}

fn recenter_of<C: Centroid + numpy::Element>(
    py: Python<'_>,
    mut centroids: PyReadwriteArray2<'_, C>,
    sums: PyReadonlyArray2<'_, f64>,
    weight_sums: PyReadonlyArray1<'_, f64>,
) -> PyResult<f64> {
    let (centroids, sums, weight_sums) = (centroids.as_slice_mut()?, sums.as_slice()?, weight_sums.as_slice()?);
    Ok(py.detach(|| ripieno_kernels::recenter(centroids, sums, weight_sums)).squared_shift)
}

#[pyfunction]
#[pyo3(signature = (points, threads=NonZeroUsize::MIN))]
fn first_non_finite(
    py: Python<'_>,
    points: KernelPoints<'_>,
    threads: NonZeroUsize,
) -> PyResult<Option<(usize, usize)>> {
    for_points!(points, array => {
        let points = matrix(&array)?;
        with_threads(py, threads, |threads| ripieno_kernels::first_non_finite(points, threads))
    })
}
