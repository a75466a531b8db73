//! Member of a dynamic broadcast: it fetches missing blocks and forwards the blocks that it has.
//!
//! All disciplines share the definition of a fetch, its resumption and its error handling. They differ in the component
//! that selects source and block. The tracker assigns the source of a stripe (`streams.rs`) or of a block, or the
//! member selects both (`neighbors.rs`).

mod neighbors;
mod seeding;
mod silence;
mod streams;

use super::uploads::{UploadRequest, Uploads};
use super::{
    Action, BlockManifest, BlockSet, Discipline, MemberFailure, NeighborOffer, SilentSource, SwarmEvent, SwarmMessage,
    SwarmTiming,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;
use neighbors::Neighbors;
use seeding::Seeding;
use silence::Silence;
use streams::Streams;

/// A member drops a source after this number of corrupt blocks.
pub(super) const CORRUPT_BLOCK_COUNT_MAX: usize = 2;
/// Limit of concurrent uploads under streamed disciplines. The number of children in the trees is usually lower.
const STREAM_COUNT_MAX: usize = 64;

/// A running fetch of a block.
#[derive(Clone, Copy, Debug)]
struct BlockFetch {
    source: usize,
    since: Duration,
    from_bytes: usize,
}

/// Progress of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The member lacks blocks.
    Receiving,
    /// The member has all blocks and serves other members.
    Done,
    /// All members have all blocks.
    Released,
    /// The member will not receive the missing blocks.
    Failed,
}

/// State of a member.
pub(super) struct SwarmMember {
    rank: usize,
    pub(super) tracker: usize,
    timing: SwarmTiming,
    pub(super) manifest: Option<BlockManifest>,
    pub(super) have: BlockSet,
    pub(super) phase: Phase,
    /// Bytes received so far of each incomplete block.
    partial: BTreeMap<usize, usize>,
    fetches: BTreeMap<usize, BlockFetch>,
    /// Silence of each source of a running fetch.
    silences: BTreeMap<usize, Silence>,
    uploads: Uploads,
    streams: Streams,
    neighbors: Neighbors,
    /// Number of corrupt blocks by source.
    corrupt_counts: BTreeMap<usize, usize>,
    lost: BTreeSet<usize>,
    /// Time of the last byte, or of the last message from the tracker.
    last_received: Duration,
    /// Time of the query that the tracker has not answered yet.
    queried_since: Option<Duration>,
    /// Time at which the tracker was last found alive.
    tracker_reached: Duration,
}

impl SwarmMember {
    /// Create the member of `rank`. The root starts with all blocks.
    pub(super) fn new(
        rank: usize,
        tracker: usize,
        manifest: Option<BlockManifest>,
        timing: SwarmTiming,
        now: Duration,
    ) -> SwarmMember {
        let seeded = manifest.filter(|manifest| matches!(manifest.discipline, Discipline::BitTorrent { .. }));
        let seeding = seeded.map(|manifest| Seeding::new(manifest.block_count()));
        SwarmMember {
            rank,
            tracker,
            timing,
            manifest,
            have: manifest.map_or(BlockSet::none(0), |manifest| BlockSet::all(manifest.block_count())),
            phase: if manifest.is_some() { Phase::Done } else { Phase::Receiving },
            partial: BTreeMap::new(),
            fetches: BTreeMap::new(),
            silences: BTreeMap::new(),
            uploads: Uploads::default(),
            streams: Streams::default(),
            neighbors: Neighbors::new(rank, seeding),
            corrupt_counts: BTreeMap::new(),
            lost: BTreeSet::new(),
            last_received: now,
            queried_since: None,
            tracker_reached: now,
        }
    }

    /// Return when the member needs its next tick.
    pub(super) fn next_tick(&self) -> Option<Duration> {
        match (self.phase, self.queried_since) {
            (Phase::Receiving | Phase::Done, Some(queried_since)) => Some(self.answer_deadline(queried_since)),
            (Phase::Receiving, None) => Some(self.next_report()),
            _ => None,
        }
    }

    pub(super) fn source_of(&self, block: usize) -> Option<usize> {
        self.fetches.get(&block).map(|fetch| fetch.source)
    }

    /// Send a join message to the tracker.
    pub(super) fn join(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.queried_since = Some(now);
        self.last_received = now;
        send(out, self.tracker, SwarmMessage::Join);
    }

    /// Report the blocks to another tracker, which assigns the sources from now on.
    pub(super) fn rejoin(&mut self, now: Duration, tracker: usize, out: &mut Vec<Action>) {
        self.tracker = tracker;
        for (block, fetch) in core::mem::take(&mut self.fetches) {
            send(out, fetch.source, SwarmMessage::Cancel { block });
        }
        self.streams = Streams::default();
        self.neighbors = Neighbors::new(self.rank, None);
        (self.queried_since, self.last_received) = (Some(now), now);
        send(out, tracker, SwarmMessage::Rejoin { manifest: self.manifest, have: Box::new(self.have.clone()) });
    }

