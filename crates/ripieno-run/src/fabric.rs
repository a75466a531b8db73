//! Fabric trait: the executor's only interface to the environment.
//!
//! A fabric opens links to peers on first use, lets a rank park until an event, and reports the failure of the job.

use crate::call::{DescribedCall, HEADER_BYTES, Header};
use crate::link::{Link, LinkError, PairCosts};
use crate::membership::describe_pair;
use crate::replicas::Replicas;
use ripieno_plan::Topology;
use std::sync::Arc;
use std::time::Duration;

/// The reason why a job cannot continue. It is the first failure of the job and equal on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum JobFailure {
    /// A rank died, stopped responding, raised an error or left while other ranks waited for it.
    #[error("rank {rank}{} failed: {cause}", on_host(.host))]
    RankFailed {
        /// The failed rank.
        rank: usize,
        /// Host of the failed rank, or empty if unknown.
        host: String,
        /// The cause in one sentence. For an exception: its type and text.
        cause: String,
        /// Traceback of the failed rank, or empty.
        traceback: String,
    },
    /// Ranks called different collectives.
    #[error("ranks called different collectives: {description}")]
    Mismatch {
        /// The calls by rank, e.g. `collective 7: rank 0 called allreduce(f32 × 10, sum); rank 1 called barrier`.
        description: String,
    },
}

fn on_host(host: &str) -> String {
    if host.is_empty() { String::new() } else { format!(" on host {host}") }
}

/// A world formed by the survivors of another one.
pub struct ShrunkWorld {
    /// This rank's fabric in the new world.
    pub fabric: Box<dyn Fabric>,
    /// Rank in the old world of each rank of the new world.
    pub survivors: Vec<usize>,
    /// Unique name of the new world.
    pub job: String,
}

/// The reason why no world of survivors was formed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShrinkError {
    /// This rank is not a survivor, or the ranks reached no agreement.
    #[error(transparent)]
    Failed(#[from] JobFailure),
    /// The user interrupted the wait.
    #[error("interrupted")]
    Interrupted,
    /// This world cannot shrink.
    #[error("this world cannot shrink: {0}")]
    Unsupported(&'static str),
}

/// Purpose of a link between two ranks. Messages have separate links, so a collective never waits behind a message that
/// its receiver has not requested yet, nor a message behind a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkPurpose {
    /// Data of collectives, in both directions.
    Collectives,
    /// Messages from this rank to the peer.
    Outbox,
    /// Messages from the peer to this rank.
    Inbox,
}

/// Identifies one of the links between this rank and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId {
    /// The rank at the other end.
    pub peer: usize,
    /// Purpose of the link.
    pub channel: LinkPurpose,
}

impl LinkId {
    /// Number of links per peer.
    pub const PER_PEER: usize = 3;

    /// Return the link for collectives with `peer`.
    pub fn collectives(peer: usize) -> LinkId {
        LinkId { peer, channel: LinkPurpose::Collectives }
    }

    /// Return the link for messages to `peer`.
    pub fn outbox(peer: usize) -> LinkId {
        LinkId { peer, channel: LinkPurpose::Outbox }
    }

    /// Return the link for messages from `peer`.
    pub fn inbox(peer: usize) -> LinkId {
        LinkId { peer, channel: LinkPurpose::Inbox }
    }

    /// Return all links with `peer`.
    pub fn all_of(peer: usize) -> [LinkId; LinkId::PER_PEER] {
        [LinkId::collectives(peer), LinkId::outbox(peer), LinkId::inbox(peer)]
    }

    /// Return the index of this link among all links of a world of `world_size` ranks. Links for collectives come
    /// first.
    #[inline]
    pub fn index(self, world_size: usize) -> usize {
        self.channel as usize * world_size + self.peer
    }

    /// Return the same link as named by the peer, where this rank is `rank`.
    pub fn other_end(self, rank: usize) -> LinkId {
        match self.channel {
            LinkPurpose::Collectives => LinkId::collectives(rank),
            LinkPurpose::Outbox => LinkId::inbox(rank),
            LinkPurpose::Inbox => LinkId::outbox(rank),
        }
    }
}

/// Directions of a link that a parked rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInterest {
    /// The link.
    pub link: LinkId,
    /// The rank waits for bytes from the peer.
    pub readable: bool,
    /// The rank waits for space, because the link accepted no bytes.
    pub writable: bool,
}

/// Condition under which a waiting rank continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Blocking {
    /// None: the rank has other calls in flight or a time limit, so it is not blocked.
    Nothing,
    /// All of the peers are needed.
    All,
    /// Any one of the peers suffices.
    Any,
}

/// Operations on a fabric that are allowed from any thread.
pub trait Remote: Send + Sync {
    /// Wake the rank if it is parked or about to park.
    fn wake(&self);

    /// Report a failure as [`Fabric::report`] does.
    fn report(&self, failure: JobFailure);

    /// Announce that the rank's program is over. Survivors of a failure continue without this rank and do not wait for
    /// it.
    fn withdraw(&self) {}
}

