//! Sums of the rows of each cluster, and the resulting centroids.
//!
//! Each thread owns some clusters and passes over all labels. So every sum adds its rows in row order for any number of
//! threads, and no sums are combined between threads.
//! Cost: `n·d`, plus reading `n` labels per thread.

use crate::phased::Phased;
use crate::simd::{Vector, VectorJob};
use crate::{Centroid, Matrix, Point, TeamThread, Threads};
use std::ops::Range;

/// Result of [`recenter`].
#[derive(Clone, Debug, PartialEq)]
pub struct CentroidShift {
    /// The squared Frobenius norm of the centroids' movement (scikit-learn's `center_shift_tot`).
    pub squared_shift: f64,
    /// The clusters without weight, ascending. Their centroids did not move.
    pub empty: Vec<usize>,
}

/// Move each centroid to the mean of its rows. A cluster without weight keeps its centroid and is reported.
///
/// `centroids` and `sums` are `k × d`, `weight_sums` has length `k`.
///
/// # Panics
/// If the shapes do not fit.
pub fn recenter<C: Centroid>(centroids: &mut [C], sums: &[f64], weight_sums: &[f64]) -> CentroidShift {
    assert_eq!(centroids.len(), sums.len(), "as many sums as coordinates");
    let mut moved = CentroidShift { squared_shift: 0.0, empty: Vec::new() };
    if weight_sums.is_empty() {
        return moved;
    }
    let columns = centroids.len() / weight_sums.len();
    assert_eq!(centroids.len(), columns * weight_sums.len(), "one weight per centroid");

    let rows = centroids.chunks_exact_mut(columns).zip(sums.chunks_exact(columns));
    for (index, ((centroid, sum), &weight)) in rows.zip(weight_sums).enumerate() {
        if weight > 0.0 {
            moved.squared_shift += move_to_mean(centroid, sum, weight);
        } else {
            moved.empty.push(index);
        }
    }
    moved
}

fn move_to_mean<C: Centroid>(centroid: &mut [C], sum: &[f64], weight: f64) -> f64 {
    let mut squared_shift = 0.0;
    for (coordinate, &sum) in centroid.iter_mut().zip(sum) {
        let mean = C::from_f64(sum / weight);
        let shift: f64 = Into::<f64>::into(mean) - Into::<f64>::into(*coordinate);
        squared_shift += shift * shift;
        *coordinate = mean;
    }
    squared_shift
}

/// Overwrite `sums` (`k × d`) and `weight_sums` with the sums of the labeled rows.
pub(crate) fn accumulate<P: Point>(
    points: Matrix<P>,
    labels: &[i32],
    weights: Option<&[f64]>,
    sums: &mut [f64],
    weight_sums: &mut [f64],
    threads: &Threads,
) {
    accumulate_run(points, labels, weights, 0, (sums, weight_sums), threads);
}

/// Overwrite `sums` (`m × d`) and `weight_sums` with the sums of the rows of `m` clusters, starting with cluster
/// `first`. Rows of other clusters are ignored.
///
/// # Panics
/// If the shapes do not fit.
pub fn accumulate_run<P: Point>(
    points: Matrix<P>,
    labels: &[i32],
    weights: Option<&[f64]>,
    first: usize,
    (sums, weight_sums): (&mut [f64], &mut [f64]),
    threads: &Threads,
) {
    assert_eq!(sums.len(), weight_sums.len() * points.columns(), "a sum per centroid and column");
    assert_eq!(labels.len(), points.rows(), "one label per row");
    assert!(weights.is_none_or(|weights| weights.len() == points.rows()), "one weight per row");
    let mut clusters = Vec::new();
    let ends = shares(labels, first..first + weight_sums.len(), share_count(points, threads));
    let (mut first, mut sums, mut weight_sums) = (first, sums, weight_sums);
    for end in ends {
        let (own_sums, other_sums) = sums.split_at_mut((end - first) * points.columns());
        let (own_weight_sums, other_weight_sums) = weight_sums.split_at_mut(end - first);
        clusters.push(Clusters { points, labels, weights, first, sums: own_sums, weight_sums: own_weight_sums });
        (first, sums, weight_sums) = (end, other_sums, other_weight_sums);
    }
    let operations = 4 * points.values().len() / clusters.len().max(1);
    threads.for_each(clusters, operations, || (), |(), clusters| threads.simd().run(clusters));
}

