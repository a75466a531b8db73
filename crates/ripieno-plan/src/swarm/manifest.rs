//! Description of a broadcast value, its blocks, and the discipline that distributes them.

use core::fmt;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// Block size of a large value: the best size found in the Spark broadcast report.
pub const BLOCK_BYTES_MAX: usize = 4 << 20;
/// Smallest block that is worth a request, in bytes.
pub const BLOCK_BYTES_MIN: usize = 16 << 10;
/// Target number of blocks of a value, limited by [`BLOCK_BYTES_MIN`] and [`BLOCK_BYTES_MAX`]. A rank must receive a
/// whole block before it can forward the block.
const BLOCK_COUNT_TARGET: usize = 256;
/// Largest number of blocks of a value. Their digests take 8 MiB. With blocks of [`BLOCK_BYTES_MAX`] the value has 4
/// TiB.
pub const BLOCKS_MAX: usize = 1 << 20;

/// Return the minimum number of bytes of a streamed block that a member forwards at a time.
///
/// A step has at least a few packets. The last member of a chain waits for one step of every member before it, and
/// every step costs each member one turn of its event loop.
pub fn step_bytes(block_bytes: usize) -> usize {
    const STEP_COUNT_MAX: usize = 16;
    (block_bytes / STEP_COUNT_MAX).clamp(4 << 10, 16 << 10)
}

/// Rule for the distribution of blocks to the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Discipline {
    /// A chain in the order of the members. A member that loses its predecessor is linked to the previous predecessor.
    Chain,
    /// One tree per stripe. Every member has children in exactly one tree. A member that loses its parent in a tree
    /// gets another parent.
    SplitStream,
    /// A binomial tree over the members. A member that loses its parent gets another parent.
    Tree,
    /// Every member fetches all blocks from the root.
    Flat,
    /// The tracker knows the blocks of each member and assigns a source to each fetch.
    CooperativeSharing {
        /// Preferred source.
        priority: Priority,
        /// Number of concurrent uploads of a source.
        degree: usize,
    },
    /// Members report their blocks to their neighbors and fetch the rarest blocks first.
    BitTorrent {
        /// Number of concurrent uploads of a member.
        uploads: usize,
        /// Number of neighbors that the tracker assigns to a member.
        neighbors: usize,
    },
}

/// Source that the tracker prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Priority {
    /// The source with the fewest running uploads.
    LowestLeecherCount,
    /// The fastest source by the speeds that its receivers observed, rounded to powers of two.
    HighestObservedSpeed,
}

impl Discipline {
    /// Cooperative sharing with default parameters.
    pub const CSB: Discipline = Discipline::CooperativeSharing { priority: Priority::HighestObservedSpeed, degree: 3 };
    /// BitTorrent with default parameters: eight concurrent uploads.
    pub const BITTORRENT: Discipline = Discipline::BitTorrent { uploads: 8, neighbors: 16 };
    /// Names of the disciplines in user options.
    pub const NAMES: [&'static str; 7] = ["chain", "splitstream", "tree", "flat", "csb", "csb-llcf", "bittorrent"];

    /// Return the discipline with this name.
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

    /// Return this discipline with at most `degree` concurrent uploads of a source. `None` if a chain or tree fixes the
    /// receivers of each member.
    pub fn with_degree(self, degree: usize) -> Option<Discipline> {
        match self {
            Discipline::CooperativeSharing { priority, .. } => {
                Some(Discipline::CooperativeSharing { priority, degree })
            }
            Discipline::BitTorrent { neighbors, .. } => Some(Discipline::BitTorrent { uploads: degree, neighbors }),
            _ => None,
        }
    }

    /// Whether members forward the bytes of a block while it arrives. Otherwise a member checks each block before it
    /// forwards the block.
    pub fn is_streamed(self) -> bool {
        matches!(self, Discipline::Chain | Discipline::SplitStream | Discipline::Tree | Discipline::Flat)
    }
}

/// Properties of a broadcast value that every member needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockManifest {
    /// Length of the value in bytes.
    pub bytes: usize,
    /// Length in bytes of all blocks except the last.
    pub block_bytes: usize,
    /// Number of streams among which the blocks are distributed; 1 without streaming.
    pub stripe_count: usize,
    /// Rule for the distribution of blocks to the members.
    pub discipline: Discipline,
    /// Whether members compare each block with the root's digest. Otherwise only the links detect corruption.
    pub is_verified: bool,
}

