//! Sums over all pairs of points: the Guttman transform of multidimensional scaling with its stress, and products with
//! the Laplacian of its weights.
//!
//! For each own point and all points, the differences of positions, times a factor that depends on their distance, are
//! added up in vectors. This takes one pass, so no intermediate results per pair are stored, and each dissimilarity is
//! read once. Columns are processed in chunks, and the sums of chunks are added up in f64. The bits of a row's sums
//! depend only on the positions and the SIMD level.
//!
//! Cost: a square root and a division in f32 for each pair, plus `4·k` operations in `k` dimensions.
//! Sources: De Leeuw, "Applications of convex analysis to multidimensional scaling", 1977; Ruan and Fox, "A robust and
//! scalable solution for interpolative multidimensional scaling with weighting", e-Science 2013, section III.

use crate::panels::{PanelLine, floats, floats_mut};
use crate::phased::Phased;
use crate::simd::{Vector, VectorJob};
use crate::{Matrix, ThreadModel, Threads};

/// Largest number of dimensions, because one sum per dimension is kept.
pub const MAX_DIMENSIONS: usize = 64;
/// Number of columns added up in f32. Their positions stay in the L1 cache.
const CHUNK_COLUMNS: usize = 1024;
/// Rows per unit of work.
const PART_ROWS: usize = 16;
/// Estimated cost of a pair in vectorized operations.
const PAIR_OPERATIONS: usize = 24;

/// A dissimilarity: `i16` or `f32`.
pub trait Dissimilarity: Copy + Sync {
    /// Convert to f32.
    fn widen(self) -> f32;
}

impl Dissimilarity for i16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self.into()
    }
}

impl Dissimilarity for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

/// Data of the pairs of own points and all points, row by row.
#[derive(Clone, Copy, Debug)]
pub struct PairData<'a, D> {
    /// The dissimilarity of each pair.
    pub dissimilarities: &'a [D],
    /// The weight of each pair; ones by default.
    pub weights: Option<&'a [f32]>,
    /// Value subtracted from each dissimilarity, down to zero: the width of an annealed distribution.
    pub shift: f32,
}

/// Perform one step of majorization: compute `(k + 2)` values of `out` for each own point `x`.
///
/// These are, over all points `y`, the sums of `w·δ/‖x − y‖·(x − y)`, of the squared errors `w·(‖x − y‖ − δ)²`, and of
/// `w·‖x − y‖²`. A pair of points in the same place adds nothing to the first sum.
///
/// # Panics
/// If the shapes do not fit.
pub fn guttman<D: Dissimilarity>(
    data: PairData<D>,
    own: Matrix<f32>,
    all: Matrix<f32>,
    out: &mut [f64],
    threads: &Threads,
) {
    assert_eq!(data.dissimilarities.len(), own.rows() * all.rows(), "a dissimilarity for every pair");
    let kernel = Stress { shift: data.shift };
    sum_over_pairs(kernel, data.dissimilarities, data.weights, own, all, out, threads);
}

/// Compute for each own point `x` the sum of `w·(x − y)` over all points: the product with the Laplacian matrix of the
/// weights.
///
/// # Panics
/// If the shapes do not fit.
pub fn weighted_differences(weights: &[f32], own: Matrix<f32>, all: Matrix<f32>, out: &mut [f64], threads: &Threads) {
    sum_over_pairs::<_, f32>(WeightOnly, &[], Some(weights), own, all, out, threads);
}

/// Contribution of a pair.
trait PairKernel: Copy + Sync {
    /// Whether the kernel reads dissimilarities and computes the error of the distances.
    const HAS_ERRORS: bool;

    /// Preprocess a dissimilarity.
    fn shifted(self, value: f32) -> f32 {
        value
    }

    /// Return the factor of a pair's difference, from its squared distance and dissimilarity, and the squared error.
    fn pair<V: Vector>(self, square: V, dissimilarity: V) -> (V, V);
}

/// The Guttman transform with the stress.
#[derive(Clone, Copy)]
struct Stress {
    shift: f32,
}

impl PairKernel for Stress {
    const HAS_ERRORS: bool = true;

    #[inline(always)]
    fn shifted(self, value: f32) -> f32 {
        let rest = value - self.shift;
        if rest > 0.0 { rest } else { 0.0 }
    }

    #[inline(always)]
    fn pair<V: Vector>(self, square: V, dissimilarity: V) -> (V, V) {
        // The inverse of a zero distance stays finite and is multiplied by a zero difference.
        let inverse = V::splat(1.0).divide(square.maximum(V::splat(f32::MIN_POSITIVE)).square_root());
        let error = square.multiply(inverse).subtract(dissimilarity);
        (dissimilarity.multiply(inverse), error.multiply(error))
    }
}

/// Only the weight counts.
#[derive(Clone, Copy)]
struct WeightOnly;

impl PairKernel for WeightOnly {
    const HAS_ERRORS: bool = false;

