//! Sums over rows for principal components and linear regression: column sums, the scatter matrix, and gradients.
//!
//! Rows are divided into segments. Their number depends only on the shape. One thread adds up a segment, or for the
//! scatter matrix a band of its sums, so threads share no written memory. The sums of the segments are then added up in
//! order. So the bits depend only on the rows, their order and the SIMD level.
//!
//! For the scatter matrix, [`DEPTH`] rows at a time are converted, centered, weighted, and packed into panels. A panel
//! has as many columns as two vectors hold. Tiles of the products of two panels are summed in registers for [`DEPTH`]
//! rows, then in f64. Only tiles on or above the diagonal are computed.
//!
//! Cost: `n·d²` operations for the scatter matrix; tiles on the diagonal are computed completely.
//! Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008.

use crate::interruption;
use crate::panels::PanelLine;
use crate::simd::{ProductSums, Vector, VectorJob};
use crate::{Centroid, Matrix, Point, Threads};
use std::marker::PhantomData;
use std::ops::Range;

/// Number of rows with products summed in registers.
const DEPTH: usize = 256;
/// Vectors of a panel.
const VECTORS: usize = 2;
/// Rows of a tile, for many and for few registers.
const MANY_ROWS: usize = 8;
const FEW_ROWS: usize = 4;
/// Fewest values of a segment, and fewest values per sum, so that adding up the sums of segments takes little time.
const MIN_SEGMENT_VALUES: usize = 1 << 16;
const MIN_VALUES_PER_SUM: usize = 16;
/// Largest number of segments, which bounds the memory of their sums.
const MAX_SEGMENTS: usize = 64;
/// Number of values summed in separate lanes.
const LANES: usize = 16;

/// Rows of points followed by targets, with weights.
#[derive(Clone, Copy, Debug)]
pub struct RegressionRows<'a, P> {
    /// The points.
    pub points: Matrix<'a, P>,
    /// The targets of each point, if there are any.
    pub targets: Option<Matrix<'a, f64>>,
    /// The weight of each row; ones by default.
    pub weights: Option<&'a [f64]>,
}

impl<'a, P> RegressionRows<'a, P> {
    /// Return the number of columns of points and targets.
    fn width(&self) -> usize {
        self.points.columns() + self.target_count()
    }

    fn target_count(&self) -> usize {
        self.targets.map_or(0, |targets| targets.columns())
    }

    fn check(&self) {
        let rows = self.points.rows();
        assert!(self.weights.is_none_or(|weights| weights.len() == rows), "a weight for every row");
        assert!(self.targets.is_none_or(|targets| targets.rows() == rows), "targets for every row");
    }

    fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |weights| weights[row])
    }

    fn range(&self, rows: Range<usize>) -> Self {
        RegressionRows {
            points: self.points.row_range(rows.start, rows.len()),
            targets: self.targets.map(|targets| targets.row_range(rows.start, rows.len())),
            weights: self.weights.map(|weights| &weights[rows]),
        }
    }
}

/// Add the weighted sums of the columns of `points` to `sums`, and return the greatest magnitude of a value.
///
/// # Panics
/// If the shapes do not fit.
pub fn column_sums<P: Point>(points: Matrix<P>, weights: Option<&[f64]>, sums: &mut [f64], threads: &Threads) -> f64 {
    let rows = RegressionRows { points, targets: None, weights };
    rows.check();
    assert_eq!(sums.len(), points.columns(), "a sum for every column");
    let segments = segments(points.rows(), points.columns(), sums.len());
    let mut greatest = vec![0.0; segments.len()];
    let mut partial = vec![0.0; segments.len() * sums.len()];
    let parts = segments.iter().zip(partial.chunks_mut(sums.len())).zip(&mut greatest).collect();
    let operations = points.values().len() / segments.len().max(1);
    threads.for_each(
        parts,
        operations,
        || (),
        |(), ((segment, sums), greatest)| {
            *greatest = threads.simd().run(ColumnSums { rows: rows.range(segment.clone()), sums });
        },
    );
    add_in_order(sums, &partial);
    greatest.into_iter().fold(0.0, f64::max)
}

