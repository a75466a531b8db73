//! Forces of layouts, compared with plain loops in f64.

use crate::common::SplitMix64;
use ripieno_kernels::{
    Attraction, BlockShare, Matrix, Simd, Threads, attraction, barnes_hut, fixed_point_scale, repulsion,
};

const ALL_PAIRS: BlockShare = BlockShare { index: 0, count: 1 };

/// Return positions in −1 … 1.
fn positions(count: usize, k: usize, seed: u64) -> Vec<f32> {
    let mut numbers = SplitMix64(seed);
    (0..count * k).map(|_| numbers.real() as f32).collect()
}

fn distance(between: &[f64]) -> f64 {
    between.iter().map(|x| x * x).sum::<f64>().sqrt().max(0.01)
}

fn between(all: &[f32], k: usize, row: usize, column: usize) -> Vec<f64> {
    (0..k).map(|at| f64::from(all[row * k + at]) - f64::from(all[column * k + at])).collect()
}

/// Compute the repulsion on each point in f64.
fn expected_repulsion(all: &[f32], k: usize) -> Vec<f64> {
    let count = all.len() / k;
    let mut out = vec![0.0; count * k];
    for row in 0..count {
        for column in 0..count {
            let between = between(all, k, row, column);
            let factor = distance(&between).powi(-2);
            out[row * k..].iter_mut().zip(&between).for_each(|(sum, x)| *sum += factor * x);
        }
    }
    out
}

fn exact_repulsion(all: &[f32], k: usize, share: BlockShare, threads: &Threads) -> Vec<i64> {
    let mut out = vec![9; all.len()];
    repulsion(Matrix::new(all, all.len() / k, k), share, &mut out, threads);
    out
}

fn barnes_hut_repulsion(theta: f32, all: &[f32], k: usize, threads: &Threads) -> (Vec<f64>, u64) {
    let (count, mut out) = (all.len() / k, vec![9.0; all.len()]);
    let pairs = barnes_hut(theta, 0..count, Matrix::new(all, count, k), &mut out, threads);
    (out, pairs)
}

fn to_floats(fixed: &[i64], point_count: usize) -> Vec<f64> {
    fixed.iter().map(|&sum| sum as f64 / fixed_point_scale(point_count)).collect()
}

fn assert_close(found: &[f64], expected: &[f64], name: &str) {
    let size = expected.iter().fold(0.0f64, |max, value| value.abs().max(max));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= 2e-6 * size, "{name}, entry {at}: {found} for {expected}");
    }
}

/// Return the norm of the error relative to the norm of the expected forces.
fn error(found: &[f64], expected: &[f64]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
    let difference = square(&mut found.iter().zip(expected).map(|(found, expected)| found - expected));
    (difference / square(&mut expected.iter().copied())).sqrt()
}

/// Return positions that are difficult for trees.
fn difficult_positions(k: usize) -> Vec<(&'static str, Vec<f32>)> {
    let some = positions(700, k, 5);
    let mut coincident = some.clone();
    coincident[350 * k..].copy_from_slice(&some[..350 * k]);
    let mut far = some.clone();
    far[3 * k] = 3e8;
    far[7 * k + 1] = -2e8;
    let on_a_line = (0..700).flat_map(|at| (0..k).map(move |axis| if axis == 1 { at as f32 * 0.03 } else { 0.5 }));
    vec![
        ("one place", [0.25, -0.5, 0.75][..k].repeat(700)),
        ("pairs that share a place", coincident),
        ("a line", on_a_line.collect()),
        ("far from all others", far),
        (
            "ever farther",
            (0..200 * k).map(|at| (at as f32 * 0.1).exp2() * if at % 2 == 0 { 1.0 } else { -1.0 }).collect(),
        ),
    ]
}

#[test]
fn repulsion_matches_its_formula_on_every_simd_level_in_any_dimension() {
    for simd in Simd::available() {
        for (count, k) in [(0, 2), (1, 2), (90, 2), (257, 3), (1700, 2), (1300, 3), (300, 1), (70, 5), (40, 64)] {
            let mut all = positions(count, k, 8);
            if count > 1 && k > 1 {
                // Two points closer than the lower bound on distances.
                all[1] = all[k + 1];
                all[0] = all[k] + 1e-4;
                (2..k).for_each(|at| all[at] = all[k + at]);
            }
            let found = to_floats(&exact_repulsion(&all, k, ALL_PAIRS, &Threads::with_simd(2, simd)), count);
            assert_close(&found, &expected_repulsion(&all, k), &format!("{simd:?}, {count} points of {k} dimensions"));
        }
    }
}

