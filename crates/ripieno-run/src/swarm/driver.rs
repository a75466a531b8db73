//! Swarm driver: executes the actions of a rank's swarm nodes over its links and feeds the resulting events back to the
//! nodes.

use super::broadcast::{BroadcastRun, HostSharing, ValueState};
use super::frame::{self, Digest, FrameKind};
use super::inbox::{FrameInbox, ReadOutcome};
use super::meter::Meter;
use super::outbox::{Outbox, SentChunk};
use super::{PeerLinks, Store, UNSENT_BYTES_MAX};
use crate::fabric::{LinkId, LinkInterest};
use crate::link::LinkError;
use ripieno_plan::swarm::{
    Action, BLOCKS_MAX, BlockManifest, BlockSet, CorruptBlock, MemberFailure, SwarmEvent, SwarmMessage, SwarmNode,
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
const EARLY_FRAME_COUNT_MAX: usize = 1 << 16;
/// A block counts as sent once at most this many bytes wait in the socket. The limit is below the threshold at which
/// the socket wakes a sender.
const UNCONFIRMED_BYTES_MAX: usize = UNSENT_BYTES_MAX / 2;
/// Unwanted bytes are read and discarded in pieces of this size.
const SCRATCH_BYTES: usize = 64 << 10;

/// The reason why a broadcast ends on this rank without a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
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
    #[error("no link to rank {peer}: {cause}")]
    MissingResource {
        /// The rank at the other end.
        peer: usize,
        /// The requirement of the link and the remedy.
        cause: String,
    },
}

/// An event that the driver reports about a broadcast.
#[derive(Debug)]
pub enum BroadcastEvent<M> {
    /// The broadcast ended with the value or with an error. Reported once.
    Ended(Result<Arc<M>, TransferError>),
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
    /// Blocks with last bytes that may still wait in the socket.
    unconfirmed: Vec<(u32, usize)>,
}

/// Allocates memory for a value of the given size.
pub type ValueAllocator<M> = Box<dyn Fn(usize) -> io::Result<M> + Send>;

