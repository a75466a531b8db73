//! The simulator: plans, the same values that the executor runs, played on a modelled network by a virtual clock.
//!
//! No I/O, no clock of the system, no thread, no random order: the same play comes to the same end, bit for bit.
#![forbid(unsafe_code)]

pub mod clock;
mod cluster;
mod explain;
mod fair;
mod faults;
mod play;
mod request;
mod sparse;
pub mod swarm;
mod waits;

pub use cluster::{Cluster, ConnectionKind, LinkCost, WireName};
pub use explain::{Candidate, EXPLAINED_OPERATIONS_MAX, Explanation, PlanCost, Unplayed, priced};
pub use faults::ClusterFaults;
pub use play::{OPERATIONS_MAX, Played, Unplayable, WireLoad, play};
pub use request::{NotSimulable, SimulationRequest};
pub use sparse::play_sparse;
