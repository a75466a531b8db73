//! Graph kernels for Python.

use crate::errors;
use crate::kernels::with_threads;
use numpy::{
    Element, IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArrayDyn, PyReadwriteArray1,
    PyReadwriteArrayDyn, PyUntypedArrayMethods,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ripieno_kernels::graph::{
    Csr, EdgeColumns, Fold, LocalGraph, Max, Min, Or, PageRankStep, Sum, TargetLists, ThirdField, count_triangles,
    pagerank_step,
};
use std::num::NonZeroUsize;

/// Add the graph kernels to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<EdgeMatrix>()?;
    module.add_function(wrap_pyfunction!(parse_pairs, module)?)?;
    module.add_function(wrap_pyfunction!(local_graph, module)?)?;
    module.add_function(wrap_pyfunction!(pagerank_step_py, module)?)?;
    module.add_function(wrap_pyfunction!(count_triangles_py, module)?)
}

type Ids<'py> = Bound<'py, PyArray1<i64>>;
type RealVector<'py> = Bound<'py, PyArray1<f64>>;
type Parsed<'py> = (Ids<'py>, Ids<'py>, RealVector<'py>, Ids<'py>);

/// Parse edges. A malformed line raises `ValueError` with the offset of the line and the problem.
#[pyfunction]
fn parse_pairs<'py>(py: Python<'py>, text: &[u8], third: &str) -> PyResult<Parsed<'py>> {
    let third = match third {
        "weight" => ThirdField::Weight,
        "ignored" => ThirdField::Ignored,
        "refused" => ThirdField::Rejected,
        _ => return Err(errors::input(format!("third={third:?}: expected weight, ignored or refused"))),
    };
    let parsed = py.detach(|| ripieno_kernels::graph::parse_edges(text, third));
    let EdgeColumns { sources, targets, weights, lone } =
        parsed.map_err(|error| PyValueError::new_err((error.offset, error.reason.to_string())))?;
    Ok((sources.into_pyarray(py), targets.into_pyarray(py), weights.into_pyarray(py), lone.into_pyarray(py)))
}

type Entries<'py> = (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u32>>, Option<RealVector<'py>>);

/// The matrix of a rank's edges.
#[pyclass(frozen, module = "ripieno._native")]
struct EdgeMatrix(Csr);

#[pyfunction]
fn local_graph<'py>(
    py: Python<'py>,
    sources: PyReadonlyArray1<'py, i64>,
    targets: PyReadonlyArray1<'py, i64>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    once: bool,
    threads: NonZeroUsize,
) -> PyResult<(Ids<'py>, Ids<'py>, EdgeMatrix)> {
    let (sources, targets) = (sources.as_slice()?, targets.as_slice()?);
    let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
    let LocalGraph { rows, columns, matrix } =
        with_threads(py, threads, |threads| LocalGraph::new(sources, targets, weights, once, threads))?
            .map_err(|error| errors::input(error.to_string()))?;
    Ok((rows.into_pyarray(py), columns.into_pyarray(py), EdgeMatrix(matrix)))
}

#[pymethods]
impl EdgeMatrix {
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.0.row_count(), self.0.column_count())
    }

    #[getter]
    fn entry_count(&self) -> usize {
        self.0.entry_count()
    }

    fn column_sums<'py>(&self, py: Python<'py>) -> RealVector<'py> {
        py.detach(|| self.0.column_sums()).into_pyarray(py)
    }

    /// Return the offsets of the rows, the column of every entry, and its weight.
    fn entries<'py>(&self, py: Python<'py>) -> Entries<'py> {
        let offsets: Vec<u64> = self.0.offsets().iter().map(|&offset| offset as u64).collect();
        let weights = self.0.weights().map(|weights| PyArray1::from_slice(py, weights));
        (offsets.into_pyarray(py), PyArray1::from_slice(py, self.0.columns()), weights)
    }

    /// Return the smallest id among the columns of each open row in the frontier, or the largest integer.
    fn min_sources<'py>(
        &self,
        py: Python<'py>,
        ids: PyReadonlyArray1<'_, i64>,
        frontier: PyReadonlyArray1<'_, bool>,
        is_open: PyReadonlyArray1<'_, bool>,
        threads: NonZeroUsize,
    ) -> PyResult<Ids<'py>> {
        let (ids, frontier, is_open) = (ids.as_slice()?, frontier.as_slice()?, is_open.as_slice()?);
        let (rows, columns) = (self.0.row_count(), self.0.column_count());
        if (ids.len(), frontier.len(), is_open.len()) != (columns, columns, rows) {
            let (ids, frontier, is_open) = (ids.len(), frontier.len(), is_open.len());
            return Err(errors::input(format!(
                "ids has {ids} entries, frontier {frontier} and is_open {is_open}: expected {columns}, {columns} and \
                 {rows}"
            )));
        }
        let mut sources = vec![0; rows];
        with_threads(py, threads, |threads| self.0.min_sources(ids, frontier, is_open, &mut sources, threads))?;
        Ok(sources.into_pyarray(py))
    }

    fn product(
        &self,
        py: Python<'_>,
        x: ProductValues<'_>,
        out: &Bound<'_, PyAny>,
        op: &str,
        threads: NonZeroUsize,
    ) -> PyResult<()> {
        let product = Product { matrix: &self.0, op, threads };
        match x {
            ProductValues::F64(x) => product.of_reals(py, x, out.extract()?),
            ProductValues::F32(x) => product.of_reals(py, x, out.extract()?),
            ProductValues::I32(x) => product.of_bits(py, x, out.extract()?),
            ProductValues::I64(x) => product.of_bits(py, x, out.extract()?),
            ProductValues::U64(x) => product.of_bits(py, x, out.extract()?),
        }
    }
}

