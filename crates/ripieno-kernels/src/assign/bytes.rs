//! Nearest centroids of rows of bytes: integer arithmetic excludes most centroids, and the rest is computed in f64.
//!
//! With `μ` near the mean of the centroids, `y = x − μ` and `e = c − μ`, the nearest centroid has the greatest `S = y·e
//! − ½‖e‖²`. `e` is written as `s·q + t·p + r` with signed bytes `q` and `p`. `q` is stored in [`tiles`](Filter) and
//! its products with the row are exact. `p` represents the remainder, which is a hundredth as large. By Cauchy and
//! Schwarz, `S` lies within `‖y‖·‖e − s·q‖` of the value from `q`, and within `‖y‖·‖r‖` of the value from both. A
//! centroid is a candidate if the first bound does not exclude it against the best so far, and a finalist if the second
//! does not either. Finalists are measured in f64, so labels and distances equal the results of the search in f32, to
//! the last bit.
//!
//! Cost of a pass: `n·k·d` multiply-adds of bytes, `d` more for each candidate, and some `10·n·d` in f64.
//! Memory: `2·k·d` bytes for the centroids, a block of rows and its candidates per thread.

use crate::distances::squared_distance;
use crate::panels::{PanelLine, approximate_mean, repeated_rows};
use crate::simd::{ByteJob, ByteSums, Vector};
use crate::{Centroid, Matrix, Point, Threads};

/// With more columns an i32 might overflow.
pub(super) const MAX_COLUMNS: usize = 1 << 16;
/// Centroids with larger norms use the search in f32, which scales squares.
const MAX_NORM: f64 = 1e15;
/// Number of bytes with products added up in one lane.
pub(super) const STEP: usize = 4;
/// Average number of finalists per row of a block at which they are measured early.
const FINALISTS_PER_ROW: usize = 16;
/// Unit roundoff of f32.
const ROUNDOFF: f64 = f32::EPSILON as f64 / 2.0;

/// Sixty-four signed bytes on one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct ByteLine([i8; 64]);

/// Rows of signed bytes, such as centroids, in the layout for register tiles.
///
/// A panel has as many rows as a tile has lanes, and stores four columns after four columns.
pub(super) struct BytePanels {
    lines: Vec<ByteLine>,
    columns: usize,
    width: usize,
}

impl BytePanels {
    /// Create panels for `count` rows, initialized with zeros.
    pub(super) fn new(count: usize, columns: usize, threads: &Threads) -> BytePanels {
        let (width, _) = threads.simd().run_bytes(PanelShape);
        let panels = BytePanels { lines: Vec::new(), columns, width };
        let lines = vec![ByteLine([0; 64]); count.div_ceil(width) * panels.panel_lines()];
        BytePanels { lines, ..panels }
    }

    /// Return the number of rows of a panel.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn count(&self) -> usize {
        self.lines.len() / self.panel_lines()
    }

    fn panel_lines(&self) -> usize {
        self.columns.next_multiple_of(STEP) * self.width / size_of::<ByteLine>()
    }

    /// Set a byte. Its magnitude is at most [`ByteSums::MAX_MAGNITUDE`].
    pub(super) fn put(&mut self, row: usize, column: usize, byte: i8) {
        let first = row / self.width * self.panel_lines();
        put_byte(&mut self.lines[first..], self.width, row % self.width, column, byte);
    }

    /// Return the products of a full tile of rows and a panel of VECTORS vectors.
    #[inline(always)]
    pub(super) fn products<B: ByteSums, const ROWS: usize, const VECTORS: usize>(
        &self,
        rows: &[u8],
        panel: usize,
    ) -> [[B; VECTORS]; ROWS] {
        let size = self.panel_lines();
        products(rows, &self.lines[panel * size..(panel + 1) * size], self.columns.next_multiple_of(STEP))
    }
}

/// Set the byte of a row and column in a panel.
#[inline(always)]
fn put_byte(panel: &mut [ByteLine], width: usize, lane: usize, column: usize, byte: i8) {
    let place = (column / STEP * width + lane) * STEP + column % STEP;
    panel[place / size_of::<ByteLine>()].0[place % size_of::<ByteLine>()] = byte;
}

/// The centroids in bytes.
pub(super) struct Filter {
    panels: BytePanels,
    /// `s`, `−s·(μ·q) − ½‖e‖²`, and `‖e − s·q‖` of each centroid in the panels.
    scales: Vec<PanelLine>,
    offsets: Vec<PanelLine>,
    slacks: Vec<PanelLine>,
    fine: Vec<FineQuantization>,
    /// `p` of each centroid.
    fine_bytes: Vec<i8>,
    /// `μ`, in integers.
    center: Vec<u8>,
    /// Bound on the rounding error of a score.
    error: f64,
}

