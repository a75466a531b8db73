//! The messages of a broadcast. How they travel is the driver's affair.

use super::{Have, Manifest, MemberFailure};
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A neighbour that a member is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighborOffer {
    /// Who.
    pub with: usize,
    /// Who is its neighbour no longer.
    pub instead_of: Option<usize>,
}

/// What members and the tracker tell each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SwarmMessage {
    /// To the tracker: I want the value.
    Join,
    /// To the tracker that takes over: I have so much of it.
    Rejoin {
        /// What the value is, if the member knows.
        manifest: Option<Manifest>,
        /// The blocks it has.
        have: Box<Have>,
    },
    /// To the tracker: somebody else, please. The part is a stripe where blocks are streamed, else a block.
    Ask {
        /// Of what.
        part: usize,
        /// Who is no good.
        instead_of: usize,
    },
    /// To the tracker: no byte comes from these.
    Stalled {
        /// Those that I fetch from.
        sources: Vec<usize>,
    },
    /// To the tracker, which names sources block by block: these were here before.
    Found {
        /// Which.
        have: Box<Have>,
    },
    /// To the tracker, which names sources block by block: I have this one.
    Fetched {
        /// Which.
        block: usize,
        /// From whom.
        source: usize,
        /// How fast it came.
        bytes_per_s: u64,
    },
    /// To the tracker: this block came, but is not what the root has.
    Corrupt {
        /// Which.
        block: usize,
        /// From whom.
        source: usize,
    },
    /// To the tracker: I have everything.
    Done,
    /// To the tracker that asked: I live.
    Alive,

    /// From the tracker: this is what is broadcast, and where it is.
    Welcome {
        /// What.
        manifest: Manifest,
        /// The source of each stripe, where blocks are streamed.
        sources: Vec<usize>,
        /// Whom to meet, where members choose their sources.
        neighbours: Vec<NeighborOffer>,
    },
    /// From the tracker: stream this stripe from there.
    Source {
        /// Which.
        stripe: usize,
        /// From whom.
        source: usize,
    },
    /// From the tracker: fetch this block there.
    Fetch {
        /// Which.
        block: usize,
        /// From whom.
        source: usize,
    },
    /// From the tracker: more neighbours.
    Meet {
        /// Whom to meet.
        neighbours: Vec<NeighborOffer>,
    },
    /// From the tracker: I know that you wait.
    Wait,
    /// From the tracker: are you there?
    Probe,
    /// From the tracker: this member is lost.
    Gone {
        /// Which.
        rank: usize,
    },
    /// From the tracker: everybody who is alive has everything.
    Released,
    /// From the one that takes over: the root is lost, tell me what you have.
    Summon,
    /// From the tracker: it is over.
    Failed(MemberFailure),

    /// To a source: send me this block.
    Request {
        /// Which.
        block: usize,
        /// What I have of it.
        from_bytes: usize,
    },
    /// To a source: no longer.
    Cancel {
        /// Which.
        block: usize,
    },
    /// From a source: I cannot.
    Refused {
        /// Which.
        block: usize,
    },
    /// To a neighbour: these blocks can be fetched here.
    Offer {
        /// Which.
        have: Box<Have>,
        /// Whether it answers an offer.
        is_answer: bool,
        /// Whose neighbour the receiver is no longer, because this one stands between them.
        instead_of: Option<usize>,
    },
    /// To a neighbour: this one, too.
    Have {
        /// Which.
        block: usize,
    },
}

impl SwarmMessage {
    /// Whether it is for the tracker of its receiver, not for the member.
    pub(super) fn is_for_tracker(&self) -> bool {
        use SwarmMessage::*;
        matches!(
            self,
            Join | Rejoin { .. }
                | Ask { .. }
                | Stalled { .. }
                | Found { .. }
                | Fetched { .. }
                | Corrupt { .. }
                | Done
                | Alive
        )
    }
}
