//! Simulation of dynamic broadcasts: runs the same swarm nodes as the network driver on a modeled cluster with a
//! virtual clock.
//!
//! A message takes the alpha of its link. Blocks are flows that share wires fairly. A rank that forwards a block while
//! receiving it stays one step behind. Every run has the same faults: ranks die, are suspended or slow, links are cut,
//! and blocks are corrupted.

mod event_loop;
mod flows;
mod search;

use crate::cluster::Cluster;
use crate::plans::WireLoad;
use event_loop::SwarmState;
use ripieno_plan::swarm::{BlockManifest, CorruptBlock, Discipline, MemberFailure, SwarmTiming};
pub use search::search_block_bytes;
use std::fmt;

/// Maximum number of blocks of all ranks together. More do not fit the memory of a typical machine.
pub const COPIES_MAX: usize = 100_000_000;

/// One broadcast value.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedBroadcast {
    /// The rank that has the value.
    pub root: usize,
    /// Size of the value in bytes.
    pub bytes: usize,
    /// Size of a block in bytes, or `None` for the default.
    pub block_bytes: Option<usize>,
    /// Distribution strategy for the blocks.
    pub discipline: Discipline,
    /// Order of the other ranks in a chain, or `None` for ascending ranks.
    pub order: Option<Vec<usize>>,
    /// Start time in seconds.
    pub start_s: f64,
}

/// Broadcasts on a cluster, and faults in addition to the cluster's own [faults](crate::ClusterFaults).
#[derive(Clone, Debug, PartialEq)]
pub struct SwarmRequest {
    /// The broadcast values.
    pub broadcasts: Vec<SimulatedBroadcast>,
    /// Timeouts of the protocol.
    pub timing: SwarmTiming,
    /// Ranks that start late, each with its time.
    pub late_joins: Vec<(usize, f64)>,
    /// Ranks that are suspended forever, each with its time.
    pub suspensions: Vec<(usize, f64)>,
    /// Ranks, but no root, that are silently disconnected from all others, not from each other, and the time of this
    /// fault.
    pub partition: Option<(Vec<usize>, f64)>,
    /// Ranks that corrupt the next block that they start to send, each with the start time of this fault.
    pub corruptions: Vec<(usize, f64)>,
    /// Delay in seconds until the peer detects a death or a cut.
    pub detection_delay_s: f64,
    /// Interval in seconds at which rates are rebalanced, or 0 to rebalance at every event.
    pub rebalance_interval_s: f64,
    /// Time limit of the simulation in seconds.
    pub time_limit_s: f64,
    /// Random seed.
    pub seed: u64,
    /// Whether to record every fetch.
    pub records_fetches: bool,
}

impl SwarmRequest {
    /// Return a single broadcast of `bytes` from `root` without faults.
    pub fn of(root: usize, bytes: usize, discipline: Discipline) -> SwarmRequest {
        let broadcast = SimulatedBroadcast { root, bytes, block_bytes: None, discipline, order: None, start_s: 0.0 };
        SwarmRequest {
            broadcasts: vec![broadcast],
            timing: SwarmTiming::default(),
            late_joins: Vec::new(),
            suspensions: Vec::new(),
            partition: None,
            corruptions: Vec::new(),
            detection_delay_s: 0.01,
            rebalance_interval_s: 0.0,
            time_limit_s: 1e6,
            seed: 0,
            records_fetches: false,
        }
    }
}

/// Outcome of one rank.
#[derive(Clone, Debug, PartialEq)]
pub enum RankOutcome {
    /// The rank has the value.
    Done {
        /// Time of completion in seconds.
        at_s: f64,
        /// Whether all bytes equal the root's value.
        is_valid: bool,
    },
    /// The rank knows that it will not receive the value.
    Failed {
        /// Time of the failure in seconds.
        at_s: f64,
        /// The failure.
        failure: MemberFailure,
    },
    /// The rank died or was suspended before it had the value.
    Lost {
        /// Time of the loss in seconds.
        at_s: f64,
    },
    /// The rank waits forever.
    Waiting,
}

/// Final report of the tracker.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackerReport {
    /// Rank of the tracker.
    pub tracker: usize,
    /// Time of the report in seconds.
    pub at_s: f64,
    /// Ranks that have the complete value.
    pub acknowledged: Vec<usize>,
    /// Ranks that were lost before.
    pub lost: Vec<usize>,
    /// Corrupt blocks, each with the ranks that sent and received it.
    pub corruptions: Vec<CorruptBlock>,
}

