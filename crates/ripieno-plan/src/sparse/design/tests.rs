//! Tests of the design: degrees for the data and the packets of the Kylix paper.

use super::*;
use alloc::string::ToString;
use alloc::vec;

const MB: f64 = 1e6;

fn sets(curve: &Curve, features: f64) -> DirectionSets<'_> {
    DirectionSets { curve, rows: features * curve.density(1.0) }
}

fn twitter(alpha: f64) -> Curve {
    Curve::power_law(60_000_000, alpha, 0.21).unwrap()
}

fn yahoo() -> Curve {
    Curve::power_law(1_400_000_000, 1.1, 0.035).unwrap()
}

/// Section VII.A, with rows of one f32. The second layer is decisive: at an exponent above 1.1 it holds less than 4 x 5
/// MB. The third layer has packets below 5 MB with any degree, and gets the remaining factor.
#[test]
fn twitter_gets_8x4x2_with_packets_of_5_mb() {
    for alpha in [0.5, 0.8, 1.0, 1.1] {
        let curve = twitter(alpha);
        assert_eq!(by_packet(64, sets(&curve, 60e6), 4, 5.0 * MB).to_string(), "8x4x2", "alpha {alpha}");
    }
    let steep = twitter(1.3);
    assert_eq!(by_packet(64, sets(&steep, 60e6), 4, 5.0 * MB).to_string(), "8x2x2x2");
}

/// The paper's 16x4 needs efficient packets of more than 6.1 MB: 196 MB divided among 32 members.
#[test]
fn yahoo_gets_16x4_with_packets_of_8_mb_and_32x2_with_5_mb() {
    let curve = yahoo();
    let by = |bytes: f64| by_packet(64, sets(&curve, 1.4e9), 4, bytes).to_string();
    assert_eq!(by(5.0 * MB), "32x2");
    assert_eq!([6.2, 8.0, 12.2].map(|bytes| by(bytes * MB)), ["16x4"; 3]);
}

#[test]
fn a_prime_number_of_ranks_has_one_layer_or_a_folded_rank() {
    let curve = twitter(1.1);
    let by = |p: usize, bytes: f64| by_packet(p, sets(&curve, 60e6), 4, bytes);
    assert_eq!(by(1, MB), Degrees::direct(1));
    // 50.4 MB in 61 packets: 0.8 MB each.
    assert_eq!(by(61, 0.8 * MB), Degrees::direct(61));
    let folded = by(61, 5.0 * MB);
    assert_eq!(folded.folded(), 1);
    assert_eq!(folded.core_size(), 60);
    // 10 has the divisors 5 and 2; with 10 MB each, 5 packets are efficient.
    assert_eq!(by(10, 10.0 * MB).layers()[0], 5);
}

#[test]
fn without_efficient_packets_the_fewest_packets_are_sent() {
    let curve = twitter(1.1);
    assert_eq!(by_packet(64, sets(&curve, 60e6), 4, 1e12).layers(), [2; 6]);
}

#[test]
fn free_packets_give_one_layer_and_expensive_packets_give_binary_layers() {
    let curve = twitter(1.1);
    let of = |alpha_s, beta_s_per_byte| {
        let both = sets(&curve, 60e6);
        choose(64, both, both, 4, &PacketCurve::line(alpha_s, beta_s_per_byte, 0.0)).degrees.to_string()
    };
    assert_eq!(of(1e-12, 1e-9), "64");
    assert_eq!(of(1.0, 1e-15), "2x2x2x2x2x2");
}

#[test]
fn candidates_are_sorted_by_cost() {
    let curve = twitter(1.1);
    let both = sets(&curve, 60e6);
    // The paper's curve: 0.4 MB packets reach three tenths of the throughput of 5 MB packets.
    let packets = PacketCurve::line(0.0025, 2.7e-9, 0.0);
    for (p, count) in [(1, 1), (2, 1), (12, 8), (64, 32), (61, 1 + Degrees::all(60).len())] {
        let designs = candidates(p, both, both, 4, &packets);
        assert_eq!(designs.len(), count, "{p}");
        assert!(designs.windows(2).all(|pair| pair[0].seconds() <= pair[1].seconds()), "{p}");
        for design in &designs {
            assert_eq!(design.degrees.world_size(), p);
            assert_eq!(design.fold.is_some(), design.degrees.folded() > 0);
            assert_eq!(design.layers.len(), design.degrees.layers().len());
        }
    }
}

#[test]
fn an_estimate_follows_eqs_4_and_5_in_each_layer() {
    let curve = twitter(1.1);
    let both = sets(&curve, 60e6);
    let degrees: Degrees = "8x4x2".parse().unwrap();
    let design = estimate(degrees, both, both, 4, &PacketCurve::line(0.001, 1e-9, 0.01));
    for (layer, (k, d)) in design.layers.iter().zip([(1.0, 8.0), (8.0, 4.0), (32.0, 2.0)]) {
        let rows = 60e6 * curve.density(k) / k;
        assert_eq!((layer.degree as f64, layer.set_count, layer.down), (d, k, layer.up));
        assert!((layer.down.rows / rows - 1.0).abs() < 1e-12);
        assert!((layer.down.packet_bytes / (4.0 * rows / d) - 1.0).abs() < 1e-12);
        let seconds = 0.01 + (d - 1.0) * (0.001 + 4e-9 * rows / d) + GAMMA_S_PER_BYTE * 4.0 * rows;
        assert!((layer.down.seconds / seconds - 1.0).abs() < 1e-9);
    }
    assert!((design.bottom.down.rows / (60e6 * curve.density(64.0) / 64.0) - 1.0).abs() < 1e-12);
    assert_eq!((design.bottom.packet_count, design.bottom.down.seconds), (0, 0.0));
    // Section III: all layers together carry little more than the first.
    assert!(design.layers.iter().map(|layer| layer.down.rows).sum::<f64>() < 1.6 * design.layers[0].down.rows);
}

#[test]
fn empty_sets_have_a_design() {
    let nothing = Curve::Empirical(crate::sparse::density::Empirical::of(&[vec![], vec![]], 1));
    let none = DirectionSets { curve: &nothing, rows: 0.0 };
    assert_eq!(choose(2, none, none, 8, &PacketCurve::network()).degrees.to_string(), "2");
}
