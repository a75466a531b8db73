//! Dynamic broadcast: state machines that send a value from one rank to many ranks which join, fail or run slowly.
//!
//! A [`SwarmNode`] is the state of one rank: a member, which fetches blocks and forwards them, and on the root also the
//! tracker, which records all members. A node takes [`SwarmEvent`]s with the current time and returns [`Action`]s. It
//! opens no connection, reads no clock and accesses no byte of the value. Its driver does this, over sockets or on a
//! simulated cluster. The [disciplines](Discipline) differ in the component that selects the source and the block.
//!
//! A fetch names a block and the byte at which it starts, so any source can resume an interrupted fetch.
//!
//! Requires connections that keep the order of messages and report a lost peer, and block digests from the root.
//! Source: Chowdhury et al., the report on broadcast in Spark (CSB, BTB, SSB), section 5.

mod block_set;
mod manifest;
mod member;
mod message;
mod successors;
mod tracker;
mod uploads;

pub use block_set::BlockSet;
pub use manifest::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BLOCKS_MAX, BlockManifest, Discipline, MemberFailure, Priority, SwarmTiming,
    step_bytes,
};
pub use message::{NeighborOffer, SilentSource, SwarmMessage};

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use member::{Phase, SwarmMember, send};
use successors::SuccessorProbe;
use tracker::Tracker;

/// Input of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwarmEvent {
    /// Start the broadcast on this node.
    Start,
    /// A message arrived.
    Received {
        /// The sending rank.
        from: usize,
        /// The message.
        message: SwarmMessage,
    },
    /// Bytes of a requested block arrived. The driver reports them at the latest before a loss or a tick.
    Arrived {
        /// The block.
        block: usize,
        /// Length of the prefix of the block that has arrived, in bytes.
        until_bytes: usize,
    },
    /// A block is complete and was compared with its digest. The node discards a corrupt block.
    Checked {
        /// The block.
        block: usize,
        /// The rank that sent the end of the block.
        from: usize,
        /// Whether the block equals the root's block.
        is_valid: bool,
    },
    /// A block was sent completely.
    Sent {
        /// The receiving rank.
        to: usize,
        /// The block.
        block: usize,
    },
    /// The connection to a rank is lost or cannot be opened.
    Lost {
        /// The lost rank.
        peer: usize,
    },
    /// A rank is alive, although its messages may be late: after an outage of the network, it has answered a new
    /// connection.
    Reached {
        /// The live rank.
        peer: usize,
    },
    /// The time returned by [`SwarmNode::next_tick`] was reached.
    Tick,
}

/// Output of a node: an operation that its driver must perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message.
    SendMessage {
        /// The receiving rank.
        to: usize,
        /// The message.
        message: SwarmMessage,
    },
    /// Send a block from a given byte. If the block is still arriving, forward its bytes as they arrive.
    Send {
        /// The receiving rank.
        to: usize,
        /// The block.
        block: usize,
        /// The first byte to send.
        from_bytes: usize,
    },
    /// Stop sending a block.
    Stop {
        /// The receiving rank.
        to: usize,
        /// The block.
        block: usize,
    },
    /// The value is complete on this rank. The node continues to serve other ranks.
    Done,
    /// The value will not arrive. Returned at most once, and never after `Done`.
    Failed(MemberFailure),
    /// From the tracker: every member has the value or is lost. Returned again if a member joins later.
    Settled {
        /// Ranks that reported the complete value.
        acknowledged: Vec<usize>,
        /// Ranks that were lost before they reported the complete value.
        lost: Vec<usize>,
        /// Corrupt blocks, with the ranks that sent them.
        corruptions: Vec<CorruptBlock>,
    },
}

/// A block that failed its digest check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptBlock {
    /// The block.
    pub block: usize,
    /// The rank that sent the block.
    pub source: usize,
    /// The rank that found the error.
    pub receiver: usize,
}

/// State of one rank in the broadcast of one value.
///
/// Created by [`root`](SwarmNode::root) or [`receiver`](SwarmNode::receiver). All input enters by
/// [`handle`](SwarmNode::handle). [`next_tick`](SwarmNode::next_tick) returns the time of the next required tick.
pub struct SwarmNode {
    rank: usize,
    root: usize,
    size: usize,
    timing: SwarmTiming,
    member: SwarmMember,
    tracker: Option<Tracker>,
    /// Ranks that this rank has lost.
    lost: BTreeSet<usize>,
    /// Messages for the tracker that arrived before this rank took over. Their senders detected the loss earlier.
    early: BTreeMap<usize, SwarmMessage>,
    /// Probe of the ranks that could replace a silent tracker.
    successor_probe: Option<SuccessorProbe>,
}