/// Constants of a centroid's `p`: `t`, `−t·(μ·p)` and `‖r‖`.
#[derive(Clone, Copy, Default)]
struct FineQuantization {
    scale: f32,
    offset: f32,
    slack: f32,
}

/// Buffers of a thread for a block of rows.
#[derive(Default)]
pub(super) struct BytesScratch {
    rows: Vec<u8>,
    norms: Vec<f32>,
    squared_norms: Vec<f64>,
    limits: Vec<f32>,
    candidates: Vec<NearestCandidate>,
    finalists: Vec<NearestCandidate>,
}

/// A centroid that may be a row's nearest.
#[derive(Clone, Copy)]
struct NearestCandidate {
    row: u32,
    index: u32,
    score: f32,
}

/// Query for the number of centroids in a panel and the largest magnitude of their bytes.
struct PanelShape;

impl ByteJob for PanelShape {
    type Output = (usize, i8);

    #[inline(always)]
    fn run<B: ByteSums, const ROWS: usize, const VECTORS: usize>(self) -> (usize, i8) {
        (B::Floats::LANES * VECTORS, B::MAX_MAGNITUDE)
    }
}

impl Filter {
    /// Create the filter for these centroids. `None` if they contain NaN or are so large that f32 must scale them.
    pub(super) fn new<C: Centroid>(centroids: Matrix<C>, threads: &Threads) -> Option<Filter> {
        let (count, columns) = (centroids.rows(), centroids.columns());
        let center: Vec<u8> =
            approximate_mean(centroids).into_iter().map(|value| value.to_f32().round() as u8).collect();
        let (width, max) = threads.simd().run_bytes(PanelShape);
        let mut panels = BytePanels::new(count, columns, threads);
        let (panel_count, panel_lines) = (panels.count(), panels.panel_lines());
        let mut fine_bytes = vec![0; count * columns];
        let mut quantized = vec![Quantized::default(); count];
        let parts = panels.lines.chunks_exact_mut(panel_lines).zip(quantized.chunks_mut(width));
        let parts: Vec<_> = parts.zip(fine_bytes.chunks_mut(width * columns)).enumerate().collect();
        threads.for_each(parts, columns * width * 16, || vec![0.0; columns], {
            |rest: &mut Vec<f64>, (panel, ((lines, quantized), fine_bytes))| {
                let each = quantized.iter_mut().zip(fine_bytes.chunks_exact_mut(columns)).enumerate();
                for (lane, (quantized, fine_bytes)) in each {
                    let centroid = centroids.row(panel * width + lane);
                    *quantized = quantize(centroid, &center, max, rest, fine_bytes, |column, byte| {
                        put_byte(lines, width, lane, column, byte);
                    });
                }
            }
        });
        let max_norm = quantized.iter().fold(0.0, |max: f64, each| max.max(each.norm));
        if columns > MAX_COLUMNS || quantized.iter().any(|each| each.norm.is_nan()) || max_norm > MAX_NORM {
            return None;
        }
        for index in repeated_rows(centroids, &quantized.iter().map(|each| each.norm).collect::<Vec<_>>()) {
            quantized[index].offset = f32::NEG_INFINITY;
        }
        // The padding of the last panel never wins either.
        quantized.resize(panel_count * width, Quantized { offset: f32::NEG_INFINITY, ..Quantized::default() });
        let lines = |of: fn(&Quantized) -> f32| -> Vec<PanelLine> {
            quantized.chunks_exact(PanelLine::LEN).map(|each| PanelLine::from_fn(|lane| of(&each[lane]))).collect()
        };
        let max_difference = 256.0 * (columns as f64).sqrt() + norm(center.iter().map(|&each| each.into()));
        let rounding = quantized.iter().fold(0.0, |max: f64, each| max.max(each.error));
        let gamma = (columns + 16) as f64 * f64::EPSILON;
        Some(Filter {
            panels,
            scales: lines(|each| each.scale),
            offsets: lines(|each| each.offset),
            slacks: lines(|each| each.slack),
            fine: quantized[..count].iter().map(|each| each.fine).collect(),
            fine_bytes,
            error: 1.01 * rounding + 8.0 * gamma * (max_difference + max_norm) * (max_difference + max_norm),
            center,
        })
    }

    /// Return the bytes of a row in a block, including zeros that pad the last four columns.
    fn row_bytes(&self) -> usize {
        self.panels.columns.next_multiple_of(STEP)
    }

