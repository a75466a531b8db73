//! Neighbors of a member: their blocks, their speeds, and the selection of block and source.
//!
//! A member fetches the rarest block among its neighbors first. The source is a neighbor of about the highest speed
//! with the fewest open requests. Members do not choke each other. At the end, when all missing blocks are requested, a
//! member requests late blocks from other neighbors, starting at the first missing byte.
//!
//! Source: Cohen, "Incentives build robustness in BitTorrent", 2003, section 2.4.

use super::seeding::Seeding;
use super::{Phase, SwarmMember, send};
use crate::next_random;
use crate::swarm::{Action, BlockSet, NeighborOffer, SwarmMessage};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// Limits of concurrent requests: in total, and for one neighbor if a member has few neighbors.
const FETCH_COUNT_MAX: usize = 16;
const FETCH_COUNT_MAX_PER_NEIGHBOR: usize = 4;
/// A late fetch moves to a neighbor that would have sent the block this many times in the elapsed time.
const SPEEDUP_MIN: u64 = 2;
/// Largest number of neighbors that a member keeps.
const NEIGHBOR_COUNT_MAX: usize = 1024;

/// A neighbor of this member.
#[derive(Debug)]
struct Neighbor {
    have: BlockSet,
    /// Running mean of the observed speeds; 0 before the first observation.
    bytes_per_s: u64,
    /// Whether this member has sent it an offer.
    is_offer_sent: bool,
}

/// The neighbors of this member.
#[derive(Debug)]
pub(super) struct Neighbors {
    by_rank: BTreeMap<usize, Neighbor>,
    /// Number of neighbors that have each block.
    counts: Vec<u32>,
    /// Seeding state: present on the root until every block was sent once.
    pub(super) seeding: Option<Seeding>,
    random: u64,
}

impl Neighbors {
    pub(super) fn new(rank: usize, seeding: Option<Seeding>) -> Neighbors {
        Neighbors { by_rank: BTreeMap::new(), counts: Vec::new(), seeding, random: rank as u64 }
    }

    /// Return the number of blocks that a neighbor has.
    pub(super) fn have_count(&self, rank: usize) -> usize {
        self.by_rank.get(&rank).map_or(0, |neighbor| neighbor.have.count())
    }

    /// Notify the neighbors that miss a block that this member has it.
    pub(super) fn announce(&self, block: usize, out: &mut Vec<Action>) {
        let receivers = self.by_rank.iter().filter(|(_, neighbor)| !neighbor.have.has(block));
        receivers.for_each(|(&rank, _)| send(out, rank, SwarmMessage::Have { block }));
    }

    /// Record the observed speed of a neighbor.
    pub(super) fn record_speed(&mut self, from: usize, bytes_per_s: u64) {
        if let Some(neighbor) = self.by_rank.get_mut(&from) {
            let old = if neighbor.bytes_per_s == 0 { bytes_per_s } else { neighbor.bytes_per_s };
            neighbor.bytes_per_s = (3 * old + bytes_per_s) / 4;
        }
    }

    /// Remove a neighbor and return whether the rank was one.
    pub(super) fn forget(&mut self, rank: usize) -> bool {
        let Some(neighbor) = self.by_rank.remove(&rank) else { return false };
        self.count(&neighbor.have, |count| *count -= 1);
        self.seeding.iter_mut().for_each(|seeding| seeding.forget(rank));
        true
    }

    /// Remove a block from the record of a neighbor that refuses to send it.
    pub(super) fn remove_block(&mut self, rank: usize, block: usize) {
        if let Some(neighbor) = self.by_rank.get_mut(&rank)
            && neighbor.have.has(block)
        {
            neighbor.have.remove(block);
            self.counts[block] -= 1;
        }
    }

    fn set_blocks(&mut self, rank: usize, have: BlockSet) {
        let old = self.by_rank.remove(&rank);
        if let Some(old) = &old {
            self.count(&old.have, |count| *count -= 1);
        }
        self.count(&have, |count| *count += 1);
        let (bytes_per_s, is_offer_sent) = old.map_or((0, false), |old| (old.bytes_per_s, old.is_offer_sent));
        self.by_rank.insert(rank, Neighbor { have, bytes_per_s, is_offer_sent });
    }

    fn count(&mut self, have: &BlockSet, change: impl Fn(&mut u32)) {
        if self.counts.len() < have.block_count() {
            self.counts.resize(have.block_count(), 0);
        }
        (0..have.block_count()).filter(|&block| have.has(block)).for_each(|block| change(&mut self.counts[block]));
    }

