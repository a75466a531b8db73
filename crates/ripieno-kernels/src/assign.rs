//! Nearest centroids: the pass of K-means, prediction, and the step of seeding.

use crate::accumulate::accumulate;
use crate::distances::squared_distance;
use crate::{Matrix, Point, Threads};

/// Where a pass puts its results; each slice is overwritten, nothing is added to what was there.
#[derive(Debug)]
pub struct Pass<'a> {
    /// The index of each row's nearest centroid, length `n`.
    pub labels: &'a mut [i32],
    /// If wanted, the squared distance of each row to that centroid, length `n`.
    pub squared_distances: Option<&'a mut [f64]>,
    /// The weighted sum of each cluster's rows, `k × d`.
    pub sums: &'a mut [f64],
    /// The weight of each cluster's rows (without weights: their number), length `k`.
    pub weight_sums: &'a mut [f64],
}

/// One pass of K-means: assigns each row to its nearest centroid and sums the rows of each cluster.
///
/// Returns the inertia, `Σ w·‖x − c‖²` over the rows. `weights` has one weight per row; without it each weighs 1.
///
/// # Panics
/// If the shapes do not fit, or there are rows but no centroid.
pub fn assign_accumulate<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    weights: Option<&[f64]>,
    pass: Pass,
    threads: &Threads,
) -> f64 {
    let mut own = Vec::new();
    let distances = pass.squared_distances.unwrap_or_else(|| {
        own.resize(points.rows(), 0.0);
        &mut own
    });
    assign(points, centroids, pass.labels, Some(distances), threads);
    accumulate(points, pass.labels, weights, pass.sums, pass.weight_sums);
    match weights {
        Some(weights) => distances.iter().zip(weights).map(|(distance, weight)| distance * weight).sum(),
        None => distances.iter().sum(),
    }
}

/// Assigns each row to its nearest centroid; ties go to the lowest index.
///
/// `labels` and, if wanted, `squared_distances` have one entry per row.
///
/// # Panics
/// If the shapes do not fit, or there are rows but no centroid.
pub fn assign<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    labels: &mut [i32],
    mut squared_distances: Option<&mut [f64]>,
    _threads: &Threads,
) {
    assert_eq!(points.columns(), centroids.columns(), "points and centroids have the same columns");
    assert_eq!(labels.len(), points.rows(), "one label per row");
    for row in 0..points.rows() {
        let (mut best, mut nearest) = (f64::INFINITY, 0);
        for index in 0..centroids.rows() {
            let distance = squared_distance(points.row(row), centroids.row(index));
            if distance < best {
                (best, nearest) = (distance, index);
            }
        }
        labels[row] = nearest as i32;
        if let Some(distances) = &mut squared_distances {
            distances[row] = best;
        }
    }
}

/// A step of seeding: lowers each row's squared distance to its nearest centre by some new centres.
///
/// Where a new centre is nearer than `min_squared_distances` says, that entry is replaced and, if wanted, `closest`
/// gets `first_index` plus the centre's row. Start with infinity in every entry. A row that is a new centre gets an
/// exact zero.
///
/// # Panics
/// If the shapes do not fit.
pub fn update_min_distances<P: Point>(
    points: Matrix<P>,
    new_centroids: Matrix<P::Centroid>,
    first_index: i32,
    min_squared_distances: &mut [f64],
    mut closest: Option<&mut [i32]>,
    _threads: &Threads,
) {
    assert_eq!(points.columns(), new_centroids.columns(), "points and centroids have the same columns");
    assert_eq!(min_squared_distances.len(), points.rows(), "one distance per row");
    for row in 0..points.rows() {
        for index in 0..new_centroids.rows() {
            let distance = squared_distance(points.row(row), new_centroids.row(index));
            if distance < min_squared_distances[row] {
                min_squared_distances[row] = distance;
                if let Some(closest) = &mut closest {
                    closest[row] = first_index + index as i32;
                }
            }
        }
    }
}
