//! The simulator: plans, the same values that the executor runs, played on a modelled network by a virtual clock.
//!
//! No I/O, no clock of the system, no thread, no random order: the same play comes to the same end, bit for bit.
#![forbid(unsafe_code)]

mod asked;
pub mod clock;
mod cluster;
mod explain;
mod fair;
mod faults;
mod play;
mod sparse;
pub mod swarm;
mod waits;

pub use asked::{Asked, Unanswered};
pub use cluster::{Cluster, Kind, Link, WireName};
pub use explain::{Candidate, EXPLAINED_OPERATIONS_MAX, Explanation, Outcome, Unplayed, priced};
pub use faults::Faults;
pub use play::{Load, OPERATIONS_MAX, Played, Unplayable, play};
pub use sparse::play_sparse;