    /// Return a lower bound on the score of a centroid within this squared distance of a row with this `‖y‖²`.
    #[inline(always)]
    fn limit(&self, squared_norm: f64, squared_distance: f64) -> f32 {
        let gamma = (self.panels.columns + 16) as f64 * f64::EPSILON;
        let limit = 0.5 * (squared_norm - squared_distance * (1.0 + 3.0 * gamma)) - self.error;
        (limit as f32).next_down()
    }

    fn panel_count(&self) -> usize {
        self.panels.count()
    }
}

/// Constants of a centroid, without its bytes.
#[derive(Clone, Copy, Default)]
struct Quantized {
    scale: f32,
    offset: f32,
    slack: f32,
    fine: FineQuantization,
    /// `‖e‖`.
    norm: f64,
    /// Bound on the error of its scores from rounding to f32.
    error: f64,
}

/// Convert a centroid to bytes: `q` by `put`, and `p`.
fn quantize<C: Centroid>(
    centroid: &[C],
    center: &[u8],
    max: i8,
    rest: &mut [f64],
    fine_bytes: &mut [i8],
    mut put: impl FnMut(usize, i8),
) -> Quantized {
    for ((rest, &value), &center) in rest.iter_mut().zip(centroid).zip(center) {
        *rest = Into::<f64>::into(value) - f64::from(center);
    }
    let norm_of = |rest: &[f64]| norm(rest.iter().copied());
    let full_norm = norm_of(rest);
    let coarse = subtract_bytes(rest, center, max, &mut put);
    let slack = norm_of(rest);
    let fine = subtract_bytes(rest, center, i8::MAX, |column, byte| fine_bytes[column] = byte);
    let offset = coarse.offset - 0.5 * full_norm * full_norm;
    // Greatest terms of the rounded sums, each a few times.
    let terms = coarse.products + fine.products + offset.abs() + fine.offset.abs();
    Quantized {
        scale: coarse.scale,
        offset: offset as f32,
        slack: upper(slack),
        fine: FineQuantization { scale: fine.scale, offset: fine.offset as f32, slack: upper(norm_of(rest)) },
        norm: full_norm,
        error: 8.0 * ROUNDOFF * terms,
    }
}

/// Result of [`subtract_bytes`].
struct QuantizedPart {
    scale: f32,
    /// `−s·(μ·q)`.
    offset: f64,
    /// Bound on the product with a row of bytes, times the scale.
    products: f64,
}

/// Subtract the best multiple of signed bytes from `rest`.
fn subtract_bytes(rest: &mut [f64], center: &[u8], max: i8, mut put: impl FnMut(usize, i8)) -> QuantizedPart {
    let largest = rest.iter().fold(0.0, |max: f64, &value| max.max(value.abs()));
    let scale = (largest / f64::from(max)) as f32;
    // For zeros, and for values that f32 cannot scale, nothing is subtracted.
    let inverse = if scale.is_normal() { 1.0 / f64::from(scale) } else { 0.0 };
    let (mut of_center, mut magnitudes) = (0.0, 0.0);
    for (column, (rest, &center)) in rest.iter_mut().zip(center).enumerate() {
        let byte = (*rest * inverse).round().clamp(-f64::from(max), f64::from(max));
        put(column, byte as i8);
        *rest -= f64::from(scale) * byte;
        of_center += f64::from(center) * byte;
        magnitudes += byte.abs();
    }
    let scale_f64 = f64::from(scale);
    QuantizedPart { scale, offset: -scale_f64 * of_center, products: scale_f64 * 255.0 * magnitudes }
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// Round a value up to f32.
fn upper(value: f64) -> f32 {
    (value * (1.0 + 1e-6)) as f32 + f32::MIN_POSITIVE
}

/// One block of rows of bytes.
pub(super) struct BytesBlock<'a, P: Point> {
    pub filter: &'a Filter,
    pub points: Matrix<'a, P>,
    /// The same values.
    pub bytes: &'a [u8],
    pub centroids: Matrix<'a, P::Centroid>,
    pub labels: &'a mut [i32],
    pub squared_distances: &'a mut [f64],
    /// Squared distances to other centroids. Greater distances need not be found.
    pub within: Option<&'a [f64]>,
    pub scratch: &'a mut BytesScratch,
}

impl<P: Point> ByteJob for BytesBlock<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<B: ByteSums, const ROWS: usize, const VECTORS: usize>(mut self) {
        assert_eq!(self.filter.panels.width, B::Floats::LANES * VECTORS, "the panels are packed for this level");
        self.begin::<ROWS>();
        for panel in 0..self.filter.panel_count() {
            self.compare::<B, ROWS, VECTORS>(panel);
            self.refine();
            if self.scratch.finalists.len() > FINALISTS_PER_ROW * self.points.rows() {
                self.resolve();
            }
        }
        self.resolve();
    }
}

