//! A pass gives the results of plain f64 loops for every type, SIMD level, shape and number of threads.

use crate::common::{SplitMix64, expected};
use ripieno_kernels::{Centroid, Matrix, PassOutput, Point, Simd, ThreadModel, Threads, assign, assign_accumulate};

/// The result of a pass, compared bit by bit.
#[derive(Debug, PartialEq)]
struct PassResult {
    labels: Vec<i32>,
    squared_distances: Vec<f64>,
    sums: Vec<f64>,
    weight_sums: Vec<f64>,
    inertia: f64,
}

fn pass<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    weights: Option<&[f64]>,
    threads: &Threads,
) -> PassResult {
    let (n, d, k) = (points.rows(), points.columns(), centroids.rows());
    // Previous contents must not matter.
    let mut outcome = PassResult {
        labels: vec![-7; n],
        squared_distances: vec![-7.0; n],
        sums: vec![-7.0; k * d],
        weight_sums: vec![-7.0; k],
        inertia: 0.0,
    };
    let places = PassOutput {
        labels: &mut outcome.labels,
        squared_distances: Some(&mut outcome.squared_distances),
        sums: &mut outcome.sums,
        weight_sums: &mut outcome.weight_sums,
    };
    outcome.inertia = assign_accumulate(points, centroids, weights, places, threads);
    outcome
}

fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() <= 1e-11 * (1.0 + want.abs()), "{got} instead of {want}");
    }
}

/// Check a pass on every level. No two centroids may have equal distances up to f64 rounding, unless exactly equal.
fn agrees<P: Point>(points: Matrix<P>, centroids: Matrix<P::Centroid>, weights: Option<&[f64]>) {
    let want = expected(points, centroids, weights);
    let mut first = None;
    for simd in Simd::available() {
        let got = pass(points, centroids, weights, &Threads::with_simd(1, simd));
        let shape = (points.rows(), points.columns(), centroids.rows());
        assert_eq!(got.labels, want.labels, "{simd:?} {shape:?}");
        close(&got.squared_distances, &want.squared_distances);
        close(&got.sums, &want.sums);
        close(&got.weight_sums, &want.weight_sums);
        close(&[got.inertia], &[want.inertia]);
        assert_eq!(*first.get_or_insert_with(|| pass(points, centroids, weights, &Threads::new(1))), got, "{simd:?}");
    }
}

fn reals<T>(seed: u64, count: usize, from: impl Fn(f64) -> T) -> Vec<T> {
    let mut numbers = SplitMix64(seed);
    (0..count).map(|_| from(numbers.real())).collect()
}

#[test]
fn every_small_shape_agrees_with_plain_loops() {
    for d in 1..=40 {
        for k in 1..=70 {
            let n = [0, 1, 2, 13, 17, 37, 40][(d + k) % 7];
            let weights = reals(3, n, |x| x + 1.0);
            let weights = (k % 2 == 0).then_some(&weights[..]);
            let centroids = reals((d * 100 + k) as u64, k * d, |x| x);
            let centroids_f32: Vec<f32> = centroids.iter().map(|&c| c as f32).collect();
            let centroids_u8: Vec<f32> = centroids.iter().map(|&c| (c * 128.0 + 128.0) as f32).collect();
            let points = reals(1, n * d, |x| x);
            let points_f32: Vec<f32> = points.iter().map(|&x| x as f32).collect();
            let points_u8: Vec<u8> = points.iter().map(|&x| (x * 128.0 + 128.0) as u8).collect();
            agrees(Matrix::new(&points, n, d), Matrix::new(&centroids, k, d), weights);
            agrees(Matrix::new(&points_f32, n, d), Matrix::new(&centroids_f32, k, d), weights);
            agrees(Matrix::new(&points_u8, n, d), Matrix::new(&centroids_u8, k, d), weights);
        }
    }
}

#[test]
fn several_blocks_of_rows_agree_with_plain_loops() {
    for (n, d, k) in [(300, 3, 100), (1000, 20, 49), (600, 513, 97), (150, 3000, 10)] {
        let centroids = reals(5, k * d, |x| x as f32);
        agrees(Matrix::new(&reals(6, n * d, |x| x as f32), n, d), Matrix::new(&centroids, k, d), None);
    }
}