/// One rank's part in all broadcasts of a group. All ranks of the group begin the broadcasts in the same order.
pub struct Driver<M> {
    rank: usize,
    size: usize,
    timing: SwarmTiming,
    make: ValueAllocator<M>,
    broadcasts: BTreeMap<u32, BroadcastRun<M>>,
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
    pub fn new(rank: usize, size: usize, timing: SwarmTiming, make: ValueAllocator<M>) -> Driver<M> {
        Driver {
            rank,
            size,
            timing,
            make,
            broadcasts: BTreeMap::new(),
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
        let mut broadcast = BroadcastRun::on_root(node, value, digests);
        broadcast.open = (0..self.size).filter(|rank| *rank != self.rank && !self.lost.contains(rank)).collect();
        self.broadcasts.insert(number, broadcast);
        self.events.push_back((number, SwarmEvent::Start));
        self.begin(now);
        number
    }

    /// Add the digests of the blocks that the root has written since the last call. Bytes covered by a digest must not
    /// change afterwards.
    pub fn fill(&mut self, now: Duration, number: u32, digests: &[Digest]) {
        let Some(broadcast) = self.broadcasts.get_mut(&number) else { return };
        let first_block = broadcast.digests.len();
        let is_complete = broadcast.fill(digests);
        let informed = if is_complete { std::mem::take(&mut broadcast.informed) } else { broadcast.informed.clone() };
        for to in informed {
            self.push(number, to, &FrameKind::Digests { first_block, digests: digests.to_vec() });
        }
        if is_complete {
            self.notify_sharers(number);
        }
        self.settle(now);
    }

    /// Cancel a broadcast that cannot be completed. Its receivers see the root as lost.
    pub fn abandon(&mut self, number: u32) {
        self.drop_broadcast(number);
    }

    /// Register a broadcast from `root` and return its number. The transfer starts with [`request`](Self::request). If
    /// `leader` is set, the leader fetches the value and shares its memory with this rank.
    pub fn expect(&mut self, now: Duration, root: usize, leader: Option<usize>) -> u32 {
        self.expect_as(now, BroadcastRun::awaited(root, leader))
    }

    /// Fetch the value with these `digests` from `root` into `memory` and return the number of the broadcast. `have`
    /// marks the blocks that `memory` already contains.
    pub fn fetch_into(&mut self, now: Duration, root: usize, memory: M, digests: Vec<Digest>, have: BlockSet) -> u32 {
        let number = self.expect_as(now, BroadcastRun::into_memory(root, memory, digests, have));
        self.request(now, number);
        number
    }

    fn expect_as(&mut self, now: Duration, broadcast: BroadcastRun<M>) -> u32 {
        let (number, root) = (self.next, broadcast.root);
        self.broadcasts.insert(number, broadcast);
        if !self.peers.contains_key(&root) {
            // The root then detects the loss of this rank by the end of the link.
            self.push(number, root, &FrameKind::Interested);
        }
        self.begin(now);
        number
    }

    fn begin(&mut self, now: Duration) {
        let number = self.next;
        self.next += 1;
        // Ranks lost before this broadcast began are lost for it as well.
        self.pending_events.extend(self.lost.iter().map(|&peer| (number, BroadcastEvent::Lost { peer })));
        let (due, early) =
            std::mem::take(&mut self.early).into_iter().partition(|(broadcast, ..)| *broadcast == number);
        self.early = early;
        due.into_iter().for_each(|(number, from, message)| self.receive_message(now, number, from, message));
        self.settle(now);
    }

    /// Let `meter` record the progress of a value.
    pub fn watch(&mut self, number: u32, meter: Arc<Meter>) {
        if let Some(broadcast) = self.broadcasts.get_mut(&number) {
            broadcast.watch(meter);
        }
    }

    /// Send a message about a value to the application on another rank.
    pub fn send_message(&mut self, number: u32, to: usize, bytes: Vec<u8>) {
        self.push(number, to, &FrameKind::Application { bytes });
    }

    /// Start to fetch an expected value.
    pub fn request(&mut self, now: Duration, number: u32) {
        match self.broadcasts.get(&number).and_then(|broadcast| broadcast.leader) {
            Some(leader) if !self.lost.contains(&leader) => self.ask_leader(now, number, leader),
            _ => self.start(now, number),
        }
        self.settle(now);
    }

    fn ask_leader(&mut self, now: Duration, number: u32, leader: usize) {
        let Some(broadcast) = self.broadcasts.get_mut(&number).filter(|broadcast| broadcast.is_awaited()) else {
            return;
        };
        broadcast.is_over = false;
        broadcast.sharing = Some(HostSharing::Requested { since: now });
        self.push(number, leader, &FrameKind::Share);
    }

    /// Ask leaders again after the stall timeout. If a leader does not answer in time, fetch the value directly.
    fn retry_sharing(&mut self, now: Duration) {
        let due = self
            .broadcasts
            .iter()
            .filter(|(_, broadcast)| broadcast.sharing_wake(&self.timing).is_some_and(|at| at <= now));
        for number in due.map(|(&number, _)| number).collect::<Vec<_>>() {
            match (self.broadcasts[&number].sharing, self.broadcasts[&number].leader) {
                (Some(HostSharing::Confirmed { .. }), Some(leader)) => self.ask_leader(now, number, leader),
                _ => self.start(now, number),
            }
        }
    }

    fn start(&mut self, now: Duration, number: u32) {
        let Some(broadcast) = self.broadcasts.get_mut(&number).filter(|broadcast| broadcast.is_awaited()) else {
            return;
        };
        (broadcast.is_over, broadcast.sharing) = (false, None);
        let node = SwarmNode::receiver(self.rank, broadcast.root, self.size, self.timing, now);
        broadcast.node = Some(node.with_blocks(broadcast.found.clone()));
        self.events.push_back((number, SwarmEvent::Start));
    }

    /// Release the local reference to a value. This rank keeps serving the value to ranks that fetch it. The root keeps
    /// the value until all other ranks have released it.
    pub fn release(&mut self, number: u32) {
        if let Some(broadcast) = self.broadcasts.get_mut(&number).filter(|broadcast| broadcast.is_retained) {
            broadcast.is_retained = false;
            let root = broadcast.root;
            if root != self.rank {
                self.push(number, root, &FrameKind::Withdraw);
            }
        }
        self.sweep();
    }

    /// Release all values.
    pub fn release_all(&mut self) {
        self.broadcasts.keys().copied().collect::<Vec<_>>().into_iter().for_each(|number| self.release(number));
    }

    /// Return whether no other rank needs a value or a queued frame from this rank.
    pub fn is_idle(&self) -> bool {
        self.broadcasts.is_empty() && !self.peers.values().any(|peer| peer.outbox.is_ready(&self.broadcasts))
    }

    /// Return the latest time at which [`turn`](Self::turn) must run again.
    pub fn wake(&self) -> Option<Duration> {
        let wake = |broadcast: &BroadcastRun<M>| {
            broadcast.sharing_wake(&self.timing).or_else(|| broadcast.node.as_ref()?.next_tick())
        };
        self.broadcasts.values().filter_map(wake).min()
    }

    /// Return the events since the last call.
    pub fn take_events(&mut self) -> Vec<(u32, BroadcastEvent<M>)> {
        std::mem::take(&mut self.pending_events)
    }

    /// Return the links that the driver waits on.
    pub fn interests(&self) -> Vec<LinkInterest> {
        let is_writable = |it: &Peer| !it.unconfirmed.is_empty() || it.outbox.is_ready(&self.broadcasts);
        self.peers
            .iter()
            .map(|(&peer, it)| LinkInterest {
                link: LinkId::collectives(peer),
                readable: true,
                writable: is_writable(it),
            })
            .collect()
    }

    /// Read and send all that the links accept now. Return whether any bytes moved or a silent peer was reached.
    pub fn turn(&mut self, now: Duration, wires: &mut dyn PeerLinks) -> bool {
        for peer in wires.new_peers() {
            self.peers.entry(peer).or_default();
        }
        let mut has_moved = false;
        for peer in wires.reached_peers() {
            has_moved = true;
            self.events.extend(self.broadcasts.keys().map(|&number| (number, SwarmEvent::Reached { peer })));
        }
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            match self.visit(now, wires, peer) {
                Ok(moved) => has_moved |= moved,
                Err(LinkError::Closed { cause }) => {
                    wires.close(peer, &cause);
                    self.lose(now, peer);
                }
                Err(LinkError::MissingResource { cause }) => {
                    wires.close(peer, &cause);
                    self.end_awaited(peer, &cause);
                    self.lose(now, peer);
                }
            }
            self.settle(now);
        }
        let due = |broadcast: &BroadcastRun<M>| {
            broadcast.node.as_ref().and_then(SwarmNode::next_tick).is_some_and(|next_tick| next_tick <= now)
        };
        let due: Vec<u32> =
            self.broadcasts.iter().filter(|(_, broadcast)| due(broadcast)).map(|(&number, _)| number).collect();
        self.events.extend(due.into_iter().map(|number| (number, SwarmEvent::Tick)));
        self.retry_sharing(now);
        self.report_progress();
        self.settle(now);
        self.sweep();
        has_moved
    }