/// Environment of one rank.
pub trait Fabric: Send {
    /// Return this rank.
    fn rank(&self) -> usize;

    /// Return the number of ranks.
    fn world_size(&self) -> usize;

    /// Return the replica layout, which is equal on all ranks.
    fn replicas(&self) -> Replicas {
        Replicas::new(self.world_size(), 1)
    }

    /// Return the placement of the ranks on nodes and racks. It is equal on all ranks.
    fn topology(&self) -> Arc<Topology>;

    /// Return the link `id`, or `None` while it opens. The first call opens the link, except for an inbox, which its
    /// sender opens independently of this rank.
    fn link(&mut self, id: LinkId) -> Result<Option<&mut dyn Link>, LinkError>;

    /// Return the link `id` if it is open.
    fn existing_link(&mut self, id: LinkId) -> Option<&mut dyn Link> {
        self.link(id).ok().flatten()
    }

    /// Return whether the job has failed. Costs one atomic load. Checked before each run and whenever no bytes move.
    fn has_failed(&self) -> bool;

    /// Return the failure of the job.
    fn failure(&self) -> Option<JobFailure>;

    /// Return whether a rank with a live replica has died. Costs one atomic load. The link to the dead rank closes when
    /// this rank next parks.
    fn has_losses(&self) -> bool {
        false
    }

    /// Return the failures of dead ranks with live replicas, lowest rank first.
    fn losses(&self) -> Vec<JobFailure> {
        vec![]
    }

    /// Report that this rank observed `failure` first (e.g. a mismatched header or a raised error). Return within a
    /// bounded time, after the job has failed with this failure or an earlier one.
    fn report(&mut self, failure: JobFailure);

    /// Return the failure for a link to `peer` that closed with `cause`. It is the job's failure if one is reported
    /// within a bounded time, else a failure of `peer`.
    fn peer_failure(&mut self, peer: usize, cause: &str) -> JobFailure;

    /// Return the time since a fixed moment. It never decreases.
    fn now(&self) -> Duration;

    /// Let another thread of this core run.
    fn yield_now(&self);

    /// Return whether every rank of this host can have its own core, so that spinning takes no time from other ranks.
    fn has_core_per_rank(&self) -> bool;

    /// Describe the open links that are not the first choice, by peer, with the reason why better choices failed.
    fn fallback_links(&self) -> Vec<(usize, String)> {
        vec![]
    }

    /// Return the measured costs of the open links to ranks of this host, by peer.
    fn pair_costs(&self) -> Vec<(usize, PairCosts)> {
        vec![]
    }

    /// Record that this rank waited. The argument states whether the data arrived with the first [`Fabric::yield_now`].
    fn note_wait(&mut self, _was_ready_at_once: bool) {}

    /// Record the description of the next call's signature, to answer queries of other ranks.
    fn note_signature(&mut self, _signature: u32, _text: &dyn Fn() -> String) {}

    /// Report, as [`Fabric::report`] does, that this rank called `mine` and `peer` sent `theirs`. Reachable ranks are
    /// queried for the descriptions of their signatures.
    fn differs(&mut self, mine: Header, peer: usize, theirs: Header) {
        let pair = [(self.rank(), DescribedCall::undescribed(mine)), (peer, DescribedCall::undescribed(theirs))];
        self.report(JobFailure::Mismatch { description: describe_pair(pair) });
    }

    /// Record that this rank enters a collective of the communicator, with its encoded header. The latest headers
    /// answer queries of other ranks.
    fn enter(&mut self, communicator: u32, header: &[u8; HEADER_BYTES]);

    /// Report that this rank has waited in `header` for `peers` for a while. The fabric queries the state of those
    /// peers. The job fails if a peer made a different call at this sequence number or has left, or if blocked ranks
    /// wait for each other. `blocking` is the condition under which this rank continues.
    fn stalled(&mut self, header: Header, peers: &[usize], blocking: Blocking);

    /// Agree with all other calling ranks on the survivors of a failed world, and join a new world with them. The links
    /// of this world close. `interrupt` is called from time to time and returns whether to stop waiting.
    fn shrink(&mut self, _interrupt: &mut dyn FnMut() -> bool) -> Result<ShrunkWorld, ShrinkError> {
        Err(ShrinkError::Unsupported("its ranks do not monitor each other"))
    }

    /// Return the handle that other threads use to reach this rank.
    fn remote(&self) -> Arc<dyn Remote>;

    /// Announce that this rank is about to park. From now on, progress of other ranks wakes it. The caller then tries
    /// once more, and calls `park` only if no bytes moved.
    fn prepare_park(&mut self);

    /// Sleep until one of `interests` may have progressed, a link has opened, the job has failed, or `timeout` has
    /// passed.
    fn park(&mut self, interests: &[LinkInterest], timeout: Duration);

    /// Cancel `prepare_park`. Called after `park`, or if the last try moved bytes.
    fn cancel_park(&mut self);
}