    /// Record that a rank is alive. An answer of the tracker may be late.
    pub(super) fn note_reached(&mut self, now: Duration, peer: usize) {
        if peer == self.tracker {
            self.tracker_reached = now;
        }
    }

    /// Return until when the tracker may answer a query.
    fn answer_deadline(&self, queried_since: Duration) -> Duration {
        queried_since.max(self.tracker_reached) + self.timing.answer_timeout
    }

    /// Return when the member begins to doubt that the tracker answers its query.
    pub(super) fn tracker_suspicion(&self) -> Option<Duration> {
        let is_open = matches!(self.phase, Phase::Receiving | Phase::Done);
        let since = self.queried_since.filter(|_| is_open)?.max(self.tracker_reached);
        Some(since + self.timing.answer_timeout / 4)
    }

    /// Process an event and return whether the tracker must be considered lost.
    pub(super) fn handle(&mut self, now: Duration, event: SwarmEvent, out: &mut Vec<Action>) -> bool {
        match event {
            SwarmEvent::Received { from, message } => self.receive(now, from, message, out),
            SwarmEvent::Arrived { block, until_bytes } => self.record_progress(now, block, until_bytes, out),
            SwarmEvent::Checked { block, from, is_valid } => self.check(now, block, from, is_valid, out),
            SwarmEvent::Sent { to, block } => {
                self.uploads.sent(to, block);
                self.offer_next_blocks(block, out);
                self.serve(out);
            }
            SwarmEvent::Lost { peer } => self.handle_loss(now, peer, out),
            SwarmEvent::Tick => return self.tick(now, out),
            SwarmEvent::Start | SwarmEvent::Reached { .. } => {}
        }
        false
    }

    fn receive(&mut self, now: Duration, from: usize, message: SwarmMessage, out: &mut Vec<Action>) {
        if from == self.tracker {
            (self.last_received, self.queried_since) = (now, None);
        }
        match message {
            SwarmMessage::Admitted { manifest, sources, neighbors } => {
                self.begin(now, manifest, sources, neighbors, out)
            }
            SwarmMessage::Source { stripe, source } => self.set_source(now, stripe, source, out),
            SwarmMessage::Fetch { block, source } => self.fetch_assigned(now, block, source, out),
            SwarmMessage::AddNeighbors { neighbors } => self.add_neighbors(neighbors, out),
            SwarmMessage::Wait | SwarmMessage::TakeOver => {}
            SwarmMessage::Probe if self.phase == Phase::Failed => {}
            SwarmMessage::Probe => send(out, from, SwarmMessage::Alive),
            SwarmMessage::MemberLost { rank } => self.handle_loss(now, rank, out),
            SwarmMessage::Released => self.phase = Phase::Released,
            SwarmMessage::Failed(failure) => self.fail(failure, out),
            SwarmMessage::Request { block, from_bytes } => {
                self.handle_request(UploadRequest { to: from, block, from_bytes }, out)
            }
            SwarmMessage::Cancel { block } => {
                if self.uploads.cancel(from, block) {
                    out.push(Action::Stop { to: from, block });
                }
                self.serve(out);
            }
            SwarmMessage::Refused { block } => self.handle_refusal(now, from, block, out),
            SwarmMessage::Offer { have, is_answer, replaces } => {
                replaces.into_iter().for_each(|rank| _ = self.neighbors.forget(rank));
                self.handle_offer(now, from, *have, is_answer, out);
            }
            SwarmMessage::Have { block } => self.handle_have(now, from, block, out),
            _ => {}
        }
    }

    fn handle_refusal(&mut self, now: Duration, from: usize, block: usize, out: &mut Vec<Action>) {
        if self.source_of(block) != Some(from) {
            return;
        }
        if self.manifest.is_some_and(|manifest| manifest.discipline.is_streamed()) {
            // The source has dropped the value or is overloaded. The tracker assigns another source.
            return self.drop_source(from, out);
        }
        self.fetches.remove(&block);
        self.neighbors.remove_block(from, block);
        self.request_other_source(block, from, out);
        self.start_fetches(now, out);
    }

    fn begin(
        &mut self,
        now: Duration,
        manifest: BlockManifest,
        sources: Vec<usize>,
        neighbors: Vec<NeighborOffer>,
        out: &mut Vec<Action>,
    ) {
        if self.manifest.is_none() && self.have.block_count() != manifest.block_count() {
            self.have = BlockSet::none(manifest.block_count());
        }
        if self.manifest.is_none() && self.have.count() > 0 && self.gets_assigned_sources(&manifest) {
            send(out, self.tracker, SwarmMessage::Found { have: Box::new(self.have.clone()) });
        }
        self.manifest = Some(manifest);
        self.streams.begin(sources);
        self.finish_if_complete(out);
        self.answer_early_offers(out);
        self.add_neighbors(neighbors, out);
        self.serve(out);
        self.start_fetches(now, out);
    }

