//! Rows of bytes give the results of the same values as f32, to the last bit, for any centroids.

use crate::common::{SplitMix64, expected};
use proptest::prelude::*;
use ripieno_kernels::{Matrix, PassOutput, Point, Simd, ThreadModel, Threads, assign_accumulate, update_min_distances};

/// The result of a pass and of a step of seeding, compared bit by bit.
#[derive(Debug, PartialEq)]
struct BytesPassResult {
    labels: Vec<i32>,
    squared_distances: Vec<f64>,
    sums: Vec<f64>,
    weight_sums: Vec<f64>,
    inertia: f64,
    lowered: Vec<f64>,
}

fn outcome<P: Point>(points: Matrix<P>, centroids: Matrix<P::Centroid>, threads: &Threads) -> BytesPassResult {
    let (n, k) = (points.rows(), centroids.rows());
    let weights: Vec<f64> = (0..n).map(|row| 0.5 + (row % 3) as f64).collect();
    let (mut labels, mut squared_distances) = (vec![-7; n], vec![-7.0; n]);
    let (mut sums, mut weight_sums) = (vec![-7.0; k * points.columns()], vec![-7.0; k]);
    let pass = PassOutput {
        labels: &mut labels,
        squared_distances: Some(&mut squared_distances),
        sums: &mut sums,
        weight_sums: &mut weight_sums,
    };
    let inertia = assign_accumulate(points, centroids, Some(&weights), pass, threads);
    let mut lowered = vec![1e4; n];
    update_min_distances(points, centroids, 0, &mut lowered, None, threads);
    BytesPassResult { labels, squared_distances, sums, weight_sums, inertia, lowered }
}

/// Check on every level that bytes and floats give the same result, and return it.
fn check_against_floats(bytes: &[u8], columns: usize, centroids: &[f32], threads: usize) -> BytesPassResult {
    let floats: Vec<f32> = bytes.iter().map(|&byte| byte.into()).collect();
    let (rows, count) = (bytes.len() / columns, centroids.len() / columns);
    let centroids = Matrix::new(centroids, count, columns);
    let want = outcome(Matrix::new(&floats, rows, columns), centroids, &Threads::new(1));
    for simd in Simd::available() {
        let threads = Threads::with_simd(threads, simd).in_model(ThreadModel::ForkJoin);
        let got = outcome(Matrix::new(bytes, rows, columns), centroids, &threads);
        assert!(got == want, "{simd:?}, {rows} x {columns}, {count} centroids");
    }
    want
}

/// Return bytes around a few positions, and centroids near these.
fn clumps(seed: u64, rows: usize, columns: usize, count: usize) -> (Vec<u8>, Vec<f32>) {
    let mut numbers = SplitMix64(seed);
    let places: Vec<f64> = (0..7 * columns).map(|_| 128.0 + 90.0 * numbers.real()).collect();
    let near = |i: usize, noise: f64| places[(i / columns * 5 % 7) * columns + i % columns] + noise;
    let bytes = (0..rows * columns).map(|i| near(i, 40.0 * numbers.real()).clamp(0.0, 255.0) as u8).collect();
    let mut numbers = SplitMix64(!seed);
    (bytes, (0..count * columns).map(|i| near(i, 20.0 * numbers.real()) as f32).collect())
}

#[test]
fn bytes_get_the_labels_of_plain_loops() {
    for (rows, columns, count) in [(400, 9, 6), (181, 64, 49), (90, 513, 130), (17, 30, 300)] {
        let (bytes, centroids) = clumps(1, rows, columns, count);
        let want = expected(Matrix::new(&bytes, rows, columns), Matrix::new(&centroids, count, columns), None);
        assert_eq!(check_against_floats(&bytes, columns, &centroids, 3).labels, want.labels);
    }
}

#[test]
fn ties_and_centroids_that_repeat_go_to_the_lowest_index() {
    for columns in [9, 40] {
        // Few distinct values: most distances are equal, and many rows equal centroids.
        let mut numbers = SplitMix64(3);
        let bytes: Vec<u8> = (0..700 * columns).map(|_| (numbers.below(2) * 255) as u8).collect();
        let centroids: Vec<f32> = bytes[..100 * columns].iter().map(|&byte| byte.into()).collect();
        let got = check_against_floats(&bytes, columns, &centroids.repeat(3), 2);
        assert!(got.labels.iter().all(|&label| label < 100));
    }
}

#[test]
fn centroids_with_equal_bytes_are_compared_exactly() {
    let (bytes, centroids) = clumps(5, 60, 24, 1);
    let mut numbers = SplitMix64(6);
    let near: Vec<f32> = (0..400 * 24).map(|i| centroids[i % 24] + 1e-4 * numbers.real() as f32).collect();
    let got = check_against_floats(&bytes, 24, &near, 1);
    let of_one = got.labels.iter().filter(|&&label| label == got.labels[0]).count();
    assert!(of_one < 60, "all rows have one centroid");
}

#[test]
fn centroids_outside_the_byte_range_and_nan_are_handled_as_floats() {
    let (bytes, centroids) = clumps(7, 300, 20, 60);
    for far in [1e6, -1e12, 1e18, f32::MAX] {
        let mut moved = centroids.clone();
        moved[3 * 20..4 * 20].fill(far);
        check_against_floats(&bytes, 20, &moved, 1);
    }
    let mut spoilt = centroids;
    (spoilt[0], spoilt[45]) = (f32::NAN, f32::INFINITY);
    for simd in Simd::available() {
        let (points, centroids) = (Matrix::new(&bytes, 300, 20), Matrix::new(&spoilt, 60, 20));
        let got = outcome(points, centroids, &Threads::with_simd(1, simd));
        assert!(got.labels.iter().all(|label| (0..60).contains(label)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_give_the_results_of_floats(
        seed in any::<u64>(),
        rows in 1usize..600,
        columns in 9usize..90,
        count in 1usize..200,
        stretch in prop::sample::select(vec![0.0f32, 1.0, 1e-3, 1e4]),
        extreme in any::<bool>(),
    ) {
        let (mut bytes, mut centroids) = clumps(seed, rows, columns, count);
        if extreme {
            bytes.iter_mut().for_each(|byte| *byte = if *byte < 128 { 0 } else { 255 });
        }
        centroids.iter_mut().for_each(|value| *value = 100.0 + (*value - 100.0) * stretch);
        check_against_floats(&bytes, columns, &centroids, 2);
    }
}
