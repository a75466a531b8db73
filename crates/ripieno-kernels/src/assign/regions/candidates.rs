//! Candidates: the centroids that can be nearest to a point within some bounds.

use crate::{Centroid, Matrix};

/// Some centroids, column by column.
#[derive(Default)]
pub(super) struct CandidateColumns {
    /// Ascending.
    pub indices: Vec<u32>,
    coordinates: Vec<f64>,
}

impl CandidateColumns {
    pub fn all<C: Centroid>(centroids: Matrix<C>) -> CandidateColumns {
        let columns = 0..centroids.columns();
        let column = |column: usize| (0..centroids.rows()).map(move |row| centroids.row(row)[column].into());
        CandidateColumns {
            indices: (0..centroids.rows() as u32).collect(),
            coordinates: columns.flat_map(column).collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Return the centroids that are nearest to some point within the bounds. The result may contain others.
    ///
    /// All centroids are compared with the one nearest to the middle. The difference of two squared distances is a
    /// linear function of the point, so its minimum is in a corner. A margin covers rounding, also of the distances. So
    /// an excluded centroid is nowhere as near as that one, not even with distances rounded to f64.
    #[inline(always)]
    pub fn within(&self, bounds: &[(f64, f64)], scratch: &mut CandidateScratch) -> CandidateColumns {
        const SLACK: f64 = 512.0 * f64::EPSILON;
        let count = self.len();
        let columns = || self.coordinates.chunks_exact(count).zip(bounds);
        let CandidateScratch { distances, lead_bounds, remaining, lists } = scratch;
        distances.clear();
        distances.resize(count, 0.0);
        let mut reach = 0.0;
        for (coordinates, &(low, high)) in columns() {
            let (middle, half) = center_and_half(low, high);
            reach += half * half;
            for (distance, &c) in distances.iter_mut().zip(coordinates) {
                *distance += (c - middle) * (c - middle);
            }
        }
        let (mut nearest, mut least) = (0, f64::INFINITY);
        for (index, &distance) in distances.iter().enumerate() {
            if distance < least {
                (nearest, least) = (index, distance);
            }
        }
        lead_bounds.clear();
        lead_bounds.extend(distances.iter().map(|&each| each - least));
        for (coordinates, &(low, high)) in columns() {
            let (_, half) = center_and_half(low, high);
            let other = coordinates[nearest];
            for (lead, &c) in lead_bounds.iter_mut().zip(coordinates) {
                *lead -= (c - other).abs() * (2.0 * half);
            }
        }
        // NaN excludes nothing.
        let is_dominated =
            |(&lead, &distance): (&f64, &f64)| lead > SLACK * (distance + least + reach) + f64::MIN_POSITIVE / SLACK;
        remaining.clear();
        remaining.resize(count, 0);
        let mut remaining_count = 0;
        for (index, candidate) in lead_bounds.iter().zip(&*distances).enumerate() {
            // Without a branch, because the outcome is unpredictable.
            remaining[remaining_count] = index;
            remaining_count += usize::from(!is_dominated(candidate));
        }
        let remaining = &remaining[..remaining_count];
        let mut within = lists.pop().unwrap_or_default();
        within.indices.clear();
        within.indices.extend(remaining.iter().map(|&i| self.indices[i]));
        within.coordinates.clear();
        for (coordinates, _) in columns() {
            within.coordinates.extend(remaining.iter().map(|&i| coordinates[i]));
        }
        within
    }
}

/// Buffers reused between searches for candidates, since there is one search per cell with few candidates each.
#[derive(Default)]
pub(super) struct CandidateScratch {
    distances: Vec<f64>,
    lead_bounds: Vec<f64>,
    remaining: Vec<usize>,
    pub lists: Vec<CandidateColumns>,
}

/// Return a number near the middle, and an upper bound on its distance from both ends.
#[inline(always)]
fn center_and_half(low: f64, high: f64) -> (f64, f64) {
    let middle = 0.5 * low + 0.5 * high;
    (middle, f64::max(middle - low, high - middle) * (1.0 + 4.0 * f64::EPSILON))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_centroid_that_another_one_beats_everywhere_is_excluded() {
        let centroids = [0.0f32, 0.0, 4.0, 0.0, 1.0, 0.0];
        let within = CandidateColumns::all(Matrix::new(&centroids, 3, 2))
            .within(&[(0.0, 1.0), (-1.0, 1.0)], &mut CandidateScratch::default());
        assert_eq!((within.indices, within.coordinates), (vec![0, 2], vec![0.0, 1.0, 0.0, 0.0]));
    }

    #[test]
    fn a_centroid_that_is_as_near_in_a_corner_is_included() {
        let centroids = [0.0f64, 2.0, 3.0];
        let within = CandidateColumns::all(Matrix::new(&centroids, 3, 1))
            .within(&[(0.0, 1.0)], &mut CandidateScratch::default());
        assert_eq!(within.indices, [0, 1]);
    }
}