#[test]
fn ties_go_to_the_lowest_index() {
    // Small integers: every distance is exact, and many are equal.
    for d in [1, 2, 3, 8, 9, 17] {
        for k in [1, 2, 15, 16, 17, 48, 49, 130] {
            let whole = |x: f64| (x * 3.0).round();
            let (points, centroids) = (reals(8, 400 * d, whole), reals(9, k * d, whole));
            agrees(Matrix::new(&points, 400, d), Matrix::new(&centroids, k, d), None);
            let points: Vec<f32> = points.iter().map(|&x| x as f32).collect();
            let centroids: Vec<f32> = centroids.iter().map(|&x| x as f32).collect();
            agrees(Matrix::new(&points, 400, d), Matrix::new(&centroids, k, d), None);
            let points: Vec<u8> = points.iter().map(|&x| (x + 3.0) as u8).collect();
            let centroids: Vec<f32> = centroids.iter().map(|&x| x + 3.0).collect();
            agrees(Matrix::new(&points, 400, d), Matrix::new(&centroids, k, d), None);
        }
    }
}

#[test]
fn rows_go_to_the_first_of_equal_centroids() {
    for d in [2, 30] {
        let centroids = [[0.5f32].repeat(d), [0.25].repeat(d)].concat().repeat(40);
        let points = reals(8, 100 * d, |x| x as f32);
        agrees(Matrix::new(&points, 100, d), Matrix::new(&centroids, 80, d), None);
    }
}

#[test]
fn a_common_offset_does_not_change_the_labels() {
    for offset in [1e3, -1e6] {
        for d in [2, 40] {
            let points = reals(1, 500 * d, |x| x + offset);
            let centroids = reals(2, 64 * d, |x| x + offset);
            agrees(Matrix::new(&points, 500, d), Matrix::new(&centroids, 64, d), None);
            let points: Vec<f32> = points.iter().map(|&x| x as f32).collect();
            let centroids: Vec<f32> = centroids.iter().map(|&x| x as f32).collect();
            agrees(Matrix::new(&points, 500, d), Matrix::new(&centroids, 64, d), None);
        }
    }
}

#[test]
fn centroids_closer_than_f32_resolution_are_distinguished() {
    for d in [3, 25] {
        let points = reals(1, 200 * d, |x| x);
        // Clusters of centroids 1e-9 apart, and one distant outlier that determines the scale.
        let mut centroids: Vec<f64> = (0..60 * d).map(|i| points[i / (20 * d) * d + i % d]).collect();
        centroids.iter_mut().zip(reals(2, 60 * d, |x| x * 1e-9)).for_each(|(c, shift)| *c += shift);
        centroids[..d].fill(1e5);
        agrees(Matrix::new(&points, 200, d), Matrix::new(&centroids, 60, d), None);
    }
}

#[test]
fn the_scale_of_the_values_does_not_matter() {
    for d in [2, 25] {
        for scale in [1e-150, 1e-30, 1e18, 1e30, 1e150] {
            let points = reals(1, 100 * d, |x| x * scale);
            let centroids = reals(2, 50 * d, |x| x * scale);
            let want = expected(Matrix::new(&points, 100, d), Matrix::new(&centroids, 50, d), None);
            for simd in Simd::available() {
                let threads = Threads::with_simd(1, simd);
                let got = pass(Matrix::new(&points, 100, d), Matrix::new(&centroids, 50, d), None, &threads);
                assert_eq!(got.labels, want.labels, "{simd:?} {d} {scale}");
            }
            if !(1e-40..=1e40).contains(&scale) {
                continue;
            }
            let points: Vec<f32> = points.iter().map(|&x| x as f32).collect();
            let centroids: Vec<f32> = centroids.iter().map(|&x| x as f32).collect();
            let want = expected(Matrix::new(&points, 100, d), Matrix::new(&centroids, 50, d), None);
            for simd in Simd::available() {
                let threads = Threads::with_simd(1, simd);
                let got = pass(Matrix::new(&points, 100, d), Matrix::new(&centroids, 50, d), None, &threads);
                assert_eq!(got.labels, want.labels, "{simd:?} {d} {scale}");
            }
        }
    }
}