    fn best_bytes_per_s(&self) -> u64 {
        self.by_rank.values().map(|neighbor| neighbor.bytes_per_s).max().unwrap_or(0)
    }
}

impl SwarmMember {
    /// Add neighbors assigned by the tracker.
    pub(super) fn add_neighbors(&mut self, offers: Vec<NeighborOffer>, out: &mut Vec<Action>) {
        for NeighborOffer { neighbor: rank, replaces } in offers {
            let is_new = !self.neighbors.by_rank.contains_key(&rank) && !self.lost.contains(&rank);
            if is_new && rank != self.rank && self.neighbors.by_rank.len() < NEIGHBOR_COUNT_MAX {
                self.neighbors.set_blocks(rank, BlockSet::none(self.have.block_count()));
            }
            self.offer_to(rank, false, replaces, out);
        }
    }

    /// Ask all neighbors for their blocks if some missing block is not offered by any neighbor.
    pub(super) fn request_offers(&mut self, out: &mut Vec<Action>) {
        let is_offered = |block: usize| self.neighbors.counts.get(block).is_some_and(|&count| count > 0);
        if !self.have.missing().all(|block| is_offered(block) || self.fetches.contains_key(&block)) {
            self.offer_to_all(false, out);
        }
    }

    pub(super) fn offer_to_all(&mut self, is_answer: bool, out: &mut Vec<Action>) {
        let ranks: Vec<usize> = self.neighbors.by_rank.keys().copied().collect();
        ranks.into_iter().for_each(|rank| self.offer_to(rank, is_answer, None, out));
    }

    fn offer_to(&mut self, rank: usize, is_answer: bool, replaces: Option<usize>, out: &mut Vec<Action>) {
        if let Some(neighbor) = self.neighbors.by_rank.get_mut(&rank) {
            neighbor.is_offer_sent = true;
            let have = match &mut self.neighbors.seeding {
                Some(seeding) => seeding.offers_to(rank, self.have.block_count()),
                None => self.have.clone(),
            };
            send(out, rank, SwarmMessage::Offer { have: Box::new(have), is_answer, replaces });
        }
    }

    /// Answer the neighbors that sent offers before this member knew the manifest.
    pub(super) fn answer_early_offers(&mut self, out: &mut Vec<Action>) {
        let early: Vec<usize> = self
            .neighbors
            .by_rank
            .iter()
            .filter(|(_, neighbor)| !neighbor.is_offer_sent)
            .map(|(&rank, _)| rank)
            .collect();
        early.into_iter().for_each(|rank| self.offer_to(rank, true, None, out));
    }

    pub(super) fn handle_offer(
        &mut self,
        now: Duration,
        from: usize,
        have: BlockSet,
        is_answer: bool,
        out: &mut Vec<Action>,
    ) {
        // A rank that answers but is no longer a neighbor does not know yet that another member replaces this one.
        let can_add = !is_answer && self.neighbors.by_rank.len() < NEIGHBOR_COUNT_MAX;
        let is_accepted = can_add || self.neighbors.by_rank.contains_key(&from);
        let is_other_value = self.manifest.is_some() && have.block_count() != self.have.block_count();
        if !is_accepted || is_other_value || self.lost.contains(&from) {
            return;
        }
        self.neighbors.seeding.iter_mut().for_each(|seeding| seeding.remove_blocks(&have));
        self.neighbors.set_blocks(from, have);
        self.offer_all_if_sent(out);
        if !is_answer && self.manifest.is_some() {
            self.offer_to(from, true, None, out);
        }
        self.start_fetches(now, out);
    }

    pub(super) fn handle_have(&mut self, now: Duration, from: usize, block: usize, out: &mut Vec<Action>) {
        let Some(neighbor) = self.neighbors.by_rank.get_mut(&from) else { return };
        if block >= neighbor.have.block_count() || neighbor.have.has(block) {
            return;
        }
        neighbor.have.add(block);
        self.neighbors.counts[block] += 1;
        let is_last_phase = self.have.count() + self.fetches.len() >= self.have.block_count();
        let is_able = || {
            let requested_count = self.fetches.values().filter(|fetch| fetch.source == from).count();
            !self.fetches.contains_key(&block) && requested_count < self.request_count_max()
        };
        if self.have.has(block) {
            return;
        }
        if is_last_phase || is_able() {
            self.start_fetches(now, out);
        } else if self.phase == Phase::Receiving && self.fetches.len() < FETCH_COUNT_MAX {
            // A selection would find no block, because no other change has followed the last one. It would draw a
            // random number: draw it here, so that the skipped search changes no result.
            next_random(&mut self.neighbors.random);
        }
    }

