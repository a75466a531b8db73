//! The time of a sparse reduction is the sum of the times of its layers.

use ripieno_plan::simulate::Model;
use ripieno_sim::{Cluster, simulate_sparse_plans};

const MODEL: Model = Model { alpha_s: 8.0, beta_s_per_byte: 0.5, gamma_s_per_byte: 0.0 };
const ROW_BYTES: usize = 4;

fn seconds(degrees: &str, sets: &[Vec<u64>]) -> f64 {
    let cluster = Cluster::uniform(sets.len(), &MODEL);
    simulate_sparse_plans(&cluster, &degrees.parse().unwrap(), 64, sets, ROW_BYTES, &|| false)
        .unwrap()
        .time_s()
        .unwrap()
}

/// Return the time of a layer, down and up again, each with `packet_count` packets of `rows` rows.
fn layer_s(packet_count: f64, rows: f64) -> f64 {
    2.0 * packet_count * (MODEL.alpha_s + rows * ROW_BYTES as f64 * MODEL.beta_s_per_byte)
}

#[test]
fn sets_of_all_keys_are_halved_from_layer_to_layer() {
    let all: Vec<Vec<u64>> = (0..4).map(|_| (0..64).collect()).collect();

    assert_eq!(seconds("4", &all), layer_s(3.0, 16.0));
    assert_eq!(seconds("2x2", &all), layer_s(1.0, 32.0) + layer_s(1.0, 16.0));
}

#[test]
fn disjoint_sets_are_united_from_layer_to_layer() {
    let disjoint: Vec<Vec<u64>> = (0..4).map(|rank| (0..16).map(|index| 4 * index + rank).collect()).collect();

    assert_eq!(seconds("4", &disjoint), layer_s(3.0, 4.0));
    assert_eq!(seconds("2x2", &disjoint), layer_s(1.0, 8.0) + layer_s(1.0, 8.0));
}