#[test]
fn rows_far_outside_the_centroids_are_assigned_exactly() {
    for d in [2, 25] {
        let far = [1e12, 1e20, 1e35];
        let points: Vec<f32> = (0..30 * d).map(|i| if i % 3 == 0 { far[i / d % 3] as f32 } else { i as f32 }).collect();
        let centroids = reals(2, 50 * d, |x| x as f32 * 100.0);
        let want = expected(Matrix::new(&points, 30, d), Matrix::new(&centroids, 50, d), None);
        let got = pass(Matrix::new(&points, 30, d), Matrix::new(&centroids, 50, d), None, &Threads::new(1));
        let points = Matrix::new(&points, 30, d);
        for row in 0..30 {
            let distance =
                crate::common::squared_distance(points.row(row), &centroids[got.labels[row] as usize * d..][..d]);
            assert!(distance <= want.squared_distances[row] * (1.0 + 1e-12), "row {row} of {d} columns");
        }
    }
}

const MODELS: [ThreadModel; 2] = [ThreadModel::ForkJoin, ThreadModel::Bsp];

fn same_bits<P: Point>(points: Matrix<P>, centroids: Matrix<P::Centroid>, weights: &[f64]) {
    let want = pass(points, centroids, Some(weights), &Threads::new(1));
    for count in [2, 3, 5] {
        for (simd, model) in Simd::available().into_iter().flat_map(|simd| MODELS.map(|model| (simd, model))) {
            let threads = Threads::with_simd(count, simd).in_model(model);
            let got = pass(points, centroids, Some(weights), &threads);
            assert!(got == want, "{count} threads, {model:?}, {simd:?}");
        }
    }
}

#[test]
fn neither_the_number_of_threads_nor_their_model_changes_a_bit() {
    for (n, d, k) in [(0, 3, 2), (40, 3, 2), (3000, 70, 100), (20000, 2, 100), (5000, 20, 2)] {
        let weights = reals(3, n, |x| x + 1.0);
        let (points, centroids) = (reals(1, n * d, |x| x), reals(2, k * d, |x| x));
        same_bits(Matrix::new(&points, n, d), Matrix::new(&centroids, k, d), &weights);
        let points: Vec<f32> = points.iter().map(|&x| x as f32).collect();
        let centroids: Vec<f32> = centroids.iter().map(|&x| x as f32).collect();
        same_bits(Matrix::new(&points, n, d), Matrix::new(&centroids, k, d), &weights);
    }
}

#[test]
fn assign_returns_the_labels_and_distances_of_a_pass() {
    let (n, d, k) = (700, 12, 30);
    let (points, centroids) = (reals(1, n * d, |x| x as f32), reals(2, k * d, |x| x as f32));
    let (points, centroids) = (Matrix::new(&points, n, d), Matrix::new(&centroids, k, d));
    let threads = Threads::new(2);
    let want = pass(points, centroids, None, &threads);
    let (mut labels, mut distances) = (vec![0; n], vec![0.0; n]);
    assign(points, centroids, &mut labels, Some(&mut distances), &threads);
    assert_eq!((labels, distances), (want.labels.clone(), want.squared_distances));
    let mut labels = vec![0; n];
    assign(points, centroids, &mut labels, None, &threads);
    assert_eq!(labels, want.labels);
}

#[test]
fn values_that_are_not_numbers_still_get_a_label() {
    for d in [2, 25] {
        let mut points = reals(1, 50 * d, |x| x as f32);
        points[3 * d] = f32::NAN;
        points[7 * d] = f32::INFINITY;
        let mut centroids = reals(2, 20 * d, |x| x as f32);
        for spoil in [false, true] {
            if spoil {
                centroids[5 * d] = f32::NAN;
            }
            for simd in Simd::available() {
                let threads = Threads::with_simd(1, simd);
                let got = pass(Matrix::new(&points, 50, d), Matrix::new(&centroids, 20, d), None, &threads);
                assert!(got.labels.iter().all(|label| (0..20).contains(label)));
            }
        }
    }
}

#[test]
#[should_panic(expected = "at least one centroid")]
fn rows_without_a_centroid_are_refused() {
    let points = [1.0f32, 2.0];
    pass(Matrix::new(&points, 1, 2), Matrix::new(&[], 0, 2), None, &Threads::new(1));
}

#[allow(dead_code)]
fn a_centroid_type_is_its_own_point_type<C: Centroid>(points: Matrix<C>) -> PassResult {
    pass(points, points, None, &Threads::new(1))
}