/// A vector or a matrix of any type that supports products.
#[derive(FromPyObject)]
enum ProductValues<'py> {
    F64(PyReadonlyArrayDyn<'py, f64>),
    F32(PyReadonlyArrayDyn<'py, f32>),
    I32(PyReadonlyArrayDyn<'py, i32>),
    I64(PyReadonlyArrayDyn<'py, i64>),
    U64(PyReadonlyArrayDyn<'py, u64>),
}

struct Product<'a> {
    matrix: &'a Csr,
    op: &'a str,
    threads: NonZeroUsize,
}

impl Product<'_> {
    fn of_reals<T: Element + Copy + Send + Sync>(
        &self,
        py: Python<'_>,
        x: PyReadonlyArrayDyn<'_, T>,
        out: PyReadwriteArrayDyn<'_, T>,
    ) -> PyResult<()>
    where
        Sum: Fold<T>,
        Min: Fold<T>,
        Max: Fold<T>,
    {
        match self.op {
            "sum" => self.run::<Sum, T>(py, x, out),
            "min" => self.run::<Min, T>(py, x, out),
            "max" => self.run::<Max, T>(py, x, out),
            op => Err(errors::input(format!("op={op:?}: expected sum, min or max, or for integers also or"))),
        }
    }

    fn of_bits<T: Element + Copy + Send + Sync>(
        &self,
        py: Python<'_>,
        x: PyReadonlyArrayDyn<'_, T>,
        out: PyReadwriteArrayDyn<'_, T>,
    ) -> PyResult<()>
    where
        Sum: Fold<T>,
        Min: Fold<T>,
        Max: Fold<T>,
        Or: Fold<T>,
    {
        match self.op {
            "or" => self.run::<Or, T>(py, x, out),
            _ => self.of_reals(py, x, out),
        }
    }

    fn run<F: Fold<T>, T: Element + Copy + Send + Sync>(
        &self,
        py: Python<'_>,
        x: PyReadonlyArrayDyn<'_, T>,
        mut out: PyReadwriteArrayDyn<'_, T>,
    ) -> PyResult<()> {
        let (rows, columns) = (self.matrix.row_count(), self.matrix.column_count());
        let width: usize = x.shape().iter().skip(1).product();
        let fits = x.shape().first() == Some(&columns) && out.shape().first() == Some(&rows) && width > 0;
        if !fits || x.shape()[1..] != out.shape()[1..] {
            let (x, out) = (x.shape(), out.shape());
            return Err(errors::input(format!(
                "x has shape {x:?} and out {out:?}: expected {columns} and {rows} rows of equal width"
            )));
        }
        if !F::SUPPORTS_WEIGHTS && self.matrix.weights().is_some() {
            return Err(errors::input(format!(
                "x has dtype {} and the edges have weights: expected float64 or float32 for sums",
                x.dtype()
            )));
        }
        let (x, out) = (x.as_slice()?, out.as_slice_mut()?);
        with_threads(py, self.threads, |threads| self.matrix.product::<F, T>(x, out, width, threads))?;
        Ok(())
    }
}

#[pyfunction]
#[pyo3(name = "pagerank_step")]
#[allow(clippy::too_many_arguments)]
fn pagerank_step_py(
    py: Python<'_>,
    sums: PyReadonlyArray1<'_, f64>,
    places: Option<PyReadonlyArray1<'_, u32>>,
    inverse_out: PyReadonlyArray1<'_, f64>,
    counted: Option<PyReadonlyArray1<'_, bool>>,
    teleport: Option<PyReadonlyArray1<'_, f64>>,
    share: Option<PyReadonlyArray1<'_, f64>>,
    uniform: f64,
    damping: f64,
    dangling: f64,
    mut ranks: PyReadwriteArray1<'_, f64>,
    mut contributions: PyReadwriteArray1<'_, f64>,
    threads: NonZeroUsize,
) -> PyResult<(f64, f64)> {
    let step = PageRankStep {
        sums: sums.as_slice()?,
        places: places.as_ref().map(|places| places.as_slice()).transpose()?,
        inverse_out: inverse_out.as_slice()?,
        counted: counted.as_ref().map(|counted| counted.as_slice()).transpose()?,
        teleport: teleport.as_ref().map(|teleport| teleport.as_slice()).transpose()?,
        share: share.as_ref().map(|share| share.as_slice()).transpose()?,
        uniform,
        damping,
        dangling,
    };
    let (ranks, contributions) = (ranks.as_slice_mut()?, contributions.as_slice_mut()?);
    check_step(&step, ranks.len(), contributions.len())?;
    let progress = with_threads(py, threads, |threads| pagerank_step(step, ranks, contributions, threads))?;
    Ok((progress.error, progress.dangling))
}

/// Check that every array has one entry per vertex of `ranks`, and that all places are valid indices of the sums.
fn check_step(step: &PageRankStep<'_>, count: usize, contribution_count: usize) -> PyResult<()> {
    let by_vertex = step.places.map_or(("sums", step.sums.len()), |places| ("places", places.len()));
    let lengths = [
        Some(by_vertex),
        Some(("inverse_out", step.inverse_out.len())),
        step.counted.map(|counted| ("counted", counted.len())),
        step.teleport.map(|teleport| ("teleport", teleport.len())),
        step.share.map(|share| ("share", share.len())),
        Some(("contributions", contribution_count)),
    ];
    if let Some((name, length)) = lengths.into_iter().flatten().find(|&(_, length)| length != count) {
        return Err(errors::input(format!("{name} has {length} entries: expected {count}, one per rank")));
    }
    // The addition wraps the marker of an entry without a sum to 0.
    let largest_end = step.places.unwrap_or_default().iter().map(|place| place.wrapping_add(1)).max().unwrap_or(0);
    if largest_end as usize > step.sums.len() {
        let (place, count) = (largest_end - 1, step.sums.len());
        return Err(errors::input(format!("places has {place}: expected less than {count}, the number of sums")));
    }
    Ok(())
}

type Lists<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i64>);

/// Return the triangles and links of each vertex, (n, 2), from two lists of offsets, targets and directions.
#[pyfunction]
#[pyo3(name = "count_triangles")]
fn count_triangles_py<'py>(
    py: Python<'py>,
    own: Lists<'py>,
    others: Lists<'py>,
    threads: NonZeroUsize,
) -> PyResult<Bound<'py, PyArray2<i64>>> {
    let (own, others) = (target_lists(&own)?, target_lists(&others)?);
    if own.offsets.len() != others.offsets.len() {
        let (own, others) = (own.offsets.len(), others.offsets.len());
        return Err(errors::input(format!("own has {own} offsets and others {others}: expected the same vertices")));
    }
    let counted = with_threads(py, threads, |threads| count_triangles(own, others, threads))?;
    PyArray1::from_vec(py, counted.into_flattened()).reshape([own.offsets.len() - 1, 2])
}

/// Return lists after a check of their offsets and targets.
fn target_lists<'a>((offsets, targets, directions): &'a Lists<'_>) -> PyResult<TargetLists<'a>> {
    let (offsets, targets, directions) = (offsets.as_slice()?, targets.as_slice()?, directions.as_slice()?);
    let ends_match = offsets.first() == Some(&0) && offsets.last() == Some(&(targets.len() as i64));
    let vertex_count = offsets.len().saturating_sub(1) as i64;
    if !ends_match || !offsets.is_sorted() || directions.len() != targets.len() {
        return Err(errors::input(format!(
            "lists of {} targets and {} directions: expected ascending offsets from 0 to their number",
            targets.len(),
            directions.len()
        )));
    }
    if let Some(target) = targets.iter().find(|target| !(0..vertex_count).contains(*target)) {
        return Err(errors::input(format!("targets has {target}: expected vertices below {vertex_count}")));
    }
    Ok(TargetLists { offsets, targets, directions })
}