impl<P: Point> BytesBlock<'_, P> {
    /// Copy the rows, pad the last tile with rows without candidates, and compute norms.
    #[inline(always)]
    fn begin<const ROWS: usize>(&mut self) {
        let (filter, scratch, count) = (self.filter, &mut *self.scratch, self.points.rows());
        let (columns, row_bytes) = (filter.panels.columns, filter.row_bytes());
        let filled = count.next_multiple_of(ROWS);
        scratch.rows.clear();
        scratch.rows.resize(filled * row_bytes, 0);
        for (to, from) in scratch.rows.chunks_exact_mut(row_bytes).zip(self.bytes.chunks_exact(columns)) {
            to[..columns].copy_from_slice(from);
        }
        scratch.squared_norms.clear();
        let squared_norms = self.bytes.chunks_exact(columns).map(|row| squared_difference(row, &filter.center));
        scratch.squared_norms.extend(squared_norms);
        scratch.norms.clear();
        scratch.norms.extend(scratch.squared_norms.iter().map(|squared| upper(squared.sqrt())));
        scratch.norms.resize(filled, 0.0);
        scratch.limits.clear();
        match self.within {
            None => scratch.limits.resize(count, f32::NEG_INFINITY),
            Some(distances) => {
                let pairs = distances.iter().zip(&scratch.squared_norms);
                scratch.limits.extend(pairs.map(|(&distance, &norm)| filter.limit(norm, distance)));
            }
        }
        scratch.limits.resize(filled, f32::INFINITY);
        scratch.candidates.clear();
        scratch.finalists.clear();
        self.labels.fill(0);
        self.squared_distances.fill(f64::INFINITY);
    }

    /// Compare all rows with a panel and record the candidates.
    #[inline(always)]
    fn compare<B: ByteSums, const ROWS: usize, const VECTORS: usize>(&mut self, panel: usize) {
        let (filter, scratch) = (self.filter, &mut *self.scratch);
        let (row_bytes, lines) = (filter.row_bytes(), filter.panels.width / PanelLine::LEN);
        let constants = |of: &[PanelLine]| vectors::<B::Floats, VECTORS>(&of[panel * lines..(panel + 1) * lines]);
        let (scales, offsets, slacks) =
            (constants(&filter.scales), constants(&filter.offsets), constants(&filter.slacks));
        let error = (2.0 * filter.error) as f32;
        for (tile, rows) in scratch.rows.chunks_exact(ROWS * row_bytes).enumerate() {
            let sums = filter.panels.products::<B, ROWS, VECTORS>(rows, panel);
            for (at, sums) in sums.iter().enumerate() {
                let row = tile * ROWS + at;
                let (limit, norm) = (B::Floats::splat(scratch.limits[row]), B::Floats::splat(scratch.norms[row]));
                let mut scores = [limit; VECTORS];
                let mut may_win = 0;
                for vector in 0..VECTORS {
                    scores[vector] = sums[vector].to_floats().multiply_add(scales[vector], offsets[vector]);
                    let upper = norm.multiply_add(slacks[vector], scores[vector]);
                    may_win |= !B::Floats::bits(upper.is_less(limit)) & ((1 << B::Floats::LANES) - 1);
                }
                if may_win == 0 || row >= self.labels.len() {
                    continue;
                }
                let mut greatest = B::Floats::splat(f32::NEG_INFINITY);
                for vector in 0..VECTORS {
                    greatest = greatest.maximum(norm.multiply_subtract_from(slacks[vector], scores[vector]));
                }
                let limit = scratch.limits[row].max((greatest.greatest() - error).next_down());
                scratch.limits[row] = limit;
                for vector in 0..VECTORS {
                    let upper = norm.multiply_add(slacks[vector], scores[vector]);
                    let mut bits = !B::Floats::bits(upper.is_less(B::Floats::splat(limit)));
                    bits &= (1 << B::Floats::LANES) - 1;
                    let mut values = PanelLine::default();
                    // SAFETY: a line holds at least one vector and is aligned.
                    unsafe { scores[vector].store(values.as_mut_ptr()) };
                    while bits != 0 {
                        let lane = bits.trailing_zeros() as usize;
                        bits &= bits - 1;
                        let index = panel * filter.panels.width + vector * B::Floats::LANES + lane;
                        let score = values.values()[lane];
                        if score > f32::NEG_INFINITY {
                            scratch.candidates.push(NearestCandidate { row: row as u32, index: index as u32, score });
                        }
                    }
                }
            }
        }
    }

    /// Promote candidates that the finer bytes do not exclude to finalists.
    #[inline(always)]
    fn refine(&mut self) {
        let (filter, scratch) = (self.filter, &mut *self.scratch);
        let (columns, error) = (filter.panels.columns, filter.error);
        for &NearestCandidate { row, index, score } in &scratch.candidates {
            let (at, fine) = (row as usize, filter.fine[index as usize]);
            let bytes = &self.bytes[at * columns..(at + 1) * columns];
            let fine_bytes = &filter.fine_bytes[index as usize * columns..(index as usize + 1) * columns];
            let score = f64::from(score) + f64::from(fine.scale) * f64::from(dot(bytes, fine_bytes));
            let score = score + f64::from(fine.offset);
            let slack = f64::from(scratch.norms[at]) * f64::from(fine.slack) + error;
            let limit = ((score - slack - error) as f32).next_down();
            scratch.limits[at] = scratch.limits[at].max(limit);
            let score = ((score + slack) as f32).next_up();
            if score >= scratch.limits[at] {
                scratch.finalists.push(NearestCandidate { row, index, score });
            }
        }
        scratch.candidates.clear();
    }

    /// Measure the remaining finalists and take the nearest.
    #[inline(always)]
    fn resolve(&mut self) {
        let scratch = &mut *self.scratch;
        for &NearestCandidate { row, index, score } in &scratch.finalists {
            let at = row as usize;
            if score < scratch.limits[at] {
                continue;
            }
            let distance = squared_distance(self.points.row(at), self.centroids.row(index as usize));
            // The candidates of a row arrive in ascending order, so ties go to the lowest index.
            if distance < self.squared_distances[at] {
                self.squared_distances[at] = distance;
                self.labels[at] = index as i32;
                let limit = self.filter.limit(scratch.squared_norms[at], distance);
                scratch.limits[at] = scratch.limits[at].max(limit);
            }
        }
        scratch.finalists.clear();
    }
}

