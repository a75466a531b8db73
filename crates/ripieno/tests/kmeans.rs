//! K-means over ranks that are threads.

use crate::common::world;
use ripieno::kmeans::{Clustering, InitialCentroids, KMeansOptions, fit};
use ripieno::{Communicator, Error};
use ripieno_kernels::{Matrix, Threads};

const COLUMNS: usize = 2;

/// Return rows near (0, 0), (10, 10) …; consecutive rows belong to different clusters.
fn clustered_rows(count: usize, cluster_count: usize) -> Vec<f64> {
    let mut state = 7_u64;
    let mut next = || {
        state = (state * 1_103_515_245 + 12_345) & 0x7fff_ffff;
        state as f64 / f64::from(0x7fff_ffff)
    };
    (0..count * COLUMNS).map(|at| (10 * (at / COLUMNS % cluster_count)) as f64 + next()).collect()
}

/// Return the range of a rank's rows.
fn share(comm: &Communicator, count: usize) -> std::ops::Range<usize> {
    let cut = |rank: usize| count * rank / comm.world_size();
    cut(comm.rank())..cut(comm.rank() + 1)
}

fn fit_share(
    comm: &Communicator,
    rows: &[f64],
    weights: Option<&[f64]>,
    options: &KMeansOptions<'_>,
) -> Result<Clustering<f64>, Error> {
    let own = share(comm, rows.len() / COLUMNS);
    let values = &rows[own.start * COLUMNS..own.end * COLUMNS];
    let points = Matrix::new(values, own.len(), COLUMNS);
    fit(comm, points, weights.map(|weights| &weights[own]), options, &Threads::new(2))
}

fn options(cluster_count: usize, initial: InitialCentroids<'_>) -> KMeansOptions<'_> {
    KMeansOptions { cluster_count, max_iter: 50, tol: 1e-4, initial }
}

#[test]
fn every_way_to_seed_finds_the_clusters_on_any_number_of_ranks() {
    let rows = clustered_rows(300, 5);
    let given: Vec<f64> = rows[..5 * COLUMNS].to_vec();
    for initial in [InitialCentroids::Given(&given), InitialCentroids::Parallel { seed: 3, step_count: 2 }] {
        let alone = world(1, |comm| fit_share(comm, &rows, None, &options(5, initial)).unwrap()).remove(0);
        assert!(alone.inertia < 300.0, "{initial:?}: inertia {}", alone.inertia);
        for p in [2, 3] {
            let parts = world(p, |comm| fit_share(comm, &rows, None, &options(5, initial)).unwrap());
            assert!(parts.iter().all(|part| part.centroids == parts[0].centroids && part.inertia == parts[0].inertia));
            let labels: Vec<i32> = parts.iter().flat_map(|part| part.labels.clone()).collect();
            assert_eq!(labels, alone.labels);
            let differences = parts[0].centroids.iter().zip(&alone.centroids).map(|(a, b)| (a - b).abs());
            assert!(differences.fold(0.0, f64::max) < 1e-12);
        }
    }
    let random = InitialCentroids::Random { seed: 1 };
    let once = KMeansOptions { max_iter: 1, ..options(5, random) };
    let labels = |p| -> Vec<i32> {
        world(p, |comm| fit_share(comm, &rows, None, &once).unwrap().labels).into_iter().flatten().collect()
    };
    assert_eq!(labels(1), labels(3));
}

#[test]
fn a_weight_counts_a_row_so_many_times() {
    let rows = clustered_rows(60, 3);
    let weights: Vec<f64> = (0..60).map(|row| f64::from(row % 4)).collect();
    let repeated: Vec<f64> = rows
        .chunks_exact(COLUMNS)
        .zip(&weights)
        .flat_map(|(row, &weight)| std::iter::repeat_n(row, weight as usize).flatten().copied())
        .collect();
    let given = rows[COLUMNS..4 * COLUMNS].to_vec();
    let settings = options(3, InitialCentroids::Given(&given));
    let weighted = world(2, |comm| fit_share(comm, &rows, Some(&weights), &settings).unwrap()).remove(0);
    let expected = world(2, |comm| fit_share(comm, &repeated, None, &settings).unwrap()).remove(0);
    let differences = weighted.centroids.iter().zip(&expected.centroids).map(|(a, b)| (a - b).abs());
    assert!(differences.fold(0.0, f64::max) < 1e-12);
    assert!((weighted.inertia - expected.inertia).abs() < 1e-9);
}

#[test]
fn empty_clusters_get_the_farthest_rows() {
    // The farthest rows of the only used cluster are 9 (the last), then 8, the lower of two equal ones.
    let rows: Vec<f64> =
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 8.0, 9.0].iter().flat_map(|&x| [x, 0.0]).collect();
    let given = [0.0, 0.0, 1e6, 0.0, 2e6, 0.0];
    let once = KMeansOptions { max_iter: 1, ..options(3, InitialCentroids::Given(&given)) };
    for p in [1, 2, 3] {
        for part in world(p, |comm| fit_share(comm, &rows, None, &once).unwrap()) {
            assert_eq!(part.centroids, [4.0, 0.0, 9.0, 0.0, 8.0, 0.0]);
        }
    }
    // Rows of weight zero stay.
    let weights = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0];
    let part = world(2, |comm| fit_share(comm, &rows, Some(&weights), &once).unwrap()).remove(0);
    assert_eq!(part.centroids, [2.5, 0.0, 7.0, 0.0, 6.0, 0.0]);
}

