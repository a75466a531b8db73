//! Density: the fraction of all features in the union of the sets of some ranks.
//!
//! It predicts how the data of a sparse reduction shrinks from layer to layer before anything is sent. After layers
//! with a degree product of `K`, a rank holds the union of `K` ranks' sets within `1/K` of the features.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section IV.

mod empirical;
mod power_law;

pub use empirical::Empirical;
pub use power_law::{PowerLaw, PowerLawFit};

/// Density of the union of any number of ranks' sets.
#[derive(Clone, Debug, PartialEq)]
pub enum Curve {
    /// Data that follows a power law.
    PowerLaw {
        /// The features and the exponent.
        law: PowerLaw,
        /// The scaling factor of one rank's set: `lambda_0`.
        lambda: f64,
    },
    /// A counted curve.
    Empirical(Empirical),
}

impl Curve {
    /// Create the power law of `features` features for sets of this `density`. `None` unless the density lies in
    /// `0..1`.
    pub fn power_law(features: u64, alpha: f64, density: f64) -> Option<Curve> {
        let law = PowerLaw::new(features, alpha);
        Some(Curve::PowerLaw { law, lambda: law.lambda(density)? })
    }

    /// Return `D`, the fraction of the features in the union of `set_count` sets (eq. 4).
    pub fn density(&self, set_count: f64) -> f64 {
        match self {
            Curve::PowerLaw { law, lambda } => law.density(set_count * lambda),
            Curve::Empirical(curve) => curve.density(set_count),
        }
    }

    /// Return the size of the union of `set_count` sets relative to one set. It ranges from 1 for equal sets to
    /// `set_count` for disjoint sets, and is 1 for empty sets.
    pub fn growth(&self, set_count: f64) -> f64 {
        match self.density(1.0) {
            0.0 => 1.0,
            single => self.density(set_count) / single,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Section VII: 60 million features at 0.21 and 1.4 billion at 0.035, on 64 ranks.
    #[test]
    fn volumes_shrink_from_layer_to_layer_as_in_figure_5() {
        let twitter = Curve::power_law(60_000_000, 1.1, 0.21).unwrap();
        let yahoo = Curve::power_law(1_400_000_000, 1.1, 0.035).unwrap();
        for curve in [&twitter, &yahoo] {
            let held: Vec<f64> = [1.0, 8.0, 32.0, 64.0].map(|k| curve.growth(k) / k).to_vec();
            assert_eq!(held[0], 1.0);
            assert!(held.windows(2).all(|pair| pair[1] < pair[0]), "{held:?}");
        }
        // Denser data shrinks faster.
        assert!(twitter.growth(8.0) < yahoo.growth(8.0));
    }
}