impl SwarmNode {
    /// Create the node of the root, which has the value, for `size` ranks. `order` lists the initial members in chain
    /// order; further members may join later.
    pub fn root(
        rank: usize,
        size: usize,
        manifest: BlockManifest,
        order: Vec<usize>,
        timing: SwarmTiming,
        seed: u64,
        now: Duration,
    ) -> SwarmNode {
        let member = SwarmMember::new(rank, rank, Some(manifest), timing, now);
        let tracker = Tracker::new(rank, manifest, order, timing, seed, now);
        SwarmNode { tracker: Some(tracker), ..SwarmNode::with(rank, rank, size, timing, member) }
    }

    /// Create the node of a receiver. `size` counts all ranks, including the root and this rank.
    pub fn receiver(rank: usize, root: usize, size: usize, timing: SwarmTiming, now: Duration) -> SwarmNode {
        SwarmNode::with(rank, root, size, timing, SwarmMember::new(rank, root, None, timing, now))
    }

    /// Start with blocks from an earlier attempt of a value with known digests.
    pub fn with_blocks(mut self, have: BlockSet) -> SwarmNode {
        self.member.have = have;
        self
    }

    fn with(rank: usize, root: usize, size: usize, timing: SwarmTiming, member: SwarmMember) -> SwarmNode {
        let (lost, early) = (BTreeSet::new(), BTreeMap::new());
        SwarmNode { rank, root, size, timing, member, tracker: None, lost, early, successor_probe: None }
    }

    /// Return the rank of this node.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Whether this rank is the root or has taken over as tracker.
    pub fn is_tracker(&self) -> bool {
        self.tracker.is_some()
    }

    /// Return the manifest of the broadcast value, once it is known.
    pub fn manifest(&self) -> Option<&BlockManifest> {
        self.member.manifest.as_ref()
    }

    /// Return the set of blocks that are complete on this rank.
    pub fn have(&self) -> &BlockSet {
        &self.member.have
    }

    /// Return the source of a running fetch of `block`. Bytes of this block from other ranks are discarded.
    pub fn source_of(&self, block: usize) -> Option<usize> {
        self.member.source_of(block)
    }

    /// Return the latest time of the next [`SwarmEvent::Tick`], if the node needs one.
    pub fn next_tick(&self) -> Option<Duration> {
        let tracker = self.tracker.as_ref().and_then(Tracker::next_tick);
        [self.member.next_tick(), self.successor_probe_time(), tracker].into_iter().flatten().min()
    }

