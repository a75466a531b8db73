//! Distances between rows and centroids.

use crate::matrix::number::Real;
use crate::{Matrix, Point, Threads};

/// The squared distance of every row to every centroid, `n × k`, into `out`.
///
/// # Panics
/// If the shapes do not fit.
pub fn squared_distances<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    out: &mut [P::Centroid],
    _threads: &Threads,
) {
    assert_eq!(points.columns(), centroids.columns(), "points and centroids have the same columns");
    assert_eq!(out.len(), points.rows() * centroids.rows(), "one distance per row and centroid");
    for row in 0..points.rows() {
        for index in 0..centroids.rows() {
            let distance = squared_distance(points.row(row), centroids.row(index));
            out[row * centroids.rows() + index] = P::Centroid::from_f64(distance);
        }
    }
}

/// The distance of every row to every centroid, `n × k`, into `out`: the square roots of [`squared_distances`].
///
/// # Panics
/// If the shapes do not fit.
pub fn distances<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    out: &mut [P::Centroid],
    threads: &Threads,
) {
    squared_distances(points, centroids, out, threads);
    for distance in out {
        *distance = P::Centroid::from_f64((*distance).into().sqrt());
    }
}

/// `‖x − c‖²` in f64.
///
/// The order of the additions is part of the result: eight sums side by side, then one after the other.
#[inline(always)]
pub(crate) fn squared_distance<P: Point>(point: &[P], centroid: &[P::Centroid]) -> f64 {
    const SUMS: usize = 8;
    let mut sums = [0.0; SUMS];
    let (points, centroids) = (point.chunks_exact(SUMS), centroid.chunks_exact(SUMS));
    let rest = points.remainder().iter().zip(centroids.remainder());
    for (points, centroids) in points.zip(centroids) {
        for i in 0..SUMS {
            sums[i] += squared_difference(points[i], centroids[i]);
        }
    }
    for (sum, (&x, &c)) in sums.iter_mut().zip(rest) {
        *sum += squared_difference(x, c);
    }
    sums.iter().sum()
}

#[inline(always)]
fn squared_difference(x: impl Into<f64>, c: impl Into<f64>) -> f64 {
    let difference = x.into() - c.into();
    difference * difference
}
