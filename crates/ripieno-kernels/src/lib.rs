//! Numeric inner loops of the algorithms: what one rank computes between two collectives.
//!
//! K-means: [`assign_accumulate`] is one pass, [`assign`] a prediction, [`update_min_distances`] a step of seeding,
//! [`squared_distances`] the whole matrix, [`recenter`] the local update. All matrices are row-major and contiguous.
//!
//! Results do not depend on the number of threads, nor on the SIMD level: a label is the argmin of the squared distance
//! evaluated in f64 (ties go to the lowest index), and every sum adds its rows in row order.
//!
//! No communication and no I/O here. Shapes that do not fit are the caller's broken invariant: the functions panic.

mod accumulate;
mod assign;
mod check;
mod distances;
mod matrix;
mod panels;
mod simd;
mod threads;

pub use accumulate::{Moved, recenter};
pub use assign::{Pass, assign, assign_accumulate, update_min_distances};
pub use check::first_non_finite;
pub use distances::{distances, squared_distances};
pub use matrix::{Centroid, Matrix, Point};
pub use simd::Simd;
pub use threads::Threads;
