//! Near passes: exact with all groups, with a small loss for a few groups, and never with a greater distance than
//! before.

use crate::common::{SplitMix64, squared_distance};
use ripieno_kernels::{
    CentroidGroups, Matrix, NearIndex, PassOutput, Point, PreviousCentroids, Probing, Simd, Threads, accumulate_run,
    assign_accumulate, assign_accumulate_near, compare_groups, inertia_of, recenter,
};

/// The result of a pass, compared bit by bit.
#[derive(Clone, Debug, PartialEq)]
struct NearPassResult {
    labels: Vec<i32>,
    squared_distances: Vec<f64>,
    sums: Vec<f64>,
    weight_sums: Vec<f64>,
    inertia: f64,
}

/// Perform a pass over weighted rows: near if an index and a number of probes are given.
fn pass<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    near: Option<(&mut NearIndex, usize)>,
    threads: &Threads,
) -> NearPassResult {
    let (n, k) = (points.rows(), centroids.rows());
    let weights: Vec<f64> = (0..n).map(|row| 1.0 + (row % 2) as f64).collect();
    let (mut labels, mut squared_distances) = (vec![-7; n], vec![-7.0; n]);
    let (mut sums, mut weight_sums) = (vec![-7.0; k * points.columns()], vec![-7.0; k]);
    let places = PassOutput {
        labels: &mut labels,
        squared_distances: Some(&mut squared_distances),
        sums: &mut sums,
        weight_sums: &mut weight_sums,
    };
    let inertia = match near {
        Some((index, probes)) => {
            assign_accumulate_near(points, centroids, Some(&weights), places, index, probes, threads)
        }
        None => assign_accumulate(points, centroids, Some(&weights), places, threads),
    };
    NearPassResult { labels, squared_distances, sums, weight_sums, inertia }
}

/// Return bytes around a hundred positions.
fn bytes(seed: u64, rows: usize, columns: usize) -> Vec<u8> {
    let (mut places, mut numbers) = (SplitMix64(11), SplitMix64(seed));
    let places: Vec<f64> = (0..100 * columns).map(|_| 128.0 + 80.0 * places.real()).collect();
    let mut at = |i: usize| places[(i / columns * 37 % 100) * columns + i % columns] + 30.0 * numbers.real();
    (0..rows * columns).map(|i| at(i) as u8).collect()
}

fn floats<T: From<u8>>(bytes: &[u8]) -> Vec<T> {
    bytes.iter().map(|&byte| byte.into()).collect()
}

#[test]
fn with_all_groups_a_near_pass_is_exact() {
    for (rows, columns, count) in [(900usize, 3usize, 200usize), (700, 20, 130), (500, 33, 7), (40, 9, 1)] {
        let values = bytes(1, rows, columns);
        // Some centroids repeat.
        let chosen = bytes(2, count.div_ceil(2), columns).repeat(2);
        let (as_f32, as_f64) = (floats::<f32>(&values), floats::<f64>(&values));
        let (f32s, f64s) = (floats::<f32>(&chosen), floats::<f64>(&chosen));
        let count = f32s.len() / columns;
        for (simd, threads) in Simd::available().into_iter().flat_map(|simd| [(simd, 1), (simd, 3)]) {
            let threads = &Threads::with_simd(threads, simd);
            let (f32s, f64s) = (Matrix::new(&f32s, count, columns), Matrix::new(&f64s, count, columns));
            let points = Matrix::new(&values[..], rows, columns);
            let want = pass(points, f32s, None, threads);
            assert!(pass(points, f32s, Some((&mut NearIndex::new(), usize::MAX)), threads) == want, "{simd:?} u8");
            let points = Matrix::new(&as_f32[..], rows, columns);
            assert!(pass(points, f32s, Some((&mut NearIndex::new(), usize::MAX)), threads) == want, "{simd:?} f32");
            let points = Matrix::new(&as_f64[..], rows, columns);
            assert!(pass(points, f64s, Some((&mut NearIndex::new(), usize::MAX)), threads) == want, "{simd:?} f64");
        }
    }
}

