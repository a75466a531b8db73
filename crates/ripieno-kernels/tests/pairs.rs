//! Sums over all pairs, compared with plain loops in f64.

use crate::common::SplitMix64;
use ripieno_kernels::{Matrix, PairData, Simd, ThreadModel, Threads, guttman, weighted_differences};

/// Return positions in −1 … 1.
fn positions(count: usize, k: usize, seed: u64) -> Vec<f32> {
    let mut numbers = SplitMix64(seed);
    (0..count * k).map(|_| numbers.real() as f32).collect()
}

fn close(found: &[f64], expected: &[f64], name: &str) {
    let size = expected.iter().fold(0.0f64, |max, value| value.abs().max(max));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= 2e-6 * size, "{name}, entry {at}: {found} for {expected}");
    }
}

/// Compute the sums over all pairs in f64. `pair(distance, index)` returns the factor of the difference of two points,
/// and `more` further values to sum.
fn reference_sums(
    own: &[f32],
    all: &[f32],
    k: usize,
    more: usize,
    pair: impl Fn(f64, usize) -> (f64, Vec<f64>),
) -> Vec<f64> {
    let (rows, count) = (own.len() / k, all.len() / k);
    let mut out = vec![0.0; rows * (k + more)];
    for row in 0..rows {
        for column in 0..count {
            let between: Vec<f64> =
                (0..k).map(|at| f64::from(own[row * k + at]) - f64::from(all[column * k + at])).collect();
            let distance = between.iter().map(|x| x * x).sum::<f64>().sqrt();
            let (factor, measured) = pair(distance, row * count + column);
            let sums = &mut out[row * (k + more)..(row + 1) * (k + more)];
            between.iter().zip(&mut *sums).for_each(|(x, sum)| *sum += factor * x);
            measured.iter().zip(&mut sums[k..]).for_each(|(value, sum)| *sum += value);
        }
    }
    out
}

#[test]
fn a_step_of_majorization_matches_its_formula_on_every_simd_level_and_for_every_number_of_dimensions() {
    for simd in Simd::available() {
        for (rows, count, k) in [(5, 37, 2), (20, 1024, 3), (3, 2500, 3), (4, 48, 1), (2, 70, 64), (0, 9, 2)] {
            let (own, all) = (positions(rows, k, 1), positions(count, k, 2));
            let mut numbers = SplitMix64(3);
            let small: Vec<i16> = (0..rows * count).map(|_| numbers.below(3) as i16).collect();
            let real: Vec<f32> = small.iter().map(|&x| f32::from(x) * 0.75).collect();
            let weights: Vec<f32> = (0..rows * count).map(|_| numbers.below(4) as f32).collect();
            let (from, to) = (Matrix::new(&own, rows, k), Matrix::new(&all, count, k));
            for (shift, weights) in [(0.0, None), (0.5, None), (0.25, Some(&weights[..]))] {
                let weight = |pair: usize| weights.map_or(1.0, |weights| f64::from(weights[pair]));
                let expected = |value: &dyn Fn(usize) -> f64| {
                    reference_sums(&own, &all, k, 2, |distance, pair| {
                        let wanted = (value(pair) - f64::from(shift)).max(0.0);
                        let error = distance - wanted;
                        let w = weight(pair);
                        (w * wanted / distance, vec![w * error * error, w * distance * distance])
                    })
                };
                let mut out = vec![9.0; rows * (k + 2)];
                let threads = Threads::with_simd(2, simd);
                let wanted = PairData { dissimilarities: &small, weights, shift };
                guttman(wanted, from, to, &mut out, &threads);
                close(&out, &expected(&|pair| f64::from(small[pair])), "i16");
                let wanted = PairData { dissimilarities: &real, weights, shift };
                guttman(wanted, from, to, &mut out, &threads);
                close(&out, &expected(&|pair| f64::from(real[pair])), "f32");
            }
        }
    }
}

#[test]
fn points_at_the_same_position_add_no_direction_and_their_dissimilarity_to_the_stress() {
    for simd in Simd::available() {
        let all = [1.0f32, 2.0, 1.0, 2.0, 4.0, 6.0];
        let wanted = PairData { dissimilarities: &[0.0f32, 3.0, 10.0], weights: None, shift: 0.0 };
        let mut out = [9.0; 4];
        let threads = Threads::with_simd(1, simd);
        guttman(wanted, Matrix::new(&all[..2], 1, 2), Matrix::new(&all, 3, 2), &mut out, &threads);
        close(&out, &[-6.0, -8.0, 9.0 + 25.0, 25.0], "sums");
    }
}

#[test]
fn sums_of_a_row_are_the_same_bits_with_any_number_of_threads_and_any_other_rows() {
    let (count, k) = (1500, 3);
    let all = positions(count, k, 4);
    let mut numbers = SplitMix64(5);
    let wanted: Vec<f32> = (0..count * count).map(|_| numbers.real().abs() as f32).collect();
    let step = |first: usize, rows: usize, threads: usize, model: ThreadModel| {
        let mut out = vec![0.0; rows * (k + 2)];
        let own = Matrix::new(&all[first * k..(first + rows) * k], rows, k);
        let dissimilarities = &wanted[first * count..(first + rows) * count];
        let wanted = PairData { dissimilarities, weights: None, shift: 0.0 };
        guttman(wanted, own, Matrix::new(&all, count, k), &mut out, &Threads::new(threads).in_model(model));
        out
    };
    let whole = step(0, count, 1, ThreadModel::ForkJoin);
    for model in [ThreadModel::ForkJoin, ThreadModel::Bsp] {
        assert_eq!(whole, step(0, count, 3, model));
        assert_eq!(whole[700 * (k + 2)..731 * (k + 2)], step(700, 31, 2, model));
    }
}

#[test]
fn weighted_differences_are_products_with_the_laplacian_of_the_weights() {
    for simd in Simd::available() {
        let (rows, count, k) = (33, 100, 3);
        let all = positions(count, k, 6);
        let own = &all[..rows * k];
        let mut numbers = SplitMix64(7);
        let weights: Vec<f32> = (0..rows * count).map(|_| numbers.below(3) as f32).collect();
        let mut out = vec![9.0; rows * k];
        let threads = Threads::with_simd(2, simd);
        weighted_differences(&weights, Matrix::new(own, rows, k), Matrix::new(&all, count, k), &mut out, &threads);
        close(&out, &reference_sums(own, &all, k, 0, |_, pair| (f64::from(weights[pair]), vec![])), "products");
    }
}
