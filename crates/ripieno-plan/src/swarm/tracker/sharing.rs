//! Cooperative sharing: the tracker assigns a source to each block that a member fetches.
//!
//! A priority queue orders the sources by running uploads and by speed. Each source has a limit of concurrent uploads.
//! The tracker selects the rarest of the blocks that a source has and a member misses. It counts copies in transfer. So
//! the root sends every block once before it sends any block twice.
//!
//! Source: Chowdhury et al., Spark's Chained Streaming Broadcast, section 5.2.

use crate::swarm::{BlockSet, Priority};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// Concurrent fetches of a member. They keep the link busy while a control message queues behind data.
pub(super) const FETCH_COUNT_PER_MEMBER: usize = 3;
/// Largest number of sources or waiting members examined per event.
const EXAMINED_COUNT_MAX: usize = 32;

/// A fetch that the tracker has assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AssignedFetch {
    pub(super) receiver: usize,
    pub(super) block: usize,
    pub(super) source: usize,
}

/// A member with its blocks and its load as a source.
#[derive(Debug)]
struct SharingMember {
    have: BlockSet,
    leechers: usize,
    /// Running mean of the observed speeds; 0 before the first observation.
    bytes_per_s: u64,
    served: u32,
    key: Option<SourceKey>,
}

/// Position in the queue; lower keys come first.
type SourceKey = (u32, u32, u32, usize);

/// The members as sources, and the running fetches.
#[derive(Debug)]
pub(super) struct SourceSelection {
    priority: Priority,
    degree: usize,
    origin: usize,
    sharers: BTreeMap<usize, SharingMember>,
    queue: BTreeSet<SourceKey>,
    /// Number of members that have each block or are receiving it, without the origin.
    copies: Vec<u32>,
    /// Number of blocks without any such copy.
    uncopied_count: usize,
    assigned: BTreeMap<(usize, usize), usize>,
    /// Pairs of a receiver and a source that sent it corrupt blocks.
    blocked_pairs: BTreeSet<(usize, usize)>,
    /// Members that could fetch one more block.
    waiting: VecDeque<usize>,
    best_bytes_per_s: u64,
}

impl SourceSelection {
    pub(super) fn new(priority: Priority, degree: usize, origin: usize, block_count: usize) -> SourceSelection {
        SourceSelection {
            priority,
            degree,
            origin,
            sharers: BTreeMap::new(),
            queue: BTreeSet::new(),
            copies: vec![0; block_count],
            uncopied_count: block_count,
            assigned: BTreeMap::new(),
            blocked_pairs: BTreeSet::new(),
            waiting: VecDeque::new(),
            best_bytes_per_s: 0,
        }
    }

    /// Add a member with its blocks.
    pub(super) fn add(&mut self, rank: usize, have: BlockSet) {
        if self.sharers.contains_key(&rank) {
            return;
        }
        if rank != self.origin {
            (0..have.block_count()).filter(|&block| have.has(block)).for_each(|block| self.count_copies(block, 1));
        }
        let sharer = SharingMember { have, leechers: 0, bytes_per_s: 0, served: 0, key: None };
        self.sharers.insert(rank, sharer);
        self.update_queue(rank);
    }

    /// Record blocks that a member had before it joined.
    pub(super) fn found(&mut self, rank: usize, have: &BlockSet) {
        let Some(sharer) = self.sharers.get_mut(&rank) else { return };
        let new: Vec<usize> =
            sharer.have.obtainable_from(have).filter(|&block| block < sharer.have.block_count()).collect();
        new.iter().for_each(|&block| sharer.have.add(block));
        new.into_iter().for_each(|block| self.count_copies(block, 1));
        self.update_queue(rank);
    }

    /// Whether no member has this block.
    pub(super) fn is_missing(&self, block: usize) -> bool {
        !self.sharers.values().any(|sharer| sharer.have.has(block))
    }

    /// Assign up to `count` further fetches to a member.
    pub(super) fn assign_up_to(&mut self, rank: usize, count: usize, avoided: &BTreeSet<usize>) -> Vec<AssignedFetch> {
        let mut found = Vec::new();
        for _ in 0..count {
            match self.assign_from_best_source(rank, avoided) {
                Some(fetch) => found.push(fetch),
                None => self.waiting.push_back(rank),
            }
        }
        found
    }