#[test]
fn a_few_groups_lose_little_and_no_row_gets_worse() {
    let (rows, columns, count, probes) = (4000, 16, 400, 6);
    let values = bytes(3, rows, columns);
    let points = Matrix::new(&values[..], rows, columns);
    let (mut centroids, mut before) = (floats::<f32>(&values[..count * columns]), None::<Vec<i32>>);
    let (mut index, threads) = (NearIndex::new(), Threads::new(2));
    for iteration in 0..6 {
        let seen = Matrix::new(&centroids[..], count, columns);
        let exact = pass(points, seen, None, &threads);
        let got = pass(points, seen, Some((&mut index, probes)), &threads);
        let gap = got.inertia / exact.inertia - 1.0;
        assert!((0.0..0.02).contains(&gap), "iteration {iteration}: {gap}");
        for row in 0..rows {
            let measured = squared_distance(points.row(row), seen.row(got.labels[row] as usize));
            assert_eq!(got.squared_distances[row], measured, "whole numbers of sixteen columns");
            let Some(before) = &before else { continue };
            assert!(measured <= squared_distance(points.row(row), seen.row(before[row] as usize)));
        }
        before = Some(got.labels);
        // Integers again, so that sums of squares are exact.
        recenter(&mut centroids, &got.sums, &got.weight_sums);
        centroids.iter_mut().for_each(|value: &mut f32| *value = value.round());
    }
}

#[test]
fn results_do_not_depend_on_threads_or_earlier_shapes() {
    let values = bytes(5, 3000, 24);
    let centroids = floats::<f32>(&values[..300 * 24]);
    let mut used = NearIndex::new();
    for (rows, count) in [(3000, 300), (2000, 300), (2000, 150), (0, 150), (9, 150)] {
        let points = Matrix::new(&values[..rows * 24], rows, 24);
        let centroids = Matrix::new(&centroids[..count * 24], count, 24);
        let want = pass(points, centroids, Some((&mut NearIndex::new(), 3)), &Threads::new(1));
        for (simd, threads) in Simd::available().into_iter().flat_map(|simd| [(simd, 2), (simd, 5)]) {
            let threads = Threads::with_simd(threads, simd);
            let got = pass(points, centroids, Some((&mut NearIndex::new(), 3)), &threads);
            assert!(got == want, "{simd:?}");
        }
        let exact = pass(points, centroids, None, &Threads::new(2));
        let got = pass(points, centroids, Some((&mut used, 3)), &Threads::new(2));
        assert!(got.inertia <= 1.05 * exact.inertia, "{rows} x {count}");
    }
}

