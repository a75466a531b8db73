//! Power laws: feature `r` of `n`, by descending frequency, occurs `Poisson(lambda·r^-alpha)` times in a rank's data.
//!
//! The density of a set is `f(lambda) = 1/n·Σ (1 - exp(-lambda·r^-alpha))`, and the density of the union of the sets of
//! `K` ranks is `f(K·lambda)`. Terms up to [`HEAD_COUNT`] are summed directly. The others follow from the
//! Euler–Maclaurin formula with an integral over `ln r`.
//! Cost: some thousand exponentials for any `n`; relative error below 1e-9.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section IV, eqs. 3–7.

use libm::{exp, expm1, log, sqrt};

/// Number of terms that are summed one by one.
const HEAD_COUNT: u64 = 512;
/// Nodes and weights of the 8-point Gauss–Legendre rule on -1..1, which is symmetric.
const NODES: [f64; 4] =
    [0.183_434_642_495_649_8, 0.525_532_409_916_329, 0.796_666_477_413_626_7, 0.960_289_856_497_536_3];
const WEIGHTS: [f64; 4] =
    [0.362_683_783_378_362, 0.313_706_645_877_887_3, 0.222_381_034_453_374_5, 0.101_228_536_290_376_26];
/// Range of exponents that [`PowerLaw::fit`] searches.
const ALPHA_RANGE: (f64, f64) = (0.05, 5.0);
const FIT_STEP_COUNT: usize = 40;
const NEWTON_STEP_COUNT: usize = 100;
const TOLERANCE: f64 = 1e-12;

/// A power law of feature frequencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerLaw {
    features: u64,
    alpha: f64,
}

/// A power law fitted to observed densities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerLawFit {
    /// The features and the exponent.
    pub law: PowerLaw,
    /// The scaling factor of one rank's set.
    pub lambda: f64,
    /// Root mean square of the relative deviations of the densities.
    pub deviation: f64,
}

/// `Σ (1 - exp(-x))` and its derivative by `ln lambda`, `Σ x·exp(-x)`, where `x = lambda·r^-alpha`.
#[derive(Clone, Copy, Default)]
struct DensitySums {
    present: f64,
    slope: f64,
}

impl PowerLaw {
    /// Create the law of at least one feature. The exponent `alpha` is finite and not negative.
    pub fn new(features: u64, alpha: f64) -> PowerLaw {
        assert!(features > 0, "there is at least one feature");
        assert!(alpha >= 0.0 && alpha.is_finite(), "the exponent is finite and not negative");
        PowerLaw { features, alpha }
    }

    /// Return the number of features: `n` in the formulas.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Return the exponent.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// Return `f(lambda)`, the fraction of the features that occur (eq. 7).
    pub fn density(&self, lambda: f64) -> f64 {
        self.sums(lambda).present / self.features as f64
    }

    /// Return the `lambda` for a density, or `None` unless the density lies in `0..1`.
    pub fn lambda(&self, density: f64) -> Option<f64> {
        if density == 0.0 {
            return Some(0.0);
        }
        if !(density > 0.0 && density < 1.0) {
            return None;
        }
        let count = density * self.features as f64;
        // The bounds: all features as frequent as the first one, or as rare as the last one.
        let smallest = -libm::log1p(-density);
        let mut low = log(smallest);
        let mut high = low + self.alpha * log(self.features as f64);
        let mut t = low;
        for _ in 0..NEWTON_STEP_COUNT {
            let sums = self.sums(exp(t));
            if sums.present < count {
                low = t
            } else {
                high = t
            }
            // The curve is nearly straight in logarithms.
            let step = log(count / sums.present) * sums.present / sums.slope;
            let next = t + step;
            let inside = next >= low && next <= high;
            t = if inside { next } else { (low + high) / 2.0 };
            if inside && step.abs() < TOLERANCE || high - low < TOLERANCE {
                break;
            }
        }
        Some(exp(t))
    }

