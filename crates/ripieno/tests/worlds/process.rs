//! A rank's process: whether it runs, what it waits for, its monitors and its part in agreements.

use crate::cables::{CableDirection, CablePayload};
use crate::faults::PATIENCE;
use crate::monitor::WorldMonitor;
use ripieno_run::membership::agreement::{Agreement, Decision};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessLife {
    Runs,
    Stopped {
        since_us: u64,
    },
    /// Killed, or its program has ended and the process with it.
    Over,
}

/// What has become of the agreement that a rank has begun last.
#[derive(Clone, Debug, PartialEq)]
pub enum AgreementResult {
    Decided(Decision),
    Excluded,
    GaveUp(String),
}

/// What the program is at.
#[derive(Clone, Copy, Debug)]
pub struct ProcessActivity {
    pub what: &'static str,
    pub since_us: u64,
    pub bound_us: u64,
}

/// How a program has ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgramEnding {
    Done,
    Raised,
    Differed(String),
    /// It was told that it cannot go on, and why.
    Failed(String),
}

pub struct Process {
    pub host: usize,
    pub life: ProcessLife,
    /// How far its clock is off, and how many millionths it runs fast.
    clock: (u64, u64),
    /// Counts sleeps, so that an alarm of an earlier one wakes nobody.
    pub nap: u64,
    /// Something has come since it last looked.
    pub has_news: bool,
    pub doing: Option<ProcessActivity>,
    pub ending: Option<ProgramEnding>,
    pub monitors: BTreeMap<u64, WorldMonitor>,
    pub agreement: Agreement,
    pub outcome: Option<AgreementResult>,
    pub ended: BTreeSet<usize>,
    /// What came while it was stopped.
    pub held: Vec<(CableDirection, CablePayload)>,
    /// Others may have left it out.
    pub has_stood_still: bool,
}

impl Process {
    pub fn new(rank: usize, hosts: &[usize], clock: (u64, u64)) -> Process {
        let is_one_node = hosts.iter().all(|&host| host == hosts[0]);
        Process {
            host: hosts[rank],
            life: ProcessLife::Runs,
            clock,
            nap: 0,
            has_news: false,
            doing: None,
            ending: None,
            monitors: BTreeMap::new(),
            agreement: Agreement::new(rank, hosts.len(), is_one_node, PATIENCE),
            outcome: None,
            ended: BTreeSet::new(),
            held: vec![],
            has_stood_still: false,
        }
    }

    pub fn lives(&self) -> bool {
        self.life != ProcessLife::Over
    }

    pub fn runs(&self) -> bool {
        self.life == ProcessLife::Runs
    }

    /// The time by its own clock.
    pub fn local(&self, now_us: u64) -> Duration {
        let (offset_us, fast) = self.clock;
        Duration::from_micros(offset_us + now_us + (u128::from(now_us) * u128::from(fast) / 1_000_000) as u64)
    }

    /// When it is `local` by its own clock, or a moment later.
    pub fn global(&self, local: Duration) -> u64 {
        let (offset_us, fast) = self.clock;
        let since = local.as_micros().saturating_sub(u128::from(offset_us));
        (since * 1_000_000 / (1_000_000 + u128::from(fast))) as u64 + 2
    }
}
