//! Simulator: runs the executor's plans on a modeled network with a virtual clock.
//!
//! The simulator uses no I/O, no system clock, no threads and no random order. Equal simulations give identical
//! results, bit for bit.
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
