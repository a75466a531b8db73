//! Tracker of a dynamic broadcast: it records the members and assigns their sources.
//!
//! The tracker runs on the root and knows which members have the complete value. If the root fails, the lowest live
//! rank takes over as tracker. It asks all other ranks for their blocks. If together they hold every block, the new
//! tracker assigns sources block by block; otherwise the broadcast fails on every rank.

mod neighbor_selection;
mod sharing;
mod silence;
mod trees;

use super::member::{CORRUPT_BLOCK_COUNT_MAX, send};
use super::{
    Action, BlockManifest, BlockSet, CorruptBlock, Discipline, MemberFailure, NeighborOffer, Priority, SilentSource,
    SwarmMessage, SwarmTiming,
};
use crate::next_random;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;
use neighbor_selection::NeighborGraph;
use sharing::{AssignedFetch, FETCH_COUNT_PER_MEMBER, SourceSelection};
use trees::StripeTrees;

/// Longest wait of a tracker that takes over for the reports of all members, in multiples of the answer timeout.
const RECOVERY_ANSWER_TIMEOUT_COUNT: u32 = 8;

/// Record of one member.
#[derive(Debug)]
struct MemberRecord {
    has_joined: bool,
    is_done: bool,
    is_lost: bool,
    last_received: Duration,
    /// Time of the probe that the member has not answered yet.
    probed: Option<Duration>,
    /// Time at which the member was last found alive. Its answer may be late.
    last_reached: Duration,
    /// Time of the last stall report.
    stalled: Option<Duration>,
    /// Sources that the member has reported as silent, with the time of the last report.
    silent_sources: BTreeMap<usize, Duration>,
    /// Ranks that the tracker must not assign as sources of this member.
    avoided: BTreeSet<usize>,
}

impl MemberRecord {
    fn new(now: Duration) -> MemberRecord {
        MemberRecord {
            has_joined: false,
            is_done: false,
            is_lost: false,
            last_received: now,
            probed: None,
            last_reached: now,
            stalled: None,
            silent_sources: BTreeMap::new(),
            avoided: BTreeSet::new(),
        }
    }
}

/// State of the tracker.
pub(super) struct Tracker {
    rank: usize,
    /// The rank that had the value at the start.
    root: usize,
    manifest: Option<BlockManifest>,
    timing: SwarmTiming,
    members: BTreeMap<usize, MemberRecord>,
    trees: Option<StripeTrees>,
    sharing: Option<SourceSelection>,
    /// Blocks reported by members while the tracker takes over.
    found: BTreeMap<usize, BlockSet>,
    is_recovering: bool,
    /// Deadline of the takeover: members that have not reported their blocks by then are marked as lost.
    recovers_until: Duration,
    is_settled: bool,
    /// Neighbor relation, for disciplines with sources chosen by the members.
    neighbor_graph: NeighborGraph,
    /// Members that have the root as a neighbor.
    root_neighbors: BTreeSet<usize>,
    /// Members that have not answered a probe about their silence yet.
    suspects: BTreeSet<usize>,
    corruptions: Vec<CorruptBlock>,
    next_check: Duration,
    random: u64,
}

impl Tracker {
    /// Create the tracker of the root. `order` lists the other members in chain order.
    pub(super) fn new(
        rank: usize,
        manifest: BlockManifest,
        order: Vec<usize>,
        timing: SwarmTiming,
        seed: u64,
        now: Duration,
    ) -> Tracker {
        let members = order.iter().map(|&rank| (rank, MemberRecord::new(now))).collect();
        let block_count = manifest.block_count();
        let sharing = match manifest.discipline {
            Discipline::CooperativeSharing { priority, degree } => {
                let mut sharing = SourceSelection::new(priority, degree, rank, block_count);
                sharing.add(rank, BlockSet::all(block_count));
                Some(sharing)
            }
            _ => None,
        };
        let trees = Some(StripeTrees::new(rank, &manifest, order));
        Tracker { trees, sharing, members, random: seed, ..Tracker::empty(rank, rank, Some(manifest), timing, now) }
    }

    fn empty(rank: usize, root: usize, manifest: Option<BlockManifest>, timing: SwarmTiming, now: Duration) -> Tracker {
        Tracker {
            rank,
            root,
            manifest,
            timing,
            members: BTreeMap::new(),
            trees: None,
            sharing: None,
            found: BTreeMap::new(),
            is_recovering: false,
            recovers_until: now + RECOVERY_ANSWER_TIMEOUT_COUNT * timing.answer_timeout,
            is_settled: false,
            neighbor_graph: NeighborGraph::default(),
            root_neighbors: BTreeSet::new(),
            suspects: BTreeSet::new(),
            corruptions: Vec::new(),
            next_check: now + timing.answer_timeout / 2,
            random: 0,
        }
    }

