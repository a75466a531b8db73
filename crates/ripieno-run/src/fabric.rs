//! The fabric: all that the executor needs of the world outside, as one trait.
//!
//! A fabric gives links to peers (opened when first asked for), lets a rank park until something happens, and says when
//! the job has failed.

use crate::call::{DescribedCall, HEADER_BYTES, Header};
use crate::link::{Link, LinkError};
use crate::membership::describe_pair;
use crate::replicas::Replicas;
use ripieno_plan::Topology;
use std::sync::Arc;
use std::time::Duration;

/// Why a job cannot go on. The same on every rank: the first failure of the job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum JobFailure {
    /// A rank died, fell silent, raised an error or left while others still waited for it.
    #[error("rank {rank}{} failed: {cause}", on_host(.host))]
    RankFailed {
        /// The culprit.
        rank: usize,
        /// Where it ran; empty if that is not known.
        host: String,
        /// What happened, in one sentence; for an exception its type and text.
        cause: String,
        /// The culprit's traceback, empty when there is none.
        traceback: String,
    },
    /// Ranks called different collectives.
    #[error("ranks called different collectives: {description}")]
    Mismatch {
        /// Who called what, e.g. `collective 7: rank 0 called allreduce(f32 × 10, sum); rank 1 called barrier`.
        description: String,
    },
}

fn on_host(host: &str) -> String {
    if host.is_empty() { String::new() } else { format!(" on host {host}") }
}

/// A world that those who are left of another one have made.
pub struct Shrunk {
    /// This rank's fabric in it.
    pub fabric: Box<dyn Fabric>,
    /// The rank that each of its ranks had in the other.
    pub survivors: Vec<usize>,
    /// Its name, another one than any other world's.
    pub job: String,
}

/// Why there is no world of survivors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotShrunk {
    /// This rank is not one of them, or they could not agree.
    #[error(transparent)]
    Failed(#[from] JobFailure),
    /// The user does not want to wait any longer.
    #[error("interrupted")]
    Interrupted,
    /// This world cannot shrink.
    #[error("this world cannot shrink: {0}")]
    Unsupported(&'static str),
}

/// What a link between two ranks is for. Messages have links of their own, so that a collective never waits behind a
/// message that its receiver has not asked for yet, nor a message behind a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// The data of collectives, in both directions.
    Collectives,
    /// Messages from this rank to the peer.
    Outbox,
    /// Messages from the peer to this rank.
    Inbox,
}

/// One of the links between this rank and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId {
    /// The rank at the other end.
    pub peer: usize,
    /// What the link is for.
    pub channel: Channel,
}

impl LinkId {
    /// How many links there are per peer.
    pub const PER_PEER: usize = 3;

    /// The link for collectives with `peer`.
    pub fn collectives(peer: usize) -> LinkId {
        LinkId { peer, channel: Channel::Collectives }
    }

    /// The link for messages to `peer`.
    pub fn outbox(peer: usize) -> LinkId {
        LinkId { peer, channel: Channel::Outbox }
    }

    /// The link for messages from `peer`.
    pub fn inbox(peer: usize) -> LinkId {
        LinkId { peer, channel: Channel::Inbox }
    }

    /// All links with `peer`.
    pub fn all_of(peer: usize) -> [LinkId; LinkId::PER_PEER] {
        [LinkId::collectives(peer), LinkId::outbox(peer), LinkId::inbox(peer)]
    }

    /// Its place in a list of the links of a world of `world_size` ranks, those for collectives first.
    #[inline]
    pub fn index(self, world_size: usize) -> usize {
        self.channel as usize * world_size + self.peer
    }

    /// The same link as the peer names it, if this is rank `rank`.
    pub fn other_end(self, rank: usize) -> LinkId {
        match self.channel {
            Channel::Collectives => LinkId::collectives(rank),
            Channel::Outbox => LinkId::inbox(rank),
            Channel::Inbox => LinkId::outbox(rank),
        }
    }
}

/// Which direction of which link a parked rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// The link.
    pub link: LinkId,
    /// It has bytes to receive from the peer.
    pub readable: bool,
    /// It has bytes to send and the link took none.
    pub writable: bool,
}

/// What a rank that waits for peers needs to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Blocking {
    /// It has other calls in flight, or waits only for a while: what it waits for does not hold it up.
    Nothing,
    /// Each of the peers.
    All,
    /// Any of the peers.
    Any,
}

/// What any thread may do while another works with the fabric.
pub trait Remote: Send + Sync {
    /// Wakes the rank if it is parked or about to be.
    fn wake(&self);

    /// As [`Fabric::report`].
    fn report(&self, failure: JobFailure);