    /// Record that a member received a block, with the observed speed.
    pub(super) fn fetched(&mut self, rank: usize, block: usize, source: usize, bytes_per_s: u64) {
        let in_count = self.assigned.range((rank, 0)..=(rank, usize::MAX)).count().max(1) as u64;
        self.release(rank, block);
        if let Some(sharer) = self.sharers.get_mut(&source)
            && bytes_per_s > 0
        {
            // The source also sent its other uploads at this time, and the receiver also received its other fetches.
            let observed = bytes_per_s * in_count.max(sharer.leechers as u64 + 1);
            let old = if sharer.bytes_per_s == 0 { observed } else { sharer.bytes_per_s };
            sharer.bytes_per_s = (3 * old + observed) / 4;
            self.best_bytes_per_s = self.best_bytes_per_s.max(sharer.bytes_per_s);
            self.update_queue(source);
        }
        if let Some(sharer) = self.sharers.get_mut(&rank)
            && block < sharer.have.block_count()
            && !sharer.have.has(block)
        {
            sharer.have.add(block);
            self.count_copies(block, 1);
            self.update_queue(rank);
        }
    }

    /// End a fetch, whether it succeeded or failed.
    fn release(&mut self, rank: usize, block: usize) {
        let Some(source) = self.assigned.remove(&(rank, block)) else { return };
        self.count_copies(block, -1);
        if let Some(sharer) = self.sharers.get_mut(&source) {
            sharer.leechers = sharer.leechers.saturating_sub(1);
            self.update_queue(source);
        }
    }

    /// Assign another source for a block: the source with the fewest running uploads, even if it is at its limit.
    pub(super) fn reassign(&mut self, rank: usize, block: usize, avoided: &BTreeSet<usize>) -> Option<AssignedFetch> {
        self.release(rank, block);
        let is_able = |&(&source, sharer): &(&usize, &SharingMember)| {
            let is_allowed = !avoided.contains(&source) && !self.blocked_pairs.contains(&(rank, source));
            source != rank && sharer.have.has(block) && is_allowed
        };
        let able = self.sharers.iter().filter(is_able);
        let (&source, _) = able.min_by_key(|(rank, sharer)| (sharer.leechers, **rank))?;
        Some(self.assign(rank, block, source))
    }

    /// Stop assigning `source` to `receiver`. The origin cannot be blocked, and no source can be blocked while the
    /// origin misses blocks.
    pub(super) fn block_pair(&mut self, receiver: usize, source: usize) {
        let has_all = self.sharers.get(&self.origin).is_some_and(|origin| origin.have.is_all());
        if source != self.origin && has_all {
            self.blocked_pairs.insert((receiver, source));
        }
    }

    /// Assign fetches from `source`, which has a new block or a free upload slot, to waiting members.
    pub(super) fn serve(&mut self, source: usize) -> Vec<AssignedFetch> {
        let mut found = Vec::new();
        for _ in 0..self.waiting.len().min(EXAMINED_COUNT_MAX) {
            if self.sharers.get(&source).is_none_or(|sharer| sharer.key.is_none()) {
                break;
            }
            let rank = self.waiting.pop_front().expect("the loop is limited to waiting ranks");
            match self.block_for(rank, source) {
                _ if !self.sharers.contains_key(&rank) => {}
                Some(block) => found.push(self.assign(rank, block, source)),
                None => self.waiting.push_back(rank),
            }
        }
        found
    }

    /// Try to assign a fetch to every waiting member.
    pub(super) fn serve_all(&mut self) -> Vec<AssignedFetch> {
        let waiting = core::mem::take(&mut self.waiting);
        waiting.into_iter().flat_map(|rank| self.assign_up_to(rank, 1, &BTreeSet::new())).collect()
    }

    /// Whether no fetch is running.
    pub(super) fn is_idle(&self) -> bool {
        self.assigned.is_empty()
    }

