//! The process of a rank: its state, current activity, monitors and part in agreements.

use crate::connections::{Direction, Payload};
use crate::faults::TIMEOUTS;
use crate::monitor::WorldMonitor;
use ripieno_run::membership::agreement::{Agreement, Decision};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    Runs,
    Stopped {
        since_us: u64,
    },
    /// The process was killed, or its program and the process have ended.
    Over,
}

/// Result of the latest agreement that a rank has begun.
#[derive(Clone, Debug, PartialEq)]
pub enum AgreementResult {
    Decided(Decision),
    Excluded,
    GaveUp(String),
}

/// The current activity of the program, and its time limit.
#[derive(Clone, Copy, Debug)]
pub struct ProcessActivity {
    pub name: &'static str,
    pub since_us: u64,
    pub bound_us: u64,
}

/// Result of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgramEnding {
    Done,
    Raised,
    Differed(String),
    /// A call reported the given reason why the program cannot continue.
    Failed(String),
}

pub struct Process {
    pub host: usize,
    pub process_state: ProcessState,
    /// Offset of the process's clock in microseconds, and its drift in parts per million.
    clock: (u64, u64),
    /// Number of sleeps. A wake-up event of an earlier sleep has an old number and is ignored.
    pub sleep_number: u64,
    /// Whether an event has arrived since the process last checked.
    pub has_events: bool,
    pub activity: Option<ProcessActivity>,
    pub ending: Option<ProgramEnding>,
    pub monitors: BTreeMap<u64, WorldMonitor>,
    pub agreement: Agreement,
    pub outcome: Option<AgreementResult>,
    pub ended: BTreeSet<usize>,
    /// Payloads that arrived while the process was stopped.
    pub held: Vec<(Direction, Payload)>,
    /// Whether the process was stopped, so that other ranks may have excluded it.
    pub was_paused: bool,
}

impl Process {
    pub fn new(rank: usize, hosts: &[usize], clock: (u64, u64)) -> Process {
        let is_one_node = hosts.iter().all(|&host| host == hosts[0]);
        Process {
            host: hosts[rank],
            process_state: ProcessState::Runs,
            clock,
            sleep_number: 0,
            has_events: false,
            activity: None,
            ending: None,
            monitors: BTreeMap::new(),
            agreement: Agreement::new(rank, hosts.len(), is_one_node, TIMEOUTS),
            outcome: None,
            ended: BTreeSet::new(),
            held: vec![],
            was_paused: false,
        }
    }

    pub fn is_alive(&self) -> bool {
        self.process_state != ProcessState::Over
    }

    pub fn runs(&self) -> bool {
        self.process_state == ProcessState::Runs
    }

    /// Convert virtual time to the process's own clock.
    pub fn local(&self, now_us: u64) -> Duration {
        let (offset_us, drift_ppm) = self.clock;
        Duration::from_micros(offset_us + now_us + (u128::from(now_us) * u128::from(drift_ppm) / 1_000_000) as u64)
    }

    /// Convert a time of the process's own clock to virtual time, rounded up.
    pub fn global(&self, local: Duration) -> u64 {
        let (offset_us, drift_ppm) = self.clock;
        let since = local.as_micros().saturating_sub(u128::from(offset_us));
        (since * 1_000_000 / (1_000_000 + u128::from(drift_ppm))) as u64 + 2
    }
}
