//! Numeric kernels of the algorithms: the local computation of a rank between two collectives.
//!
//! - K-means: [`assign_accumulate`] is one pass, [`assign_accumulate_within`] one of several passes, and
//!   [`assign_accumulate_near`] a pass over very many centroids. [`Probing`], [`compare_groups`] and [`accumulate_run`]
//!   compute a pass and its sums if a rank holds only some of the centroids. [`assign_sparse`] and
//!   [`accumulate_sparse`] process sparse rows, and [`assign()`] predicts. [`update_min_distances`] is a step of
//!   seeding, and [`grow_cells`] seeds very many clusters. [`squared_distances`] returns the whole matrix, and
//!   [`recenter`] is the local update.
//! - Models: [`logistic_loss`], [`logistic_curvature`] and [`sgd_epoch`] of sparse rows; [`solve_factors`] of ratings,
//!   with the [`scatter`] matrix of factors; [`column_sums`], [`add_products`] of columns, and [`add_gradients`].
//! - Pairs of points: [`guttman`] for multidimensional scaling; [`repulsion`], [`barnes_hut`] and [`attraction`] for
//!   layouts.
//! - Graphs: [`graph`] reads edges, sorts them and multiplies with them.
//! - Keyed data: [`keyed`] numbers distinct keys.
//!
//! All matrices are row-major and contiguous. Results depend neither on the number of threads nor on the SIMD level. A
//! label is the argmin of the squared distance evaluated in f64 (ties go to the lowest index), and every sum adds its
//! rows in row order.
//!
//! ```
//! use ripieno_kernels::{Matrix, PassOutput, Threads, assign_accumulate, recenter};
//!
//! let points = [0.0f32, 0.0, 0.0, 2.0, 10.0, 0.0];
//! let mut centroids = [0.0f32, 0.0, 9.0, 0.0];
//! let (mut labels, mut sums, mut weight_sums) = ([0; 3], [0.0; 4], [0.0; 2]);
//! let pass =
//!     PassOutput { labels: &mut labels, squared_distances: None, sums: &mut sums, weight_sums: &mut weight_sums };
//! let (points, threads) = (Matrix::new(&points, 3, 2), Threads::new(2));
//! let inertia = assign_accumulate(points, Matrix::new(&centroids, 2, 2), None, pass, &threads);
//! assert_eq!((labels, inertia), ([0, 0, 1], 5.0));
//!
//! // Here the ranks' sums, weight sums and inertias are allreduced.
//! let moved = recenter(&mut centroids, &sums, &weight_sums);
//! assert_eq!((centroids, moved.squared_shift), ([0.0, 1.0, 10.0, 0.0], 2.0));
//! ```
//!
//! [`interruptible`] ends kernels between two parts of their work.
//!
//! This crate has no communication and no I/O. Shapes that do not fit are a broken invariant of the caller: the
//! functions panic.

mod accumulate;
mod als;
mod assign;
mod check;
mod distances;
mod forces;
pub mod graph;
mod interruption;
pub mod keyed;
mod logistic;
mod matrix;
mod pairs;
mod panels;
mod phased;
mod products;
mod seeding;
mod sgd;
mod simd;
mod sparse_rows;
mod team;
pub mod text;
pub mod thread_costs;
mod threads;

pub use accumulate::{CentroidShift, accumulate_run, recenter};
pub use als::{AlsObjective, Feedback, Ratings, Solver, scatter, solve_factors};
pub use assign::{
    CentroidGroups, DistanceBounds, NearIndex, PassOutput, PreviousCentroids, Probing, assign, assign_accumulate,
    assign_accumulate_near, assign_accumulate_within, compare_groups, inertia_of, update_min_distances,
};
pub use check::first_non_finite;
pub use distances::{distances, squared_distances};
pub use forces::{Attraction, BlockShare, attraction, barnes_hut, fixed_point_scale, repulsion};
pub use interruption::{Interrupted, interruptible};
pub use logistic::{SparseRows, logistic_curvature, logistic_loss};
pub use matrix::{Centroid, Matrix, Point};
pub use pairs::{Dissimilarity, MAX_DIMENSIONS, PairData, guttman, weighted_differences};
pub use products::{RegressionRows, add_gradients, add_products, column_sums};
pub use seeding::{Cells, Center, Growth, grow_cells};
pub use sgd::{
    DescentOptions, FeatureState, Loss, OrderedColumns, StepNumbers, StepRows, sgd_epoch, sgd_needed_features,
    sgd_occurrences, sgd_places,
};
pub use simd::Simd;
pub use sparse_rows::{accumulate_sparse, assign_sparse};
pub use team::{MemberTimes, NotAllowed, TeamThread, hold, pin_threads, pinned_cores, release, thread_times};
pub use threads::{ThreadModel, Threads};
