//! Passes over many rows of few columns, which use regions, give the results of plain loops.

use crate::common::{SplitMix64, expected};
use ripieno_kernels::{Matrix, PassOutput, Point, Simd, ThreadModel, Threads, assign, assign_accumulate};

const ROWS: usize = 60_000;

fn reals(seed: u64, count: usize) -> Vec<f64> {
    let mut numbers = SplitMix64(seed);
    (0..count).map(|_| numbers.real()).collect()
}

fn agrees<P: Point>(points: Matrix<P>, centroids: Matrix<P::Centroid>, weights: Option<&[f64]>) {
    let want = expected(points, centroids, weights);
    let (n, d, k) = (points.rows(), points.columns(), centroids.rows());
    let mut first = None;
    let models = [ThreadModel::ForkJoin, ThreadModel::Bsp].into_iter().cycle();
    for (simd, model) in Simd::available().into_iter().zip(models) {
        for count in [1, 3] {
            let (mut labels, mut distances) = (vec![-7; n], vec![-7.0; n]);
            let (mut sums, mut weight_sums) = (vec![-7.0; k * d], vec![-7.0; k]);
            let pass = PassOutput {
                labels: &mut labels,
                squared_distances: Some(&mut distances),
                sums: &mut sums,
                weight_sums: &mut weight_sums,
            };
            let threads = Threads::with_simd(count, simd).in_model(model);
            let inertia = assign_accumulate(points, centroids, weights, pass, &threads);
            assert_eq!(labels, want.labels, "{simd:?} {n} {d} {k}");
            // For few columns the reference adds in the same order.
            assert_eq!(distances, want.squared_distances, "{simd:?} {n} {d} {k}");
            assert_eq!((&sums, &weight_sums), (&want.sums, &want.weight_sums), "{simd:?} {n} {d} {k}");
            let got = (labels, distances, sums, weight_sums, inertia);
            assert!(*first.get_or_insert_with(|| got.clone()) == got, "{simd:?} {count}");
        }
    }
}

#[test]
fn weighted_passes_agree_with_plain_loops() {
    let weights: Vec<f64> = reals(3, ROWS).iter().map(|x| (2.0 * x).abs().floor()).collect();
    for (d, k) in [(1, 64), (2, 300), (3, 100)] {
        let (points, centroids) = (reals(1, ROWS * d), reals(2, k * d));
        agrees(Matrix::new(&points, ROWS, d), Matrix::new(&centroids, k, d), Some(&weights));
        let points: Vec<f32> = points.iter().map(|&x| x as f32).collect();
        let centroids: Vec<f32> = centroids.iter().map(|&x| x as f32).collect();
        agrees(Matrix::new(&points, ROWS, d), Matrix::new(&centroids, k, d), None);
    }
}

#[test]
fn a_row_that_equals_a_centroid_is_assigned_to_it() {
    let points: Vec<f32> = reals(3, ROWS * 2).into_iter().map(|x| x as f32).collect();
    let points = Matrix::new(&points, ROWS, 2);
    let mut labels = vec![0; ROWS];
    assign(points, points.row_range(500, 1000), &mut labels, None, &Threads::new(2));
    assert!(labels[500..1500].iter().copied().eq(0..1000));
}

#[test]
fn nan_and_infinity_do_not_change_the_labels_of_other_rows() {
    let mut points: Vec<f32> = reals(3, ROWS * 2).into_iter().map(|x| x as f32).collect();
    let mut centroids: Vec<f32> = reals(4, 200).into_iter().map(|x| x as f32).collect();
    for non_finite in [[f32::NAN, f32::NAN], [f32::INFINITY, f32::NAN]] {
        (points[20], points[41], centroids[14]) = (non_finite[0], non_finite[1], non_finite[1]);
        let (points, centroids) = (Matrix::new(&points, ROWS, 2), Matrix::new(&centroids, 100, 2));
        let want = expected(points, centroids, None);
        let mut labels = vec![-7; ROWS];
        assign(points, centroids, &mut labels, None, &Threads::new(2));
        for row in (0..ROWS).filter(|row| ![10, 20].contains(row)) {
            assert_eq!(labels[row], want.labels[row], "row {row}");
        }
        assert!([10, 20].iter().all(|&row: &usize| (0..100).contains(&labels[row])));
    }
}
