//! Sums of the rows of each cluster, and the centroids they give.

use crate::{Centroid, Matrix, Point};

/// What [`recenter`] did.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// The squared Frobenius norm of the centroids' move (scikit-learn's `center_shift_tot`).
    pub squared_shift: f64,
    /// The clusters without weight, in ascending order: they stayed where they were.
    pub empty: Vec<usize>,
}

/// Moves each centroid to the mean of its rows; a cluster without weight stays where it is and is reported.
///
/// `centroids` and `sums` are `k × d`, `weight_sums` has length `k`.
///
/// # Panics
/// If the shapes do not fit.
pub fn recenter<C: Centroid>(centroids: &mut [C], sums: &[f64], weight_sums: &[f64]) -> Moved {
    assert_eq!(centroids.len(), sums.len(), "as many sums as coordinates");
    let mut moved = Moved { squared_shift: 0.0, empty: Vec::new() };
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
        let shift: f64 = mean.into() - (*coordinate).into();
        squared_shift += shift * shift;
        *coordinate = mean;
    }
    squared_shift
}

/// Overwrites `sums` (`k × d`) and `weight_sums` with those of the labelled rows.
pub(crate) fn accumulate<P: Point>(
    points: Matrix<P>,
    labels: &[i32],
    weights: Option<&[f64]>,
    sums: &mut [f64],
    weight_sums: &mut [f64],
) {
    sums.fill(0.0);
    weight_sums.fill(0.0);
    for (row, &label) in labels.iter().enumerate() {
        let (label, weight) = (label as usize, weights.map_or(1.0, |weights| weights[row]));
        weight_sums[label] += weight;
        let sum = &mut sums[label * points.columns()..(label + 1) * points.columns()];
        for (sum, &value) in sum.iter_mut().zip(points.row(row)) {
            *sum += weight * value.into();
        }
    }
}
