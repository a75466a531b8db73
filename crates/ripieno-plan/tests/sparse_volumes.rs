//! What a butterfly carries on power-law data is what the density curve says, layer by layer.

use ripieno_plan::sparse::density::{Curve, PowerLaw};
use ripieno_plan::sparse::design::{PacketCurve, Sets, estimate};
use ripieno_plan::sparse::{Configuring, Degrees, Permutation, Volume};

const RANKS: usize = 64;
const ALPHA: f64 = 1.1;
/// No layer is dense: every row stands for a key that somebody has.
const NEVER_DENSE: f64 = 2.0;

/// Numbers of 64 bits that look random: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Per rank the keys of the features that occur there at least once: feature `r` with probability `1 - exp(-lambda·r^-alpha)`.
fn key_sets(law: PowerLaw, lambda: f64) -> Vec<Vec<u64>> {
    let mixed = Permutation::new(law.features());
    let chances: Vec<(u64, f64)> =
        (1..=law.features()).map(|r| (mixed.key(r - 1), -(-lambda * (r as f64).powf(-law.alpha())).exp_m1())).collect();
    let mut random = Random(7);
    let mut set = || {
        let present = chances.iter().filter(|(_, chance)| random.unit() < *chance);
        let mut keys: Vec<u64> = present.map(|&(key, _)| key).collect();
        keys.sort_unstable();
        keys
    };
    (0..RANKS).map(|_| set()).collect()
}

/// What every rank holds before the first layer and after each.
fn configured(degrees: &Degrees, features: u64, sets: &[Vec<u64>]) -> Vec<Vec<Volume>> {
    let machine = |(rank, keys): (usize, &Vec<u64>)| {
        Configuring::new(rank, degrees, features, keys.clone(), keys.clone(), NEVER_DENSE)
    };
    let mut machines: Vec<Configuring> = sets.iter().enumerate().map(machine).collect();
    for step in 0..machines[0].step_count() {
        let mut letters: Vec<Vec<(usize, Vec<u8>)>> = vec![Vec::new(); machines.len()];
        for (rank, machine) in machines.iter().enumerate() {
            machine.outgoing(step).into_iter().for_each(|(to, bytes)| letters[to].push((rank, bytes)));
        }
        machines.iter_mut().zip(&letters).for_each(|(machine, letters)| machine.absorb(step, letters).unwrap());
    }
    machines.into_iter().map(|machine| machine.finish().0.volumes().to_vec()).collect()
}

/// Section IV: the volume of a layer follows from the density of the first and the exponent alone, by eqs. 4 and 5.
#[test]
fn volumes_of_power_law_data_are_within_a_twentieth_of_eq_5() {
    for (features, density) in [(100_000, 0.21), (400_000, 0.035)] {
        let law = PowerLaw::new(features, ALPHA);
        let lambda = law.lambda(density).unwrap();
        let sets = key_sets(law, lambda);
        let curve = Curve::power_law(features, ALPHA, density).unwrap();
        let expected = Sets { curve: &curve, rows: density * features as f64 };
        for text in ["8x4x2", "16x4", "64", "2x2x2x2x2x2", "5x4x3+4"] {
            let degrees: Degrees = text.parse().unwrap();
            let volumes = configured(&degrees, features, &sets);
            let design = estimate(degrees.clone(), expected, expected, 4, &PacketCurve::network());
            let predicted = design.fold.iter().chain(&design.layers).chain([&design.bottom]);
            for (index, layer) in predicted.enumerate() {
                // Ranks that were folded hold nothing once they have given it away.
                let holding = if index == 0 { RANKS } else { degrees.core_size() };
                let rows = |of: fn(&Volume) -> usize| {
                    volumes.iter().map(|volume| of(&volume[index])).sum::<usize>() as f64 / holding as f64
                };
                for measured in [rows(|volume| volume.out_rows), rows(|volume| volume.in_rows)] {
                    let ratio = measured / layer.down.rows;
                    assert!((ratio - 1.0).abs() < 0.05, "{features} {text}, layer {index}: {measured} {layer:?}");
                }
            }
        }
    }
}
