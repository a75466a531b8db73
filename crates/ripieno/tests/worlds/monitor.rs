//! A rank's monitor in one world, as `ripieno-net` has it: the membership machine, and what it has said.

use ripieno_run::JobFailure;
use ripieno_run::membership::{CallHistory, Membership};
use std::collections::BTreeMap;

/// How long a hub that has left stays to watch over those that work.
pub const LINGER_US: u64 = 1_000_000;
/// How long another rank that has left waits for the hub to hang up.
pub const HANG_UP_US: u64 = 500_000;

pub struct WorldMonitor {
    /// This rank, and everybody's number in the first world.
    pub rank: usize,
    pub members: Vec<usize>,
    /// Where it can be met.
    pub seat: u64,
    pub machine: Membership,
    pub history: CallHistory,
    pub failure: Option<JobFailure>,
    pub losses: BTreeMap<usize, JobFailure>,
    pub is_complete: bool,
    /// When it ends whatever is left to do; set once the rank has left.
    pub end_us: Option<u64>,
    pub is_over: bool,
    /// Its next tick is on the agenda.
    pub next_us: u64,
}

impl WorldMonitor {
    pub fn new(rank: usize, members: Vec<usize>, seat: u64, machine: Membership) -> WorldMonitor {
        WorldMonitor {
            rank,
            members,
            seat,
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