#[test]
fn invalid_rows_and_options_are_reported_on_every_rank() {
    let random = options(2, InitialCentroids::Random { seed: 0 });
    let message = |rows: &[f64], settings: &KMeansOptions<'_>| {
        let errors = world(2, |comm| fit_share(comm, rows, None, settings).unwrap_err().to_string());
        assert_eq!(errors[0], errors[1]);
        errors[0].clone()
    };
    assert_eq!(message(&[1.0, 2.0, 3.0, f64::NAN], &random), "rank 1, row 0, column 1: expected a finite number");
    assert_eq!(message(&[1.0, 2.0], &random), "1 rows: expected at least k=2");
    let far = message(&[1e200, 1.0, -1e200, 2.0, 3.0, 4.0], &KMeansOptions { tol: 0.0, ..options(1, random.initial) });
    assert_eq!(far, "the rows lie too far apart for squared distances in float64: scale them");
    let near = message(&[1e-200, 0.0, 3e-200, 0.0, 2e-200, 0.0, 5e-200, 0.0], &options(1, random.initial));
    assert_eq!(near, "the rows lie too close together for squared distances in float64: scale them");
    let short = message(&[1.0, 2.0, 3.0, 4.0], &options(2, InitialCentroids::Given(&[1.0])));
    assert_eq!(short, "initialCentroids=1 values: expected k=2 rows of 2 values");
    let weights = [1.0, 1.0, 0.5, -1.0];
    let errors = world(2, |comm| {
        fit_share(comm, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], Some(&weights), &random).unwrap_err().to_string()
    });
    assert_eq!(errors, ["rank 1, row 1: expected a finite weight of 0 or more"; 2]);
    let errors = world(2, |comm| {
        let rows = vec![1.0; 3 * (2 + comm.rank())];
        fit(comm, Matrix::new(&rows, 3, 2 + comm.rank()), None, &random, &Threads::new(1)).unwrap_err().to_string()
    });
    let expected = "rank 1 has 3 columns of float64, rank 0 has 2 columns of float64: expected the same on every rank";
    assert_eq!(errors, [expected; 2]);
    let errors = world(2, |comm| {
        let differing = options(1 + comm.rank(), random.initial);
        fit_share(comm, &[1.0, 2.0, 3.0, 4.0], None, &differing).unwrap_err().to_string()
    });
    assert!(errors[0].starts_with("rank 1 passed k=2, ") && errors[0] == errors[1], "{errors:?}");
}
