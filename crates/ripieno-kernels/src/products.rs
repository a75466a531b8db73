//! Sums of the products of the columns of rows: the scatter matrix of centered rows.
//!
//! Some thousand rows at a time are centered, weighted, and packed into panels. A panel has as many columns as two
//! vectors hold. Tiles of the products of two panels are summed in registers for [`DEPTH`] rows, then in f64. Only
//! tiles on or above the diagonal are computed. The bits depend only on the rows, their order and the SIMD level.
//!
//! Cost: `n·d²` operations; tiles on the diagonal are computed completely.
//! Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008.

use crate::panels::PanelLine;
use crate::simd::{ProductSums, Vector, VectorJob};
use crate::{Centroid, Matrix, Threads};
use std::marker::PhantomData;

/// Number of rows with products summed in registers.
const DEPTH: usize = 256;
/// Approximate number of values packed at once.
const BLOCK_VALUES: usize = 1 << 20;
/// Vectors of a panel.
const VECTORS: usize = 2;
/// Rows of a tile, for many and for few registers.
const MANY_ROWS: usize = 8;
const FEW_ROWS: usize = 4;

/// Add the products of the entries of each row with each other to `sums`, columns × columns. Only the half on and above
/// the diagonal is changed. `center` is subtracted from the rows first; products are multiplied by `weights`, if given.
///
/// # Panics
/// If the shapes do not fit.
pub fn add_products<T: Centroid>(
    rows: Matrix<T>,
    center: &[f64],
    weights: Option<&[f64]>,
    sums: &mut [f64],
    threads: &Threads,
) {
    let width = rows.columns();
    assert_eq!(center.len(), width, "a center for every column");
    assert_eq!(sums.len(), width * width, "a sum for every two columns");
    assert!(weights.is_none_or(|weights| weights.len() == rows.rows()), "a weight for every row");
    let center: Vec<T> = center.iter().map(|&value| T::from_f64(value)).collect();
    let panel = threads.simd().run(PanelWidth::<T>(PhantomData));
    let chunk_values = width.next_multiple_of(panel) * DEPTH;
    let block_rows = (BLOCK_VALUES / width).next_multiple_of(DEPTH);
    let scratch = block_rows.min(rows.rows()).div_ceil(DEPTH) * chunk_values;
    let mut lines = vec![PanelLine::default(); (scratch * size_of::<T>()).div_ceil(size_of::<PanelLine>())];
    let memory: &mut [T] = values_mut(&mut lines, scratch);
    for first in (0..rows.rows()).step_by(block_rows) {
        let block = rows.row_range(first, block_rows.min(rows.rows() - first));
        let weights = weights.map(|weights| &weights[first..first + block.rows()]);
        let packed = &mut memory[..block.rows().div_ceil(DEPTH) * chunk_values];
        let chunks = packed.chunks_mut(chunk_values).enumerate().collect();
        threads.for_each(
            chunks,
            chunk_values,
            || (),
            |(), (at, chunk)| {
                let begin = at * DEPTH;
                let rows = block.row_range(begin, DEPTH.min(block.rows() - begin));
                let weights = weights.map(|weights| &weights[begin..begin + rows.rows()]);
                threads.simd().run(Pack { rows, center: &center, weights, panel, chunk });
            },
        );
        let (packed, row_count) = (&*packed, block.rows());
        // The first rows have the most tiles.
        let tops = sums.chunks_mut(panel * width).enumerate().collect();
        threads.for_each(
            tops,
            row_count * panel * width,
            || (),
            |(), (top, sums)| {
                threads.simd().run(Tiles { packed, chunk_values, row_count, width, top, sums });
            },
        );
    }
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

/// Job that packs up to [`DEPTH`] rows, centered and times the square roots of their weights, into zero-padded panels.
struct Pack<'a, T> {
    rows: Matrix<'a, T>,
    center: &'a [T],
    weights: Option<&'a [f64]>,
    panel: usize,
    chunk: &'a mut [T],
}

impl<T: Centroid> VectorJob for Pack<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const _VECTORS: usize>(self) {
        let Pack { rows, center, weights, panel, chunk } = self;
        for (at, to) in chunk.chunks_exact_mut(panel * DEPTH).enumerate() {
            let columns = at * panel..rows.columns().min((at + 1) * panel);
            let center = &center[columns.clone()];
            for (row, to) in to.chunks_exact_mut(panel).enumerate() {
                if row >= rows.rows() {
                    to.fill(T::default());
                    continue;
                }
                let root = weights.map_or(1.0, |weights| weights[row].sqrt());
                let (to, padding) = to.split_at_mut(center.len());
                padding.fill(T::default());
                let root = T::from_f64(root);
                for ((to, &value), &center) in to.iter_mut().zip(&rows.row(row)[columns.clone()]).zip(center) {
                    *to = (value - center) * root;
                }
            }
        }
    }
}

/// Job for the sums of one panel's rows of the matrix.
struct Tiles<'a, T> {
    packed: &'a [T],
    chunk_values: usize,
    row_count: usize,
    width: usize,
    top: usize,
    sums: &'a mut [f64],
}

impl<T: Centroid> VectorJob for Tiles<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const _VECTORS: usize>(self) {
        // Accumulators use half of the registers.
        if ROWS > MANY_ROWS { self.add::<T::In<V>, MANY_ROWS>() } else { self.add::<T::In<V>, FEW_ROWS>() }
    }
}

impl<T: Centroid> Tiles<'_, T> {
    #[inline(always)]
    fn add<S: ProductSums<T>, const ROWS: usize>(self) {
        let panel = VECTORS * S::COUNT;
        let size = panel * DEPTH;
        let mut lines = [PanelLine::default(); MANY_ROWS * VECTORS];
        let tile = values_mut(&mut lines, ROWS * panel);
        for (at, chunk) in self.packed.chunks_exact(self.chunk_values).enumerate() {
            let depth = DEPTH.min(self.row_count - at * DEPTH);
            let tops = &chunk[self.top * size..][..size];
            for (left, lefts) in chunk.chunks_exact(size).enumerate().skip(self.top) {
                let columns = left * panel..self.width.min((left + 1) * panel);
                for row in (0..panel).step_by(ROWS) {
                    multiply::<T, S, ROWS>(&tops[..depth * panel], &lefts[..depth * panel], row, tile);
                    // There are no sums beyond the last columns.
                    let rows = self.sums.chunks_exact_mut(self.width).skip(row);
                    for (sums, tile) in rows.zip(tile.chunks_exact(panel)) {
                        sums[columns.clone()].iter_mut().zip(tile).for_each(|(sum, &value)| *sum += value.into());
                    }
                }
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

/// View the first values of some lines.
fn values_mut<T: Centroid>(lines: &mut [PanelLine], count: usize) -> &mut [T] {
    assert!(count * size_of::<T>() <= size_of_val(lines), "as many as there is room for");
    // SAFETY: lines are f32 without gaps, enough of them. T is f32 or f64, and any bits are valid for both.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), count) }
}