    /// Record that `until_bytes` bytes of a requested block have arrived in total.
    fn record_progress(&mut self, now: Duration, block: usize, until_bytes: usize, out: &mut Vec<Action>) {
        let received = self.partial.entry(block).or_default();
        if until_bytes > *received {
            *received = until_bytes;
            self.last_received = now;
            self.end_silence(now, block, out);
        }
    }

    fn check(&mut self, now: Duration, block: usize, from: usize, is_valid: bool, out: &mut Vec<Action>) {
        self.end_silence(now, block, out);
        let Some(fetch) = self.fetches.remove(&block) else { return };
        let manifest = self.manifest.expect("a member that fetches has the manifest");
        self.last_received = now;
        self.partial.remove(&block);
        let speed = speed(manifest.block_length(block) - fetch.from_bytes, now - fetch.since);
        self.neighbors.record_speed(from, speed);
        if !is_valid {
            self.reject(block, from, out);
        } else {
            self.have.add(block);
            match manifest.discipline {
                Discipline::CooperativeSharing { .. } => {
                    send(out, self.tracker, SwarmMessage::Fetched { block, source: from, bytes_per_s: speed });
                }
                Discipline::BitTorrent { .. } => self.neighbors.announce(block, out),
                _ => {}
            }
            self.finish_if_complete(out);
        }
        self.serve(out);
        self.start_fetches(now, out);
    }

    /// Handle a corrupt block: fetch it again. After the second corrupt block from one source, use another source.
    fn reject(&mut self, block: usize, from: usize, out: &mut Vec<Action>) {
        send(out, self.tracker, SwarmMessage::Corrupt { block, source: from });
        self.streams.request_again(block);
        let corrupt_count = self.corrupt_counts.entry(from).or_default();
        *corrupt_count += 1;
        if *corrupt_count >= CORRUPT_BLOCK_COUNT_MAX {
            *corrupt_count = 0;
            self.neighbors.forget(from);
            self.drop_source(from, out);
        }
    }

    fn finish_if_complete(&mut self, out: &mut Vec<Action>) {
        if self.have.is_all() && self.phase == Phase::Receiving {
            self.phase = Phase::Done;
            out.push(Action::Done);
        }
        // A new tracker must receive this report again.
        if self.have.is_all() && matches!(self.phase, Phase::Done) && self.rank != self.tracker {
            send(out, self.tracker, SwarmMessage::Done);
        }
    }

    fn handle_request(&mut self, request: UploadRequest, out: &mut Vec<Action>) {
        self.uploads.cancel(request.to, request.block);
        if !self.can_serve(request.block) || !self.uploads.push(request) {
            send(out, request.to, SwarmMessage::Refused { block: request.block });
        }
        self.serve(out);
    }

    /// Whether the member has a block or will forward it as it arrives. True while the manifest is unknown, so requests
    /// stay in the queue.
    fn can_serve(&self, block: usize) -> bool {
        self.phase != Phase::Failed
            && self.manifest.is_none_or(|manifest| {
                block < manifest.block_count() && (manifest.discipline.is_streamed() || self.have.has(block))
            })
    }

    /// Start uploads up to the limit of the discipline.
    fn serve(&mut self, out: &mut Vec<Action>) {
        let Some(manifest) = self.manifest else { return };
        self.uploads.set_stripes(manifest.stripe_count);
        let (limit, is_swarm) = match manifest.discipline {
            Discipline::CooperativeSharing { degree, .. } => (degree, false),
            Discipline::BitTorrent { uploads, .. } => (uploads, true),
            _ => (STREAM_COUNT_MAX, false),
        };
        // Members with few blocks are served first, so no request is postponed forever.
        let priority = |to: usize, was_sent: bool| match is_swarm {
            true => (was_sent, self.neighbors.have_count(to)),
            false => (false, 0),
        };
        while let Some(UploadRequest { to, block, from_bytes }) = self.uploads.next(limit, priority) {
            if self.can_serve(block) {
                out.push(Action::Send { to, block, from_bytes });
            } else {
                self.uploads.sent(to, block);
                send(out, to, SwarmMessage::Refused { block });
            }
        }
    }

    fn fetch(&mut self, now: Duration, block: usize, source: usize, out: &mut Vec<Action>) {
        let from_bytes = self.partial.get(&block).copied().unwrap_or(0);
        self.begin_silence(now, source);
        self.fetches.insert(block, BlockFetch { source, since: now, from_bytes });
        send(out, source, SwarmMessage::Request { block, from_bytes });
    }

