//! A distance bound for each pair of a row and a centroid, in 16 bits, for passes with few pairs that may change.
//!
//! A pass lowers the bounds of a centroid by its movement. A block of rows in which many bounds reach the distance to
//! the own centroid is compared with all centroids in register tiles. In other blocks, a centroid is compared with the
//! rows that need it only.
//!
//! Cost: `2·d` for each pair that is not skipped, some `6·n·d` for own centroids, and `n·k` subtractions of 16 bits.
//! Memory: `2·n·k` bytes; Elkan's bounds in f32 take twice as much.
//! Source: Elkan, "Using the triangle inequality to accelerate k-means", ICML 2003.

use super::bounds::{DistanceErrorBound, RELATIVE_MARGIN, TileSearch, WIDTH};
use crate::distances::squared_distance;
use crate::panels::{self, PanelLine, Panels, PointTransform};
use crate::simd::{self, Vector, VectorJob};
use crate::{Matrix, Point, Threads};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Largest part of a block's pairs that are compared one by one. A pair alone takes [`PAIR_COST`] times as long as in a
/// tile.
const MAX_SINGLE_PAIRS: f64 = 0.44;
pub(super) const PAIR_COST: f64 = 2.8;
/// Rows compared with a centroid at once.
const ROWS_AT_ONCE: usize = 8;
/// The largest bound, in units.
const MAX_BOUND: f32 = u16::MAX as f32;

/// The bounds. A block's bounds are stored centroid by centroid.
#[derive(Debug)]
pub(super) struct PairBounds {
    /// The distance of a unit.
    unit: f64,
    lower: Vec<u16>,
    /// Whether `lower` was never written. A first read before the first write would take twice as many page faults.
    is_unwritten: bool,
}

impl PairBounds {
    /// Return the memory of the bounds of a row.
    pub(super) fn row_bytes(centroid_count: usize) -> usize {
        centroid_count * size_of::<u16>()
    }

    /// Create bounds that exclude nothing. Larger distances than `max_distance` get its bound.
    pub(super) fn new(pair_count: usize, max_distance: f64) -> PairBounds {
        let unit = max_distance / f64::from(MAX_BOUND);
        let unit = if unit.is_normal() { unit } else { 1.0 };
        PairBounds { unit, lower: vec![0; pair_count], is_unwritten: true }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.lower[..])
    }

    /// Return the number of centroids that the row at `row` needs at `distance` from its own, after `moves`.
    pub(super) fn needed_count(&self, row: usize, distance: f64, block_rows: usize, moves: &[f64]) -> usize {
        let (block, row_count) = (row / block_rows, self.lower.len() / moves.len());
        let first = block * block_rows;
        let height = block_rows.min(row_count - first);
        let lower = self.lower[first * moves.len() + row - first..].iter().step_by(height);
        let limit = units_up(distance, self.unit);
        let is_needed = |(&lower, &moved): (&u16, &f64)| lower.saturating_sub(units_up(moved, self.unit)) <= limit;
        lower.zip(moves).filter(|&pair| is_needed(pair)).count()
    }

    /// Compute labels and squared distances of all rows, and update their bounds. Return the number of pairs compared.
    pub(super) fn update<P: Point>(
        &mut self,
        points: Matrix<P>,
        centroids: Matrix<P::Centroid>,
        moves: &[f64],
        (labels, squared_distances): (&mut [i32], &mut [f64]),
        block_rows: usize,
        threads: &Threads,
    ) -> usize {
        let (panels, transform) = Panels::pack_all(centroids, WIDTH, threads);
        let stride = points.columns().next_multiple_of(PanelLine::LEN);
        let mut rows = vec![PanelLine::default(); centroids.rows() * stride / PanelLine::LEN];
        let parts = rows.chunks_exact_mut(stride / PanelLine::LEN).enumerate().collect();
        threads.for_each(parts, stride * 4, || (), {
            |(), (index, row): (usize, &mut [PanelLine])| {
                transform.apply(centroids.row(index), &mut panels::floats_mut(row)[..points.columns()]);
            }
        });
        let error_bound = DistanceErrorBound::new(&panels, transform.scale());
        let search = PairSearch {
            centroids,
            rows,
            stride,
            moves: moves.iter().map(|&moved| units_up(moved, self.unit)).collect(),
            unit: self.unit,
            units_per_distance: ((1.0 - RELATIVE_MARGIN) / (self.unit * transform.scale())).min(1e30) as f32,
            is_unwritten: std::mem::take(&mut self.is_unwritten),
            error_bound,
            panels,
            transform,
        };
        let compared = AtomicUsize::new(0);
        let blocks = labels.chunks_mut(block_rows).zip(squared_distances.chunks_mut(block_rows));
        let parts = blocks.zip(self.lower.chunks_mut(block_rows * centroids.rows())).enumerate().collect();
        let operations = block_rows * centroids.values().len() / 16;
        let scratch = || vec![PanelLine::default(); block_rows * stride / PanelLine::LEN];
        threads.for_each(parts, operations, scratch, {
            |transformed: &mut Vec<PanelLine>, (block, ((labels, squared_distances), lower))| {
                let points = points.row_range(block * block_rows, labels.len());
                let block = PairBlock { search: &search, points, labels, squared_distances, lower, transformed };
                compared.fetch_add(threads.simd().run(block), Ordering::Relaxed);
            }
        });
        compared.into_inner()
    }
}