/// A transfer of a block or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedFetch {
    /// Index of the value.
    pub broadcast: usize,
    /// The sender.
    pub sender: usize,
    /// The receiver.
    pub receiver: usize,
    /// Index of the block.
    pub block: usize,
    /// Number of bytes.
    pub bytes: usize,
    /// Start time in seconds.
    pub start_s: f64,
    /// End time in seconds.
    pub end_s: f64,
}

/// Result of a simulation.
#[derive(Clone, Debug)]
pub struct SwarmOutcome {
    /// Manifest of each value, which defines its blocks.
    pub manifests: Vec<BlockManifest>,
    /// Outcome of each rank, for each value.
    pub outcomes: Vec<Vec<RankOutcome>>,
    /// Report of the tracker, for each value.
    pub settled: Vec<Option<TrackerReport>>,
    /// Ranks that act as tracker at the end, for each value.
    pub trackers: Vec<Vec<usize>>,
    /// Bytes sent by each rank, including corrupt and incomplete blocks.
    pub sent_bytes: Vec<usize>,
    /// Load of each wire in use.
    pub loads: Vec<WireLoad>,
    /// All fetches, if requested.
    pub fetches: Vec<SimulatedFetch>,
    /// Number of protocol messages.
    pub message_count: usize,
    /// Time of the last event in seconds.
    pub end_s: f64,
}

impl SwarmOutcome {
    /// Return the time at which the last successful rank received the value.
    pub fn time_s(&self, broadcast: usize) -> f64 {
        let done_s = self.outcomes[broadcast].iter().filter_map(|outcome| match outcome {
            RankOutcome::Done { at_s, .. } => Some(*at_s),
            _ => None,
        });
        done_s.fold(0.0, f64::max)
    }
}

/// The reason why a request cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwarmError {
    /// The request names a rank that does not exist.
    NoSuchRank {
        /// The rank.
        rank: usize,
    },
    /// The simulation has too many blocks.
    TooLarge {
        /// Number of blocks of all ranks.
        copy_count: usize,
    },
    /// The caller interrupted the simulation.
    Interrupted,
}

impl fmt::Display for SwarmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwarmError::NoSuchRank { rank } => write!(f, "the cluster has no rank {rank}"),
            SwarmError::TooLarge { copy_count } => {
                write!(f, "{copy_count} blocks on all ranks together: expected at most {COPIES_MAX}; use larger blocks")
            }
            SwarmError::Interrupted => write!(f, "the simulation was interrupted"),
        }
    }
}

impl std::error::Error for SwarmError {}

fn check(p: usize, request: &SwarmRequest, block_counts: &[usize]) -> Result<(), SwarmError> {
    let timed = request.late_joins.iter().chain(&request.suspensions).chain(&request.corruptions);
    let separated = request.partition.iter().flat_map(|(ranks, _)| ranks.iter().copied());
    let named = timed.map(|(rank, _)| *rank).chain(separated);
    let ordered = request
        .broadcasts
        .iter()
        .flat_map(|broadcast| broadcast.order.iter().flatten().copied().chain([broadcast.root]));
    if let Some(rank) = named.chain(ordered).find(|&rank| rank >= p) {
        return Err(SwarmError::NoSuchRank { rank });
    }
    let copy_count = block_counts.iter().sum::<usize>() * p;
    if copy_count > COPIES_MAX { Err(SwarmError::TooLarge { copy_count }) } else { Ok(()) }
}

/// Simulate broadcasts on a cluster.
pub fn swarm(cluster: &Cluster, request: &SwarmRequest) -> Result<SwarmOutcome, SwarmError> {
    swarm_interruptible(cluster, request, &|| false)
}

/// Simulate broadcasts on a cluster. `is_interrupted` is called from time to time and stops the simulation if it
/// returns true.
pub fn swarm_interruptible(
    cluster: &Cluster,
    request: &SwarmRequest,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<SwarmOutcome, SwarmError> {
    let mut event_loop = SwarmState::ready(cluster, request)?;
    event_loop.run(is_interrupted)?;
    Ok(event_loop.outcome())
}