impl BlockManifest {
    /// Describe a value of `bytes` for `size` ranks, including the root.
    ///
    /// Without `block_bytes` the value has 256 blocks, each limited to the range of 16 KiB to 4 MiB. Blocks become
    /// longer if there would be more than [`BLOCKS_MAX`]. Blocks are verified unless the caller changes that.
    pub fn new(bytes: usize, block_bytes: Option<usize>, discipline: Discipline, size: usize) -> BlockManifest {
        let default_bytes = || (bytes / BLOCK_COUNT_TARGET).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        let block_bytes = block_bytes.unwrap_or_else(default_bytes);
        let block_bytes_min = bytes.div_ceil(BLOCKS_MAX);
        assert!(block_bytes > 0, "a block has at least one byte");
        let stripe_count = match discipline {
            Discipline::SplitStream => crate::algorithms::tree::stripe_count(size),
            _ => 1,
        };
        BlockManifest {
            bytes,
            block_bytes: block_bytes.max(block_bytes_min),
            stripe_count,
            discipline,
            is_verified: true,
        }
    }

    /// Return the number of blocks.
    pub fn block_count(&self) -> usize {
        self.bytes.div_ceil(self.block_bytes)
    }

    /// Return the length of a block in bytes.
    pub fn block_length(&self, block: usize) -> usize {
        self.block_bytes.min(self.bytes - block * self.block_bytes)
    }

    /// Return the stripe of a block.
    pub fn stripe(&self, block: usize) -> usize {
        block % self.stripe_count
    }
}

/// Timeouts of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwarmTiming {
    /// A member that receives no byte for this time queries the tracker. The tracker probes a member that sends no
    /// message for this time.
    pub stall_timeout: Duration,
    /// Time limit of a query or probe. A rank that does not answer within it is treated as lost.
    pub answer_timeout: Duration,
}

impl SwarmTiming {
    /// Silence after which a member suspects a source that has sent bytes before. The tracker then checks whether the
    /// source is alive.
    pub fn suspicion_timeout(&self) -> Duration {
        self.stall_timeout / 4
    }
}

impl Default for SwarmTiming {
    fn default() -> SwarmTiming {
        SwarmTiming { stall_timeout: Duration::from_secs(2), answer_timeout: Duration::from_secs(1) }
    }
}

/// Reason why a member ends without the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberFailure {
    /// The root is lost, and no live member has at least one of the blocks.
    RootLost {
        /// The root.
        root: usize,
        /// Number of blocks that no live member has.
        missing_count: usize,
    },
    /// The member cannot reach the ranks that continue without the root.
    CutOff {
        /// The root.
        root: usize,
    },
    /// The member did not answer, and the other ranks continue without it.
    Excluded {
        /// The rank that excluded this member.
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
            MemberFailure::Excluded { by } => {
                write!(f, "rank {by} had no answer from this rank, and continues without it")
            }
        }
    }
}

impl core::error::Error for MemberFailure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_blocks_is_limited() {
        let manifest = |bytes, block_bytes| BlockManifest::new(bytes, block_bytes, Discipline::Chain, 2);
        assert_eq!(manifest(1 << 20, Some(1)).block_bytes, 1);
        assert_eq!(manifest((1 << 20) + 1, Some(1)).block_bytes, 2);
        assert!(manifest(10_000_000_001, Some(3)).block_count() <= BLOCKS_MAX);
        assert_eq!(manifest(1 << 43, None).block_count(), BLOCKS_MAX);
    }
}
