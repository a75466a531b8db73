//! Simulation of plans: runs the plans of all ranks on a cluster with a virtual clock.
//!
//! Every operation is a flow: bytes that pass at a piecewise constant rate. Flows share every wire fairly
//! ([`fair`](crate::fair)). A flow that has reached the limit of its [waits](crate::waits) continues at the rate of the
//! flow that it waits for. Messages of one segment take turns at a port, as in the [cost model](ripieno_plan::simulate)
//! of plans. Longer messages share the port.
//!
//! A receive is a separate flow that follows its send, so the network buffers data for a busy receiver. The cost of a
//! simulation step depends only on the affected flows: a chain of 100 000 ranks takes seconds.

mod balance;
mod event_loop;
mod flow;
mod flow_graph;
mod meter;
mod symmetry;

use crate::cluster::{Cluster, ConnectionKind, WireName};
use event_loop::SimulationState;
use flow_graph::FlowGraph;
use meter::StepMeter;
use ripieno_plan::Plan;
use ripieno_plan::simulate::SimulatedTransfer;
use std::fmt;
pub(crate) use symmetry::Representative;

/// Maximum number of operations of all ranks together. More do not fit the memory of a typical machine.
pub const OPERATIONS_MAX: usize = 10_000_000;

/// Maximum number of steps of a simulation: starts, events and rates of flows.
pub const STEPS_MAX: u64 = 200_000_000;

/// Maximum number of steps by an estimate. They take about a minute.
pub const ESTIMATED_STEPS_MAX: u64 = 40_000_000;

/// Result of a simulation.
#[derive(Clone, Debug)]
pub struct PlanSimulation {
    /// Finish time of each rank, or `None` if it never finished.
    pub finish_s: Vec<Option<f64>>,
    /// Messages in the order of their arrival. In a simulation by symmetry, the messages of rank 0 to itself.
    pub transfers: Vec<SimulatedTransfer>,
    /// Number of messages that each transfer represents: 1, or the number of ranks in a simulation by symmetry.
    pub transfer_weight: usize,
    /// Bytes sent by each rank, including messages that never arrived.
    pub sent_bytes: Vec<usize>,
    /// Load of each wire in use.
    pub loads: Vec<WireLoad>,
    /// Number of steps that the simulation took.
    pub step_count: u64,
}

/// Load of one wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WireLoad {
    /// The wire.
    pub wire: WireName,
    /// Number of bytes carried.
    pub bytes: usize,
    /// Time that these bytes would take on the wire alone, in seconds.
    pub busy_s: f64,
}

/// The reason why plans cannot be simulated.
#[derive(Clone, Debug, PartialEq)]
pub enum SimulationError {
    /// A send has no matching receive, a receive has no matching send, or their lengths differ.
    Unmatched {
        /// The sender.
        sender: usize,
        /// The receiver.
        receiver: usize,
    },
    /// The plans have too many operations.
    TooLarge {
        /// Number of operations, or a lower bound.
        operation_count: usize,
    },
    /// The simulation would take too many steps by an estimate.
    TooManySteps {
        /// Estimated number of steps.
        step_count: u64,
    },
    /// The simulation takes too many steps.
    TooLong {
        /// Share of the bytes that had passed after the maximum number of steps, usually [`STEPS_MAX`].
        passed_share: f64,
    },
    /// The caller interrupted the simulation.
    Interrupted,
}

impl fmt::Display for SimulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimulationError::Unmatched { sender, receiver } => {
                write!(f, "the sends of rank {sender} to rank {receiver} do not match the receives there")
            }
            SimulationError::TooLarge { operation_count } => {
                write!(f, "about {operation_count} operations, the maximum is {OPERATIONS_MAX}")
            }
            SimulationError::TooManySteps { step_count } => {
                write!(f, "about {step_count} steps, the maximum is {ESTIMATED_STEPS_MAX}")
            }
            SimulationError::TooLong { passed_share } => {
                let percent = 100.0 * passed_share;
                write!(f, "{percent:.1} % of the bytes had passed after {STEPS_MAX} steps, the maximum")
            }
            SimulationError::Interrupted => write!(f, "the simulation was interrupted"),
        }
    }
}

impl std::error::Error for SimulationError {}

impl PlanSimulation {
    /// Return the finish time of the last rank, or `None` if any rank never finished.
    pub fn time_s(&self) -> Option<f64> {
        self.finish_s.iter().try_fold(0.0, |latest: f64, finish_s| finish_s.map(|finish_s| latest.max(finish_s)))
    }

    /// Return the wire with the longest busy time.
    pub fn busiest(&self) -> Option<&WireLoad> {
        self.loads.iter().max_by(|a, b| a.busy_s.total_cmp(&b.busy_s))
    }

    /// Return the number of messages that arrived.
    pub fn message_count(&self) -> usize {
        self.transfers.len() * self.transfer_weight
    }

    /// Return the bytes of all received messages by kind of connection.
    pub fn bytes_by_kind(&self, cluster: &Cluster) -> [(ConnectionKind, usize); 3] {
        let mut sums = [(ConnectionKind::Memory, 0), (ConnectionKind::NetworkLink, 0), (ConnectionKind::Uplink, 0)];
        if self.transfer_weight > 1 {
            sums[ConnectionKind::NetworkLink as usize].1 = self.sent_bytes.iter().sum();
            return sums;
        }
        for transfer in &self.transfers {
            sums[cluster.kind(transfer.sender, transfer.receiver) as usize].1 += transfer.length_bytes;
        }
        sums
    }
}

/// Simulate one plan per rank. `is_interrupted` is called from time to time and stops the simulation if it
/// returns true.
pub fn simulate(
    cluster: &Cluster,
    plans: impl Iterator<Item = Plan>,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<PlanSimulation, SimulationError> {
    simulate_steps(cluster, plans, STEPS_MAX, is_interrupted)
}

/// Simulate one plan per rank in at most `step_count_max` steps.
pub(crate) fn simulate_steps(
    cluster: &Cluster,
    plans: impl Iterator<Item = Plan>,
    step_count_max: u64,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<PlanSimulation, SimulationError> {
    let mut meter = StepMeter::new(step_count_max, is_interrupted);
    let mut event_loop = SimulationState::ready(cluster, FlowGraph::of(cluster, plans, is_interrupted)?);
    event_loop.run(&mut meter)?;
    Ok(PlanSimulation { step_count: meter.step_count(), ..event_loop.simulated() })
}