    /// Create the tracker of `rank`, which takes over. It notifies all other ranks below `size` that are not known to
    /// be lost.
    pub(super) fn successor(
        rank: usize,
        root: usize,
        size: usize,
        lost: &BTreeSet<usize>,
        timing: SwarmTiming,
        now: Duration,
        out: &mut Vec<Action>,
    ) -> Tracker {
        let others = (0..size).filter(|other| !lost.contains(other));
        let members: BTreeMap<usize, MemberRecord> = others.map(|other| (other, MemberRecord::new(now))).collect();
        members.keys().filter(|&&other| other != rank).for_each(|&other| send(out, other, SwarmMessage::TakeOver));
        Tracker { members, is_recovering: true, ..Tracker::empty(rank, root, None, timing, now) }
    }

    /// Return when the tracker needs its next [`tick`](Tracker::tick).
    pub(super) fn next_tick(&self) -> Option<Duration> {
        (!self.is_settled).then_some(self.next_check)
    }

    pub(super) fn receive(&mut self, now: Duration, from: usize, message: SwarmMessage, out: &mut Vec<Action>) {
        let record = self.members.entry(from).or_insert_with(|| {
            self.is_settled = false;
            MemberRecord::new(now)
        });
        if record.is_lost {
            return send(out, from, SwarmMessage::Failed(MemberFailure::Excluded { by: self.rank }));
        }
        (record.last_received, record.probed) = (now, None);
        self.suspects.remove(&from);
        match message {
            SwarmMessage::Join if !self.is_recovering => self.admit(from, None, out),
            SwarmMessage::Join => {}
            SwarmMessage::Rejoin { manifest, have } => self.rejoin(from, manifest, *have, out),
            SwarmMessage::Ask { part, failed_source } => self.assign_other_source(from, part, failed_source, out),
            SwarmMessage::Stalled { sources } => self.handle_stall(now, from, sources, out),
            SwarmMessage::Resumed { source } => _ = record.silent_sources.remove(&source),
            SwarmMessage::Found { have } => self.add_found_blocks(from, &have, out),
            SwarmMessage::Fetched { block, source, bytes_per_s } => {
                self.handle_fetched(from, block, source, bytes_per_s, out)
            }
            SwarmMessage::Corrupt { block, source } => self.handle_corrupt(from, block, source, out),
            SwarmMessage::Done => {
                record.is_done = true;
                if self.is_settled {
                    send(out, from, SwarmMessage::Released);
                }
                self.settle(out);
            }
            _ => {}
        }
    }

    fn admit(&mut self, rank: usize, have: Option<BlockSet>, out: &mut Vec<Action>) {
        let Some(manifest) = self.manifest else { return };
        let record = self.members.get_mut(&rank).expect("a message comes from a known rank");
        record.has_joined = true;
        let sources = self.trees.as_mut().map_or(Vec::new(), |trees| trees.sources(rank));
        let neighbors = self.neighbors(rank);
        send(out, rank, SwarmMessage::Admitted { manifest, sources, neighbors });
        let Some(sharing) = &mut self.sharing else { return };
        if rank != self.root {
            sharing.add(rank, have.unwrap_or_else(|| BlockSet::none(manifest.block_count())));
        }
        let fetches = sharing.assign_up_to(rank, FETCH_COUNT_PER_MEMBER, &BTreeSet::new());
        send_assignments(fetches, out);
    }

    /// Return the neighbors offered to a member that joins.
    fn neighbors(&mut self, rank: usize) -> Vec<NeighborOffer> {
        let Some(BlockManifest { discipline: Discipline::BitTorrent { neighbors, .. }, .. }) = self.manifest else {
            return Vec::new();
        };
        if rank == self.rank {
            return Vec::new();
        }
        let offers = self.neighbor_graph.join(rank, neighbors, &mut self.random);
        self.add_root(rank, neighbors, offers)
    }

    fn add_root(&mut self, rank: usize, neighbors: usize, mut offers: Vec<NeighborOffer>) -> Vec<NeighborOffer> {
        // The root has only as many neighbors as it can serve. Reports of further neighbors would be useless.
        let live_count = self.root_neighbors.iter().filter(|other| !self.members[other].is_lost).count();
        if self.root_neighbors.contains(&rank) || live_count < neighbors {
            self.root_neighbors.insert(rank);
            offers.push(NeighborOffer { neighbor: self.rank, replaces: None });
        }
        offers
    }