#[test]
fn repulsion_sums_are_equal_for_any_number_of_shares_and_threads() {
    let (count, k) = (2900, 2);
    let all = positions(count, k, 4);
    let whole = exact_repulsion(&all, k, ALL_PAIRS, &Threads::new(1));
    assert_eq!(whole, exact_repulsion(&all, k, ALL_PAIRS, &Threads::new(3)));
    for shares in [2, 3, 20] {
        let mut sums = vec![0; count * k];
        for index in 0..shares {
            let part = exact_repulsion(&all, k, BlockShare { index, count: shares }, &Threads::new(2));
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        assert_eq!(whole, sums, "{shares} shares");
    }
}

#[test]
fn the_fixed_point_scale_is_the_largest_without_overflow() {
    assert_eq!(fixed_point_scale(0), 33f64.exp2());
    assert_eq!(fixed_point_scale(1_000_000), 33f64.exp2());
    for count in [1usize << 24, 1 << 31] {
        let greatest = 100.0 * count as f64 * fixed_point_scale(count);
        assert!(greatest <= 62f64.exp2() && greatest > 60f64.exp2());
    }
}

#[test]
fn many_points_at_one_position_do_not_overflow() {
    let count = 3000;
    let mut all = vec![0.0; 2 * count];
    all[0] = 0.01;
    let found = to_floats(&exact_repulsion(&all, 2, ALL_PAIRS, &Threads::new(1)), count);
    let expected = 100.0 * (count - 1) as f64;
    assert!((found[0] / expected - 1.0).abs() < 1e-6 && (found[2] + 100.0).abs() < 1e-3, "{:?}", &found[..4]);
}

#[test]
fn theta_zero_is_exact_and_smaller_values_are_more_accurate() {
    for simd in Simd::available() {
        for k in [2, 3] {
            let all = positions(3000, k, 2);
            let threads = Threads::with_simd(2, simd);
            let expected = expected_repulsion(&all, k);
            let (found, pairs) = barnes_hut_repulsion(0.0, &all, k, &threads);
            assert_close(&found, &expected, "an angle of zero");
            assert_eq!(pairs, 3000 * 3000);
            let mut before = (0.1, pairs);
            for (theta, most) in [(1.2, 5e-2), (0.9, 2e-2), (0.6, 5e-3), (0.3, 5e-4)] {
                let (found, pairs) = barnes_hut_repulsion(theta, &all, k, &threads);
                let error = error(&found, &expected);
                assert!(error <= most && error < before.0, "{k} dimensions, angle {theta}: {error}");
                assert!(pairs < 3000 * 3000);
                before = (error, pairs);
            }
        }
    }
}

#[test]
fn difficult_positions_have_accurate_repulsion() {
    for k in [2, 3] {
        for (name, all) in difficult_positions(k) {
            let expected = expected_repulsion(&all, k);
            let threads = Threads::new(2);
            assert_close(&to_floats(&exact_repulsion(&all, k, ALL_PAIRS, &threads), all.len() / k), &expected, name);
            assert_close(&barnes_hut_repulsion(0.0, &all, k, &threads).0, &expected, name);
            let (found, _) = barnes_hut_repulsion(0.5, &all, k, &threads);
            if name == "one place" {
                assert!(found.iter().all(|&push| push == 0.0), "{name}");
            } else {
                let error = error(&found, &expected);
                assert!(error < 1e-2, "{name}, {k} dimensions: {error}");
            }
        }
    }
}

#[test]
fn an_outlier_does_not_increase_the_number_of_pairs() {
    // A quadtree of cells would hold nearly all of these points in one cell.
    let count = 20_000;
    let mut all = positions(count, 2, 6);
    let (_, usual) = barnes_hut_repulsion(0.7, &all, 2, &Threads::new(2));
    all[0] = 1e9;
    let (_, outlier) = barnes_hut_repulsion(0.7, &all, 2, &Threads::new(2));
    assert!(outlier < usual * 13 / 10 && usual < (count * count / 10) as u64, "{outlier} and {usual} pairs");
}

#[test]
fn forces_of_own_points_have_the_same_bits_for_any_rank_and_number_of_threads() {
    let (count, k) = (5000, 3);
    let all = positions(count, k, 7);
    let (whole, pairs) = barnes_hut_repulsion(0.8, &all, k, &Threads::new(1));
    assert_eq!((whole.clone(), pairs), barnes_hut_repulsion(0.8, &all, k, &Threads::new(3)));
    for own in [0..0, 0..1, 17..2500, 2500..5000, 5000..5000] {
        let mut out = vec![9.0; own.len() * k];
        barnes_hut(0.8, own.clone(), Matrix::new(&all, count, k), &mut out, &Threads::new(2));
        assert_eq!(out, whole[own.start * k..own.end * k]);
    }
}

#[test]
fn attraction_matches_its_formula() {
    for (count, k) in [(1, 2), (90, 2), (1100, 3)] {
        let all = positions(count, k, 8);
        let first = count / 3;
        let starts: Vec<i64> = (0..=(count - first) as i64).map(|row| 2 * row).collect();
        let columns: Vec<i32> = (0..2 * (count - first)).map(|edge| (edge * 7 % count) as i32).collect();
        let weights: Vec<f32> = (0..columns.len()).map(|edge| (edge % 3) as f32).collect();
        let edges = Attraction { first, starts: &starts, columns: &columns, weights: &weights };
        let mut expected = vec![1.0; (count - first) * k];
        for edge in 0..columns.len() {
            let between = between(&all, k, first + edge / 2, columns[edge] as usize);
            let factor = f64::from(weights[edge]) * distance(&between) / 0.7;
            expected[edge / 2 * k..].iter_mut().zip(&between).for_each(|(sum, x)| *sum -= factor * x);
        }
        let mut out = vec![1.0; (count - first) * k];
        attraction(edges, 0.7, Matrix::new(&all, count, k), &mut out, &Threads::new(2));
        assert_close(&out, &expected, "pulls");
    }
}