    /// Fit a power law to points `(K, density)` of unions of `K` ranks' sets, by least squares of the logarithms.
    ///
    /// Each density must be above 0 and below 1. Return `None` for fewer than two points or an invalid point.
    pub fn fit(features: u64, points: &[(f64, f64)]) -> Option<PowerLawFit> {
        if points.len() < 2 || points.iter().any(|&(k, density)| k <= 0.0 || density <= 0.0 || density >= 1.0) {
            return None;
        }
        let of = |alpha: f64| PowerLaw::new(features, alpha).fit_lambda(points);
        // Golden-section search.
        let ratio = (sqrt(5.0) - 1.0) / 2.0;
        let (mut low, mut high) = ALPHA_RANGE;
        let mut left = of(high - ratio * (high - low))?;
        let mut right = of(low + ratio * (high - low))?;
        for _ in 0..FIT_STEP_COUNT {
            if left.deviation <= right.deviation {
                (high, right) = (right.law.alpha, left);
                left = of(high - ratio * (high - low))?;
            } else {
                (low, left) = (left.law.alpha, right);
                right = of(low + ratio * (high - low))?;
            }
        }
        Some(if left.deviation <= right.deviation { left } else { right })
    }

    /// Return the best `lambda` for this exponent.
    fn fit_lambda(self, points: &[(f64, f64)]) -> Option<PowerLawFit> {
        let (first_k, first_density) = points[0];
        let mut t = log(self.lambda(first_density)? / first_k);
        let mut squares = f64::INFINITY;
        for _ in 0..NEWTON_STEP_COUNT {
            let (mut now, mut gradient, mut curvature) = (0.0, 0.0, 0.0);
            for &(k, density) in points {
                let sums = self.sums(k * exp(t));
                let residual = log(density * self.features as f64 / sums.present);
                let slope = sums.slope / sums.present;
                now += residual * residual;
                gradient += residual * slope;
                curvature += slope * slope;
            }
            let settled = (squares - now).abs() <= 1e-3 * TOLERANCE;
            squares = now;
            if settled || curvature == 0.0 {
                break;
            }
            t += gradient / curvature;
        }
        Some(PowerLawFit { law: self, lambda: exp(t), deviation: sqrt(squares / points.len() as f64) })
    }

    fn sums(&self, lambda: f64) -> DensitySums {
        let mut sums = DensitySums::default();
        let head = self.features.min(HEAD_COUNT);
        for r in 1..=head {
            sums.add(1.0, self.x(lambda, log(r as f64)));
        }
        if self.features > head {
            self.add_tail(&mut sums, lambda, head as f64, self.features as f64);
        }
        sums
    }

    /// Add the terms above `first`, up to `last`: the integral, half the end terms, and a twelfth of the derivatives.
    fn add_tail(&self, sums: &mut DensitySums, lambda: f64, first: f64, last: f64) {
        let (from, to) = (log(first), log(last));
        let panel_count = libm::ceil((to - from) * 2.0 * self.alpha.max(1.0)).max(1.0);
        let half = (to - from) / panel_count / 2.0;
        for panel in 0..panel_count as usize {
            let middle = from + (2 * panel + 1) as f64 * half;
            for (node, weight) in NODES.iter().zip(WEIGHTS) {
                for u in [middle - half * node, middle + half * node] {
                    // dr = r·du
                    sums.add(weight * half * exp(u), self.x(lambda, u));
                }
            }
        }
        for (sign, r, u) in [(-1.0, first, from), (1.0, last, to)] {
            let x = self.x(lambda, u);
            sums.add(sign * 0.5, x);
            let by_r = -self.alpha * x * exp(-x) / r;
            sums.present += sign * by_r / 12.0;
            sums.slope += sign * by_r * (1.0 - x) / 12.0;
        }
    }

    /// Return `lambda·r^-alpha` at `u = ln r`.
    fn x(&self, lambda: f64, u: f64) -> f64 {
        lambda * exp(-self.alpha * u)
    }
}