    /// Draw random new neighbors for a member that receives nothing from its current neighbors.
    fn new_neighbors(&mut self, rank: usize) -> Vec<NeighborOffer> {
        let Some(BlockManifest { discipline: Discipline::BitTorrent { neighbors, .. }, .. }) = self.manifest else {
            return Vec::new();
        };
        let is_other =
            |(other, record): &(&usize, &MemberRecord)| **other != rank && **other != self.rank && !record.is_lost;
        let mut others: Vec<usize> = self.members.iter().filter(is_other).map(|(&other, _)| other).collect();
        let count = others.len().min(neighbors);
        for index in 0..count {
            let drawn = index + next_random(&mut self.random) as usize % (others.len() - index);
            others.swap(index, drawn);
        }
        others.truncate(count);
        let offers = others.into_iter().map(|neighbor| NeighborOffer { neighbor, replaces: None }).collect();
        self.add_root(rank, neighbors, offers)
    }

    /// Assign another source to a member which has lost its source or cannot use it.
    fn assign_other_source(&mut self, from: usize, part: usize, failed_source: usize, out: &mut Vec<Action>) {
        let record = self.members.get_mut(&from).expect("a message comes from a known rank");
        record.avoided.insert(failed_source);
        if let Some(trees) = self.trees.as_mut().filter(|_| self.manifest.is_some_and(|m| m.discipline.is_streamed())) {
            if part >= self.manifest.map_or(0, |manifest| manifest.stripe_count) {
                return;
            }
            let current = trees.source(part, from);
            let source = match current {
                Some(current) if !record.avoided.contains(&current) => current,
                _ => trees.replace(part, from, &(&record.avoided | &self.suspects)),
            };
            if let Some(&reported) = record.silent_sources.get(&failed_source) {
                // The member still waits, now for the new source.
                record.silent_sources.insert(source, reported);
            }
            send(out, from, SwarmMessage::Source { stripe: part, source });
        } else if self.sharing.is_some() {
            self.fetch_again(from, part, out);
        }
    }

    /// Assign a source to a block that the receiver must fetch again.
    fn fetch_again(&mut self, receiver: usize, block: usize, out: &mut Vec<Action>) {
        let Some(sharing) = &mut self.sharing else { return };
        let Some(record) = self.members.get_mut(&receiver) else { return };
        let mut found = sharing.reassign(receiver, block, &record.avoided);
        if found.is_none() {
            // A source that failed before is better than no source.
            record.avoided.clear();
            found = sharing.reassign(receiver, block, &record.avoided);
        }
        send_assignments(found, out);
    }

    fn add_found_blocks(&mut self, from: usize, have: &BlockSet, out: &mut Vec<Action>) {
        let Some(sharing) = &mut self.sharing else { return };
        sharing.found(from, have);
        send_assignments(sharing.serve(from), out);
    }

    fn handle_fetched(&mut self, from: usize, block: usize, source: usize, bytes_per_s: u64, out: &mut Vec<Action>) {
        let Some(sharing) = &mut self.sharing else { return };
        if self.manifest.is_none_or(|manifest| block >= manifest.block_count()) {
            return;
        }
        sharing.fetched(from, block, source, bytes_per_s);
        let avoided = &self.members[&from].avoided;
        // Waiting members come first. Otherwise a slow member would take all upload slots of a source.
        let mut fetches = sharing.serve(source);
        fetches.extend(sharing.assign_up_to(
            from,
            FETCH_COUNT_PER_MEMBER.saturating_sub(sharing.blocks_to(from).len()).min(1),
            avoided,
        ));
        fetches.extend(sharing.serve(from));
        if sharing.is_idle() {
            fetches.extend(sharing.serve_all());
        }
        send_assignments(fetches, out);
    }

    fn handle_corrupt(&mut self, receiver: usize, block: usize, source: usize, out: &mut Vec<Action>) {
        self.corruptions.push(CorruptBlock { block, source, receiver });
        let Some(sharing) = &mut self.sharing else { return };
        let is_between = |corruption: &&CorruptBlock| (corruption.source, corruption.receiver) == (source, receiver);
        if self.corruptions.iter().filter(is_between).count() >= CORRUPT_BLOCK_COUNT_MAX {
            sharing.block_pair(receiver, source);
        }
        self.fetch_again(receiver, block, out);
    }

