//! K-means by Lloyd's iteration on rows that are partitioned over ranks.
//!
//! Every rank assigns its rows, the ranks add the sums of the clusters, and every rank moves its own copy of the
//! centroids. From the same initial centroids, the result has the bits of the Python estimator.
//! Cost of an iteration: `n·k·d` operations shared by the ranks, and an allreduce of `k·(d+1)` numbers.
//! Sources: Lloyd, "Least squares quantization in PCM", 1982; the stopping rule and the rule for empty clusters are
//! scikit-learn's.

mod empty_clusters;
mod iteration;
mod rows;
mod seeding;

pub use seeding::InitialCentroids;

use crate::agree::agree;
use crate::communicator::Communicator;
use crate::error::Error;
use iteration::Iterations;
use ripieno_kernels::{Matrix, Point, Threads};
use rows::RankRows;
use seeding::initial_centroids;

/// Parameters of a fit, equal on every rank.
#[derive(Clone, Copy, Debug)]
pub struct KMeansOptions<'a> {
    /// Number of clusters, at least 1.
    pub cluster_count: usize,
    /// Maximum number of iterations, at least 1.
    pub max_iter: usize,
    /// The fit stops when the squared shift of the centroids is at most this times the mean variance of the columns.
    pub tol: f64,
    /// The initial centroids, or the method to choose them.
    pub initial: InitialCentroids<'a>,
}

/// Result of a fit. Labels belong to this rank's rows; all other values are equal on every rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Clustering<C> {
    /// The centroids, `k × d`.
    pub centroids: Vec<C>,
    /// The nearest centroid of each row.
    pub labels: Vec<i32>,
    /// The weighted sum of the squared distances of all rows to their centroids.
    pub inertia: f64,
    /// The number of iterations.
    pub iteration_count: usize,
}

/// Fit K-means to the rows of all ranks. Every rank must call this; a rank may have no rows.
///
/// `weights` has one weight per row; without it, each row has weight 1.
///
/// # Errors
/// [`Error::Rows`] on every rank: the columns or types of ranks differ, a value is not finite, a weight is negative,
/// there are fewer rows than clusters, or squared distances overflow or vanish. [`Error::Argument`] if the initial
/// centroids do not fit.
pub fn fit<P: Point>(
    comm: &Communicator,
    points: Matrix<P>,
    weights: Option<&[f64]>,
    options: &KMeansOptions<'_>,
    threads: &Threads,
) -> Result<Clustering<P::Centroid>, Error> {
    let &KMeansOptions { cluster_count, max_iter, tol, initial } = options;
    let description = format!("k={cluster_count}, maxIter={max_iter}, tol={tol}, {}", initial.description());
    agree(comm, [], &description)?;
    let rows = RankRows::new(comm, points, weights, threads)?;
    if (rows.total() as usize) < cluster_count {
        return Err(Error::Rows { description: format!("{} rows: expected at least k={cluster_count}", rows.total()) });
    }
    let tol = if tol == 0.0 { 0.0 } else { tol * rows.mean_variance(comm)? };
    let centroids = initial_centroids(comm, &rows, cluster_count, initial, threads)?;
    let clustering = Iterations::new(comm, &rows, centroids, threads).run(max_iter, tol)?;
    rows.check_distances(comm, &clustering)?;
    Ok(clustering)
}
