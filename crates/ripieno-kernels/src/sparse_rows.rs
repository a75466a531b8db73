//! K-means on sparse rows: the nearest centroids, and the sums of the rows of each cluster.
//!
//! Centroids are dense. Tiles of them are stored column by column, so an entry of a row is multiplied with a column of
//! a whole tile: `‖c‖² − 2·x·c` is smallest for the nearest centroid. All arithmetic is f64, and every sum is added up
//! in column order for any SIMD level and number of threads, so results have the same bits.
//!
//! Cost: `e·k` for `e` entries, and `k·d`.
//! Memory: a copy of the centroids.

use crate::simd::{Vector, VectorJob};
use crate::{Matrix, SparseRows, Threads};
use std::ops::Range;

/// Number of centroids compared at once; their sums stay in registers.
const TILE: usize = 32;
/// Approximate number of entries of a block of rows. They are read once per tile.
const BLOCK_ENTRIES: usize = 1 << 12;

/// Assign rows to their nearest centroid if it is nearer than the row's squared distance, or equally near with a lower
/// number than its label.
///
/// `first_index` is the number of the first centroid. Start with infinity in every distance. A row that equals a
/// centroid gets an exact zero.
///
/// # Panics
/// If the shapes do not fit.
pub fn assign_sparse(
    rows: SparseRows,
    centroids: Matrix<f64>,
    first_index: i32,
    (labels, squared_distances): (&mut [i32], &mut [f64]),
    threads: &Threads,
) {
    assert_eq!(rows.column_count, centroids.columns(), "rows and centroids have the same columns");
    assert!(labels.len() == rows.count() && squared_distances.len() == rows.count(), "one entry per row");
    if rows.count() == 0 || centroids.rows() == 0 {
        return;
    }
    let packed = SparseTiles::new(centroids, threads);
    let mut parts = Vec::new();
    let (mut labels, mut distances) = (labels, squared_distances);
    for range in blocks(&rows) {
        let (own_labels, other_labels) = labels.split_at_mut(range.len());
        let (own_distances, other_distances) = distances.split_at_mut(range.len());
        parts.push((range, own_labels, own_distances));
        (labels, distances) = (other_labels, other_distances);
    }
    let operations = BLOCK_ENTRIES * centroids.rows();
    threads.for_each(
        parts,
        operations,
        || (),
        |(), (range, labels, distances)| {
            let packed = &packed;
            threads.simd().run(SparseBlock { rows, range, packed, centroids, first_index, labels, distances });
        },
    );
}

/// Overwrite `sums` (`m × d`) and `weight_sums` with the sums of the rows of `m` clusters, starting with cluster
/// `first`. Rows are added in order, and rows of other clusters are ignored.
///
/// # Panics
/// If the shapes do not fit.
pub fn accumulate_sparse(
    rows: SparseRows,
    labels: &[i32],
    first: usize,
    (sums, weight_sums): (&mut [f64], &mut [f64]),
    threads: &Threads,
) {
    let columns = rows.column_count;
    assert_eq!(labels.len(), rows.count(), "one label per row");
    assert_eq!(sums.len(), weight_sums.len() * columns, "a sum per centroid and column");
    let share = weight_sums.len().div_ceil(threads.count()).max(1);
    let parts = sums.chunks_mut((share * columns).max(1)).zip(weight_sums.chunks_mut(share)).enumerate().collect();
    threads.for_each(
        parts,
        4 * rows.values.len() / threads.count(),
        || (),
        |(), (part, (sums, weight_sums))| {
            sums.fill(0.0);
            weight_sums.fill(0.0);
            for (row, &label) in labels.iter().enumerate() {
                let at = (label as usize).wrapping_sub(first + part * share);
                if at >= weight_sums.len() {
                    continue;
                }
                weight_sums[at] += rows.weights[row];
                for (column, value) in rows.row(row) {
                    sums[at * columns + column] += rows.weights[row] * value;
                }
            }
        },
    );
}

/// Divide the rows into runs with about as many entries.
fn blocks(rows: &SparseRows) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut first = 0;
    while first < rows.count() {
        let goal = rows.starts[first] + BLOCK_ENTRIES as i64;
        let end = rows.starts.partition_point(|&start| start <= goal) - 1;
        let end = end.clamp(first + 1, (first + BLOCK_ENTRIES).min(rows.count()));
        blocks.push(first..end);
        first = end;
    }
    blocks
}

/// Centroids in tiles, column by column, and the squared norm of each.
struct SparseTiles {
    tiles: Vec<[f64; TILE]>,
    squared_norms: Vec<f64>,
}

impl SparseTiles {
    fn new(centroids: Matrix<f64>, threads: &Threads) -> SparseTiles {
        let (count, columns) = (centroids.rows(), centroids.columns());
        let mut tiles = vec![[0.0; TILE]; count.div_ceil(TILE) * columns];
        let parts = tiles.chunks_mut(columns).enumerate().collect();
        threads.for_each(
            parts,
            TILE * columns,
            || (),
            |(), (tile, lines)| {
                for lane in 0..TILE.min(count - tile * TILE) {
                    for (line, &value) in lines.iter_mut().zip(centroids.row(tile * TILE + lane)) {
                        line[lane] = value;
                    }
                }
            },
        );
        let squared_norms = (0..count).map(|row| centroids.row(row).iter().map(|value| value * value).sum()).collect();
        SparseTiles { tiles, squared_norms }
    }
}

/// Rows of one block with their results.
struct SparseBlock<'a> {
    rows: SparseRows<'a>,
    range: Range<usize>,
    packed: &'a SparseTiles,
    centroids: Matrix<'a, f64>,
    first_index: i32,
    labels: &'a mut [i32],
    distances: &'a mut [f64],
}

impl VectorJob for SparseBlock<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        let (count, columns) = (self.centroids.rows(), self.centroids.columns());
        let mut best = vec![(f64::INFINITY, 0); self.range.len()];
        for (tile, lines) in self.packed.tiles.chunks(columns).enumerate() {
            let norms = &self.packed.squared_norms[tile * TILE..count.min((tile + 1) * TILE)];
            for (row, best) in self.range.clone().zip(&mut best) {
                let mut products = [0.0; TILE];
                for (column, value) in self.rows.row(row) {
                    for (product, &centroid) in products.iter_mut().zip(&lines[column]) {
                        *product += value * centroid;
                    }
                }
                for (lane, (&norm, &product)) in norms.iter().zip(&products).enumerate() {
                    let score = norm - 2.0 * product;
                    if score < best.0 {
                        *best = (score, tile * TILE + lane);
                    }
                }
            }
        }
        for (at, (_, index)) in best.into_iter().enumerate() {
            let number = self.first_index + index as i32;
            let distance = self.distance(self.range.start + at, index);
            if distance < self.distances[at] || (distance == self.distances[at] && number < self.labels[at]) {
                (self.distances[at], self.labels[at]) = (distance, number);
            }
        }
    }
}

impl SparseBlock<'_> {
    /// Return the squared distance of a row to a centroid. It is zero if they are equal, because both sums of the
    /// centroid's squares are computed in the same order.
    #[inline(always)]
    fn distance(&self, row: usize, index: usize) -> f64 {
        let centroid = self.centroids.row(index);
        let (mut present_squares, mut row_sum) = (0.0, 0.0);
        for (column, value) in self.rows.row(row) {
            present_squares += centroid[column] * centroid[column];
            row_sum += (value - centroid[column]) * (value - centroid[column]);
        }
        (self.packed.squared_norms[index] - present_squares).max(0.0) + row_sum
    }
}