    /// Return the limit of concurrent requests to one neighbor. Requests are spread over all neighbors, so as many as
    /// possible send at the same time.
    fn request_count_max(&self) -> usize {
        (FETCH_COUNT_MAX / self.neighbors.by_rank.len().max(1)).clamp(1, FETCH_COUNT_MAX_PER_NEIGHBOR)
    }

    pub(super) fn fetch_rarest_blocks(&mut self, now: Duration, out: &mut Vec<Action>) {
        while self.fetches.len() < FETCH_COUNT_MAX {
            let Some((block, source)) = self.select_rarest_block() else {
                self.move_late_fetches(now, out);
                return;
            };
            self.fetch(now, block, source, out);
        }
    }

    /// Count this member's open requests per neighbor.
    fn open_request_counts(&self) -> BTreeMap<usize, usize> {
        let mut requested = BTreeMap::new();
        self.fetches.values().for_each(|fetch| *requested.entry(fetch.source).or_default() += 1);
        requested
    }

    /// Return the rarest block that can be requested, and its source. Ties are broken at random.
    fn select_rarest_block(&mut self) -> Option<(usize, usize)> {
        let block_count = self.have.block_count();
        let first = next_random(&mut self.neighbors.random) as usize % block_count.max(1);
        let candidates = self.candidates();
        let mut offered = BlockSet::none(block_count);
        candidates.iter().for_each(|(_, have)| offered.extend(have));
        let open = self.have.obtainable_from(&offered).filter(|block| !self.fetches.contains_key(block));
        let counts = &self.neighbors.counts;
        let block = open.min_by_key(|&block| (counts[block], (block + block_count - first) % block_count))?;
        source_among(&candidates, block).map(|source| (block, source))
    }

    /// Return the neighbors that can take another request, best first, with their blocks.
    fn candidates(&self) -> Vec<(usize, &BlockSet)> {
        let requested = self.open_request_counts();
        let best_bytes_per_s = self.neighbors.best_bytes_per_s();
        let request_count_max = self.request_count_max();
        let candidates = self.neighbors.by_rank.iter().filter_map(|(&rank, neighbor)| {
            let requested = requested.get(&rank).copied().unwrap_or(0);
            let is_slow = neighbor.bytes_per_s != 0 && neighbor.bytes_per_s * SPEEDUP_MIN * 2 < best_bytes_per_s;
            let is_able = requested < if is_slow { 1 } else { request_count_max };
            is_able.then_some(((is_slow, requested, (rank + self.rank) % 7, rank), &neighbor.have))
        });
        let mut candidates: Vec<_> = candidates.collect();
        candidates.sort_unstable_by_key(|(priority, _)| *priority);
        candidates.into_iter().map(|((.., rank), have)| (rank, have)).collect()
    }

    /// Once every missing block is requested, move late fetches to faster neighbors.
    fn move_late_fetches(&mut self, now: Duration, out: &mut Vec<Action>) {
        let Some(manifest) = self.manifest else { return };
        if self.have.count() + self.fetches.len() < self.have.block_count() {
            return;
        }
        let candidates = self.candidates();
        let mut switches = vec![];
        for (&block, fetch) in &self.fetches {
            let Some(source) = source_among(&candidates, block).filter(|&source| source != fetch.source) else {
                continue;
            };
            let bytes_per_s = u128::from(self.neighbors.by_rank[&source].bytes_per_s);
            let expected_bytes = bytes_per_s * (now - fetch.since).as_micros() / 1_000_000;
            if expected_bytes > SPEEDUP_MIN as u128 * manifest.block_length(block) as u128 {
                switches.push((block, fetch.source, source));
            }
        }
        for (block, old, source) in switches {
            send(out, old, SwarmMessage::Cancel { block });
            self.fetch(now, block, source, out);
        }
    }
}

/// Return the first of the given neighbors that has a block.
fn source_among(candidates: &[(usize, &BlockSet)], block: usize) -> Option<usize> {
    candidates.iter().find(|(_, have)| have.has(block)).map(|(rank, _)| *rank)
}