/// Add the scatter matrix of weighted, centered rows to `sums`, which has a row and a column for each column of points
/// and then of targets.
///
/// `center` is subtracted from the rows. Only the entries on and above the diagonal are changed. Products are computed
/// in `T`.
///
/// # Panics
/// If the shapes do not fit.
pub fn add_products<T: Centroid, P: Point>(
    rows: RegressionRows<P>,
    center: &[f64],
    sums: &mut [f64],
    threads: &Threads,
) {
    let (width, row_count) = (rows.width(), rows.points.rows());
    rows.check();
    assert_eq!(center.len(), width, "a center for every column");
    assert_eq!(sums.len(), width * width, "a sum for every two columns");
    let panel = threads.simd().run(PanelWidth::<T>(PhantomData));
    let segments = segments(row_count, width, sums.len());
    if segments.is_empty() {
        return;
    }
    let operations = row_count * width * width / 2;
    let bands = bands(width.div_ceil(panel), threads.part_count(operations).div_ceil(segments.len()));
    let mut partial = if segments.len() > 1 { vec![0.0; segments.len() * sums.len()] } else { Vec::new() };
    let targets: Vec<&mut [f64]> =
        if segments.len() > 1 { partial.chunks_mut(sums.len()).collect() } else { vec![&mut *sums] };
    let mut parts = Vec::new();
    for (segment, mut sums) in segments.iter().zip(targets) {
        for band in &bands {
            let count = (band.len() * panel * width).min(sums.len());
            let (own, rest) = std::mem::take(&mut sums).split_at_mut(count);
            parts.push(Band { rows: rows.range(segment.clone()), center, panel, band: band.clone(), sums: own });
            sums = rest;
        }
    }
    let part_operations = operations / parts.len();
    let lines = (width.next_multiple_of(panel) * DEPTH * size_of::<T>()).div_ceil(size_of::<PanelLine>());
    let scratch = || vec![PanelLine::default(); lines];
    threads.for_each(parts, part_operations, scratch, |packed: &mut Vec<PanelLine>, part| {
        threads.simd().run(Tiles::<T, P> { part, packed: values_mut(packed) });
    });
    if segments.len() > 1 {
        let parts = sums.chunks_mut(width).enumerate().collect();
        threads.for_each(
            parts,
            segments.len() * width,
            || (),
            |(), (row, sums)| {
                for partial in partial.chunks_exact(width * width) {
                    add(&mut sums[row..], &partial[row * width + row..(row + 1) * width]);
                }
            },
        );
    }
}

/// Add the weighted residuals of each target times the centered points to `sums`, which has a row for each target and a
/// column for each column of points.
///
/// This is the gradient of half the weighted squared errors, negated. `coef` has the weights of the columns for each
/// target. All operations are in f64.
///
/// # Panics
/// If the shapes do not fit.
pub fn add_gradients<P: Point>(
    rows: RegressionRows<P>,
    center: &[f64],
    coef: Matrix<f64>,
    sums: &mut [f64],
    threads: &Threads,
) {
    let width = rows.points.columns();
    rows.check();
    assert_eq!(center.len(), rows.width(), "a center for every column");
    assert_eq!((coef.rows(), coef.columns()), (rows.target_count(), width), "a weight for every column and target");
    assert_eq!(sums.len(), coef.values().len(), "a sum for every weight");
    let segments = segments(rows.points.rows(), width, sums.len());
    let mut partial = vec![0.0; segments.len() * sums.len()];
    let parts = segments.iter().zip(partial.chunks_mut(sums.len())).collect();
    let operations = rows.points.values().len() * coef.rows() / segments.len().max(1);
    threads.for_each(
        parts,
        operations,
        || vec![0.0; width],
        |centered, (segment, sums)| {
            threads.simd().run(Gradients { rows: rows.range(segment.clone()), center, coef, centered, sums });
        },
    );
    add_in_order(sums, &partial);
}

/// Return the ranges of rows that one thread adds up, for `sum_count` sums over rows of `width` values.
fn segments(row_count: usize, width: usize, sum_count: usize) -> Vec<Range<usize>> {
    let min_rows = MIN_SEGMENT_VALUES.max(MIN_VALUES_PER_SUM * sum_count).div_ceil(width);
    let count = (row_count / min_rows).next_power_of_two().min(MAX_SEGMENTS);
    let length = row_count.div_ceil(count).next_multiple_of(DEPTH);
    (0..row_count).step_by(length.max(1)).map(|first| first..row_count.min(first + length)).collect()
}