    /// Process an event and return the resulting actions, to be performed in this order.
    pub fn handle(&mut self, now: Duration, event: SwarmEvent) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            SwarmEvent::Start if self.tracker.is_none() => self.member.join(now, &mut actions),
            SwarmEvent::Start => self.tracker.iter_mut().for_each(|tracker| tracker.settle(&mut actions)),
            SwarmEvent::Received { from, message } => self.receive(now, from, message, &mut actions),
            SwarmEvent::Lost { peer } => self.handle_loss(now, peer, &mut actions),
            SwarmEvent::Reached { peer } => {
                self.tracker.iter_mut().for_each(|tracker| tracker.note_reached(now, peer));
                self.member.note_reached(now, peer);
                self.note_live_successor(peer);
            }
            SwarmEvent::Tick => {
                if let Some(tracker) = &mut self.tracker {
                    tracker.tick(now, &mut actions);
                }
                let is_tracker_lost = self.member.handle(now, SwarmEvent::Tick, &mut actions);
                if is_tracker_lost && self.member.tracker != self.rank {
                    self.handle_silent_tracker(now, &mut actions);
                }
                self.probe_successors(now, &mut actions);
            }
            other => {
                self.member.handle(now, other, &mut actions);
            }
        }
        self.deliver_own(now, actions)
    }

    /// Deliver messages between this rank's member and its tracker directly.
    fn deliver_own(&mut self, now: Duration, actions: Vec<Action>) -> Vec<Action> {
        let mut open = VecDeque::from(actions);
        let mut outgoing = Vec::with_capacity(open.len());
        let mut requested = BTreeSet::new();
        while let Some(action) = open.pop_front() {
            match action {
                // The tracker assigned a source that the member considers lost. Ignore the repeated request: the member
                // asks again once the fetch stalls.
                Action::SendMessage { to, message: SwarmMessage::Ask { part, failed_source } }
                    if to == self.rank && !requested.insert((part, failed_source)) => {}
                Action::SendMessage { to, message } if to == self.rank => {
                    let mut more = Vec::new();
                    self.receive(now, to, message, &mut more);
                    more.into_iter().rev().for_each(|action| open.push_front(action));
                }
                other => outgoing.push(other),
            }
        }
        outgoing
    }

    fn receive(&mut self, now: Duration, from: usize, message: SwarmMessage, out: &mut Vec<Action>) {
        self.note_live_successor(from);
        if !message.is_for_tracker() {
            if message == SwarmMessage::TakeOver {
                return self.handle_takeover(now, from, out);
            }
            if let SwarmMessage::MemberLost { rank } = message {
                if self.tracker.is_some() && from != self.rank {
                    // This rank's own tracker decides which ranks are lost. Otherwise it could assign a source that
                    // this member considers lost.
                    return;
                }
                self.lost.insert(rank);
            }
            if from == self.member.tracker {
                self.reject_early(out);
            }
            self.member.handle(now, SwarmEvent::Received { from, message }, out);
        } else if let Some(tracker) = &mut self.tracker {
            tracker.receive(now, from, message, out);
        } else if message != SwarmMessage::Alive {
            // The sender lost its tracker before this rank did, or it cannot reach the tracker.
            send(out, from, SwarmMessage::Wait);
            if matches!(message, SwarmMessage::Rejoin { .. }) && self.early.len() < self.size {
                self.early.insert(from, message);
                self.member.query_tracker(now, out);
            }
        }
    }

    /// Reject ranks that requested a takeover: the tracker is alive, so they are disconnected from it.
    fn reject_early(&mut self, out: &mut Vec<Action>) {
        let failure = MemberFailure::CutOff { root: self.root };
        let early = core::mem::take(&mut self.early);
        early.into_keys().for_each(|from| send(out, from, SwarmMessage::Failed(failure.clone())));
    }

    /// Handle another rank that takes over as tracker. If two ranks do so, the lower rank wins.
    fn handle_takeover(&mut self, now: Duration, from: usize, out: &mut Vec<Action>) {
        if self.member.phase == Phase::Failed {
            return;
        }
        let tracker = self.member.tracker;
        let has_no_tracker = tracker == self.root || self.lost.contains(&tracker);
        if tracker == self.rank && self.tracker.is_some() && self.rank < from {
            return send(out, from, SwarmMessage::TakeOver);
        }
        if has_no_tracker || from < tracker {
            (self.tracker, self.successor_probe) = (None, None);
            self.lost.insert(self.root);
            self.member.rejoin(now, from, out);
        }
    }

    fn handle_loss(&mut self, now: Duration, peer: usize, out: &mut Vec<Action>) {
        self.lost.insert(peer);
        // If this rank takes over, an earlier message must not add the lost rank again.
        self.early.remove(&peer);
        if let Some(tracker) = &mut self.tracker {
            tracker.mark_lost(peer, out);
        }
        let has_lost_tracker = peer == self.member.tracker && peer != self.rank;
        if has_lost_tracker && matches!(self.member.phase, Phase::Receiving | Phase::Done) {
            self.replace_tracker(now, out);
        }
        self.member.handle(now, SwarmEvent::Lost { peer }, out);
    }

    /// Handle the loss of the tracker: the lowest live rank takes over.
    fn replace_tracker(&mut self, now: Duration, out: &mut Vec<Action>) {
        let next = (0..self.size).find(|rank| !self.lost.contains(rank)).unwrap_or(self.rank);
        if next == self.rank {
            let mut lost = self.lost.clone();
            lost.remove(&self.rank);
            let tracker = Tracker::successor(self.rank, self.root, self.size, &lost, self.timing, now, out);
            self.tracker = Some(tracker);
            for (from, message) in core::mem::take(&mut self.early) {
                self.tracker.iter_mut().for_each(|tracker| tracker.receive(now, from, message.clone(), out));
            }
        }
        self.successor_probe = None;
        self.member.rejoin(now, next, out);
    }
}
