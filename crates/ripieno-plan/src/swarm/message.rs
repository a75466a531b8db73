//! Messages of a dynamic broadcast. The driver defines how they are transported.

use super::{BlockManifest, BlockSet, MemberFailure};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// A neighbor assigned to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighborOffer {
    /// The new neighbor.
    pub neighbor: usize,
    /// The current neighbor that the new neighbor replaces.
    pub replaces: Option<usize>,
}

/// A source from which a member receives no bytes of a running fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentSource {
    /// The source.
    pub rank: usize,
    /// Time since the last byte, or since the first request if no byte has arrived.
    pub silence: Duration,
}

/// Messages between members and the tracker, and between members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SwarmMessage {
    /// To the tracker: the sender requests the value.
    Join,
    /// To a tracker that takes over: the sender reports its blocks.
    Rejoin {
        /// The manifest, if the sender knows it.
        manifest: Option<BlockManifest>,
        /// The sender's blocks.
        have: Box<BlockSet>,
    },
    /// To the tracker: the sender needs another source for a part. A part is a stripe if blocks are streamed, else a
    /// block.
    Ask {
        /// The stripe or block.
        part: usize,
        /// The source that failed.
        failed_source: usize,
    },
    /// To the tracker: the sender receives no bytes from these sources.
    Stalled {
        /// Silent sources of the sender's running fetches.
        sources: Vec<SilentSource>,
    },
    /// To the tracker: the sender receives bytes from a source again that it has reported as silent.
    Resumed {
        /// The source.
        source: usize,
    },
    /// To the tracker that assigns sources block by block: the sender had these blocks before it joined.
    Found {
        /// The blocks.
        have: Box<BlockSet>,
    },
    /// To the tracker that assigns sources block by block: the sender has received a block.
    Fetched {
        /// The block.
        block: usize,
        /// The source of the block.
        source: usize,
        /// The observed speed in bytes per second.
        bytes_per_s: u64,
    },
    /// To the tracker: a block arrived that differs from the root's block.
    Corrupt {
        /// The block.
        block: usize,
        /// The source of the block.
        source: usize,
    },
    /// To the tracker: the sender has every block.
    Done,
    /// Answer to a probe.
    Alive,

    /// From the tracker: the manifest and the receiver's sources.
    Admitted {
        /// The manifest of the value.
        manifest: BlockManifest,
        /// The source of each stripe, if blocks are streamed.
        sources: Vec<usize>,
        /// The assigned neighbors, if members choose their sources.
        neighbors: Vec<NeighborOffer>,
    },
    /// From the tracker: stream a stripe from another source.
    Source {
        /// The stripe.
        stripe: usize,
        /// The source.
        source: usize,
    },
    /// From the tracker: fetch a block from a source.
    Fetch {
        /// The block.
        block: usize,
        /// The source.
        source: usize,
    },
    /// From the tracker: further neighbors.
    AddNeighbors {
        /// The new neighbors.
        neighbors: Vec<NeighborOffer>,
    },
    /// From the tracker: it knows that the receiver is waiting.
    Wait,
    /// From the tracker, or from a member with a silent tracker: a check whether the receiver is alive.
    Probe,
    /// From the tracker: a member is lost.
    MemberLost {
        /// The lost member.
        rank: usize,
    },
    /// From the tracker: every live member has every block.
    Released,
    /// From a tracker that takes over: the root is lost; report your blocks.
    TakeOver,
    /// From the tracker: the broadcast has failed.
    Failed(MemberFailure),

    /// To a source: send a block.
    Request {
        /// The block.
        block: usize,
        /// Number of bytes of the block that the requester has.
        from_bytes: usize,
    },
    /// To a source: stop sending a block.
    Cancel {
        /// The block.
        block: usize,
    },
    /// From a source: it cannot send a block.
    Refused {
        /// The block.
        block: usize,
    },
    /// To a neighbor: the blocks that the sender offers.
    Offer {
        /// The blocks.
        have: Box<BlockSet>,
        /// Whether this message answers an offer.
        is_answer: bool,
        /// The neighbor of the receiver that the sender replaces.
        replaces: Option<usize>,
    },
    /// To a neighbor: the sender offers one more block.
    Have {
        /// The block.
        block: usize,
    },
}

impl SwarmMessage {
    /// Whether the message is addressed to the receiver's tracker and not to its member.
    pub(super) fn is_for_tracker(&self) -> bool {
        use SwarmMessage::*;
        matches!(
            self,
            Join | Rejoin { .. }
                | Ask { .. }
                | Stalled { .. }
                | Resumed { .. }
                | Found { .. }
                | Fetched { .. }
                | Corrupt { .. }
                | Done
                | Alive
        )
    }
}
