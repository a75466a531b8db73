//! Passes with bounds return the results of passes without bounds, to the last bit, for any movement of the centroids.

use crate::common::SplitMix64;
use proptest::prelude::*;
use ripieno_kernels::{
    Centroid, DistanceBounds, Matrix, PassOutput, Point, Simd, Threads, assign_accumulate, assign_accumulate_within,
    recenter,
};

const UNLIMITED: usize = usize::MAX;

/// The result of a pass, compared bit by bit.
#[derive(Debug, PartialEq)]
struct BoundedPassResult {
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
    bounds: Option<&mut DistanceBounds>,
    threads: &Threads,
) -> BoundedPassResult {
    let (n, k) = (points.rows(), centroids.rows());
    let (mut labels, mut squared_distances) = (vec![-7; n], vec![-7.0; n]);
    let (mut sums, mut weight_sums) = (vec![-7.0; k * points.columns()], vec![-7.0; k]);
    let places = PassOutput {
        labels: &mut labels,
        squared_distances: Some(&mut squared_distances),
        sums: &mut sums,
        weight_sums: &mut weight_sums,
    };
    let inertia = match bounds {
        Some(bounds) => assign_accumulate_within(points, centroids, weights, places, bounds, threads),
        None => assign_accumulate(points, centroids, weights, places, threads),
    };
    BoundedPassResult { labels, squared_distances, sums, weight_sums, inertia }
}

/// Run Lloyd's iteration with and without bounds, and return the fraction of the pairs that each pass compared.
///
/// `disturb` changes the centroids before a pass.
fn compared_fractions<P: Point>(
    points: Matrix<P>,
    mut centroids: Vec<P::Centroid>,
    weights: Option<&[f64]>,
    limit_bytes: usize,
    threads: &Threads,
    disturb: impl Fn(usize, &mut [P::Centroid]),
) -> Vec<f64> {
    let columns = points.columns();
    let mut bounds = DistanceBounds::new(limit_bytes);
    let mut compared = Vec::new();
    for iteration in 0..9 {
        disturb(iteration, &mut centroids);
        let seen = Matrix::new(&centroids, centroids.len() / columns, columns);
        let want = pass(points, seen, weights, None, threads);
        let got = pass(points, seen, weights, Some(&mut bounds), threads);
        assert!(got == want, "iteration {iteration} with {threads:?}");
        compared.push(bounds.compared());
        recenter(&mut centroids, &want.sums, &want.weight_sums);
    }
    assert!(bounds.bytes() <= limit_bytes.max(4 * points.rows()));
    compared
}

/// Return rows around a few positions, with noise.
fn clumps(seed: u64, rows: usize, columns: usize, noise: f64) -> Vec<f64> {
    let (mut places, mut numbers) = (SplitMix64(7), SplitMix64(seed));
    let places: Vec<f64> = (0..40 * columns).map(|_| places.real()).collect();
    let at = |i: usize| places[(i / columns * 13 % 40) * columns + i % columns] + noise * numbers.real();
    (0..rows * columns).map(at).collect()
}

fn f32s(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&x| x as f32).collect()
}

fn keep_centroids<C: Centroid>(_: usize, _: &mut [C]) {}

#[test]
fn bounds_change_no_result_for_any_level_type_or_number_of_threads() {
    let (rows, columns, count) = (3000, 20, 100);
    let points = clumps(1, rows, columns, 0.3);
    let weights: Vec<f64> = (0..rows).map(|row| (row % 4) as f64).collect();
    let start = points[..count * columns].to_vec();
    let bytes: Vec<u8> = points.iter().map(|&x| (x * 90.0 + 128.0) as u8).collect();
    let byte_start: Vec<f32> = bytes[..count * columns].iter().map(|&x| x.into()).collect();
    for (simd, threads) in Simd::available().into_iter().flat_map(|simd| [(simd, 1), (simd, 3)]) {
        let threads = Threads::with_simd(threads, simd);
        let matrix = Matrix::new(&points, rows, columns);
        let compared = compared_fractions(matrix, start.clone(), Some(&weights), UNLIMITED, &threads, keep_centroids);
        assert!(compared[8] < 0.5, "bounds rule nothing out: {compared:?}");
        let floats = f32s(&points);
        compared_fractions(
            Matrix::new(&floats, rows, columns),
            f32s(&start),
            None,
            UNLIMITED,
            &threads,
            keep_centroids,
        );
        compared_fractions(
            Matrix::new(&bytes, rows, columns),
            byte_start.clone(),
            None,
            UNLIMITED,
            &threads,
            keep_centroids,
        );
    }
}

#[test]
fn bounds_begin_in_the_second_pass_and_compare_few_pairs() {
    let (rows, columns, count) = (4000, 64, 96);
    let points = f32s(&clumps(5, rows, columns, 0.5));
    let start = points[..count * columns].to_vec();
    let limit = 4 * points.len();
    let compared =
        compared_fractions(Matrix::new(&points, rows, columns), start, None, limit, &Threads::new(2), keep_centroids);
    assert!(compared[2] < 0.5 && compared[8] < 0.05, "{compared:?}");
}

