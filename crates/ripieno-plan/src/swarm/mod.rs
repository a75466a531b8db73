//! Dynamic broadcast: machines that get a value from one rank to many while ranks come, fail and are slow.
//!
//! A [`SwarmNode`] is one rank's part: a member, which gets blocks and passes them on, and at the root the tracker, which
//! knows who takes part. A node takes [`SwarmEvent`]s and the time and gives back [`Action`]s. It opens no connection, reads
//! no clock and touches no byte of the value: its driver does, over sockets or on a simulated cluster. The
//! [disciplines](Discipline) differ in who picks source and block.
//!
//! A fetch names a block and what the receiver has of it, so it is resumed at the byte where it stopped, from whomever.
//! Needs connections that keep order and tell when the other end is gone, and digests of the blocks from the root.
//!
//! Source: Chowdhury et al., the report on broadcast in Spark (CSB, BTB, SSB), section 5.

mod have;
mod manifest;
mod member;
mod message;
mod tracker;
mod uploads;

pub use have::Have;
pub use manifest::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BLOCKS_MAX, Discipline, Manifest, MemberFailure, Priority, SwarmTiming,
    step_bytes,
};
pub use message::{NeighborOffer, SwarmMessage};

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use member::{Phase, SwarmMember, tell};
use tracker::Tracker;

/// What happens to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwarmEvent {
    /// It is to begin.
    Start,
    /// A message came.
    Received {
        /// From this rank.
        from: usize,
        /// The message.
        message: SwarmMessage,
    },
    /// Bytes of a block that was requested came: now the first so many are here. To be told before a loss or a tick, at
    /// the latest.
    Arrived {
        /// Which block.
        block: usize,
        /// How much of it is here.
        until_bytes: usize,
    },
    /// A block is whole and was compared with its digest. If it is wrong, its bytes are void.
    Checked {
        /// Which block.
        block: usize,
        /// Who sent the last of it.
        from: usize,
        /// Whether it is what the root has.
        is_right: bool,
    },
    /// All of a block that was to be sent is out.
    Sent {
        /// To whom.
        to: usize,
        /// Which block.
        block: usize,
    },
    /// The connection to a rank is gone, or cannot be made.
    Lost {
        /// The rank.
        peer: usize,
    },
    /// It is as late as [`SwarmNode::wake`] said.
    Tick,
}

/// What a node wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message.
    Tell {
        /// To whom.
        to: usize,
        /// What.
        message: SwarmMessage,
    },
    /// Send a block from this byte on, as far as it is here and, if it is still on its way, as it comes.
    Send {
        /// To whom.
        to: usize,
        /// Which block.
        block: usize,
        /// The first byte.
        from_bytes: usize,
    },
    /// Send no more of a block.
    Stop {
        /// To whom.
        to: usize,
        /// Which block.
        block: usize,
    },
    /// The value is here. The node goes on to serve others.
    Done,
    /// The value will not come. Given once, and never after `Done`.
    Failed(MemberFailure),
    /// From the tracker: everybody has the value or is lost. Given again if somebody comes later.
    Settled {
        /// Who said that it has everything.
        acknowledged: Vec<usize>,
        /// Who is lost, and never said so.
        lost: Vec<usize>,
        /// Blocks that were wrong, with the sources to blame.
        corruptions: Vec<CorruptBlock>,
    },
}

/// A block that was wrong when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptBlock {
    /// Which block.
    pub block: usize,
    /// Who sent it.
    pub source: usize,
    /// Who found out.
    pub receiver: usize,
}

/// One rank's part in the broadcast of one value.
pub struct SwarmNode {
    rank: usize,
    root: usize,
    size: usize,
    timing: SwarmTiming,
    member: SwarmMember,
    tracker: Option<Tracker>,
    /// Ranks that this one has lost.
    lost: BTreeSet<usize>,
    /// What came for a tracker while this rank was none: from ranks that have lost theirs first.
    early: BTreeMap<usize, SwarmMessage>,
}

impl SwarmNode {
    /// The root, which has the value, of `size` ranks. `order` has those that are to come at once, as a chain is to
    /// run; others may come later.
    pub fn root(
        rank: usize,
        size: usize,
        manifest: Manifest,
        order: Vec<usize>,
        timing: SwarmTiming,
        seed: u64,
        now: Duration,
    ) -> SwarmNode {
        let member = SwarmMember::new(rank, rank, Some(manifest), timing, now);
        let tracker = Tracker::new(rank, manifest, order, timing, seed, now);
        SwarmNode { tracker: Some(tracker), ..SwarmNode::with(rank, rank, size, timing, member) }
    }

    /// A receiver among `size` ranks, the root and itself among them.
    pub fn receiver(rank: usize, root: usize, size: usize, timing: SwarmTiming, now: Duration) -> SwarmNode {
        SwarmNode::with(rank, root, size, timing, SwarmMember::new(rank, root, None, timing, now))
    }

    /// The same with blocks that lay here before, of a value whose digests are known.
    pub fn with_blocks(mut self, have: Have) -> SwarmNode {
        self.member.have = have;
        self
    }

    fn with(rank: usize, root: usize, size: usize, timing: SwarmTiming, member: SwarmMember) -> SwarmNode {
        let (lost, early) = (BTreeSet::new(), BTreeMap::new());
        SwarmNode { rank, root, size, timing, member, tracker: None, lost, early }
    }

