//! The volumes of a butterfly on power-law data agree with the density curve in every layer.

use crate::common::butterflies::{RankKeys, configured, drawn, random};
use ripieno_plan::sparse::density::{Curve, PowerLaw};
use ripieno_plan::sparse::design::{DirectionSets, PacketCurve, estimate};
use ripieno_plan::sparse::{Degrees, Permutation, Volume};

const RANK_COUNT: usize = 64;
const ALPHA: f64 = 1.1;
/// No layer is dense: every row belongs to a key that some rank has.
const NEVER_DENSE: f64 = 2.0;

/// Return per rank the keys of the features that occur at least once: feature `r` with probability `1 -
/// exp(-lambda·r^-alpha)`.
fn key_sets(law: PowerLaw, lambda: f64) -> Vec<Vec<u64>> {
    let mixed = Permutation::new(law.features());
    let (mut state, certain) = (7, 1u64 << 53);
    let probability = |key: u64| -(-lambda * ((mixed.index(key) + 1) as f64).powf(-law.alpha())).exp_m1();
    let thresholds: Vec<u64> = (0..law.features()).map(|key| (probability(key) * certain as f64) as u64).collect();
    (0..RANK_COUNT)
        .map(|_| drawn(law.features(), |key| random(&mut state, certain) < thresholds[key as usize]))
        .collect()
}

/// Section IV: the volume of a layer follows from the density of the first layer and the exponent, by eqs. 4 and 5.
#[test]
fn volumes_of_power_law_data_are_within_a_twentieth_of_eq_5() {
    for (features, density) in [(100_000, 0.21), (400_000, 0.035)] {
        let law = PowerLaw::new(features, ALPHA);
        let sets = key_sets(law, law.lambda(density).unwrap());
        let keys = RankKeys { n: features, outs: sets.clone(), ins: sets };
        let curve = Curve::power_law(features, ALPHA, density).unwrap();
        let expected = DirectionSets { curve: &curve, rows: density * features as f64 };
        for text in ["8x4x2", "16x4", "64", "2x2x2x2x2x2", "5x4x3+4"] {
            let degrees: Degrees = text.parse().unwrap();
            let routes = configured(&degrees, &keys, NEVER_DENSE).routes;
            let design = estimate(degrees, expected, expected, 4, &PacketCurve::network());
            let predicted = design.fold.iter().chain(&design.layers).chain([&design.bottom]);
            for (index, layer) in predicted.enumerate() {
                let mean_rows = |of: fn(&Volume) -> usize| {
                    let rows: usize = routes.iter().map(|routes| of(&routes.volumes()[index])).sum();
                    rows as f64 / layer.holder_count as f64
                };
                for measured in [mean_rows(|volume| volume.out_rows), mean_rows(|volume| volume.in_rows)] {
                    let ratio = measured / layer.down.rows;
                    assert!((ratio - 1.0).abs() < 0.05, "{features} {text}, layer {index}: {measured} {layer:?}");
                }
            }
        }
    }
}