/// Compute this member's share of [`accumulate`] in a loop of all members. Every member computes the same division of
/// the clusters.
///
/// # Safety
/// In this phase, no other code takes parts of the sums.
pub(crate) unsafe fn accumulate_share<P: Point>(
    points: Matrix<P>,
    labels: &[i32],
    weights: Option<&[f64]>,
    sums: &Phased<f64>,
    weight_sums: &Phased<f64>,
    (member, threads): (&TeamThread, &Threads),
) {
    let ends = shares(labels, 0..weight_sums.len(), share_count(points, threads));
    let Some(&end) = ends.get(member.index()) else { return };
    let first = member.index().checked_sub(1).map_or(0, |before| ends[before]);
    let columns = points.columns();
    // SAFETY: shares do not overlap.
    let own = unsafe { (sums.part(first * columns..end * columns), weight_sums.part(first..end)) };
    threads.simd().run(Clusters { points, labels, weights, first, sums: own.0, weight_sums: own.1 });
}

/// Return the number of shares. With few columns, adding a row costs less than checking its owner.
fn share_count<P: Point>(points: Matrix<P>, threads: &Threads) -> usize {
    const MIN_COLUMNS_FOR_THREADS: usize = 16;
    if points.columns() < MIN_COLUMNS_FOR_THREADS { 1 } else { threads.count() }
}

/// Return the ends of `count` runs of these clusters with about the same number of rows each.
fn shares(labels: &[i32], clusters: Range<usize>, count: usize) -> Vec<usize> {
    if count == 1 {
        return vec![clusters.end];
    }
    let mut row_counts = vec![0; clusters.len()];
    for &label in labels {
        if let Some(row_count) = row_counts.get_mut((label as usize).wrapping_sub(clusters.start)) {
            *row_count += 1;
        }
    }
    let row_count: usize = row_counts.iter().sum();
    let mut ends = Vec::new();
    let mut seen = 0;
    for (cluster, rows) in clusters.clone().zip(&row_counts) {
        seen += rows;
        if seen * count >= row_count * (ends.len() + 1) && ends.len() + 1 < count {
            ends.push(cluster + 1);
        }
    }
    ends.push(clusters.end);
    ends
}

/// A run of clusters and all labeled rows, including rows of other clusters.
struct Clusters<'a, P> {
    points: Matrix<'a, P>,
    labels: &'a [i32],
    weights: Option<&'a [f64]>,
    first: usize,
    sums: &'a mut [f64],
    weight_sums: &'a mut [f64],
}

impl<P: Point> VectorJob for Clusters<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        self.sums.fill(0.0);
        self.weight_sums.fill(0.0);
        match self.points.columns() {
            1 => self.add::<1>(),
            2 => self.add::<2>(),
            3 => self.add::<3>(),
            4 => self.add::<4>(),
            5 => self.add::<5>(),
            6 => self.add::<6>(),
            7 => self.add::<7>(),
            8 => self.add::<8>(),
            _ => self.add_rows(),
        }
    }
}

impl<P: Point> Clusters<'_, P> {
    /// Add rows of few columns, for which a loop over columns would cost more than the additions.
    #[inline(always)]
    fn add<const COLUMNS: usize>(self) {
        let (points, _) = self.points.values().as_chunks::<COLUMNS>();
        let (sums, _) = self.sums.as_chunks_mut::<COLUMNS>();
        let sums = &mut sums[..self.weight_sums.len()];
        for (row, (point, &label)) in points.iter().zip(self.labels).enumerate() {
            let cluster = (label as usize).wrapping_sub(self.first);
            let Some(sum) = sums.get_mut(cluster) else { continue };
            let weight = self.weights.map_or(1.0, |weights| weights[row]);
            self.weight_sums[cluster] += weight;
            for (sum, &value) in sum.iter_mut().zip(point) {
                let value: f64 = value.into();
                *sum += weight * value;
            }
        }
    }

    #[inline(always)]
    fn add_rows(self) {
        let columns = self.points.columns();
        for (row, &label) in self.labels.iter().enumerate() {
            let cluster = (label as usize).wrapping_sub(self.first);
            if cluster >= self.weight_sums.len() {
                continue;
            }
            let weight = self.weights.map_or(1.0, |weights| weights[row]);
            self.weight_sums[cluster] += weight;
            let sum = &mut self.sums[cluster * columns..(cluster + 1) * columns];
            for (sum, &value) in sum.iter_mut().zip(self.points.row(row)) {
                let value: f64 = value.into();
                *sum += weight * value;
            }
        }
    }
}
