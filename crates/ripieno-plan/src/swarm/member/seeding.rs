//! Seeding: the root sends every block once before it sends any block twice.
//!
//! The root offers each neighbor a few blocks, least-offered blocks first, and offers others once a block was sent.
//! Other members fetch a sent block from its receiver. Once every block was sent, every member may request any block
//! from the root.
//!
//! Source: Hoffman, "Superseeding", BitTorrent enhancement proposal 16, 2008.

use super::{SwarmMember, send};
use crate::swarm::{Action, BlockSet, SwarmMessage};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Number of blocks offered to a neighbor at a time: one in transfer, and one to request next.
const OFFERED_BLOCK_COUNT_MAX: usize = 2;

/// Seeding state of the root.
#[derive(Debug)]
pub(super) struct Seeding {
    /// Blocks that were not sent yet, each with the number of neighbors that it is offered to.
    unsent: BTreeMap<usize, usize>,
    /// Unsent blocks offered to each neighbor.
    offered: BTreeMap<usize, BTreeSet<usize>>,
}

impl Seeding {
    pub(super) fn new(block_count: usize) -> Seeding {
        Seeding { unsent: (0..block_count).map(|block| (block, 0)).collect(), offered: BTreeMap::new() }
    }

    /// Offer a neighbor unsent blocks up to the limit, and return the new ones.
    fn offer(&mut self, to: usize) -> Vec<usize> {
        let offered = self.offered.entry(to).or_default();
        let mut new = Vec::new();
        while offered.len() < OFFERED_BLOCK_COUNT_MAX {
            let candidates = self.unsent.iter_mut().filter(|(block, _)| !offered.contains(block));
            let Some((&block, count)) = candidates.min_by_key(|(block, count)| (**count, **block)) else { break };
            *count += 1;
            offered.insert(block);
            new.push(block);
        }
        new
    }

    /// Return the blocks out of `block_count` that a neighbor may request.
    pub(super) fn offers_to(&mut self, rank: usize, block_count: usize) -> BlockSet {
        self.offer(rank);
        let mut have = BlockSet::none(block_count);
        self.offered[&rank].iter().for_each(|&block| have.add(block));
        have
    }

    /// Mark a block as sent and return the neighbors that it was offered to.
    fn mark_sent(&mut self, block: usize) -> Vec<usize> {
        self.unsent.remove(&block);
        self.offered.iter_mut().filter_map(|(&rank, offered)| offered.remove(&block).then_some(rank)).collect()
    }

    /// Remove a neighbor. Its offers become available to other neighbors.
    pub(super) fn forget(&mut self, rank: usize) {
        for block in self.offered.remove(&rank).unwrap_or_default() {
            self.unsent.entry(block).and_modify(|count| *count -= 1);
        }
    }

    /// Remove blocks that a neighbor already has from another source.
    pub(super) fn remove_blocks(&mut self, have: &BlockSet) {
        self.unsent.retain(|&block, _| !have.has(block));
        self.offered.values_mut().for_each(|offered| offered.retain(|&block| !have.has(block)));
    }
}

impl SwarmMember {
    /// Handle a sent block: offer other blocks to the neighbors that the block was offered to.
    pub(super) fn offer_next_blocks(&mut self, block: usize, out: &mut Vec<Action>) {
        let Some(seeding) = &mut self.neighbors.seeding else { return };
        // Waiting neighbors fetch the block from its receiver.
        self.uploads.remove_requests(block).into_iter().for_each(|to| send(out, to, SwarmMessage::Refused { block }));
        for rank in seeding.mark_sent(block) {
            seeding.offer(rank).into_iter().for_each(|block| send(out, rank, SwarmMessage::Have { block }));
        }
        self.offer_all_if_sent(out);
    }

    /// Offer all blocks to every neighbor once each block was sent.
    pub(super) fn offer_all_if_sent(&mut self, out: &mut Vec<Action>) {
        if self.neighbors.seeding.as_ref().is_some_and(|seeding| seeding.unsent.is_empty()) {
            self.neighbors.seeding = None;
            self.offer_to_all(true, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_offered_twice_only_after_all_blocks_were_offered() {
        let mut seeding = Seeding::new(5);

        assert_eq!([seeding.offer(1), seeding.offer(2)], [[0, 1], [2, 3]]);
        assert_eq!(seeding.mark_sent(0), [1]);
        assert_eq!(seeding.offer(1), [4]);
        assert_eq!(seeding.mark_sent(4), [1]);
        assert_eq!(seeding.offer(1), [2], "no other block is unsent");
        assert_eq!(seeding.mark_sent(2), [1, 2]);
    }

    #[test]
    fn blocks_offered_to_a_lost_neighbor_are_offered_to_others() {
        let mut seeding = Seeding::new(4);
        assert_eq!([seeding.offer(1), seeding.offer(2)], [[0, 1], [2, 3]]);

        seeding.forget(1);
        assert_eq!(seeding.mark_sent(2), [2]);
        assert_eq!(seeding.offer(2), [0]);
    }
}