    fn visit(&mut self, now: Duration, wires: &mut dyn PeerLinks, peer: usize) -> Result<bool, LinkError> {
        let mut read_bytes = 0;
        loop {
            let Some(link) = wires.link(peer)? else { return Ok(false) };
            let Some(state) = self.peers.get_mut(&peer) else { return Ok(false) };
            if let FrameInbox::Chunk(progress) = state.inbox {
                let broadcast = self.broadcasts.get_mut(&progress.broadcast);
                let capacity = broadcast
                    .and_then(|it| it.destination(peer, progress.block, progress.at_bytes, progress.left_bytes));
                let is_wanted = capacity.is_some();
                let length_bytes = progress.left_bytes.min(self.scratch.len());
                let count = link.receive(capacity.unwrap_or(&mut self.scratch[..length_bytes]))?;
                state.inbox.advance(count);
                if let Some(broadcast) = self.broadcasts.get_mut(&progress.broadcast).filter(|_| is_wanted) {
                    let events = broadcast.arrived(now, peer, progress.block, progress.at_bytes + count);
                    self.events.extend(events.into_iter().map(|event| (progress.broadcast, event)));
                }
                read_bytes += count;
                if count == 0 {
                    // The driver need not visit a requested block before a forwardable piece of it has arrived.
                    let broadcast = self.broadcasts.get(&progress.broadcast).filter(|_| is_wanted);
                    let useful_bytes =
                        broadcast.map_or(usize::MAX, |broadcast| step_bytes(broadcast.block_length(progress.block)));
                    link.expect(progress.left_bytes.min(useful_bytes));
                    break;
                }
            } else {
                match state.inbox.read(link)? {
                    ReadOutcome::Nothing => {
                        link.expect(1);
                        break;
                    }
                    ReadOutcome::Partial => {}
                    ReadOutcome::Message(broadcast, message) => self.receive_message(now, broadcast, peer, message),
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
        let Some(state) = self.peers.get_mut(&peer) else { return Ok(0) };
        let mut sent = Vec::new();
        let outcome = state.outbox.send(link, &self.broadcasts, &mut sent);
        for SentChunk { broadcast, block, length_bytes, is_last } in sent {
            self.broadcasts[&broadcast].meter.record_sent(length_bytes);
            if is_last {
                state.unconfirmed.push((broadcast, block));
            }
        }
        if !state.unconfirmed.is_empty() && link.unsent_bytes()? < UNCONFIRMED_BYTES_MAX {
            let out =
                state.unconfirmed.drain(..).map(|(broadcast, block)| (broadcast, SwarmEvent::Sent { to: peer, block }));
            self.events.extend(out);
        }
        if state.outbox.is_overfull() {
            return Err(LinkError::Closed { cause: "the peer accepts no messages".to_string() });
        }
        outcome
    }

    fn lose(&mut self, now: Duration, peer: usize) {
        self.peers.remove(&peer);
        self.lost.insert(peer);
        let is_left = |broadcast: &BroadcastRun<M>| broadcast.sharing.is_some() && broadcast.leader == Some(peer);
        let left: Vec<u32> =
            self.broadcasts.iter().filter(|(_, broadcast)| is_left(broadcast)).map(|(&number, _)| number).collect();
        left.into_iter().for_each(|number| self.start(now, number));
        for broadcast in self.broadcasts.values_mut() {
            broadcast.open.remove(&peer);
            broadcast.mappers.remove(&peer);
        }
        self.pending_events.extend(self.broadcasts.keys().map(|&number| (number, BroadcastEvent::Lost { peer })));
        for (&number, broadcast) in self.broadcasts.iter_mut().filter(|(_, broadcast)| broadcast.node.is_some()) {
            if broadcast.notified.insert(peer) {
                self.events.push_back((number, SwarmEvent::Lost { peer }));
            }
        }
    }

    fn receive_message(&mut self, now: Duration, number: u32, from: usize, message: FrameKind) {
        let is_probe = matches!(message, FrameKind::Swarm { message: SwarmMessage::Probe, .. });
        let awaits_request = match self.broadcasts.get(&number) {
            Some(broadcast) => broadcast.node.is_none(),
            None => number >= self.next,
        };
        if is_probe && awaits_request {
            // A probe alone starts no fetch.
            let answer = FrameKind::Swarm { message: SwarmMessage::Alive, digests: Vec::new() };
            return self.push(number, from, &answer);
        }
        if number >= self.next {
            if self.early.len() < EARLY_FRAME_COUNT_MAX {
                self.early.push((number, from, message));
            }
            return;
        }
        if !self.broadcasts.contains_key(&number) {
            return self.answer_for_ended(number, from, &message);
        }
        match message {
            FrameKind::Interested => {}
            FrameKind::Withdraw => {
                self.broadcasts.get_mut(&number).expect("the broadcast exists").open.remove(&from);
            }
            FrameKind::Application { bytes } => {
                self.pending_events.push((number, BroadcastEvent::Message { from, bytes }))
            }
            FrameKind::Share => self.share(now, number, from),
            FrameKind::InTransfer => {
                let broadcast = self.broadcasts.get_mut(&number).expect("the broadcast exists");
                broadcast.sharing = broadcast.sharing.map(|_| HostSharing::Confirmed { since: now });
            }
            FrameKind::Shared { location, length_bytes } => {
                let broadcast = self.broadcasts.get_mut(&number).expect("the broadcast exists");
                if let (None, ValueState::Complete(value), true) =
                    (broadcast.sharing, &broadcast.state, broadcast.leader == Some(from))
                {
                    // If remapping fails, this rank keeps the memory that the leader has left.
                    let _ = value.remap(location, length_bytes);
                    return;
                }
                match broadcast.sharing.map(|_| M::at(location, length_bytes)) {
                    Some(Ok(value)) => {
                        let value = Arc::new(value);
                        (broadcast.sharing, broadcast.is_over) = (None, true);
                        broadcast.state = ValueState::Complete(value.clone());
                        self.pending_events.push((number, BroadcastEvent::Ended(Ok(value))));
                    }
                    // Mapping the leader's memory failed: fetch the value instead.
                    Some(Err(_)) => self.start(now, number),
                    None => {}
                }
            }
            FrameKind::Digests { first_block, digests } => {
                let broadcast = self.broadcasts.get_mut(&number).expect("the broadcast exists");
                let manifest = broadcast.node.as_ref().and_then(SwarmNode::manifest);
                if manifest.is_some_and(|it| first_block.saturating_add(digests.len()) <= it.block_count()) {
                    let events = broadcast.add_digests(first_block, &digests);
                    self.events.extend(events.into_iter().map(|event| (number, event)));
                }
            }
            FrameKind::Unavailable | FrameKind::Released => {
                if self.broadcasts[&number].sharing.is_some() {
                    self.start(now, number);
                }
            }
            FrameKind::Swarm { message, digests } => {
                // A rank that has not requested the value must take part: the root is lost.
                self.start(now, number);
                self.settle(now);
                let broadcast = self.broadcasts.get_mut(&number).expect("the broadcast exists");
                if let Some(manifest) = manifest_of(&message) {
                    if !is_valid(manifest, &digests) {
                        return;
                    }
                    broadcast.meter.note_value(manifest.bytes);
                    let events = broadcast.add_digests(0, &digests);
                    self.events.extend(events.into_iter().map(|event| (number, event)));
                }
                match message {
                    SwarmMessage::Released => {
                        broadcast.is_over = true;
                        broadcast.meter.note_released();
                    }
                    SwarmMessage::Join | SwarmMessage::Rejoin { .. } => {
                        broadcast.is_over = false;
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
        let broadcast = self.broadcasts.get_mut(&number).expect("the broadcast exists");
        if matches!(broadcast.state, ValueState::Complete(_)) {
            broadcast.sharers.insert(with);
            return self.notify_sharers(number);
        }
        let message = if broadcast.has_failed { FrameKind::Unavailable } else { FrameKind::InTransfer };
        broadcast.sharers.insert(with);
        self.push(number, with, &message);
    }

    /// Report the result to the ranks of this host that wait for this rank.
    fn notify_sharers(&mut self, number: u32) {
        let Some(broadcast) = self.broadcasts.get_mut(&number) else { return };
        let sharers = std::mem::take(&mut broadcast.sharers);
        let ValueState::Complete(value) = &broadcast.state else {
            return sharers.into_iter().for_each(|sharer| self.push(number, sharer, &FrameKind::Unavailable));
        };
        if sharers.is_empty() {
            return;
        }
        let location = value.location();
        let message = FrameKind::Shared { location, length_bytes: value.len() };
        broadcast.mappers.extend(sharers.iter().map(|&sharer| (sharer, location)));
        sharers.into_iter().for_each(|sharer| self.push(number, sharer, &message));
    }

    /// Report the new location of a value to the ranks of this host that have mapped it.
    fn report_progress(&mut self) {
        for number in self.broadcasts.keys().copied().collect::<Vec<_>>() {
            let Some(broadcast) = self.broadcasts.get_mut(&number).filter(|broadcast| !broadcast.mappers.is_empty())
            else {
                continue;
            };
            let ValueState::Complete(value) = &broadcast.state else { continue };
            let here = value.location();
            broadcast
                .sharers
                .extend(broadcast.mappers.iter().filter(|(_, location)| **location != here).map(|(&rank, _)| rank));
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
            let Some(broadcast) = self.broadcasts.get_mut(&number) else { continue };
            let Some(node) = &mut broadcast.node else { continue };
            let actions = node.handle(now, event);
            if let Err(error) = broadcast.prepare(&*self.make) {
                let bytes = broadcast.node.as_ref().and_then(SwarmNode::manifest).map_or(0, |manifest| manifest.bytes);
                self.end(number, Err(TransferError::Memory { bytes, cause: error.to_string() }));
                continue;
            }
            actions.into_iter().for_each(|action| self.execute(number, action));
        }
    }

    fn execute(&mut self, number: u32, action: Action) {
        let Some(broadcast) = self.broadcasts.get_mut(&number) else { return };
        match action {
            Action::SendMessage { to, .. } if self.lost.contains(&to) => {
                if broadcast.notified.insert(to) {
                    self.events.push_back((number, SwarmEvent::Lost { peer: to }));
                }
            }
            Action::SendMessage { to, message } => {
                let digests = if manifest_of(&message).is_some() { broadcast.digests.clone() } else { Vec::new() };
                if let (SwarmMessage::Admitted { .. }, ValueState::Filling(_)) = (&message, &broadcast.state) {
                    broadcast.informed.insert(to);
                }
                self.push(number, to, &FrameKind::Swarm { message, digests });
            }
            Action::Send { to, block, from_bytes } => {
                let outbox = self.peers.get_mut(&to).map(|peer| &mut peer.outbox);
                match outbox {
                    Some(outbox) if from_bytes < broadcast.block_length(block) => {
                        outbox.begin(number, block, from_bytes)
                    }
                    _ => self.events.push_back((number, SwarmEvent::Sent { to, block })),
                }
            }
            Action::Stop { to, block } => {
                if let Some(peer) = self.peers.get_mut(&to) {
                    peer.outbox.stop(number, block);
                    peer.unconfirmed.retain(|it| *it != (number, block));
                }
            }
            Action::Done => {
                if let Some(value) = broadcast.finish() {
                    self.pending_events.push((number, BroadcastEvent::Ended(Ok(value))));
                    self.notify_sharers(number);
                }
            }
            Action::Failed(failure) => {
                (broadcast.is_over, broadcast.has_failed) = (true, true);
                self.pending_events.push((number, BroadcastEvent::Ended(Err(failure.into()))));
                self.notify_sharers(number);
            }
            Action::Settled { acknowledged, lost, corruptions } => {
                broadcast.is_over = true;
                self.pending_events.push((number, BroadcastEvent::Settled { acknowledged, lost, corruptions }));
            }
        }
    }

    /// End a broadcast on this rank in any state of its node.
    fn end(&mut self, number: u32, ending: Result<Arc<M>, TransferError>) {
        self.pending_events.push((number, BroadcastEvent::Ended(ending)));
        self.notify_sharers(number);
        self.drop_broadcast(number);
    }

    /// End all incomplete broadcasts, because the link to `peer` cannot be set up. Otherwise this rank would report
    /// healthy ranks as lost.
    fn end_awaited(&mut self, peer: usize, cause: &str) {
        let is_awaited =
            |broadcast: &BroadcastRun<M>| matches!(broadcast.state, ValueState::Unknown | ValueState::Receiving(_));
        let awaited: Vec<u32> =
            self.broadcasts.iter().filter(|(_, broadcast)| is_awaited(broadcast)).map(|(&it, _)| it).collect();
        for number in awaited {
            self.end(number, Err(TransferError::MissingResource { peer, cause: cause.to_string() }));
        }
    }

    fn drop_broadcast(&mut self, number: u32) {
        if let Some(broadcast) = self.broadcasts.remove(&number) {
            self.peers.values_mut().for_each(|peer| peer.outbox.forget(number, &broadcast));
        }
    }

    /// Drop values that neither the local application nor other ranks need.
    fn sweep(&mut self) {
        let is_done =
            |broadcast: &BroadcastRun<M>| broadcast.is_over && !broadcast.is_retained && broadcast.open.is_empty();
        let done: Vec<u32> =
            self.broadcasts.iter().filter(|(_, broadcast)| is_done(broadcast)).map(|(&number, _)| number).collect();
        done.into_iter().for_each(|number| self.drop_broadcast(number));
    }
}

fn manifest_of(message: &SwarmMessage) -> Option<&BlockManifest> {
    match message {
        SwarmMessage::Admitted { manifest, .. } => Some(manifest),
        SwarmMessage::Rejoin { manifest, .. } => manifest.as_ref(),
        _ => None,
    }
}

fn is_valid(manifest: &BlockManifest, digests: &[Digest]) -> bool {
    let blocks = digests.len()..=BLOCKS_MAX;
    manifest.block_bytes > 0 && manifest.stripe_count > 0 && blocks.contains(&manifest.block_count())
}
