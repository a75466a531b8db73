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
mod number_set;
mod plans;
mod request;
mod sparse;
pub mod swarm;
mod waits;

pub use cluster::{Cluster, ConnectionKind, LinkCost, WireName};
pub use explain::{Candidate, EXPLAINED_OPERATIONS_MAX, Explanation, NotSimulated, PlanCost, priced};
pub use faults::ClusterFaults;
pub use plans::{ESTIMATED_STEPS_MAX, OPERATIONS_MAX, PlanSimulation, STEPS_MAX, SimulationError, WireLoad, simulate};
pub use request::{NotSimulable, SimulationRequest};
pub use sparse::simulate_sparse_plans;