/// Return a distance in units, rounded up. NaN gives the largest number.
#[inline(always)]
fn units_up(distance: f64, unit: f64) -> u16 {
    let units = (distance * (1.0 + RELATIVE_MARGIN) / unit).ceil();
    if units.is_nan() { u16::MAX } else { units as u16 }
}

/// Return a distance in units, rounded down.
#[inline(always)]
fn units_down(distance: f64, unit: f64) -> u16 {
    // NaN gives zero.
    (distance * (1.0 - RELATIVE_MARGIN) / unit) as u16
}

/// Return the products of a centroid and the first ROWS rows.
#[inline(always)]
fn products<V: Vector, const ROWS: usize>(
    centroid: &[PanelLine],
    rows: &[&[PanelLine]; ROWS_AT_ONCE],
) -> [f32; ROWS_AT_ONCE] {
    assert!(rows.iter().all(|row| row.len() == centroid.len()), "whole rows");
    let mut sums = [V::splat(0.0); ROWS_AT_ONCE];
    for at in (0..centroid.len() * PanelLine::LEN).step_by(V::LANES) {
        // SAFETY: all of them have as many values, and lines are aligned.
        unsafe {
            let centroid = V::load(centroid.as_ptr().cast::<f32>().add(at));
            for row in 0..ROWS {
                sums[row] = V::load(rows[row].as_ptr().cast::<f32>().add(at)).multiply_add(centroid, sums[row]);
            }
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    let ([a, b, c, d], [e, f, g, h]) = (V::totals([a, b, c, d]), V::totals([e, f, g, h]));
    [a, b, c, d, e, f, g, h]
}

/// A pass with bounds for pairs.
struct PairSearch<'a, P: Point> {
    centroids: Matrix<'a, P::Centroid>,
    panels: Panels,
    /// The centroids, transformed, each padded with zeros to `stride` values.
    rows: Vec<PanelLine>,
    stride: usize,
    transform: PointTransform<P::Centroid>,
    moves: Vec<u16>,
    unit: f64,
    /// Units of a transformed distance, rounded down, and finite.
    units_per_distance: f32,
    is_unwritten: bool,
    error_bound: DistanceErrorBound,
}

impl<P: Point> PairSearch<'_, P> {
    /// Return a lower bound on the distance of a centroid with this score, in units.
    #[inline(always)]
    fn bound(&self, f32_base: f32, score: f32) -> u16 {
        let squared = f32_base - 2.0 * score;
        // NaN gives no information.
        let squared = if squared > 0.0 { squared } else { 0.0 };
        let units = squared.sqrt() * self.units_per_distance;
        let units = if units < MAX_BOUND { units } else { MAX_BOUND };
        // SAFETY: the value is between 0 and `MAX_BOUND`. The checks of `as` would take longer than the rest.
        unsafe { units.to_int_unchecked::<i32>() as u16 }
    }
}

/// One block of rows.
struct PairBlock<'a, P: Point> {
    search: &'a PairSearch<'a, P>,
    points: Matrix<'a, P>,
    /// Labels of the previous pass, replaced by the labels of this pass.
    labels: &'a mut [i32],
    squared_distances: &'a mut [f64],
    lower: &'a mut [u16],
    /// A buffer for the transformed rows, each padded with zeros to the stride.
    transformed: &'a mut [PanelLine],
}

