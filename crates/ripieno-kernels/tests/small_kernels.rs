//! Tests of the kernels for seeding, distances, recentering and the check for non-finite values.

use crate::common::{SplitMix64, squared_distance};
use ripieno_kernels::{Matrix, Simd, Threads, distances, first_non_finite};
use ripieno_kernels::{recenter, squared_distances, update_min_distances};

fn reals(seed: u64, count: usize) -> Vec<f32> {
    let mut numbers = SplitMix64(seed);
    (0..count).map(|_| numbers.real() as f32).collect()
}

#[test]
fn new_centers_lower_the_distances_and_become_the_closest() {
    for (n, d, k) in [(0, 3, 2), (500, 3, 20), (500, 30, 20), (50, 30, 1)] {
        let (points, centers) = (reals(1, n * d), reals(2, k * d));
        let points = Matrix::new(&points, n, d);
        for simd in Simd::available() {
            let threads = Threads::with_simd(2, simd);
            let (mut min, mut closest) = (vec![f64::INFINITY; n], vec![-1; n]);
            // Batches of six centers use the packed search, batches of one center the direct search.
            for first in (0..k).filter(|first| [0, 6].contains(&(first % 7))) {
                let count = (k - first).min(if first % 7 == 0 { 6 } else { 1 });
                let batch = Matrix::new(&centers[first * d..(first + count) * d], count, d);
                update_min_distances(points, batch, first as i32, &mut min, Some(&mut closest), &threads);
            }
            for row in 0..n {
                let each: Vec<f64> = centers.chunks(d).map(|c| squared_distance(points.row(row), c)).collect();
                let want = each.iter().copied().fold(f64::INFINITY, f64::min);
                assert!((min[row] - want).abs() <= 1e-12 * want);
                assert_eq!(each[closest[row] as usize], want);
            }
        }
    }
}

#[test]
fn a_row_that_is_a_new_center_is_at_distance_zero() {
    let points: Vec<f32> = reals(1, 100 * 50).iter().map(|x| x + 1000.0).collect();
    let points = Matrix::new(&points, 100, 50);
    let mut min = vec![f64::INFINITY; 100];
    update_min_distances(points, points.row_range(17, 1), 0, &mut min, None, &Threads::new(1));
    update_min_distances(points, points.row_range(60, 10), 1, &mut min, None, &Threads::new(1));
    let zeros: Vec<usize> = (0..100).filter(|&row| min[row] == 0.0).collect();
    assert_eq!(zeros, [17, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69]);
}

#[test]
fn all_distances_agree_with_plain_loops() {
    for (n, d, k) in [(0, 3, 2), (1, 1, 1), (70, 33, 65), (300, 5, 9)] {
        let (points, centroids) = (reals(1, n * d), reals(2, k * d));
        let (points, centroids) = (Matrix::new(&points, n, d), Matrix::new(&centroids, k, d));
        for simd in Simd::available() {
            let threads = Threads::with_simd(3, simd);
            let (mut squares, mut roots) = (vec![0.0; n * k], vec![0.0; n * k]);
            squared_distances(points, centroids, &mut squares, &threads);
            distances(points, centroids, &mut roots, &threads);
            for (index, (&square, &root)) in squares.iter().zip(&roots).enumerate() {
                let want = squared_distance(points.row(index / k), centroids.row(index % k));
                assert!((square as f64 - want).abs() <= 1e-7 * want);
                assert!((root as f64 - want.sqrt()).abs() <= 1e-7 * want.sqrt());
            }
        }
    }
}

#[test]
fn centroids_move_to_the_means_and_empty_clusters_stay() {
    let mut centroids = [0.0f32, 0.0, 5.0, 5.0, 1.0, 1.0];
    let moved = recenter(&mut centroids, &[2.0, 4.0, 0.0, 0.0, 3.0, 3.0], &[2.0, 0.0, 3.0]);
    assert_eq!(centroids, [1.0, 2.0, 5.0, 5.0, 1.0, 1.0]);
    assert_eq!((moved.squared_shift, moved.empty), (5.0, vec![1]));
}

#[test]
fn the_first_value_that_is_no_number_is_found() {
    let mut values = vec![1.0f64; 1000 * 70];
    let threads = Threads::new(3);
    let find = |values: &[f64]| first_non_finite(Matrix::new(values, 1000, 70), &threads);
    assert_eq!(find(&values), None);
    values[69_999] = f64::NEG_INFINITY;
    assert_eq!(find(&values), Some((999, 69)));
    values[50_001] = f64::NAN;
    assert_eq!(find(&values), Some((714, 21)));
    values[0] = f64::INFINITY;
    assert_eq!(find(&values), Some((0, 0)));
    assert_eq!(first_non_finite(Matrix::<f32>::new(&[], 0, 3), &threads), None);
    assert_eq!(first_non_finite(Matrix::new(&[255u8; 30], 10, 3), &threads), None);
}
