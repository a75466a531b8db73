//! Swarm driver: executes the actions of a rank's swarm nodes over its links and feeds the resulting events back to the
//! nodes.

use super::cast::{BroadcastRun, Holding, HostSharing};
use super::frame::{self, Digest, FrameKind};
use super::inbox::{FrameInbox, Read};
use super::meter::Meter;
use super::outbox::{Outbox, Sent};
use super::{Store, UNSENT_BYTES_MAX, Wires};
use crate::fabric::{LinkId, Want};
use crate::link::LinkError;
use ripieno_plan::swarm::{
    Action, BLOCKS_MAX, BlockManifest, CorruptBlock, Have, MemberFailure, SwarmEvent, SwarmMessage, SwarmNode,
    SwarmTiming, step_bytes,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of bytes read from one peer before the driver visits the next peer.
const VISIT_BYTES: usize = 1 << 20;
/// Maximum number of buffered frames for broadcasts that this rank has not begun. A peer that exceeds it is treated as
/// lost.
const EARLY_MAX: usize = 1 << 16;
/// A block counts as sent once at most this many bytes wait in the socket. The value is below the threshold that wakes
/// a sender waiting for buffer space.
const LEAVING_BYTES_MAX: usize = UNSENT_BYTES_MAX / 2;
/// Unwanted bytes are read and discarded in pieces of this size.
const SCRATCH_BYTES: usize = 64 << 10;

/// The reason why a broadcast ends on this rank without a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BroadcastEnding {
    /// The swarm node reported a failure.
    #[error(transparent)]
    Failure(#[from] MemberFailure),
    /// Allocating memory for the value failed.
    #[error("no memory for a value of {bytes} bytes: {cause}")]
    Memory {
        /// Size of the value.
        bytes: usize,
        /// The error of the operating system.
        cause: String,
    },
    /// The link to a rank that could send the value cannot be set up.
    #[error("no link to rank {peer}: {what}")]
    Lacking {
        /// The rank at the other end.
        peer: usize,
        /// The requirement of the link and the remedy.
        what: String,
    },
}

/// An event that the driver reports about a broadcast.
#[derive(Debug)]
pub enum BroadcastEvent<M> {
    /// The broadcast ended with the value or with an error. Reported once.
    Ended(Result<Arc<M>, BroadcastEnding>),
    /// The application on another rank sent a message.
    Message {
        /// The sender.
        from: usize,
        /// The message.
        bytes: Vec<u8>,
    },
    /// The connection to a rank is lost, possibly since before the broadcast began.
    Lost {
        /// The lost rank.
        peer: usize,
    },
    /// On the tracker: a rank requested the value.
    Reopened,
    /// On the tracker: every rank that requested the value has it or is lost. Reported again after later requests.
    Settled {
        /// Ranks that have the complete value.
        acknowledged: Vec<usize>,
        /// Ranks that were lost before they acknowledged the value.
        lost: Vec<usize>,
        /// Blocks that failed verification, each with the ranks that sent it.
        corruptions: Vec<CorruptBlock>,
    },
}

#[derive(Default)]
struct Peer {
    inbox: FrameInbox,
    outbox: Outbox,
    /// Blocks whose last bytes may still wait in the socket.
    leaving: Vec<(u32, usize)>,
}

/// Allocates memory for a value of the given size.
pub type Maker<M> = Box<dyn Fn(usize) -> io::Result<M> + Send>;

/// One rank's part in all broadcasts of a group. All ranks of the group begin the broadcasts in the same order.
pub struct Driver<M> {
    rank: usize,
    size: usize,
    timing: SwarmTiming,
    make: Maker<M>,
    casts: BTreeMap<u32, BroadcastRun<M>>,
    /// Number of the next broadcast.
    next: u32,
    /// Frames of broadcasts that this rank has not begun.
    early: Vec<(u32, usize, FrameKind)>,
    peers: BTreeMap<usize, Peer>,
    lost: BTreeSet<usize>,
    /// Events that the nodes have yet to handle.
    events: VecDeque<(u32, SwarmEvent)>,
    pending_events: Vec<(u32, BroadcastEvent<M>)>,
    scratch: Box<[u8]>,
}

impl<M: Store> Driver<M> {
    /// Return the driver of `rank` in a group of `size` ranks.
    pub fn new(rank: usize, size: usize, timing: SwarmTiming, make: Maker<M>) -> Driver<M> {
        Driver {
            rank,
            size,
            timing,
            make,
            casts: BTreeMap::new(),
            next: 0,
            early: Vec::new(),
            peers: BTreeMap::new(),
            lost: BTreeSet::new(),
            events: VecDeque::new(),
            pending_events: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES].into(),
        }
    }

    /// Start to broadcast `value` and return the number of the broadcast. `digests` are the digests of the first
    /// blocks. If some are missing, [`fill`](Self::fill) supplies the remaining bytes and digests later. `order` lists
    /// the ranks that request the value at once, in the order of the chain.
    pub fn offer(
        &mut self,
        now: Duration,
        value: Arc<M>,
        manifest: BlockManifest,
        digests: Vec<Digest>,
        order: Vec<usize>,
    ) -> u32 {
        let number = self.next;
        let node = SwarmNode::root(self.rank, self.size, manifest, order, self.timing, number.into(), now);
        let mut cast = BroadcastRun::given(node, value, digests);
        cast.open = (0..self.size).filter(|rank| *rank != self.rank && !self.lost.contains(rank)).collect();
        self.casts.insert(number, cast);
        self.events.push_back((number, SwarmEvent::Start));
        self.begin(now);
        number
    }

    /// Add the digests of the blocks that the root has written since the last call. Bytes covered by a digest must not
    /// change afterwards.
    pub fn fill(&mut self, now: Duration, number: u32, digests: &[Digest]) {
        let Some(cast) = self.casts.get_mut(&number) else { return };
        let first_block = cast.digests.len();
        let is_whole = cast.fill(digests);
        let informed = if is_whole { std::mem::take(&mut cast.informed) } else { cast.informed.clone() };
        for to in informed {
            self.push(number, to, &FrameKind::Digests { first_block, digests: digests.to_vec() });
        }
        if is_whole {
            self.notify_sharers(number);
        }
        self.settle(now);
    }

    /// Cancel a broadcast that cannot be completed. Its receivers see the root as lost.
    pub fn abandon(&mut self, number: u32) {
        self.drop_cast(number);
    }

    /// Register a broadcast from `root` and return its number. The transfer starts with [`want`](Self::want). If
    /// `leader` is set, the leader fetches the value and shares its memory with this rank.
    pub fn expect(&mut self, now: Duration, root: usize, leader: Option<usize>) -> u32 {
        self.expect_as(now, BroadcastRun::awaited(root, leader))
    }

    /// Fetch the value with these `digests` from `root` into `memory` and return the number of the broadcast. `have`
    /// marks the blocks that `memory` already contains.
    pub fn fetch_into(&mut self, now: Duration, root: usize, memory: M, digests: Vec<Digest>, have: Have) -> u32 {
        let number = self.expect_as(now, BroadcastRun::begun(root, memory, digests, have));
        self.want(now, number);
        number
    }

    fn expect_as(&mut self, now: Duration, cast: BroadcastRun<M>) -> u32 {
        let (number, root) = (self.next, cast.root);
        self.casts.insert(number, cast);
        if !self.peers.contains_key(&root) {
            // The root then detects the loss of this rank by the end of the link.
            self.push(number, root, &FrameKind::Here);
        }
        self.begin(now);
        number
    }

    fn begin(&mut self, now: Duration) {
        let number = self.next;
        self.next += 1;
        // Ranks lost before this broadcast began are lost for it as well.
        self.pending_events.extend(self.lost.iter().map(|&peer| (number, BroadcastEvent::Lost { peer })));
        let (due, early) = std::mem::take(&mut self.early).into_iter().partition(|(cast, ..)| *cast == number);
        self.early = early;
        due.into_iter().for_each(|(number, from, message)| self.take_message(now, number, from, message));
        self.settle(now);
    }

    /// Let `meter` record the progress of a value.
    pub fn watch(&mut self, number: u32, meter: Arc<Meter>) {
        if let Some(cast) = self.casts.get_mut(&number) {
            cast.watch(meter);
        }
    }

    /// Send a message about a value to the application on another rank.
    pub fn send_message(&mut self, number: u32, to: usize, bytes: Vec<u8>) {
        self.push(number, to, &FrameKind::Application { bytes });
    }

    /// Start to fetch an expected value.
    pub fn want(&mut self, now: Duration, number: u32) {
        match self.casts.get(&number).and_then(|cast| cast.leader) {
            Some(leader) if !self.lost.contains(&leader) => self.ask_leader(now, number, leader),
            _ => self.start(now, number),
        }
        self.settle(now);
    }

    fn ask_leader(&mut self, now: Duration, number: u32, leader: usize) {
        let Some(cast) = self.casts.get_mut(&number).filter(|cast| cast.is_awaited()) else { return };
        cast.is_over = false;
        cast.sharing = Some(HostSharing::Requested { since: now });
        self.push(number, leader, &FrameKind::Share);
    }

    /// Ask leaders again after the stall timeout. If a leader does not answer in time, fetch the value directly.
    fn look_after_sharing(&mut self, now: Duration) {
        let due = self.casts.iter().filter(|(_, cast)| cast.sharing_wake(&self.timing).is_some_and(|at| at <= now));
        for number in due.map(|(&number, _)| number).collect::<Vec<_>>() {
            match (self.casts[&number].sharing, self.casts[&number].leader) {
                (Some(HostSharing::Confirmed { .. }), Some(leader)) => self.ask_leader(now, number, leader),
                _ => self.start(now, number),
            }
        }
    }

    fn start(&mut self, now: Duration, number: u32) {
        let Some(cast) = self.casts.get_mut(&number).filter(|cast| cast.is_awaited()) else { return };
        (cast.is_over, cast.sharing) = (false, None);
        let node = SwarmNode::receiver(self.rank, cast.root, self.size, self.timing, now);
        cast.node = Some(node.with_blocks(cast.found.clone()));
        self.events.push_back((number, SwarmEvent::Start));
    }

    /// Release the local reference to a value. This rank keeps serving the value to ranks that fetch it. The root keeps
    /// the value until all other ranks have released it.
    pub fn release(&mut self, number: u32) {
        if let Some(cast) = self.casts.get_mut(&number).filter(|cast| cast.is_kept) {
            cast.is_kept = false;
            let root = cast.root;
            if root != self.rank {
                self.push(number, root, &FrameKind::Withdraw);
            }
        }
        self.sweep();
    }

    /// Release all values.
    pub fn release_all(&mut self) {
        self.casts.keys().copied().collect::<Vec<_>>().into_iter().for_each(|number| self.release(number));
    }

    /// Return whether no other rank needs a value or a queued frame from this rank.
    pub fn is_idle(&self) -> bool {
        self.casts.is_empty() && !self.peers.values().any(|peer| peer.outbox.is_ready(&self.casts))
    }

    /// Return the latest time at which [`turn`](Self::turn) must run again.
    pub fn wake(&self) -> Option<Duration> {
        let wake = |cast: &BroadcastRun<M>| cast.sharing_wake(&self.timing).or_else(|| cast.node.as_ref()?.wake());
        self.casts.values().filter_map(wake).min()
    }

    /// Return the events since the last call.
    pub fn take_events(&mut self) -> Vec<(u32, BroadcastEvent<M>)> {
        std::mem::take(&mut self.pending_events)
    }

    /// Return the links that the driver waits on.
    pub fn wants(&self) -> Vec<Want> {
        let wants = self.peers.iter();
        let is_writable = |it: &Peer| !it.leaving.is_empty() || it.outbox.is_ready(&self.casts);
        wants
            .map(|(&peer, it)| Want { link: LinkId::collectives(peer), readable: true, writable: is_writable(it) })
            .collect()
    }

    /// Read and send all that the links accept now. Return whether any bytes moved.
    pub fn turn(&mut self, now: Duration, wires: &mut dyn Wires) -> bool {
        for peer in wires.new_peers() {
            self.peers.entry(peer).or_default();
        }
        let mut has_moved = false;
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            match self.visit(now, wires, peer) {
                Ok(moved) => has_moved |= moved,
                Err(LinkError::Closed { cause }) => {
                    wires.close(peer, &cause);
                    self.lose(now, peer);
                }
                Err(LinkError::Lacking { what }) => {
                    wires.close(peer, &what);
                    self.end_awaited(peer, &what);
                    self.lose(now, peer);
                }
            }
            self.settle(now);
        }
        let due = |cast: &BroadcastRun<M>| cast.node.as_ref().and_then(SwarmNode::wake).is_some_and(|wake| wake <= now);
        let due: Vec<u32> = self.casts.iter().filter(|(_, cast)| due(cast)).map(|(&number, _)| number).collect();
        self.events.extend(due.into_iter().map(|number| (number, SwarmEvent::Tick)));
        self.look_after_sharing(now);
        self.report_progress();
        self.settle(now);
        self.sweep();
        has_moved
    }

    fn visit(&mut self, now: Duration, wires: &mut dyn Wires, peer: usize) -> Result<bool, LinkError> {
        let mut read_bytes = 0;
        loop {
            let Some(link) = wires.link(peer)? else { return Ok(false) };
            let Some(it) = self.peers.get_mut(&peer) else { return Ok(false) };
            if let FrameInbox::Chunk(progress) = it.inbox {
                let cast = self.casts.get_mut(&progress.cast);
                let capacity =
                    cast.and_then(|it| it.capacity(peer, progress.block, progress.at_bytes, progress.left_bytes));
                let is_wanted = capacity.is_some();
                let length_bytes = progress.left_bytes.min(self.scratch.len());
                let count = link.receive(capacity.unwrap_or(&mut self.scratch[..length_bytes]))?;
                it.inbox.advance(count);
                if let Some(cast) = self.casts.get_mut(&progress.cast).filter(|_| is_wanted) {
                    let events = cast.arrived(now, peer, progress.block, progress.at_bytes + count);
                    self.events.extend(events.into_iter().map(|event| (progress.cast, event)));
                }
                read_bytes += count;
                if count == 0 {
                    // A wanted block is worth a turn once a forwardable piece of it has arrived.
                    let cast = self.casts.get(&progress.cast).filter(|_| is_wanted);
                    let useful_bytes = cast.map_or(usize::MAX, |cast| step_bytes(cast.block_length(progress.block)));
                    link.expect(progress.left_bytes.min(useful_bytes));
                    break;
                }
            } else {
                match it.inbox.read(link)? {
                    Read::Nothing => {
                        link.expect(1);
                        break;
                    }
                    Read::Some => {}
                    Read::Message(cast, message) => self.take_message(now, cast, peer, message),
                }
                read_bytes += 1;
            }
            self.settle(now);
            if read_bytes >= VISIT_BYTES {
                break;
            }
        }
        let Some(link) = wires.link(peer)? else { return Ok(false) };
        if read_bytes > 0 {
            link.flush()?;
        }
        Ok(self.send(link, peer)? > 0 || read_bytes > 0)
    }

    fn send(&mut self, link: &mut dyn crate::Link, peer: usize) -> Result<usize, LinkError> {
        let Some(it) = self.peers.get_mut(&peer) else { return Ok(0) };
        let mut sent = Vec::new();
        let outcome = it.outbox.send(link, &self.casts, &mut sent);
        for Sent { cast, block, length_bytes, is_last } in sent {
            self.casts[&cast].meter.note_gave(length_bytes);
            if is_last {
                it.leaving.push((cast, block));
            }
        }
        if !it.leaving.is_empty() && link.unsent_bytes()? < LEAVING_BYTES_MAX {
            let out = it.leaving.drain(..).map(|(cast, block)| (cast, SwarmEvent::Sent { to: peer, block }));
            self.events.extend(out);
        }
        if it.outbox.is_overfull() {
            return Err(LinkError::Closed { cause: "the peer takes no words".to_string() });
        }
        outcome
    }

    fn lose(&mut self, now: Duration, peer: usize) {
        self.peers.remove(&peer);
        self.lost.insert(peer);
        let is_left = |cast: &BroadcastRun<M>| cast.sharing.is_some() && cast.leader == Some(peer);
        let left: Vec<u32> = self.casts.iter().filter(|(_, cast)| is_left(cast)).map(|(&number, _)| number).collect();
        left.into_iter().for_each(|number| self.start(now, number));
        for cast in self.casts.values_mut() {
            cast.open.remove(&peer);
            cast.mappers.remove(&peer);
        }
        self.pending_events.extend(self.casts.keys().map(|&number| (number, BroadcastEvent::Lost { peer })));
        for (&number, cast) in self.casts.iter_mut().filter(|(_, cast)| cast.node.is_some()) {
            if cast.notified.insert(peer) {
                self.events.push_back((number, SwarmEvent::Lost { peer }));
            }
        }
    }

    fn take_message(&mut self, now: Duration, number: u32, from: usize, message: FrameKind) {
        if number >= self.next {
            if self.early.len() < EARLY_MAX {
                self.early.push((number, from, message));
            }
            return;
        }
        if !self.casts.contains_key(&number) {
            return self.answer_for_ended(number, from, &message);
        }
        match message {
            FrameKind::Here => {}
            FrameKind::Withdraw => {
                self.casts.get_mut(&number).expect("it was found").open.remove(&from);
            }
            FrameKind::Application { bytes } => {
                self.pending_events.push((number, BroadcastEvent::Message { from, bytes }))
            }
            FrameKind::Share => self.share(now, number, from),
            FrameKind::InTransfer => {
                let cast = self.casts.get_mut(&number).expect("it was found");
                cast.sharing = cast.sharing.map(|_| HostSharing::Confirmed { since: now });
            }
            FrameKind::Shared { place, length_bytes } => {
                let cast = self.casts.get_mut(&number).expect("it was found");
                if let (None, Holding::Here(value), true) = (cast.sharing, &cast.holding, cast.leader == Some(from)) {
                    // If remapping fails, this rank keeps the memory that the leader has left.
                    let _ = value.follow(place, length_bytes);
                    return;
                }
                match cast.sharing.map(|_| M::at(place, length_bytes)) {
                    Some(Ok(value)) => {
                        let value = Arc::new(value);
                        (cast.sharing, cast.is_over) = (None, true);
                        cast.holding = Holding::Here(value.clone());
                        self.pending_events.push((number, BroadcastEvent::Ended(Ok(value))));
                    }
                    // Mapping the leader's memory failed: fetch the value instead.
                    Some(Err(_)) => self.start(now, number),
                    None => {}
                }
            }
            FrameKind::Digests { first_block, digests } => {
                let cast = self.casts.get_mut(&number).expect("it was found");
                let manifest = cast.node.as_ref().and_then(SwarmNode::manifest);
                if manifest.is_some_and(|it| first_block.saturating_add(digests.len()) <= it.block_count()) {
                    let events = cast.learn(first_block, &digests);
                    self.events.extend(events.into_iter().map(|event| (number, event)));
                }
            }
            FrameKind::Alone | FrameKind::Released => {
                if self.casts[&number].sharing.is_some() {
                    self.start(now, number);
                }
            }
            FrameKind::Swarm { message, digests } => {
                // A rank that has not requested the value must take part: the root is lost.
                self.start(now, number);
                self.settle(now);
                let cast = self.casts.get_mut(&number).expect("it was found");
                if let Some(manifest) = manifest_of(&message) {
                    if !is_sound(manifest, &digests) {
                        return;
                    }
                    cast.meter.note_value(manifest.bytes);
                    let events = cast.learn(0, &digests);
                    self.events.extend(events.into_iter().map(|event| (number, event)));
                }
                match message {
                    SwarmMessage::Released => {
                        cast.is_over = true;
                        cast.meter.note_released();
                    }
                    SwarmMessage::Join | SwarmMessage::Rejoin { .. } => {
                        cast.is_over = false;
                        self.pending_events.push((number, BroadcastEvent::Reopened));
                    }
                    _ => {}
                }
                self.events.push_back((number, SwarmEvent::Received { from, message }));
            }
        }
    }

    /// Share this rank's value with another rank of the same host, or fetch the value for it.
    fn share(&mut self, now: Duration, number: u32, with: usize) {
        self.start(now, number);
        let cast = self.casts.get_mut(&number).expect("it was found");
        if matches!(cast.holding, Holding::Here(_)) {
            cast.sharers.insert(with);
            return self.notify_sharers(number);
        }
        let message = if cast.has_failed { FrameKind::Alone } else { FrameKind::InTransfer };
        cast.sharers.insert(with);
        self.push(number, with, &message);
    }

    /// Report the result to the ranks of this host that wait for this rank.
    fn notify_sharers(&mut self, number: u32) {
        let Some(cast) = self.casts.get_mut(&number) else { return };
        let sharers = std::mem::take(&mut cast.sharers);
        let Holding::Here(value) = &cast.holding else {
            return sharers.into_iter().for_each(|sharer| self.push(number, sharer, &FrameKind::Alone));
        };
        if sharers.is_empty() {
            return;
        }
        let place = value.place();
        let message = FrameKind::Shared { place, length_bytes: value.len() };
        cast.mappers.extend(sharers.iter().map(|&sharer| (sharer, place)));
        sharers.into_iter().for_each(|sharer| self.push(number, sharer, &message));
    }

    /// Report the new location of a value to the ranks of this host that have mapped it.
    fn report_progress(&mut self) {
        for number in self.casts.keys().copied().collect::<Vec<_>>() {
            let Some(cast) = self.casts.get_mut(&number).filter(|cast| !cast.mappers.is_empty()) else { continue };
            let Holding::Here(value) = &cast.holding else { continue };
            let here = value.place();
            cast.sharers.extend(cast.mappers.iter().filter(|(_, place)| **place != here).map(|(&rank, _)| rank));
            self.notify_sharers(number);
        }
    }

    /// Answer a frame about a value that this rank has released.
    fn answer_for_ended(&mut self, number: u32, from: usize, message: &FrameKind) {
        let answer = match message {
            FrameKind::Swarm { message: SwarmMessage::Request { block, .. }, .. } => {
                FrameKind::Swarm { message: SwarmMessage::Refused { block: *block }, digests: Vec::new() }
            }
            FrameKind::Share => FrameKind::Released,
            _ => return,
        };
        self.push(number, from, &answer);
    }

    fn push(&mut self, number: u32, to: usize, message: &FrameKind) {
        if !self.lost.contains(&to) {
            self.peers.entry(to).or_default().outbox.push_message(frame::encode(number, message));
        }
    }

    /// Pass events to their nodes and execute the resulting actions until no event is left.
    fn settle(&mut self, now: Duration) {
        while let Some((number, event)) = self.events.pop_front() {
            let Some(cast) = self.casts.get_mut(&number) else { continue };
            let Some(node) = &mut cast.node else { continue };
            let actions = node.handle(now, event);
            if let Err(error) = cast.prepare(&*self.make) {
                let bytes = cast.node.as_ref().and_then(SwarmNode::manifest).map_or(0, |manifest| manifest.bytes);
                self.end(number, Err(BroadcastEnding::Memory { bytes, cause: error.to_string() }));
                continue;
            }
            actions.into_iter().for_each(|action| self.act(number, action));
        }
    }

    fn act(&mut self, number: u32, action: Action) {
        let Some(cast) = self.casts.get_mut(&number) else { return };
        match action {
            Action::SendMessage { to, .. } if self.lost.contains(&to) => {
                if cast.notified.insert(to) {
                    self.events.push_back((number, SwarmEvent::Lost { peer: to }));
                }
            }
            Action::SendMessage { to, message } => {
                let digests = if manifest_of(&message).is_some() { cast.digests.clone() } else { Vec::new() };
                if let (SwarmMessage::Admitted { .. }, Holding::Filling(_)) = (&message, &cast.holding) {
                    cast.informed.insert(to);
                }
                self.push(number, to, &FrameKind::Swarm { message, digests });
            }
            Action::Send { to, block, from_bytes } => {
                let outbox = self.peers.get_mut(&to).map(|peer| &mut peer.outbox);
                match outbox {
                    Some(outbox) if from_bytes < cast.block_length(block) => outbox.begin(number, block, from_bytes),
                    _ => self.events.push_back((number, SwarmEvent::Sent { to, block })),
                }
            }
            Action::Stop { to, block } => {
                if let Some(peer) = self.peers.get_mut(&to) {
                    peer.outbox.stop(number, block);
                    peer.leaving.retain(|it| *it != (number, block));
                }
            }
            Action::Done => {
                if let Some(value) = cast.finish() {
                    self.pending_events.push((number, BroadcastEvent::Ended(Ok(value))));
                    self.notify_sharers(number);
                }
            }
            Action::Failed(failure) => {
                (cast.is_over, cast.has_failed) = (true, true);
                self.pending_events.push((number, BroadcastEvent::Ended(Err(failure.into()))));
                self.notify_sharers(number);
            }
            Action::Settled { acknowledged, lost, corruptions } => {
                cast.is_over = true;
                self.pending_events.push((number, BroadcastEvent::Settled { acknowledged, lost, corruptions }));
            }
        }
    }

    /// End a broadcast on this rank, whatever the state of its node.
    fn end(&mut self, number: u32, ending: Result<Arc<M>, BroadcastEnding>) {
        self.pending_events.push((number, BroadcastEvent::Ended(ending)));
        self.notify_sharers(number);
        self.drop_cast(number);
    }

    /// End all incomplete broadcasts, because the link to `peer` cannot be set up. Otherwise healthy ranks would be
    /// reported as lost.
    fn end_awaited(&mut self, peer: usize, what: &str) {
        let is_awaited = |cast: &BroadcastRun<M>| matches!(cast.holding, Holding::Awaited | Holding::Receiving(_));
        let awaited: Vec<u32> = self.casts.iter().filter(|(_, cast)| is_awaited(cast)).map(|(&it, _)| it).collect();
        for number in awaited {
            self.end(number, Err(BroadcastEnding::Lacking { peer, what: what.to_string() }));
        }
    }

    fn drop_cast(&mut self, number: u32) {
        if let Some(cast) = self.casts.remove(&number) {
            self.peers.values_mut().for_each(|peer| peer.outbox.forget(number, &cast));
        }
    }

    /// Drop values that neither the local application nor other ranks need.
    fn sweep(&mut self) {
        let is_done = |cast: &BroadcastRun<M>| cast.is_over && !cast.is_kept && cast.open.is_empty();
        let done: Vec<u32> = self.casts.iter().filter(|(_, cast)| is_done(cast)).map(|(&number, _)| number).collect();
        done.into_iter().for_each(|number| self.drop_cast(number));
    }
}

fn manifest_of(message: &SwarmMessage) -> Option<&BlockManifest> {
    match message {
        SwarmMessage::Admitted { manifest, .. } => Some(manifest),
        SwarmMessage::Rejoin { manifest, .. } => manifest.as_ref(),
        _ => None,
    }
}

fn is_sound(manifest: &BlockManifest, digests: &[Digest]) -> bool {
    let blocks = digests.len()..=BLOCKS_MAX;
    manifest.block_bytes > 0 && manifest.stripe_count > 0 && blocks.contains(&manifest.block_count())
}
