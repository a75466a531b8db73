//! What is broadcast, cut into blocks, and the discipline by which blocks find their ways.

use core::fmt;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// Blocks of a large value: what the Spark broadcast report found best.
pub const BLOCK_BYTES_MAX: usize = 4 << 20;
/// The least that is worth a request.
pub const BLOCK_BYTES_MIN: usize = 16 << 10;
/// How many blocks a value has at least, as far as they do not become too small: a rank has to wait for one of them
/// before it can give anything on.
const BLOCKS_WANTED: usize = 256;
/// More blocks than this a value does not have: their digests are 8 MiB, of 4 TiB in the longest usual blocks.
pub const BLOCKS_MAX: usize = 1 << 20;

/// How much of a block that is still coming in is passed on at once at least, unless it ends there: no less than a few
/// packets. The last member of a chain waits for so much of every member before it, and each costs every member a turn.
pub fn step_bytes(block_bytes: usize) -> usize {
    const STEPS_MAX: usize = 16;
    (block_bytes / STEPS_MAX).clamp(4 << 10, 16 << 10)
}

/// How blocks find their ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Discipline {
    /// A chain in the order of the members; whoever loses the one before is linked to the one before that.
    Chain,
    /// As many trees as stripes. Every member has children in one of them; whoever loses its parent in a tree gets
    /// another.
    SplitStream,
    /// A binomial tree over the members; whoever loses its parent gets another.
    Tree,
    /// Everybody gets everything from the root.
    Flat,
    /// The tracker knows who has which blocks, and names a source for each fetch.
    CooperativeSharing {
        /// Which source first.
        priority: Priority,
        /// To how many a source sends at once.
        degree: usize,
    },
    /// Members tell their neighbours what they have, and fetch the rarest blocks first.
    BitTorrent {
        /// To how many a member sends at once.
        uploads: usize,
        /// How many neighbours the tracker names.
        neighbours: usize,
    },
}

/// Which source the tracker names first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Priority {
    /// The one with the fewest that fetch from it.
    LowestLeecherCount,
    /// The fastest, as those that fetched from it have observed, by powers of two.
    HighestObservedSpeed,
}

impl Discipline {
    /// Cooperative sharing as by default.
    pub const CSB: Discipline = Discipline::CooperativeSharing { priority: Priority::HighestObservedSpeed, degree: 3 };
    /// BitTorrent as by default: eight uploads at once.
    pub const BITTORRENT: Discipline = Discipline::BitTorrent { uploads: 8, neighbours: 16 };
    /// The names by which users ask for them.
    pub const NAMES: [&'static str; 7] = ["chain", "splitstream", "tree", "flat", "csb", "csb-llcf", "bittorrent"];

    /// The discipline of a name.
    pub fn named(name: &str) -> Option<Discipline> {
        match name {
            "chain" => Some(Discipline::Chain),
            "splitstream" => Some(Discipline::SplitStream),
            "tree" => Some(Discipline::Tree),
            "flat" => Some(Discipline::Flat),
            "csb" => Some(Discipline::CSB),
            "csb-llcf" => Some(Discipline::CooperativeSharing { priority: Priority::LowestLeecherCount, degree: 3 }),
            "bittorrent" => Some(Discipline::BITTORRENT),
            _ => None,
        }
    }

    /// Whether members pass on the bytes of a block while it comes in. Where they do not, a block is checked before it
    /// is passed on.
    pub fn is_streamed(self) -> bool {
        matches!(self, Discipline::Chain | Discipline::SplitStream | Discipline::Tree | Discipline::Flat)
    }
}

/// What everybody has to know of a value that is broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Its length.
    pub bytes: usize,
    /// The length of all blocks but the last.
    pub block_bytes: usize,
    /// How many streams blocks are dealt to; one where they are not streamed.
    pub stripe_count: usize,
    /// How blocks find their ways.
    pub discipline: Discipline,
}

impl Manifest {
    /// A value of `bytes` for `size` ranks, the root among them, in blocks of `block_bytes`; if that is not named, in
    /// 256 blocks of 16 KiB to 4 MiB each. Blocks of which there would be more than [`BLOCKS_MAX`] are longer.
    pub fn new(bytes: usize, block_bytes: Option<usize>, discipline: Discipline, size: usize) -> Manifest {
        let usual = || (bytes / BLOCKS_WANTED).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        let block_bytes = block_bytes.unwrap_or_else(usual);
        let least = bytes.div_ceil(BLOCKS_MAX);
        assert!(block_bytes > 0, "a block has a byte at least");
        let stripe_count = match discipline {
            Discipline::SplitStream => crate::algorithms::tree::stripe_count(size),
            _ => 1,
        };
        Manifest { bytes, block_bytes: block_bytes.max(least), stripe_count, discipline }
    }

    /// How many blocks.
    pub fn block_count(&self) -> usize {
        self.bytes.div_ceil(self.block_bytes)
    }

    /// How long one is.
    pub fn block_length(&self, block: usize) -> usize {
        self.block_bytes.min(self.bytes - block * self.block_bytes)
    }

    /// To which stripe a block belongs.
    pub fn stripe(&self, block: usize) -> usize {
        block % self.stripe_count
    }
}

/// The times of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwarmTiming {
    /// Who gets no byte for so long asks the tracker; who says nothing for so long is asked by it.
    pub stall: Duration,
    /// How long a question waits for its answer before the other one counts as lost.
    pub answer: Duration,
}

impl Default for SwarmTiming {
    fn default() -> SwarmTiming {
        SwarmTiming { stall: Duration::from_secs(2), answer: Duration::from_secs(1) }
    }
}

/// Why a member ends without the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberFailure {
    /// The root is lost, and those that live do not have everything together.
    RootLost {
        /// The root.
        root: usize,
        /// How many blocks nobody has.
        missing_count: usize,
    },
    /// The member cannot reach those who could go on without the root.
    CutOff {
        /// The root.
        root: usize,
    },
    /// The others have gone on without this member, which did not answer.
    GivenUp {
        /// Who said so.
        by: usize,
    },
}

impl fmt::Display for MemberFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberFailure::RootLost { root, missing_count } => {
                write!(f, "rank {root}, the root of the broadcast, is lost, and {missing_count} blocks with it")
            }
            MemberFailure::CutOff { root } => {
                write!(f, "rank {root}, the root of the broadcast, cannot be reached, though others reach it")
            }
            MemberFailure::GivenUp { by } => {
                write!(f, "rank {by} had no answer from this rank, and goes on without it")
            }
        }
    }
}

impl core::error::Error for MemberFailure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_longer_where_there_would_be_too_many() {
        let manifest = |bytes, block_bytes| Manifest::new(bytes, block_bytes, Discipline::Chain, 2);
        assert_eq!(manifest(1 << 20, Some(1)).block_bytes, 1);
        assert_eq!(manifest((1 << 20) + 1, Some(1)).block_bytes, 2);
        assert!(manifest(10_000_000_001, Some(3)).block_count() <= BLOCKS_MAX);
        assert_eq!(manifest(1 << 43, None).block_count(), BLOCKS_MAX);
    }
}
