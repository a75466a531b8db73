//! K-means on sparse rows gives the results of the same dense rows.

use crate::common::{SplitMix64, expected};
use ripieno_kernels::{Matrix, Simd, SparseRows, Threads, accumulate_sparse, assign_sparse};

/// Integers, most of them zero: as dense rows and as entries.
struct TestRows {
    full: Vec<f64>,
    starts: Vec<i64>,
    columns: Vec<i32>,
    values: Vec<f64>,
    weights: Vec<f64>,
}

impl TestRows {
    fn new(seed: u64, count: usize, columns: usize) -> TestRows {
        let mut numbers = SplitMix64(seed);
        let mut value = |_| if numbers.below(6) == 0 { numbers.below(9) as f64 - 4.0 } else { 0.0 };
        let full: Vec<f64> = (0..count * columns).map(&mut value).collect();
        let mut rows = TestRows { full, starts: vec![0], columns: vec![], values: vec![], weights: vec![] };
        for (at, row) in rows.full.chunks(columns).enumerate() {
            // Zero entries are allowed too.
            for (column, &value) in row.iter().enumerate().filter(|&(column, &value)| value != 0.0 || column == 1) {
                rows.columns.push(column as i32);
                rows.values.push(value);
            }
            rows.starts.push(rows.values.len() as i64);
            rows.weights.push((at % 3) as f64);
        }
        rows
    }

    fn sparse(&self, column_count: usize) -> SparseRows<'_> {
        let TestRows { starts, columns, values, weights, .. } = self;
        SparseRows { starts, columns, values, column_count, weights }
    }
}

#[test]
fn sparse_rows_get_the_labels_distances_and_sums_of_the_same_rows_in_full() {
    for (count, columns, clusters) in [(700, 40, 70), (300, 7, 33), (50, 200, 1), (9, 3, 40), (0, 5, 2), (5000, 12, 32)]
    {
        let rows = TestRows::new(1, count, columns);
        // Some centroids repeat, so there are ties and clusters without rows.
        let mut centroids = TestRows::new(2, clusters, columns).full;
        let (first, last) = centroids.split_at_mut((clusters - clusters / 3) * columns);
        last.copy_from_slice(&first[..last.len()]);
        let (points, centers) = (Matrix::new(&rows.full, count, columns), Matrix::new(&centroids, clusters, columns));
        let want = expected(points, centers, Some(&rows.weights));
        for (simd, threads) in Simd::available().into_iter().flat_map(|simd| [(simd, 1), (simd, 3)]) {
            let threads = &Threads::with_simd(threads, simd);
            let (mut labels, mut distances) = (vec![-1; count], vec![f64::INFINITY; count]);
            // In several calls, last centroids first.
            let step = clusters.div_ceil(3);
            for first in (0..clusters).step_by(step).rev() {
                let some = centers.row_range(first, step.min(clusters - first));
                assign_sparse(rows.sparse(columns), some, first as i32, (&mut labels, &mut distances), threads);
            }
            assert_eq!((&labels, &distances), (&want.labels, &want.squared_distances), "{simd:?}");
            let (mut sums, mut weight_sums) = (vec![-7.0; clusters * columns], vec![-7.0; clusters]);
            for first in (0..clusters).step_by(step) {
                let end = clusters.min(first + step);
                let into = (&mut sums[first * columns..end * columns], &mut weight_sums[first..end]);
                accumulate_sparse(rows.sparse(columns), &labels, first, into, threads);
            }
            assert_eq!((&sums, &weight_sums), (&want.sums, &want.weight_sums), "{simd:?}");
        }
    }
}

#[test]
fn a_row_that_is_a_centroid_is_at_distance_zero() {
    let (count, columns) = (40, 90);
    let mut rows = TestRows::new(3, count, columns);
    rows.values.iter_mut().for_each(|value| *value *= 0.1);
    rows.full.iter_mut().for_each(|value| *value *= 0.1);
    let centers = Matrix::new(&rows.full, count, columns);
    let (mut labels, mut distances) = (vec![-1; count], vec![f64::INFINITY; count]);
    assign_sparse(rows.sparse(columns), centers, 0, (&mut labels, &mut distances), &Threads::new(1));
    assert_eq!(distances, vec![0.0; count]);
}

#[test]
#[should_panic(expected = "the same columns")]
fn centroids_of_other_columns_are_refused() {
    let rows = TestRows::new(4, 2, 3);
    let (mut labels, mut distances) = (vec![0; 2], vec![0.0; 2]);
    let centroids = Matrix::new(&[1.0, 2.0], 1, 2);
    assign_sparse(rows.sparse(3), centroids, 0, (&mut labels, &mut distances), &Threads::new(1));
}
