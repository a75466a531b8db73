//! A rank's monitor in one world, as in `ripieno-net`: the membership machine and its reports.

use ripieno_run::JobFailure;
use ripieno_run::membership::{CallHistory, Membership};
use std::collections::BTreeMap;

/// Time that a departed hub continues to monitor the remaining ranks.
pub const LINGER_US: u64 = 1_000_000;
/// Time that any other departed rank waits for the hub to close the connection.
pub const DISCONNECT_TIMEOUT_US: u64 = 500_000;

pub struct WorldMonitor {
    /// This rank in this world.
    pub rank: usize,
    /// The rank in the first world of each rank.
    pub members: Vec<usize>,
    /// The address at which the rank accepts connections.
    pub address: u64,
    pub machine: Membership,
    pub history: CallHistory,
    pub failure: Option<JobFailure>,
    pub losses: BTreeMap<usize, JobFailure>,
    pub is_complete: bool,
    /// The time at which the monitor ends in any case; set once the rank has left.
    pub end_us: Option<u64>,
    pub is_over: bool,
    /// The time of the next planned tick.
    pub next_us: u64,
}

impl WorldMonitor {
    pub fn new(rank: usize, members: Vec<usize>, address: u64, machine: Membership) -> WorldMonitor {
        WorldMonitor {
            rank,
            members,
            address,
            machine,
            history: CallHistory::default(),
            failure: None,
            losses: BTreeMap::new(),
            is_complete: false,
            end_us: None,
            is_over: false,
            next_us: u64::MAX,
        }
    }
}