/// Divide the rows of panels into at most `count` ranges with about the same number of tiles above the diagonal.
fn bands(panel_count: usize, count: usize) -> Vec<Range<usize>> {
    let total = panel_count * (panel_count + 1) / 2;
    let (mut bands, mut first, mut tiles) = (Vec::new(), 0, 0);
    for top in 0..panel_count {
        tiles += panel_count - top;
        if tiles * count >= total * (bands.len() + 1) {
            bands.push(first..top + 1);
            first = top + 1;
        }
    }
    bands
}

fn add(sums: &mut [f64], more: &[f64]) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

/// Add the sums of the segments in their order.
fn add_in_order(sums: &mut [f64], partial: &[f64]) {
    partial.chunks_exact(sums.len()).for_each(|partial| add(sums, partial));
}

/// Job: column sums of a segment. Return the greatest magnitude.
struct ColumnSums<'a, P> {
    rows: RegressionRows<'a, P>,
    sums: &'a mut [f64],
}

impl<P: Point> VectorJob for ColumnSums<'_, P> {
    type Output = f64;

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const _VECTORS: usize>(self) -> f64 {
        let mut greatest = [0.0f64; LANES];
        for row in 0..self.rows.points.rows() {
            let (weight, values) = (self.rows.weight(row), self.rows.points.row(row));
            for (sums, values) in self.sums.chunks_mut(LANES).zip(values.chunks(LANES)) {
                for ((sum, greatest), &value) in sums.iter_mut().zip(&mut greatest).zip(values) {
                    let value: f64 = value.into();
                    *sum += weight * value;
                    *greatest = if value.abs() > *greatest { value.abs() } else { *greatest };
                }
            }
        }
        greatest.into_iter().fold(0.0, f64::max)
    }
}

/// Job: gradients of a segment.
struct Gradients<'a, P> {
    rows: RegressionRows<'a, P>,
    center: &'a [f64],
    coef: Matrix<'a, f64>,
    centered: &'a mut [f64],
    sums: &'a mut [f64],
}

impl<P: Point> VectorJob for Gradients<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const _VECTORS: usize>(self) {
        let Gradients { rows, center, coef, centered, sums } = self;
        let (center, target_center) = center.split_at(rows.points.columns());
        let targets = rows.targets.expect("gradients need targets");
        for row in 0..rows.points.rows() {
            for ((to, &value), center) in centered.iter_mut().zip(rows.points.row(row)).zip(center) {
                *to = value.into() - center;
            }
            for (target, sums) in sums.chunks_exact_mut(centered.len()).enumerate() {
                let predicted = dot(centered, coef.row(target));
                let residual = rows.weight(row) * (targets.row(row)[target] - target_center[target] - predicted);
                sums.iter_mut().zip(&*centered).for_each(|(sum, value)| *sum += residual * value);
            }
        }
    }
}

#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (a, rest_a) = a.as_chunks::<LANES>();
    let (b, rest_b) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

/// Query for the number of columns in a panel.
struct PanelWidth<T>(PhantomData<T>);

impl<T: Centroid> VectorJob for PanelWidth<T> {
    type Output = usize;

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const _VECTORS: usize>(self) -> usize {
        VECTORS * <T::In<V> as ProductSums<T>>::COUNT
    }
}

/// The products of the rows of a segment for some rows of panels.
struct Band<'a, P> {
    rows: RegressionRows<'a, P>,
    center: &'a [f64],
    panel: usize,
    /// Panels with computed rows of the matrix.
    band: Range<usize>,
    /// These rows of the matrix.
    sums: &'a mut [f64],
}

/// Job for the sums of a band. `packed` has room for [`DEPTH`] rows.
struct Tiles<'a, T, P> {
    part: Band<'a, P>,
    packed: &'a mut [T],
}

impl<T: Centroid, P: Point> VectorJob for Tiles<'_, T, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const _VECTORS: usize>(self) {
        // Accumulators use half of the registers.
        if ROWS > MANY_ROWS { self.add::<T::In<V>, MANY_ROWS>() } else { self.add::<T::In<V>, FEW_ROWS>() }
    }
}