    /// The rank's program is over: survivors of a failure go on without this rank, and do not wait for it.
    fn withdraw(&self) {}
}

/// The world outside of one rank.
pub trait Fabric: Send {
    /// This rank.
    fn rank(&self) -> usize;

    /// How many ranks.
    fn world_size(&self) -> usize;

    /// Which ranks are replicas of each other. The same on every rank.
    fn replicas(&self) -> Replicas {
        Replicas::new(self.world_size(), 1)
    }

    /// Where the ranks stand. The same on every rank.
    fn topology(&self) -> Arc<Topology>;

    /// The link `id`; `None` while it is being opened. The first request starts that, but for an inbox: its sender does,
    /// whatever this rank does meanwhile.
    fn link(&mut self, id: LinkId) -> Result<Option<&mut dyn Link>, LinkError>;

    /// The link `id` if it stands.
    fn standing_link(&mut self, id: LinkId) -> Option<&mut dyn Link> {
        self.link(id).ok().flatten()
    }

    /// Whether the job has failed; one atomic load, asked before a run and whenever nothing moves.
    fn has_failed(&self) -> bool;

    /// How the job has failed.
    fn failure(&self) -> Option<JobFailure>;

    /// Whether a rank has died of which a replica lives; one atomic load. Its link is closed when this rank next parks.
    fn has_losses(&self) -> bool {
        false
    }

    /// How such ranks died, lowest rank first.
    fn losses(&self) -> Vec<JobFailure> {
        vec![]
    }

    /// Reports to the job that this rank saw `failure` first (e.g. a mismatched header, a raised error). Returns,
    /// within a bounded time, when the job has failed: of this, or of what came before it.
    fn report(&mut self, failure: JobFailure);

    /// The failure to give for a link to `peer` that closed because of `cause`: what the job says of it if it says
    /// anything within a bounded time, else that `peer` failed.
    fn blame(&mut self, peer: usize, cause: &str) -> JobFailure;

    /// Time since some fixed moment, never going back.
    fn now(&self) -> Duration;

    /// Lets another thread of this core run.
    fn yield_now(&self);

    /// Whether every rank of this host can have a core of its own, so that spinning starves nobody.
    fn has_core_per_rank(&self) -> bool;

    /// Of links that stand, by their peer: what they are, and what was tried before in vain, in words.
    fn second_choices(&self) -> Vec<(usize, String)> {
        vec![]
    }

    /// Notes that this rank has waited, and whether what it waited for came with the first [`Fabric::yield_now`].
    fn note_wait(&mut self, _came_with_the_first_offer: bool) {}

    /// Notes what the form of the next call stands for, so that other ranks' questions can be answered.
    fn note_form(&mut self, _form: u32, _words: &dyn Fn() -> String) {}

    /// Reports, as [`Fabric::report`] does, that this rank called `mine` and `peer` sent `theirs` ahead of its data.
    /// Who can be asked is asked what the forms stand for.
    fn differs(&mut self, mine: Header, peer: usize, theirs: Header) {
        let pair = [(self.rank(), DescribedCall::untold(mine)), (peer, DescribedCall::untold(theirs))];
        self.report(JobFailure::Mismatch { description: describe_pair(pair) });
    }

    /// Notes that this rank enters a collective of this communicator, with its header as it travels; other ranks'
    /// questions are answered from the last few of these.
    fn enter(&mut self, communicator: u32, header: &[u8; HEADER_BYTES]);

    /// Tells that this rank has waited in `header` for `peers` for a while. The fabric asks those peers what they are
    /// at; a different call at the same turn, a peer that has left, or blocked ranks that wait for each other become a
    /// failure of the job. `blocking` says what this rank needs to continue.
    fn stalled(&mut self, header: Header, peers: &[usize], blocking: Blocking);

    /// Agrees with all others that ask for it who is left of a world that has failed, and meets them in a new one.
    /// The links of this world end. `interrupt` is asked now and then whether to give up waiting.
    fn shrink(&mut self, _interrupt: &mut dyn FnMut() -> bool) -> Result<Shrunk, NotShrunk> {
        Err(NotShrunk::Unsupported("its ranks do not watch over each other as processes do"))
    }

    /// What other threads reach this rank by.
    fn remote(&self) -> Arc<dyn Remote>;

    /// Says that this rank is about to park: from now on whoever makes progress possible wakes it. The caller then
    /// tries once more, and calls `park` only if nothing moved.
    fn prepare_park(&mut self);

    /// Sleeps until one of `wants` may have moved, a link has opened, the job has failed, or `timeout` is over.
    fn park(&mut self, wants: &[Want], timeout: Duration);

    /// Takes `prepare_park` back; called after `park` and when the last try moved something.
    fn cancel_park(&mut self);
}