    #[inline(always)]
    fn pair<V: Vector>(self, _: V, _: V) -> (V, V) {
        (V::splat(1.0), V::splat(0.0))
    }
}

fn sum_over_pairs<L: PairKernel, D: Dissimilarity>(
    kernel: L,
    dissimilarities: &[D],
    weights: Option<&[f32]>,
    own: Matrix<f32>,
    all: Matrix<f32>,
    out: &mut [f64],
    threads: &Threads,
) {
    let (k, count) = (own.columns(), all.rows());
    let width = k + if L::HAS_ERRORS { 2 } else { 0 };
    assert_eq!(all.columns(), k, "own points have as many dimensions as all");
    assert!(k <= MAX_DIMENSIONS, "{k} dimensions, of {MAX_DIMENSIONS}");
    assert_eq!(out.len(), own.rows() * width, "sums for every point");
    assert!(weights.is_none_or(|weights| weights.len() == own.rows() * count), "a weight for every pair");
    let add_up = |table: &PositionTable, scratch: &mut PairScratch, first: usize, out: &mut [f64]| {
        let rows = own.row_range(first, out.len() / width);
        let pairs = first * count..(first + rows.rows()) * count;
        let dissimilarities = if L::HAS_ERRORS { &dissimilarities[pairs.clone()] } else { &[] };
        let weights = weights.map(|weights| &weights[pairs]);
        threads.simd().run(OwnPoints { kernel, dissimilarities, weights, rows, table, out, scratch });
    };
    if threads.model() == ThreadModel::Bsp {
        let out = Phased::new(out);
        threads.run(|member| {
            // Every thread makes its own table: the serial part is replicated.
            let (table, mut scratch) = (PositionTable::of(all), PairScratch::default());
            let [first, end] = [member.index(), member.index() + 1].map(|index| own.rows() * index / member.count());
            // SAFETY: the ranges of the threads do not overlap, and no slice is taken as a whole.
            add_up(&table, &mut scratch, first, unsafe { out.part(first * width..end * width) });
        });
        return;
    }
    let table = PositionTable::of(all);
    let parts: Vec<_> = out.chunks_mut(PART_ROWS * width).enumerate().collect();
    threads.for_each(parts, PART_ROWS * count * PAIR_OPERATIONS, PairScratch::default, |scratch, (part, out)| {
        add_up(&table, scratch, part * PART_ROWS, out);
    });
}

/// Positions, dimension by dimension, each in whole lines.
pub(crate) struct PositionTable {
    pub lines: Vec<PanelLine>,
    pub count: usize,
    /// Distance between dimensions.
    pub stride: usize,
}

impl PositionTable {
    pub fn of(all: Matrix<f32>) -> PositionTable {
        let (count, k) = (all.rows(), all.columns());
        let stride = count.next_multiple_of(PanelLine::LEN);
        let mut lines = vec![PanelLine::default(); stride / PanelLine::LEN * k];
        for (at, to) in floats_mut(&mut lines).chunks_exact_mut(stride.max(1)).enumerate() {
            to.iter_mut().zip(all.values().chunks_exact(k)).for_each(|(to, row)| *to = row[at]);
        }
        PositionTable { lines, count, stride }
    }
}

/// Dissimilarities and weights of a row for one chunk of columns.
struct PairScratch {
    dissimilarities: Vec<PanelLine>,
    weights: Vec<PanelLine>,
}

impl Default for PairScratch {
    fn default() -> PairScratch {
        let lines = || vec![PanelLine::default(); CHUNK_COLUMNS / PanelLine::LEN];
        PairScratch { dissimilarities: lines(), weights: lines() }
    }
}

/// Some own points.
struct OwnPoints<'a, L, D> {
    kernel: L,
    dissimilarities: &'a [D],
    weights: Option<&'a [f32]>,
    rows: Matrix<'a, f32>,
    table: &'a PositionTable,
    out: &'a mut [f64],
    scratch: &'a mut PairScratch,
}

impl<L: PairKernel, D: Dissimilarity> VectorJob for OwnPoints<'_, L, D> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        match self.rows.columns() {
            // With a constant number of dimensions all sums stay in registers.
            2 => self.add_up::<V>(2),
            3 => self.add_up::<V>(3),
            k => self.add_up::<V>(k),
        }
    }
}

