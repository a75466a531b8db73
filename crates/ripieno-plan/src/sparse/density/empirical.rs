//! Empirical densities: counted unions of the sets of some ranks, for data that does not follow a power law.

use alloc::vec::Vec;
use libm::{exp, log};

/// Densities of unions of `K` sets for some `K`, interpolated linearly in the logarithms of density and `K`.
#[derive(Clone, Debug, PartialEq)]
pub struct Empirical {
    /// Pairs `(K, density)`, both ascending; the first `K` is 1.
    points: Vec<(f64, f64)>,
}

impl Empirical {
    /// Count the unions of the ranks' sets within a part of the features.
    ///
    /// `samples` contains the keys of each rank in this part, ascending and unique; `range` is the number of keys of
    /// the part. For `K = 1, 2, 4, …` and all ranks, the keys of `K` consecutive ranks are united, and the mean is
    /// used.
    pub fn of(samples: &[Vec<u64>], range: u64) -> Empirical {
        assert!(!samples.is_empty() && range > 0, "there are samples and the range is not empty");
        let (mut unions, mut set_count, mut points) = (samples.to_vec(), 1, Vec::new());
        loop {
            let complete_count = unions.len().min(samples.len() / set_count);
            let counted: usize = unions[..complete_count].iter().map(Vec::len).sum();
            points.push((set_count as f64, counted as f64 / complete_count as f64 / range as f64));
            if unions.len() == 1 {
                break;
            }
            unions =
                unions.chunks(2).map(|pair| pair.iter().skip(1).fold(pair[0].clone(), |a, b| union(&a, b))).collect();
            set_count = (2 * set_count).min(samples.len());
        }
        Empirical::through(points)
    }

    /// Create the curve through the points `(K, density)`, with ascending `K` starting at 1.
    ///
    /// A union is never smaller than its parts, so a density below the previous density is raised to it.
    pub fn through(mut points: Vec<(f64, f64)>) -> Empirical {
        assert!(points.first().is_some_and(|first| first.0 == 1.0), "the first point is for one set");
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "the numbers of sets ascend");
        for index in 1..points.len() {
            points[index].1 = points[index].1.max(points[index - 1].1);
        }
        Empirical { points }
    }

    /// Return the counted points `(K, density)`.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// Return the density of a union of `set_count` sets. Constant beyond the last point.
    pub fn density(&self, set_count: f64) -> f64 {
        let next = self.points.partition_point(|&(k, _)| k <= set_count);
        let (Some(&(low_k, low)), Some(&(high_k, high))) =
            (self.points.get(next.saturating_sub(1)), self.points.get(next))
        else {
            return self.points[self.points.len() - 1].1;
        };
        if low == 0.0 || next == 0 {
            return low;
        }
        let fraction = log(set_count / low_k) / log(high_k / low_k);
        low * exp(fraction * log(high / low))
    }
}

fn union(left: &[u64], right: &[u64]) -> Vec<u64> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut i, mut j) = (0, 0);
    while i < left.len() && j < right.len() {
        merged.push(left[i].min(right[j]));
        let (step_left, step_right) = (left[i] <= right[j], right[j] <= left[i]);
        i += usize::from(step_left);
        j += usize::from(step_right);
    }
    merged.extend_from_slice(&left[i..]);
    merged.extend_from_slice(&right[j..]);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use libm::pow;

    #[test]
    fn unions_are_counted() {
        let samples = vec![vec![0, 1, 2], vec![2, 3], vec![], vec![1, 9], vec![4, 5, 6]];
        let curve = Empirical::of(&samples, 10);
        // With five ranks, the last rank is not part of a union of two or four.
        assert_eq!(curve.points(), [(1.0, 0.2), (2.0, 0.3), (4.0, 0.5), (5.0, 0.8)]);
    }

    #[test]
    fn a_power_law_is_interpolated_exactly_and_constant_beyond_the_last_point() {
        let points: Vec<_> = [1.0f64, 2.0, 4.0, 8.0].map(|k| (k, 0.01 * pow(k, 0.7))).to_vec();
        let curve = Empirical::through(points);
        for k in [1.0f64, 1.5, 2.0, 3.0, 7.0, 8.0] {
            assert!((curve.density(k) / (0.01 * pow(k, 0.7)) - 1.0).abs() < 1e-12);
        }
        assert_eq!(curve.density(64.0), curve.density(8.0));
    }

    #[test]
    fn empty_samples_have_density_zero() {
        let curve = Empirical::of(&[vec![], vec![]], 7);
        assert_eq!([1.0, 1.5, 2.0].map(|k| curve.density(k)), [0.0; 3]);
    }
}