/// State of a row.
#[derive(Clone, Copy)]
struct PairRow {
    /// See [`DistanceErrorBound::base`], and the same for computations in f32.
    base: f64,
    f32_base: f32,
    /// The centroid of the previous pass, and its distance in units, rounded down.
    own: i32,
    own_units: u16,
    /// The nearest centroid so far.
    label: i32,
    /// The smallest score of a centroid that may be as near.
    limit: f32,
}

impl<P: Point> VectorJob for PairBlock<'_, P> {
    /// Number of pairs of rows and centroids that were compared.
    type Output = usize;

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) -> usize {
        self.search_tiles::<V, ROWS, VECTORS>()
    }
}

impl<P: Point> TileSearch for PairBlock<'_, P> {
    #[inline(always)]
    fn search<V: Vector, const ROWS: usize, const PARTS: usize, const VECTORS: usize, const COLUMNS: usize>(
        mut self,
    ) -> usize {
        let (search, count) = (self.search, self.labels.len());
        let row_lines = search.stride / PanelLine::LEN;
        let transformed = std::mem::take(&mut self.transformed);
        let (mut rows, mut uppers) = (Vec::with_capacity(count), Vec::with_capacity(count));
        // A closure would not be compiled for these vectors.
        for (row, lines) in transformed.chunks_exact_mut(row_lines).take(count).enumerate() {
            let transformed = &mut panels::floats_mut(lines)[..self.points.columns()];
            rows.push(self.start_row(row, transformed));
            uppers.push(units_up(self.squared_distances[row].sqrt(), search.unit));
        }
        let needed = if search.is_unwritten { self.lower.len() } else { self.lower_bounds(&uppers) };
        let compared = if needed as f64 > MAX_SINGLE_PAIRS * self.lower.len() as f64 {
            self.compare_all::<V, ROWS, PARTS, VECTORS, COLUMNS>(transformed, &mut rows)
        } else {
            self.compare_needed::<V>(transformed, &mut rows, &mut uppers)
        };
        for (row, state) in rows.iter().enumerate() {
            self.lower[state.own as usize * count + row] = state.own_units;
            self.labels[row] = state.label;
        }
        compared
    }
}