    /// Return the blocks of a member's running fetches.
    pub(super) fn blocks_to(&self, rank: usize) -> Vec<usize> {
        self.assigned.range((rank, 0)..=(rank, usize::MAX)).map(|(&(_, block), _)| block).collect()
    }

    /// Remove a lost member and return the fetches that had it as their source.
    pub(super) fn remove(&mut self, rank: usize) -> Vec<(usize, usize)> {
        self.blocks_to(rank).into_iter().for_each(|block| self.release(rank, block));
        self.waiting.retain(|&waiting| waiting != rank);
        let Some(sharer) = self.sharers.remove(&rank) else { return Vec::new() };
        sharer.key.map(|key| self.queue.remove(&key));
        if rank != self.origin {
            (0..sharer.have.block_count())
                .filter(|&b| sharer.have.has(b))
                .for_each(|block| self.count_copies(block, -1));
        }
        let from = self.assigned.iter().filter(|(_, source)| **source == rank);
        from.map(|(&(receiver, block), _)| (receiver, block)).collect()
    }

    fn count_copies(&mut self, block: usize, change: i32) {
        let (was_uncopied, uncopied_count) = (self.copies[block] == 0, self.uncopied_count);
        self.copies[block] = self.copies[block].saturating_add_signed(change);
        self.uncopied_count = uncopied_count + usize::from(self.copies[block] == 0) - usize::from(was_uncopied);
        if (self.uncopied_count == 0) != (uncopied_count == 0) {
            self.update_queue(self.origin);
        }
    }

    fn assign_from_best_source(&mut self, rank: usize, avoided: &BTreeSet<usize>) -> Option<AssignedFetch> {
        let sources = self.queue.iter().map(|key| key.3).filter(|source| *source != rank && !avoided.contains(source));
        let mut found = sources.take(EXAMINED_COUNT_MAX).map(|source| (source, self.block_for(rank, source)));
        let (source, block) = found.find_map(|(source, block)| Some((source, block?)))?;
        Some(self.assign(rank, block, source))
    }

    /// Return the rarest block that `source` has and `rank` misses.
    fn block_for(&self, rank: usize, source: usize) -> Option<usize> {
        if rank == source || self.blocked_pairs.contains(&(rank, source)) {
            return None;
        }
        let (receiver, sender) = (self.sharers.get(&rank)?, self.sharers.get(&source)?);
        let open =
            receiver.have.obtainable_from(&sender.have).filter(|&block| !self.assigned.contains_key(&(rank, block)));
        open.min_by_key(|&block| self.copies[block])
    }

    fn assign(&mut self, receiver: usize, block: usize, source: usize) -> AssignedFetch {
        self.assigned.insert((receiver, block), source);
        self.count_copies(block, 1);
        let sharer = self.sharers.get_mut(&source).expect("the source is a sharer");
        (sharer.leechers, sharer.served) = (sharer.leechers + 1, sharer.served + 1);
        self.update_queue(source);
        AssignedFetch { receiver, block, source }
    }

    /// Update the queue position of a source. A source that is at its limit or has no block is not queued.
    fn update_queue(&mut self, rank: usize) {
        let Some(sharer) = self.sharers.get_mut(&rank) else { return };
        if let Some(key) = sharer.key.take() {
            self.queue.remove(&key);
        }
        if sharer.have.count() == 0 || sharer.leechers >= self.degree {
            return;
        }
        let slowness = match sharer.bytes_per_s {
            0 => 0,
            bytes_per_s => (self.best_bytes_per_s / bytes_per_s).checked_ilog2().unwrap_or(0),
        };
        let leechers = sharer.leechers as u32;
        let served = match (rank == self.origin, self.uncopied_count) {
            // The origin sends blocks without copies first. Blocks with copies come from other members.
            (true, 0) => u32::MAX,
            (true, _) => 0,
            _ => sharer.served,
        };
        let (first, second) = match self.priority {
            Priority::LowestLeecherCount => (leechers, 0),
            Priority::HighestObservedSpeed => (slowness, leechers),
        };
        let key = (first, second, served, rank);
        sharer.key = Some(key);
        self.queue.insert(key);
    }
}