    /// Which rank it is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// What is broadcast, once that is known.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.member.manifest.as_ref()
    }

    /// The blocks that are here.
    pub fn have(&self) -> &Have {
        &self.member.have
    }

    /// From whom a block is being fetched. Bytes of it that others send are void.
    pub fn source_of(&self, block: usize) -> Option<usize> {
        self.member.source_of(block)
    }

    /// When it wants an [`SwarmEvent::Tick`], at the latest.
    pub fn wake(&self) -> Option<Duration> {
        let tracker = self.tracker.as_ref().and_then(Tracker::wake);
        [self.member.wake(), tracker].into_iter().flatten().min()
    }

    /// Takes an event; what came of it is to be done in this order.
    pub fn handle(&mut self, now: Duration, event: SwarmEvent) -> Vec<Action> {
        let mut open = Vec::new();
        match event {
            SwarmEvent::Start if self.tracker.is_none() => self.member.join(now, &mut open),
            SwarmEvent::Start => self.tracker.iter_mut().for_each(|tracker| tracker.settle(&mut open)),
            SwarmEvent::Received { from, message } => self.receive(now, from, message, &mut open),
            SwarmEvent::Lost { peer } => self.lose(now, peer, &mut open),
            SwarmEvent::Tick => {
                if let Some(tracker) = &mut self.tracker {
                    tracker.tick(now, &mut open);
                }
                let is_silent = self.member.handle(now, SwarmEvent::Tick, &mut open);
                if is_silent && self.member.tracker != self.rank {
                    self.lose(now, self.member.tracker, &mut open);
                }
            }
            other => {
                self.member.handle(now, other, &mut open);
            }
        }
        self.deliver_own(now, open)
    }

    /// Hands messages between this rank's member and tracker over at once.
    fn deliver_own(&mut self, now: Duration, actions: Vec<Action>) -> Vec<Action> {
        let mut open = VecDeque::from(actions);
        let mut outward = Vec::with_capacity(open.len());
        let mut asked = BTreeSet::new();
        while let Some(action) = open.pop_front() {
            match action {
                // The tracker has named what the member takes for lost: it is asked again once the fetch stalls.
                Action::Tell { to, message: SwarmMessage::Ask { part, instead_of } }
                    if to == self.rank && !asked.insert((part, instead_of)) => {}
                Action::Tell { to, message } if to == self.rank => {
                    let mut more = Vec::new();
                    self.receive(now, to, message, &mut more);
                    more.into_iter().rev().for_each(|action| open.push_front(action));
                }
                other => outward.push(other),
            }
        }
        outward
    }

    fn receive(&mut self, now: Duration, from: usize, message: SwarmMessage, out: &mut Vec<Action>) {
        if !message.is_for_tracker() {
            if message == SwarmMessage::Summon {
                return self.answer_summons(now, from, out);
            }
            if let SwarmMessage::Gone { rank } = message {
                if self.tracker.is_some() && from != self.rank {
                    // Its own tracker, which would name that rank again, knows better.
                    return;
                }
                self.lost.insert(rank);
            }
            if from == self.member.tracker {
                self.refuse_early(out);
            }
            self.member.handle(now, SwarmEvent::Received { from, message }, out);
        } else if let Some(tracker) = &mut self.tracker {
            tracker.receive(now, from, message, out);
        } else {
            // Whoever sends this has lost its tracker before this rank has, or is cut off from it.
            tell(out, from, SwarmMessage::Wait);
            if matches!(message, SwarmMessage::Rejoin { .. }) && self.early.len() < self.size {
                self.early.insert(from, message);
                self.member.ask_tracker(now, out);
            }
        }
    }

    /// The tracker lives: ranks that think this one should take over are cut off from it.
    fn refuse_early(&mut self, out: &mut Vec<Action>) {
        let failure = MemberFailure::CutOff { root: self.root };
        let early = core::mem::take(&mut self.early);
        early.into_keys().for_each(|from| tell(out, from, SwarmMessage::Failed(failure.clone())));
    }

    /// Another rank takes over. Of two that do, the lower one does.
    fn answer_summons(&mut self, now: Duration, from: usize, out: &mut Vec<Action>) {
        if self.member.phase == Phase::Failed {
            return;
        }
        let tracker = self.member.tracker;
        let has_none = tracker == self.root || self.lost.contains(&tracker);
        if tracker == self.rank && self.tracker.is_some() && self.rank < from {
            return tell(out, from, SwarmMessage::Summon);
        }
        if has_none || from < tracker {
            self.tracker = None;
            self.lost.insert(self.root);
            self.member.rejoin(now, from, out);
        }
    }

    fn lose(&mut self, now: Duration, peer: usize, out: &mut Vec<Action>) {
        self.lost.insert(peer);
        // What it has said must not bring it back once this rank takes over.
        self.early.remove(&peer);
        if let Some(tracker) = &mut self.tracker {
            tracker.lose(peer, out);
        }
        let has_lost_tracker = peer == self.member.tracker && peer != self.rank;
        if has_lost_tracker && matches!(self.member.phase, Phase::Getting | Phase::Done) {
            self.follow(now, out);
        }
        self.member.handle(now, SwarmEvent::Lost { peer }, out);
    }

    /// The tracker is lost: the lowest rank that lives takes over.
    fn follow(&mut self, now: Duration, out: &mut Vec<Action>) {
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
        self.member.rejoin(now, next, out);
    }
}