/// Perform a pass that compares weighted rows with the groups of centroids one after the other, last group first. The
/// centroids of a group are `g, g + groups, …`.
fn pass_in_parts<P: Point>(
    points: Matrix<P>,
    centroids: Matrix<P::Centroid>,
    (group_count, probes): (usize, usize),
    before: Option<&[i32]>,
    threads: &Threads,
) -> NearPassResult {
    let (n, k, d) = (points.rows(), centroids.rows(), points.columns());
    let weights: Vec<f64> = (0..n).map(|row| 1.0 + (row % 2) as f64).collect();
    let members: Vec<Vec<u32>> =
        (0..group_count).map(|group| (0..k as u32).skip(group).step_by(group_count).collect()).collect();
    let order: Vec<u32> = members.concat();
    let mut places = vec![0; k];
    order.iter().enumerate().for_each(|(place, &number)| places[number as usize] = place as i32);
    let ordered: Vec<P::Centroid> = order.iter().flat_map(|&number| centroids.row(number as usize)).copied().collect();
    let means: Vec<P::Centroid> = members.iter().flat_map(|group| centroids.row(group[0] as usize)).copied().collect();
    let probing = Probing::new(points, Matrix::new(&means, group_count, d), probes, threads);
    let (mut labels, mut squared_distances) = (vec![-1; n], vec![f64::INFINITY; n]);
    for groups in (0..group_count).collect::<Vec<_>>().chunks(3).rev() {
        let begin: usize = members[..groups[0]].iter().map(Vec::len).sum();
        let mut starts = vec![0];
        groups.iter().for_each(|&group| starts.push(starts.last().unwrap() + members[group].len()));
        let count = *starts.last().unwrap();
        let some = CentroidGroups {
            first: groups[0],
            centroids: Matrix::new(&ordered[begin * d..(begin + count) * d], count, d),
            numbers: &order[begin..begin + count],
            starts: &starts,
        };
        let before = before.map(|labels| PreviousCentroids { places: &places, labels, first: begin });
        compare_groups(points, &probing, some, before, (&mut labels, &mut squared_distances), threads);
    }
    let (mut sums, mut weight_sums) = (vec![-7.0; k * d], vec![-7.0; k]);
    for first in (0..k).step_by(70) {
        let end = k.min(first + 70);
        let into = (&mut sums[first * d..end * d], &mut weight_sums[first..end]);
        accumulate_run(points, &labels, Some(&weights), first, into, threads);
    }
    let inertia = inertia_of(&squared_distances, Some(&weights), d);
    NearPassResult { labels, squared_distances, sums, weight_sums, inertia }
}

#[test]
fn groups_in_several_calls_produce_the_result_of_one_call() {
    for (rows, columns, count, groups) in [(900usize, 3usize, 200usize, 9), (5_000, 20, 130, 11), (40, 9, 1, 1)] {
        let values = bytes(1, rows, columns);
        // Some centroids repeat.
        let chosen = floats::<f32>(&bytes(2, count.div_ceil(2), columns).repeat(2));
        let centroids = Matrix::new(&chosen, chosen.len() / columns, columns);
        let (as_f32, before) = (floats::<f32>(&values), vec![0; rows]);
        for (simd, threads) in Simd::available().into_iter().flat_map(|simd| [(simd, 1), (simd, 3)]) {
            let threads = &Threads::with_simd(threads, simd);
            let points = Matrix::new(&values[..], rows, columns);
            let want = pass(points, centroids, None, threads);
            let all = (groups, usize::MAX);
            assert!(pass_in_parts(points, centroids, all, None, threads) == want, "{simd:?} u8");
            assert!(pass_in_parts(points, centroids, all, Some(&before), threads) == want, "{simd:?} u8, again");
            let points = Matrix::new(&as_f32[..], rows, columns);
            assert!(pass_in_parts(points, centroids, all, Some(&before), threads) == want, "{simd:?} f32");
        }
    }
}

#[test]
fn no_row_gets_worse_with_groups_in_several_calls() {
    let (rows, columns, count) = (3000, 16, 400);
    let values = bytes(3, rows, columns);
    let (points, chosen) = (Matrix::new(&values[..], rows, columns), floats::<f32>(&values[..count * columns]));
    let (centroids, threads) = (Matrix::new(&chosen, count, columns), Threads::new(2));
    let best = pass(points, centroids, None, &threads);
    let kept = pass_in_parts(points, centroids, (40, 1), Some(&best.labels), &threads);
    assert_eq!(kept.squared_distances, best.squared_distances);
    let alone = pass_in_parts(points, centroids, (40, 1), None, &threads);
    assert!(alone.inertia > best.inertia, "one group of forty is too few");
}

#[test]
#[should_panic(expected = "at least one group")]
fn a_pass_without_probes_is_rejected() {
    let points = [1.0f32, 2.0];
    pass(Matrix::new(&points, 1, 2), Matrix::new(&points, 1, 2), Some((&mut NearIndex::new(), 0)), &Threads::new(1));
}