/// Load lines as vectors.
#[inline(always)]
fn vectors<V: Vector, const VECTORS: usize>(lines: &[PanelLine]) -> [V; VECTORS] {
    assert_eq!(lines.len() * PanelLine::LEN, VECTORS * V::LANES, "as many as a panel is wide");
    // SAFETY: the lines contain this number of vectors, and lines are aligned.
    std::array::from_fn(|vector| unsafe { V::load(lines.as_ptr().cast::<f32>().add(vector * V::LANES)) })
}

/// Return the products of a full tile of rows and a panel of VECTORS vectors.
#[inline(always)]
fn products<B: ByteSums, const ROWS: usize, const VECTORS: usize>(
    rows: &[u8],
    panel: &[ByteLine],
    row_bytes: usize,
) -> [[B; VECTORS]; ROWS] {
    let vector_bytes = STEP * B::Floats::LANES;
    assert_eq!(size_of_val(panel), row_bytes * VECTORS * B::Floats::LANES, "a whole panel");
    assert!(rows.len() == ROWS * row_bytes && row_bytes.is_multiple_of(STEP), "a full tile of rows");
    let (panel, rows) = (panel.as_ptr().cast::<i8>(), rows.as_ptr());
    let mut sums = [[B::zero(); VECTORS]; ROWS];
    for step in 0..row_bytes / STEP {
        // SAFETY: the panel has VECTORS aligned vectors for each step; `rows` has ROWS times `row_bytes` bytes.
        unsafe {
            let mut centroids = [B::zero(); VECTORS];
            for (vector, centroids) in centroids.iter_mut().enumerate() {
                *centroids = B::load(panel.add((step * VECTORS + vector) * vector_bytes));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let four = B::splat(rows.add(row * row_bytes + step * STEP).cast::<[u8; STEP]>().read());
                for (sum, &centroids) in sums.iter_mut().zip(&centroids) {
                    *sum = sum.plus_products(four, centroids);
                }
            }
        }
    }
    sums
}

/// Return `‖x − μ‖²`, exactly.
#[inline(always)]
fn squared_difference(row: &[u8], center: &[u8]) -> f64 {
    let difference = |(&a, &b): (&u8, &u8)| i32::from(i16::from(a) - i16::from(b));
    // With the largest number of columns the sum is less than 2³².
    row.iter().zip(center).map(|pair| (difference(pair) * difference(pair)) as u32).sum::<u32>().into()
}

/// Return the sum of the products of bytes.
#[inline(always)]
fn dot(unsigned: &[u8], signed: &[i8]) -> i32 {
    unsigned.iter().zip(signed).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum()
}