impl DensitySums {
    fn add(&mut self, weight: f64, x: f64) {
        self.present -= weight * expm1(-x);
        self.slope += weight * x * exp(-x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use libm::pow;

    fn exactly(law: PowerLaw, lambda: f64) -> f64 {
        let terms = (1..=law.features).rev().map(|r| -expm1(-lambda * pow(r as f64, -law.alpha)));
        terms.sum::<f64>() / law.features as f64
    }

    #[test]
    fn the_density_is_the_sum_of_eq_7() {
        for features in [1, 2, 511, 512, 513, 700, 20_000, 300_000] {
            for alpha in [0.0, 0.5, 0.8, 1.0, 1.1, 2.0, 3.0] {
                let law = PowerLaw::new(features, alpha);
                for lambda in [1e-6, 0.01, 1.0, 30.0, 1e4, 1e8] {
                    let (fast, exact) = (law.density(lambda), exactly(law, lambda));
                    assert!((fast / exact - 1.0).abs() < 1e-9, "{features} {alpha} {lambda}: {fast} {exact}");
                }
            }
        }
    }

    #[test]
    fn the_tail_of_ten_billion_features_matches_the_closed_form() {
        // If all expected counts are far below 1, feature r occurs with probability lambda·r^-alpha: the sum is a sum
        // of powers.
        let law = PowerLaw::new(10_000_000_000, 0.5);
        let expected = 1e-6 * (2.0 * 1e5 - 1.460_354_508_809_587) / 1e10;
        assert!((law.density(1e-6) / expected - 1.0).abs() < 1e-5);
    }

    #[test]
    fn lambda_is_the_inverse_of_the_density() {
        for features in [1, 100, 60_000_000, 1_400_000_000] {
            for alpha in [0.0, 0.5, 1.1, 2.0] {
                let law = PowerLaw::new(features, alpha);
                for density in [1e-6, 0.035, 0.21, 0.9, 0.999_9] {
                    let lambda = law.lambda(density).unwrap();
                    let found = law.density(lambda);
                    assert!((found / density - 1.0).abs() < 1e-8, "{features} {alpha} {density}: {found}");
                }
                assert_eq!(law.lambda(0.0), Some(0.0));
                assert_eq!([1.0, -0.1, f64::NAN].map(|density| law.lambda(density)), [None; 3]);
            }
        }
    }

    #[test]
    fn a_fit_finds_the_exponent_and_the_scaling_factor() {
        for (alpha, density) in [(0.5, 0.21), (1.1, 0.21), (1.1, 0.035), (2.0, 0.001)] {
            let law = PowerLaw::new(60_000_000, alpha);
            let lambda = law.lambda(density).unwrap();
            let points: Vec<_> = (0..7).map(|i| f64::from(1 << i)).map(|k| (k, law.density(k * lambda))).collect();
            let fit = PowerLaw::fit(60_000_000, &points).unwrap();
            assert!((fit.law.alpha() - alpha).abs() < 1e-3, "{alpha} {density}: {fit:?}");
            assert!((fit.lambda / lambda - 1.0).abs() < 1e-2 && fit.deviation < 1e-5, "{alpha} {density}: {fit:?}");
        }
        assert_eq!(PowerLaw::fit(10, &[(1.0, 0.5)]), None);
        assert_eq!(PowerLaw::fit(10, &[(1.0, 0.5), (2.0, 1.0)]), None);
    }

    /// Figure 4: the curves for exponents from 0.5 to 2 lie close together if lambda is scaled to a density of 0.9.
    #[test]
    fn the_curve_depends_only_weakly_on_the_exponent() {
        let curves: Vec<_> = [0.5, 1.0, 1.5, 2.0].map(|alpha| PowerLaw::new(1_000_000, alpha)).to_vec();
        for part in [0.1, 0.2, 0.5, 0.9, 1.0] {
            let found: Vec<f64> = curves.iter().map(|law| law.density(part * law.lambda(0.9).unwrap())).collect();
            let spread = found.iter().fold(0.0f64, |a, &b| a.max(b)) - found.iter().fold(1.0f64, |a, &b| a.min(b));
            assert!(spread < 0.21, "{part}: {found:?}");
            if part == 1.0 {
                assert!(found.iter().all(|density| (density - 0.9).abs() < 1e-9), "{found:?}");
            }
        }
    }
}