impl<T: Centroid, P: Point> Tiles<'_, T, P> {
    #[inline(always)]
    fn add<S: ProductSums<T>, const ROWS: usize>(self) {
        let Tiles { part: Band { rows, center, panel, band, sums }, packed } = self;
        assert_eq!(panel, VECTORS * S::COUNT, "panels are as wide as the level's tiles");
        let (width, size) = (rows.width(), panel * DEPTH);
        let mut lines = [PanelLine::default(); MANY_ROWS * VECTORS];
        let tile = &mut values_mut(&mut lines)[..ROWS * panel];
        for first in (0..rows.points.rows()).step_by(DEPTH) {
            interruption::poll();
            let chunk = rows.range(first..rows.points.rows().min(first + DEPTH));
            let depth = chunk.points.rows();
            for at in band.start..width.div_ceil(panel) {
                pack(chunk, center, at * panel, panel, &mut packed[at * size..][..depth * panel]);
            }
            for (top, sums) in band.clone().zip(sums.chunks_mut(panel * width)) {
                let tops = &packed[top * size..][..depth * panel];
                for left in top..width.div_ceil(panel) {
                    let lefts = &packed[left * size..][..depth * panel];
                    let columns = left * panel..width.min((left + 1) * panel);
                    for row in (0..panel).step_by(ROWS) {
                        multiply::<T, S, ROWS>(tops, lefts, row, tile);
                        // There are no sums beyond the last columns.
                        let rows = sums.chunks_exact_mut(width).skip(row);
                        for (sums, tile) in rows.zip(tile.chunks_exact(panel)) {
                            sums[columns.clone()].iter_mut().zip(tile).for_each(|(sum, &value)| *sum += value.into());
                        }
                    }
                }
            }
        }
    }
}

/// Write the columns of a panel, centered and times the square roots of the weights; columns that do not exist are 0.
#[inline(always)]
fn pack<T: Centroid, P: Point>(rows: RegressionRows<P>, center: &[f64], first: usize, panel: usize, packed: &mut [T]) {
    let width = rows.points.columns();
    let columns = first.min(width)..width.min(first + panel);
    for (row, to) in packed.chunks_exact_mut(panel).enumerate() {
        let root = rows.weights.map_or(1.0, |weights| weights[row].sqrt());
        let (to, more) = to.split_at_mut(columns.len());
        let values = &rows.points.row(row)[columns.clone()];
        for ((to, &value), &center) in to.iter_mut().zip(values).zip(&center[columns.clone()]) {
            *to = (T::from_f64(value.into()) - T::from_f64(center)) * T::from_f64(root);
        }
        more.fill(T::default());
        if let Some(targets) = rows.targets
            && first + panel > width
        {
            let begin = columns.end.max(first);
            let values = targets.row(row)[begin - width..].iter().zip(&center[begin..]);
            for (to, (value, center)) in more.iter_mut().zip(values) {
                *to = T::from_f64((value - center) * root);
            }
        }
    }
}

/// Compute the products of `ROWS` columns of a panel, starting with column `first`, with all columns of another, summed
/// over the rows.
#[inline(always)]
fn multiply<T: Centroid, S: ProductSums<T>, const ROWS: usize>(tops: &[T], lefts: &[T], first: usize, tile: &mut [T]) {
    let panel = VECTORS * S::COUNT;
    assert!(tops.len() == lefts.len() && tops.len().is_multiple_of(panel));
    assert!(first + ROWS <= panel && tile.len() == ROWS * panel);
    let mut sums = [[S::filled(T::default()); VECTORS]; ROWS];
    for begin in (0..tops.len()).step_by(panel) {
        // SAFETY: panels and the tile start at a line and have rows of whole vectors, so vectors are aligned. All
        // vectors are within them by the checks above.
        unsafe {
            let (top, left) = (tops.as_ptr().add(begin + first), lefts.as_ptr().add(begin));
            let mut vectors = [S::filled(T::default()); VECTORS];
            for (at, vector) in vectors.iter_mut().enumerate() {
                *vector = S::read(left.add(at * S::COUNT));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let factor = S::filled(*top.add(row));
                for (sum, vector) in sums.iter_mut().zip(vectors) {
                    *sum = sum.plus_product(vector, factor);
                }
            }
        }
    }
    for (vector, to) in sums.as_flattened().iter().zip(tile.chunks_exact_mut(S::COUNT)) {
        // SAFETY: as above.
        unsafe { vector.write(to.as_mut_ptr()) };
    }
}

/// View lines as values.
fn values_mut<T: Centroid>(lines: &mut [PanelLine]) -> &mut [T] {
    // SAFETY: lines are f32 without gaps. T is f32 or f64, and any bits are valid for both. A line holds a whole number
    // of both.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines) / size_of::<T>()) }
}
