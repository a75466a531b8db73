//! Dynamic broadcast on a modelled cluster: the machines that a driver of sockets runs, by a virtual clock.
//!
//! Messages take the alpha of their link. Blocks are flows that share wires fairly; a rank that passes a block on while
//! it comes in stays a step behind. Ranks die, stand still and are slow, links are cut, blocks come wrong: the same
//! in every run.

mod flows;
mod search;
mod stage;

use crate::cluster::Cluster;
use crate::play::WireLoad;
use ripieno_plan::swarm::{CorruptBlock, Discipline, Manifest, MemberFailure, SwarmTiming};
pub use search::search_block_bytes;
use stage::SwarmState;
use std::fmt;

/// Blocks of all ranks together: more do not fit the memory of a usual machine.
pub const COPIES_MAX: usize = 100_000_000;

/// One value that is broadcast.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedBroadcast {
    /// Who has it.
    pub root: usize,
    /// How long it is.
    pub bytes: usize,
    /// How long a block is; as usual, if none.
    pub block_bytes: Option<usize>,
    /// How blocks find their ways.
    pub discipline: Discipline,
    /// The other ranks, as a chain runs; by their numbers, if none.
    pub order: Option<Vec<usize>>,
    /// When it begins.
    pub start_s: f64,
}

/// What is broadcast on a cluster, and what goes wrong beside the cluster's own [faults](crate::Faults).
#[derive(Clone, Debug, PartialEq)]
pub struct Casting {
    /// The values.
    pub casts: Vec<SimulatedBroadcast>,
    /// The times of the protocol.
    pub timing: SwarmTiming,
    /// Ranks that come late, and when.
    pub late: Vec<(usize, f64)>,
    /// Ranks that stand still from then on.
    pub stops: Vec<(usize, f64)>,
    /// Ranks of which the next block that they begin to send after this comes wrong.
    pub corruptions: Vec<(usize, f64)>,
    /// How long after a death or a cut the ranks at the other end are told.
    pub notice_s: f64,
    /// How often rates are made fair anew; with each event, if 0.
    pub balance_s: f64,
    /// When it is no use to go on.
    pub longest_s: f64,
    /// Seed of what is drawn.
    pub seed: u64,
    /// Whether every fetch is kept.
    pub keeps_fetches: bool,
}

impl Casting {
    /// One value of `bytes` from `root`, without anything going wrong.
    pub fn of(root: usize, bytes: usize, discipline: Discipline) -> Casting {
        let cast = SimulatedBroadcast { root, bytes, block_bytes: None, discipline, order: None, start_s: 0.0 };
        Casting {
            casts: vec![cast],
            timing: SwarmTiming::default(),
            late: Vec::new(),
            stops: Vec::new(),
            corruptions: Vec::new(),
            notice_s: 0.01,
            balance_s: 0.0,
            longest_s: 1e6,
            seed: 0,
            keeps_fetches: false,
        }
    }
}

/// What became of one rank.
#[derive(Clone, Debug, PartialEq)]
pub enum RankOutcome {
    /// It has the value.
    Done {
        /// Since when.
        at_s: f64,
        /// Whether all bytes are the root's.
        is_right: bool,
    },
    /// It knows that it will not have it.
    Failed {
        /// Since when.
        at_s: f64,
        /// Why.
        failure: MemberFailure,
    },
    /// It died, or stood still, before it had it.
    Lost {
        /// When.
        at_s: f64,
    },
    /// It waits for ever.
    Waiting,
}

/// What the tracker said at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Where it stood.
    pub by: usize,
    /// When.
    pub at_s: f64,
    /// Who has everything.
    pub acknowledged: Vec<usize>,
    /// Who was lost before.
    pub lost: Vec<usize>,
    /// Blocks that came wrong, and the sources to blame.
    pub corruptions: Vec<CorruptBlock>,
}

/// A block, or part of one, that came from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedFetch {
    /// Which value.
    pub cast: usize,
    /// Who sent it.
    pub sender: usize,
    /// Who got it.
    pub receiver: usize,
    /// Which block.
    pub block: usize,
    /// How much of it.
    pub bytes: usize,
    /// When it began.
    pub start_s: f64,
    /// When it ended.
    pub end_s: f64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Swarmed {
    /// Of each value, how it was cut.
    pub manifests: Vec<Manifest>,
    /// Of each value, what became of each rank.
    pub outcomes: Vec<Vec<RankOutcome>>,
    /// Of each value, what the tracker said.
    pub settled: Vec<Option<Settled>>,
    /// Bytes that each rank sent, those of wrong and broken blocks among them.
    pub sent_bytes: Vec<usize>,
    /// The wires that carried something.
    pub loads: Vec<WireLoad>,
    /// What came from whom, if asked for.
    pub fetched: Vec<SimulatedFetch>,
    /// Messages of the protocol.
    pub message_count: usize,
    /// When the last thing happened.
    pub end_s: f64,
}

impl Swarmed {
    /// When the last rank that has the value had it.
    pub fn time_s(&self, cast: usize) -> f64 {
        let done_s = self.outcomes[cast].iter().filter_map(|outcome| match outcome {
            RankOutcome::Done { at_s, .. } => Some(*at_s),
            _ => None,
        });
        done_s.fold(0.0, f64::max)
    }
}

/// Why something cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uncast {
    /// A rank that is named is not there.
    NoSuchRank {
        /// The rank.
        rank: usize,
    },
    /// More blocks than there is room for.
    TooLarge {
        /// How many, of all ranks.
        copy_count: usize,
    },
    /// Whoever asked for it wants it no longer.
    Interrupted,
}

impl fmt::Display for Uncast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uncast::NoSuchRank { rank } => write!(f, "rank {rank} is not one of the cluster's"),
            Uncast::TooLarge { copy_count } => {
                write!(f, "{copy_count} blocks on all ranks together: expected at most {COPIES_MAX}, of larger blocks")
            }
            Uncast::Interrupted => write!(f, "the simulation was interrupted"),
        }
    }
}

impl std::error::Error for Uncast {}

fn check(p: usize, asked: &Casting, block_counts: &[usize]) -> Result<(), Uncast> {
    let named = asked.late.iter().chain(&asked.stops).chain(&asked.corruptions).map(|(rank, _)| *rank);
    let ordered = asked.casts.iter().flat_map(|cast| cast.order.iter().flatten().copied().chain([cast.root]));
    if let Some(rank) = named.chain(ordered).find(|&rank| rank >= p) {
        return Err(Uncast::NoSuchRank { rank });
    }
    let copy_count = block_counts.iter().sum::<usize>() * p;
    if copy_count > COPIES_MAX { Err(Uncast::TooLarge { copy_count }) } else { Ok(()) }
}

/// Broadcasts on a cluster.
pub fn swarm(cluster: &Cluster, asked: &Casting) -> Result<Swarmed, Uncast> {
    swarm_unless(cluster, asked, &|| false)
}

/// The same, unless it is interrupted, which is asked from time to time.
pub fn swarm_unless(cluster: &Cluster, asked: &Casting, is_interrupted: &dyn Fn() -> bool) -> Result<Swarmed, Uncast> {
    let mut stage = SwarmState::ready(cluster, asked)?;
    stage.run(is_interrupted)?;
    Ok(stage.swarmed())
}