    /// Handle a member that reports silent sources.
    fn handle_stall(&mut self, now: Duration, from: usize, sources: Vec<SilentSource>, out: &mut Vec<Action>) {
        send(out, from, SwarmMessage::Wait);
        let no_message_limit = 2 * (self.timing.stall_timeout + self.timing.answer_timeout);
        let record = self.members.get_mut(&from).expect("a message comes from a known rank");
        let has_stalled_again = record.stalled.is_some_and(|stalled| now < stalled + no_message_limit);
        record.stalled = Some(now);
        record.silent_sources.extend(sources.iter().map(|source| (source.rank, now)));
        let Some(manifest) = self.manifest else { return };
        if manifest.discipline.is_streamed() {
            return sources.into_iter().for_each(|source| self.handle_silence(now, from, source, out));
        }
        for source in &sources {
            self.probe(now, source.rank, out);
        }
        match manifest.discipline {
            Discipline::BitTorrent { .. } => {
                send(out, from, SwarmMessage::AddNeighbors { neighbors: self.new_neighbors(from) })
            }
            _ if has_stalled_again => {
                let blocks = self.sharing.as_ref().map_or(Vec::new(), |sharing| sharing.blocks_to(from));
                let record = self.members.get_mut(&from).expect("a message comes from a known rank");
                record.avoided.extend(sources.iter().map(|source| source.rank));
                blocks.into_iter().for_each(|block| self.fetch_again(from, block, out));
            }
            _ => {}
        }
        // No fetch is running, so no finished fetch would trigger an assignment to the waiting members later.
        if let Some(sharing) = self.sharing.as_mut().filter(|sharing| sharing.is_idle()) {
            send_assignments(sharing.serve_all(), out);
        }
    }

    fn probe(&mut self, now: Duration, rank: usize, out: &mut Vec<Action>) {
        let Some(record) = self.members.get_mut(&rank) else { return };
        if record.probed.is_none() && !record.is_lost && rank != self.rank {
            record.probed = Some(now);
            send(out, rank, SwarmMessage::Probe);
        }
    }

    /// Record that a member is alive.
    pub(super) fn note_reached(&mut self, now: Duration, rank: usize) {
        if let Some(record) = self.members.get_mut(&rank) {
            record.last_reached = now;
        }
    }

    /// Probe members that sent no message for some time, and mark members that did not answer as lost.
    pub(super) fn tick(&mut self, now: Duration, out: &mut Vec<Action>) {
        if now < self.next_check || self.is_settled {
            return;
        }
        self.next_check = now + self.timing.answer_timeout / 2;
        let no_message_limit =
            if self.is_recovering { self.timing.answer_timeout } else { 2 * self.timing.stall_timeout };
        let (mut to_probe, mut lost) = (Vec::new(), Vec::new());
        for (&rank, record) in self.members.iter().filter(|(rank, record)| !record.is_lost && **rank != self.rank) {
            match record.probed {
                Some(probed) if now >= probed.max(record.last_reached) + self.timing.answer_timeout => lost.push(rank),
                _ if self.is_recovering && now >= self.recovers_until && !self.found.contains_key(&rank) => {
                    lost.push(rank);
                }
                None if !record.is_done && now >= record.last_received + no_message_limit => to_probe.push(rank),
                _ => {}
            }
        }
        to_probe.into_iter().for_each(|rank| self.probe(now, rank, out));
        lost.into_iter().for_each(|rank| self.mark_lost(rank, out));
    }

    /// Mark a member as lost and assign new sources to its receivers.
    pub(super) fn mark_lost(&mut self, rank: usize, out: &mut Vec<Action>) {
        let Some(record) = self.members.get_mut(&rank).filter(|record| !record.is_lost) else { return };
        record.is_lost = true;
        self.neighbor_graph.remove(rank);
        let live = self.members.iter().filter(|(_, record)| !record.is_lost && record.has_joined);
        let live: Vec<usize> = live.map(|(&other, _)| other).chain([self.rank]).collect();
        live.into_iter().for_each(|other| send(out, other, SwarmMessage::MemberLost { rank }));
        for (stripe, child) in self.trees.as_mut().map_or(Vec::new(), |trees| trees.remove(rank)) {
            if self.members.get(&child).is_some_and(|child| !child.is_lost && !child.is_done) {
                self.assign_other_source(child, stripe, rank, out);
            }
        }
        let orphans = self.sharing.as_mut().map_or(Vec::new(), |sharing| sharing.remove(rank));
        orphans.into_iter().for_each(|(receiver, block)| self.fetch_again(receiver, block, out));
        if let Some(sharing) = &mut self.sharing {
            send_assignments(sharing.serve_all(), out);
        }
        self.recover(out);
        self.fail_if_missing(out);
        self.settle(out);
    }

