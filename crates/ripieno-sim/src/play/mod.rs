//! The play: all ranks' plans, played on a cluster by the virtual clock.
//!
//! Every operation is a flow: bytes that pass at a rate until the rate changes. Rates are shared fairly on every wire
//! ([`fair`](crate::fair)); a flow that has come as far as its [waits](crate::waits) let it goes on as fast as what it
//! waits for. Messages of one segment take turns at a port, as in the [cost](ripieno_plan::simulate) of plans;
//! longer ones share it. A receive is a flow of its own, which follows its send, so the network holds what a receiver
//! has no time for. What a step costs depends on the flows that it concerns, not on all: a chain of 100 000 ranks
//! takes seconds.

mod balance;
mod flow;
mod score;
mod stage;

use crate::cluster::{Cluster, ConnectionKind, WireName};
use ripieno_plan::Plan;
use ripieno_plan::simulate::SimulatedTransfer;
use score::Score;
use stage::PlayState;
use std::fmt;

/// Operations of all ranks together: more do not fit the memory of a usual machine.
pub const OPERATIONS_MAX: usize = 10_000_000;

/// Events of a play between two questions whether it is interrupted.
const UNINTERRUPTED_EVENTS: usize = 1 << 10;

/// Operations that are planned between two questions whether a play is interrupted.
pub(crate) const UNINTERRUPTED_OPERATIONS: usize = 1 << 16;

/// What came of a play.
#[derive(Clone, Debug)]
pub struct Played {
    /// When each rank was done; none, if it never was.
    pub finish_s: Vec<Option<f64>>,
    /// The messages that arrived, in the order in which they did.
    pub transfers: Vec<SimulatedTransfer>,
    /// Bytes that each rank sent, those that never arrived among them.
    pub sent_bytes: Vec<usize>,
    /// The wires that carried something.
    pub loads: Vec<WireLoad>,
}

/// What one wire carried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WireLoad {
    /// Which wire.
    pub wire: WireName,
    /// What it carried.
    pub bytes: usize,
    /// How long that would have taken it alone.
    pub busy_s: f64,
}

/// Why plans cannot be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unplayable {
    /// A message is sent that nobody receives, or the other way round, or its lengths differ.
    Unmatched {
        /// Who sends.
        sender: usize,
        /// Who receives.
        receiver: usize,
    },
    /// More operations than there is room for.
    TooLarge {
        /// How many at least.
        operation_count: usize,
    },
    /// The caller asked for an end.
    Interrupted,
}

impl fmt::Display for Unplayable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unplayable::Unmatched { sender, receiver } => {
                write!(f, "what rank {sender} sends is not what rank {receiver} receives of it")
            }
            Unplayable::TooLarge { operation_count } => {
                write!(f, "{operation_count} operations and more: expected at most {OPERATIONS_MAX}")
            }
            Unplayable::Interrupted => write!(f, "the simulation was interrupted"),
        }
    }
}

impl std::error::Error for Unplayable {}

impl Played {
    /// When the last rank was done; none, if one never was.
    pub fn time_s(&self) -> Option<f64> {
        self.finish_s.iter().try_fold(0.0, |latest: f64, finish_s| finish_s.map(|finish_s| latest.max(finish_s)))
    }

    /// The wire that was busy longest.
    pub fn busiest(&self) -> Option<&WireLoad> {
        self.loads.iter().max_by(|one, other| one.busy_s.total_cmp(&other.busy_s))
    }

    /// Bytes of the messages that arrived by each kind of link.
    pub fn bytes_by_kind(&self, cluster: &Cluster) -> [(ConnectionKind, usize); 3] {
        let mut sums = [(ConnectionKind::Memory, 0), (ConnectionKind::Cable, 0), (ConnectionKind::Uplink, 0)];
        for transfer in &self.transfers {
            sums[cluster.kind(transfer.sender, transfer.receiver) as usize].1 += transfer.length_bytes;
        }
        sums
    }
}

/// Plays one plan per rank, unless it is interrupted, which is asked from time to time.
pub fn play(
    cluster: &Cluster,
    plans: impl Iterator<Item = Plan>,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Played, Unplayable> {
    let mut stage = PlayState::ready(cluster, Score::of(cluster, plans, is_interrupted)?);
    stage.run(is_interrupted)?;
    Ok(stage.played())
}