#[test]
fn tiny_and_huge_values_keep_bounds_valid() {
    let (rows, columns, count) = (600, 40, 70);
    for scale in [1e-150, 1e-60, 1e60, 1e150] {
        let points: Vec<f64> = clumps(6, rows, columns, 0.4).iter().map(|value| value * scale).collect();
        let start = points[..count * columns].to_vec();
        let matrix = Matrix::new(&points, rows, columns);
        compared_fractions(matrix, start, None, UNLIMITED, &Threads::new(2), keep_centroids);
    }
}

#[test]
fn a_limit_of_memory_makes_groups_larger() {
    let (rows, columns, count) = (5000, 12, 400);
    let points = f32s(&clumps(2, rows, columns, 0.3));
    let start = points[..count * columns].to_vec();
    for limit in [0, 4 * 5000, 4 * 5000 * 3, UNLIMITED] {
        compared_fractions(
            Matrix::new(&points, rows, columns),
            start.clone(),
            None,
            limit,
            &Threads::new(2),
            keep_centroids,
        );
    }
}

#[test]
fn bounds_of_groups_do_not_outlast_a_pass_that_changes_labels_without_them() {
    let (rows, columns, count) = (3000, 32, 128);
    let points = f32s(&clumps(8, rows, columns, 0.3));
    let start = points[..count * columns].to_vec();
    let exchange_once = |iteration: usize, centroids: &mut [f32]| {
        centroids.copy_from_slice(&start);
        if iteration == 3 {
            centroids.rotate_left(count / 2 * columns);
        }
    };
    let (matrix, limit) = (Matrix::new(&points, rows, columns), 4 * rows * 8);
    let compared = compared_fractions(matrix, start.clone(), None, limit, &Threads::new(2), exchange_once);
    assert!(compared[2] < 0.5 && compared[3] == 1.0, "{compared:?}");
}

#[test]
fn ties_go_to_the_lowest_index_also_between_groups() {
    let (rows, columns, count) = (2000, 10, 200);
    let whole: Vec<f32> = clumps(3, rows, columns, 1.0).iter().map(|x| (x * 2.0).round() as f32).collect();
    // Repeated centroids that do not move.
    let start: Vec<f32> = whole[..count / 2 * columns].repeat(2);
    let hold = |_: usize, centroids: &mut [f32]| centroids.copy_from_slice(&start);
    compared_fractions(Matrix::new(&whole, rows, columns), start.clone(), None, UNLIMITED, &Threads::new(2), hold);
}

#[test]
fn bounds_are_reset_for_other_shapes() {
    let points = f32s(&clumps(4, 3000, 16, 0.3));
    let (mut bounds, threads) = (DistanceBounds::new(UNLIMITED), Threads::new(2));
    for (rows, count) in [(3000, 100), (3000, 100), (3000, 100), (2000, 100), (2000, 90), (2000, 90), (0, 90), (9, 90)]
    {
        let (points, centroids) = (points[..rows * 16].to_vec(), points[..count * 16].to_vec());
        let (points, centroids) = (Matrix::new(&points, rows, 16), Matrix::new(&centroids, count, 16));
        let want = pass(points, centroids, None, None, &threads);
        assert!(pass(points, centroids, None, Some(&mut bounds), &threads) == want, "{rows} x {count}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn centroids_can_move_arbitrarily(
        seed in any::<u64>(),
        rows in 1usize..3000,
        columns in 9usize..70,
        count in 64usize..260,
        scale in prop::sample::select(vec![1.0, 1e-30, 1e12]),
        offset in prop::sample::select(vec![0.0, 300.0]),
        jumps in any::<u64>(),
        limit in prop::sample::select(vec![UNLIMITED, 40_000]),
    ) {
        let moved = |values: Vec<f64>| -> Vec<f64> { values.iter().map(|x| (x + offset) * scale).collect() };
        let points = moved(clumps(seed, rows, columns, 0.4));
        let start = moved(clumps(!seed, count, columns, 0.4));
        // Some centroids move to another position, far away, or onto another centroid.
        let leap = |iteration: usize, index: usize, length: usize| {
            let mut numbers = SplitMix64(jumps ^ ((iteration * 1000 + index) as u64));
            match numbers.below(60) {
                0 => Some(numbers.below(length as u64 / columns as u64) as usize),
                _ => None,
            }
        };
        let disturb_f64 = |iteration: usize, centroids: &mut [f64]| {
            for index in 0..count {
                if let Some(other) = leap(iteration, index, centroids.len()) {
                    centroids.copy_within(other * columns..(other + 1) * columns, index * columns);
                }
            }
        };
        let disturb_f32 = |iteration: usize, centroids: &mut [f32]| {
            for index in 0..count {
                if let Some(other) = leap(iteration, index, centroids.len()) {
                    centroids.copy_within(other * columns..(other + 1) * columns, index * columns);
                    centroids[index * columns] *= if other % 2 == 0 { 3.0 } else { 1.0 };
                }
            }
        };
        let threads = Threads::new(2);
        compared_fractions(Matrix::new(&points, rows, columns), start.clone(), None, limit, &threads, disturb_f64);
        let points = f32s(&points);
        compared_fractions(Matrix::new(&points, rows, columns), f32s(&start), None, limit, &threads, disturb_f32);
    }
}