impl<P: Point> PairBlock<'_, P> {
    /// Lower all bounds by the movement of the centroids. Return the number of pairs that are not excluded.
    #[inline(always)]
    fn lower_bounds(&mut self, uppers: &[u16]) -> usize {
        let mut needed = 0;
        for (lower, &moved) in self.lower.chunks_exact_mut(uppers.len()).zip(&self.search.moves) {
            lower.iter_mut().for_each(|lower| *lower = lower.saturating_sub(moved));
            // Two loops, because one is not vectorized.
            let each = lower.iter().zip(uppers).map(|(lower, upper)| u16::from(lower <= upper));
            needed += usize::from(each.sum::<u16>());
        }
        needed
    }

    /// Measure the distance of a row to its centroid of the previous pass.
    #[inline(always)]
    fn start_row(&mut self, row: usize, transformed: &mut [f32]) -> PairRow {
        let (search, label, point) = (self.search, self.labels[row], self.points.row(row));
        search.transform.apply(point, transformed);
        let squared_norm: f64 = super::squared_norm(transformed).into();
        let own = squared_distance(point, search.centroids.row(label as usize));
        self.squared_distances[row] = own;
        PairRow {
            base: search.error_bound.base(squared_norm),
            f32_base: search.error_bound.f32_base(squared_norm),
            own: label,
            own_units: units_down(own.sqrt(), search.unit),
            label,
            limit: search.error_bound.limit(search.error_bound.base(squared_norm), own),
        }
    }

    /// Compare all rows with all centroids. Return the number of pairs.
    #[inline(always)]
    fn compare_all<V: Vector, const ROWS: usize, const PARTS: usize, const VECTORS: usize, const COLUMNS: usize>(
        &mut self,
        transformed: &[PanelLine],
        rows: &mut [PairRow],
    ) -> usize {
        let (search, columns, count) = (self.search, self.points.columns(), rows.len());
        let transformed = panels::floats(transformed);
        for panel in 0..search.panels.count() {
            let lanes = WIDTH.min(search.centroids.rows() - panel * WIDTH);
            for first in (0..count).step_by(ROWS * PARTS) {
                let mut tile = [[&transformed[..columns]; ROWS]; PARTS];
                let height = (ROWS * PARTS).min(count - first);
                for (at, tile) in tile.as_flattened_mut()[..height].iter_mut().enumerate() {
                    *tile = &transformed[(first + at) * search.stride..][..columns];
                }
                let scores = simd::scattered_products::<V, ROWS, PARTS, VECTORS, COLUMNS>(&tile, &search.panels, panel);
                for (at, scores) in scores.as_flattened()[..height].iter().enumerate() {
                    let row = first + at;
                    let mut line = PanelLine::default();
                    for (vector, &scores) in scores.iter().enumerate() {
                        // SAFETY: a line holds the vectors of a panel, and is aligned.
                        unsafe { scores.store(line.as_mut_ptr().add(vector * V::LANES)) };
                    }
                    let mut bounds = [0; WIDTH];
                    for (bound, &score) in bounds.iter_mut().zip(line.values()) {
                        *bound = search.bound(rows[row].f32_base, score);
                    }
                    let lower = self.lower[panel * WIDTH * count + row..].iter_mut().step_by(count);
                    lower.zip(&bounds[..lanes]).for_each(|(lower, &bound)| *lower = bound);
                    let limit = rows[row].limit;
                    if line.values().iter().fold(false, |any, &score| any | (score >= limit) | score.is_nan()) {
                        for (lane, &score) in line.values()[..lanes].iter().enumerate() {
                            self.consider(row, &mut rows[row], panel * WIDTH + lane, score);
                        }
                    }
                }
            }
        }
        self.lower.len()
    }

    /// Compare each centroid with the rows that need it. Return the number of pairs.
    #[inline(always)]
    fn compare_needed<V: Vector>(
        &mut self,
        transformed: &[PanelLine],
        rows: &mut [PairRow],
        uppers: &mut [u16],
    ) -> usize {
        let (search, count) = (self.search, rows.len());
        let row_lines = search.stride / PanelLine::LEN;
        let (mut flags, mut candidates) = (vec![0u8; count.next_multiple_of(8)], Vec::with_capacity(count));
        let mut compared = 0;
        for (index, centroid) in search.rows.chunks_exact(row_lines).enumerate() {
            let lower = &self.lower[index * count..(index + 1) * count];
            for ((flag, lower), upper) in flags.iter_mut().zip(lower).zip(&*uppers) {
                *flag = u8::from(lower <= upper);
            }
            candidates.clear();
            for (word, flags) in flags.as_chunks::<8>().0.iter().enumerate() {
                let mut flags = u64::from_le_bytes(*flags);
                while flags != 0 {
                    let row = word * 8 + flags.trailing_zeros() as usize / 8;
                    flags &= flags - 1;
                    if rows[row].own != index as i32 {
                        candidates.push(row);
                    }
                }
            }
            compared += candidates.len();
            let half_norm = search.panels.half_norms(index / WIDTH)[0].values()[index % WIDTH];
            for candidates in candidates.chunks(ROWS_AT_ONCE) {
                let lines: [&[PanelLine]; ROWS_AT_ONCE] = std::array::from_fn(|at| {
                    let row = candidates[at.min(candidates.len() - 1)];
                    &transformed[row * row_lines..(row + 1) * row_lines]
                });
                let products = match candidates.len() > ROWS_AT_ONCE / 2 {
                    true => products::<V, ROWS_AT_ONCE>(centroid, &lines),
                    false => products::<V, { ROWS_AT_ONCE / 2 }>(centroid, &lines),
                };
                for (&row, product) in candidates.iter().zip(products) {
                    let score = product - half_norm;
                    self.lower[index * count + row] = search.bound(rows[row].f32_base, score);
                    let before = self.squared_distances[row];
                    self.consider(row, &mut rows[row], index, score);
                    if self.squared_distances[row] < before {
                        uppers[row] = units_up(self.squared_distances[row].sqrt(), search.unit);
                    }
                }
            }
        }
        compared
    }

    /// Measure a centroid if its score allows it to be as near as the nearest so far.
    #[inline(always)]
    fn consider(&mut self, index: usize, row: &mut PairRow, centroid: usize, score: f32) {
        if score < row.limit || row.own == centroid as i32 {
            return;
        }
        let distance = squared_distance(self.points.row(index), self.search.centroids.row(centroid));
        let best = self.squared_distances[index];
        if distance < best || (distance == best && (centroid as i32) < row.label) {
            row.label = centroid as i32;
            row.limit = self.search.error_bound.limit(row.base, distance);
            self.squared_distances[index] = distance;
        }
    }
}