impl<L: PairKernel, D: Dissimilarity> OwnPoints<'_, L, D> {
    #[inline(always)]
    fn add_up<V: Vector>(mut self, k: usize) {
        self.out.fill(0.0);
        let (rows, count) = (self.rows.rows(), self.table.count);
        if L::HAS_ERRORS || self.weights.is_some() {
            // Memory is read sequentially.
            for row in 0..rows {
                for first in (0..count).step_by(CHUNK_COLUMNS) {
                    self.add_chunk::<V>(k, row, first);
                }
            }
        } else {
            // The positions stay in the nearest cache.
            for first in (0..count).step_by(CHUNK_COLUMNS) {
                for row in 0..rows {
                    self.add_chunk::<V>(k, row, first);
                }
            }
        }
    }

    /// Add a chunk of columns of a row, starting with column `first`.
    #[inline(always)]
    fn add_chunk<V: Vector>(&mut self, k: usize, row: usize, first: usize) {
        let count = self.table.count;
        let taken = CHUNK_COLUMNS.min(count - first);
        let padded = taken.next_multiple_of(PanelLine::LEN);
        let pairs = row * count + first..row * count + first + taken;
        let dissimilarities = &mut floats_mut(&mut self.scratch.dissimilarities)[..padded];
        let weights = &mut floats_mut(&mut self.scratch.weights)[..padded];
        if L::HAS_ERRORS {
            let kernel = self.kernel;
            let values = &self.dissimilarities[pairs.clone()];
            dissimilarities.iter_mut().zip(values).for_each(|(to, value)| *to = kernel.shifted(value.widen()));
            dissimilarities[taken..].fill(0.0);
        }
        let is_weighted = self.weights.is_some() || taken < padded;
        if is_weighted {
            match self.weights {
                Some(all_weights) => weights[..taken].copy_from_slice(&all_weights[pairs]),
                None => weights[..taken].fill(1.0),
            }
            // The padding of the last line has zero weight.
            weights[taken..].fill(0.0);
        }
        let table = &floats(&self.table.lines)[first..];
        let chunk = Chunk { target: self.rows.row(row), table, stride: self.table.stride, dissimilarities, weights };
        let width = self.out.len() / self.rows.rows();
        let out = &mut self.out[row * width..(row + 1) * width];
        if is_weighted {
            chunk.add_up::<V, L, true>(self.kernel, k, out);
        } else {
            chunk.add_up::<V, L, false>(self.kernel, k, out);
        }
    }
}

/// One own point and a chunk of columns, in whole lines.
struct Chunk<'a> {
    target: &'a [f32],
    table: &'a [f32],
    stride: usize,
    dissimilarities: &'a [f32],
    weights: &'a [f32],
}

impl Chunk<'_> {
    #[inline(always)]
    fn add_up<V: Vector, L: PairKernel, const WEIGHTED: bool>(&self, kernel: L, k: usize, out: &mut [f64]) {
        let zero = V::splat(0.0);
        let one = V::splat(1.0);
        let mut target = [zero; MAX_DIMENSIONS];
        for (target, position) in target.iter_mut().zip(&self.target[..k]) {
            *target = V::splat(*position);
        }
        let padded = self.weights.len();
        assert!(self.dissimilarities.len() == padded && padded.is_multiple_of(PanelLine::LEN));
        assert!(k == 0 || (k - 1) * self.stride + padded <= self.table.len());
        let (mut difference, mut sums) = ([zero; MAX_DIMENSIONS], [zero; MAX_DIMENSIONS]);
        let (mut errors, mut squares) = (zero, zero);
        for at in (0..padded).step_by(V::LANES) {
            let mut square = zero;
            for axis in 0..k {
                // SAFETY: whole lines are within the table by the checks above. Each starts at a line, because the
                // table and its rows do, and a line is at least as long as a vector of any level.
                let source = unsafe { V::load(self.table.as_ptr().add(axis * self.stride + at)) };
                difference[axis] = target[axis].subtract(source);
                square = difference[axis].multiply_add(difference[axis], square);
            }
            // SAFETY: as above; the buffers start at a line, too.
            let dissimilarity =
                if L::HAS_ERRORS { unsafe { V::load(self.dissimilarities.as_ptr().add(at)) } } else { zero };
            let (mut factor, error) = kernel.pair(square, dissimilarity);
            // SAFETY: as above.
            let weight = if WEIGHTED { unsafe { V::load(self.weights.as_ptr().add(at)) } } else { one };
            if WEIGHTED {
                factor = factor.multiply(weight);
            }
            for axis in 0..k {
                sums[axis] = factor.multiply_add(difference[axis], sums[axis]);
            }
            if L::HAS_ERRORS {
                errors = error.multiply_add(weight, errors);
                squares = square.multiply_add(weight, squares);
            }
        }
        for (out, sum) in out.iter_mut().zip(&sums[..k]) {
            *out += total(*sum);
        }
        if L::HAS_ERRORS {
            out[k] += total(errors);
            out[k + 1] += total(squares);
        }
    }
}

/// Return the sum of the lanes, in order, in f64.
#[inline(always)]
fn total<V: Vector>(lanes: V) -> f64 {
    let mut line = PanelLine::default();
    // SAFETY: a line is aligned, and at least as long as a vector of any level.
    unsafe { lanes.store(line.as_mut_ptr()) };
    line.values()[..V::LANES].iter().map(|&lane| f64::from(lane)).sum()
}