    fn fetch_assigned(&mut self, now: Duration, block: usize, source: usize, out: &mut Vec<Action>) {
        if self.have.has(block) {
            send(out, self.tracker, SwarmMessage::Fetched { block, source, bytes_per_s: 0 });
        } else if self.lost.contains(&source) {
            send(out, self.tracker, SwarmMessage::Ask { part: block, failed_source: source });
        } else {
            if let Some(old) = self.fetches.remove(&block) {
                send(out, old.source, SwarmMessage::Cancel { block });
            }
            self.fetch(now, block, source, out);
        }
    }

    /// Start the fetches that the discipline leaves to the member.
    fn start_fetches(&mut self, now: Duration, out: &mut Vec<Action>) {
        let Some(manifest) = self.manifest.filter(|_| self.phase == Phase::Receiving) else { return };
        match manifest.discipline {
            Discipline::BitTorrent { .. } => self.fetch_rarest_blocks(now, out),
            Discipline::CooperativeSharing { .. } => {}
            _ => self.fetch_stream_blocks(now, &manifest, out),
        }
    }

    /// Handle the loss of a peer. The member keeps the received bytes and resumes the fetches from other sources.
    fn handle_loss(&mut self, now: Duration, peer: usize, out: &mut Vec<Action>) {
        self.lost.insert(peer);
        out.extend(self.uploads.forget(peer).into_iter().map(|block| Action::Stop { to: peer, block }));
        let was_neighbor = self.neighbors.forget(peer);
        self.drop_source(peer, out);
        if was_neighbor {
            self.request_offers(out);
        }
        self.serve(out);
        self.start_fetches(now, out);
    }

    /// Cancel all fetches from `source` and request other sources.
    fn drop_source(&mut self, source: usize, out: &mut Vec<Action>) {
        let blocks: Vec<usize> =
            self.fetches.iter().filter(|(_, fetch)| fetch.source == source).map(|(&block, _)| block).collect();
        for &block in &blocks {
            self.fetches.remove(&block);
            send(out, source, SwarmMessage::Cancel { block });
        }
        let Some(manifest) = self.manifest.filter(|_| self.phase == Phase::Receiving) else { return };
        if manifest.discipline.is_streamed() {
            self.drop_streams(source, out);
        } else {
            blocks.into_iter().for_each(|block| self.request_other_source(block, source, out));
        }
    }

    /// Ask the tracker for another source if the tracker assigns the sources of blocks.
    fn request_other_source(&mut self, block: usize, source: usize, out: &mut Vec<Action>) {
        if self.manifest.is_some_and(|manifest| self.gets_assigned_sources(&manifest)) {
            send(out, self.tracker, SwarmMessage::Ask { part: block, failed_source: source });
        }
    }

    /// Whether the tracker assigns a source to each block.
    fn gets_assigned_sources(&self, manifest: &BlockManifest) -> bool {
        matches!(manifest.discipline, Discipline::CooperativeSharing { .. })
    }

    /// Report a stall to the tracker. Return true if the tracker did not answer and is considered lost.
    fn tick(&mut self, now: Duration, out: &mut Vec<Action>) -> bool {
        match (self.phase, self.queried_since) {
            (Phase::Receiving | Phase::Done, Some(queried_since)) => now >= self.answer_deadline(queried_since),
            (Phase::Receiving, None) if now >= self.next_report() + self.timing.stall_timeout => {
                self.restart_silences(now);
                false
            }
            (Phase::Receiving, None) if now >= self.next_report() => {
                self.query_tracker(now, out);
                false
            }
            _ => false,
        }
    }

    /// Query the tracker for other sources, and whether it is alive.
    pub(super) fn query_tracker(&mut self, now: Duration, out: &mut Vec<Action>) {
        if self.queried_since.is_none() {
            self.queried_since = Some(now);
            let sources = self.report_silent_sources(now);
            send(out, self.tracker, SwarmMessage::Stalled { sources });
        }
    }

    pub(super) fn fail(&mut self, failure: MemberFailure, out: &mut Vec<Action>) {
        if self.phase == Phase::Receiving {
            self.phase = Phase::Failed;
            out.push(Action::Failed(failure));
        }
    }
}

/// Append a message to the actions.
pub(super) fn send(out: &mut Vec<Action>, to: usize, message: SwarmMessage) {
    out.push(Action::SendMessage { to, message });
}

/// Return the speed in bytes per second. Times below a microsecond count as a microsecond.
fn speed(bytes: usize, time: Duration) -> u64 {
    (bytes as u128 * 1_000_000 / time.as_micros().max(1)) as u64
}