    /// Report, once, that every member has the value or is lost.
    pub(super) fn settle(&mut self, out: &mut Vec<Action>) {
        if self.is_settled
            || self.is_recovering
            || !self.members.values().all(|record| record.is_done || record.is_lost)
        {
            return;
        }
        self.is_settled = true;
        let ranks = |has_state: fn(&MemberRecord) -> bool| {
            self.members.iter().filter(|(_, record)| has_state(record)).map(|(&rank, _)| rank).collect::<Vec<_>>()
        };
        let live = ranks(|record| !record.is_lost);
        // A source that received the block corrupt is not the origin of the corruption.
        let is_confirmed = |corruption: &&CorruptBlock| {
            !self.corruptions.iter().any(|other| (other.receiver, other.block) == (corruption.source, corruption.block))
        };
        out.push(Action::Settled {
            acknowledged: ranks(|record| record.is_done),
            lost: ranks(|record| record.is_lost && !record.is_done),
            corruptions: self.corruptions.iter().filter(is_confirmed).copied().collect(),
        });
        live.into_iter().for_each(|rank| send(out, rank, SwarmMessage::Released));
    }

    fn rejoin(&mut self, from: usize, manifest: Option<BlockManifest>, have: BlockSet, out: &mut Vec<Action>) {
        let record = self.members.get_mut(&from).expect("a message comes from a known rank");
        record.has_joined = true;
        if let Some(manifest) = manifest {
            // Under every original discipline the tracker now knows the blocks of each member, so it assigns the
            // sources.
            let discipline = Discipline::CooperativeSharing {
                priority: Priority::LowestLeecherCount,
                degree: FETCH_COUNT_PER_MEMBER,
            };
            self.manifest.get_or_insert(BlockManifest { discipline, stripe_count: 1, ..manifest });
        }
        if self.is_recovering {
            send(out, from, SwarmMessage::Wait);
            self.found.insert(from, have);
            self.recover(out);
        } else {
            let block_count = self.manifest.map_or(0, |manifest| manifest.block_count());
            self.admit(from, Some(have).filter(|have| have.block_count() == block_count), out);
        }
    }

    /// Resume the broadcast, or end it, once every live member has reported its blocks.
    fn recover(&mut self, out: &mut Vec<Action>) {
        let has_reported = |(rank, record): (&usize, &MemberRecord)| record.is_lost || self.found.contains_key(rank);
        if !self.is_recovering || !self.members.iter().all(has_reported) {
            return;
        }
        self.is_recovering = false;
        let Some(manifest) = self.manifest else { return self.fail_all(1, out) };
        let mut sharing = SourceSelection::new(
            Priority::LowestLeecherCount,
            FETCH_COUNT_PER_MEMBER,
            self.root,
            manifest.block_count(),
        );
        let found = core::mem::take(&mut self.found);
        let found = found.into_iter().filter(|(rank, _)| !self.members[rank].is_lost);
        let found: Vec<(usize, BlockSet)> = found
            .map(|(rank, have)| match have.block_count() == manifest.block_count() {
                true => (rank, have),
                false => (rank, BlockSet::none(manifest.block_count())),
            })
            .collect();
        found.iter().for_each(|(rank, have)| sharing.add(*rank, have.clone()));
        self.sharing = Some(sharing);
        if self.fail_if_missing(out) {
            return;
        }
        found.into_iter().for_each(|(rank, have)| self.admit(rank, Some(have), out));
    }

    /// End the broadcast if the root is lost and no live member has one of the blocks.
    fn fail_if_missing(&mut self, out: &mut Vec<Action>) -> bool {
        let is_root = self.rank == self.root;
        let (Some(manifest), Some(sharing)) = (self.manifest, &self.sharing) else { return false };
        if is_root || self.is_recovering || self.is_settled {
            return false;
        }
        let missing_count = (0..manifest.block_count()).filter(|&block| sharing.is_missing(block)).count();
        if missing_count > 0 {
            self.fail_all(missing_count, out);
        }
        missing_count > 0
    }

    fn fail_all(&mut self, missing_count: usize, out: &mut Vec<Action>) {
        self.is_settled = true;
        let live = self.members.iter().filter(|(_, record)| !record.is_lost);
        let failure = MemberFailure::RootLost { root: self.root, missing_count };
        live.for_each(|(&rank, _)| send(out, rank, SwarmMessage::Failed(failure.clone())));
    }
}

fn send_assignments(fetches: impl IntoIterator<Item = AssignedFetch>, out: &mut Vec<Action>) {
    for AssignedFetch { receiver, block, source } in fetches {
        send(out, receiver, SwarmMessage::Fetch { block, source });
    }
}
