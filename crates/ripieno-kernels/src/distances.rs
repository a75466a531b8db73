//! Distances between rows and centroids.

use crate::{Centroid, Matrix, Point, Threads};

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
pub(crate) fn squared_distance<P: Point>(point: &[P], centroid: &[P::Centroid]) -> f64 {
    let differences = point.iter().zip(centroid).map(|(&x, &c)| -> f64 { x.into() - c.into() });
    differences.map(|difference| difference * difference).sum()
}
