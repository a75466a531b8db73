//! Seeding: the root sends every block once before it sends any block twice.
//!
//! The root offers each neighbor a few blocks, least-offered blocks first, and offers others once a block was sent.
//! Other members fetch a sent block from its receivers, until every block was sent. From then on every member may
//! request any block from the root.
//!
//! Source: Hoffman, "Superseeding", BitTorrent enhancement proposal 16, 2008.

use super::{SwarmMember, send};
use crate::swarm::{Action, BlockSet, SwarmMessage};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Blocks offered to a neighbor at a time: one in transfer, and one that it requests meanwhile.
const SHOWN_MAX: usize = 2;

#[derive(Debug)]
pub(super) struct Seeding {
    /// Blocks that were not sent yet, each with the number of neighbors that see it.
    left: BTreeMap<usize, usize>,
    /// Unsent blocks offered to each neighbor.
    shown: BTreeMap<usize, BTreeSet<usize>>,
}

impl Seeding {
    pub(super) fn new(block_count: usize) -> Seeding {
        Seeding { left: (0..block_count).map(|block| (block, 0)).collect(), shown: BTreeMap::new() }
    }

    /// Offer a neighbor unsent blocks up to the limit, and return the new ones.
    fn show(&mut self, to: usize) -> Vec<usize> {
        let shown = self.shown.entry(to).or_default();
        let mut new = Vec::new();
        while shown.len() < SHOWN_MAX {
            let unseen = self.left.iter_mut().filter(|(block, _)| !shown.contains(block));
            let Some((&block, count)) = unseen.min_by_key(|(block, count)| (**count, **block)) else { break };
            *count += 1;
            shown.insert(block);
            new.push(block);
        }
        new
    }

    /// Return the blocks out of `block_count` that a neighbor may request.
    pub(super) fn seen_by(&mut self, rank: usize, block_count: usize) -> BlockSet {
        self.show(rank);
        let mut have = BlockSet::none(block_count);
        self.shown[&rank].iter().for_each(|&block| have.add(block));
        have
    }

    /// Mark a block as sent and return the neighbors that were offered it.
    fn gave(&mut self, block: usize) -> Vec<usize> {
        self.left.remove(&block);
        self.shown.iter_mut().filter_map(|(&rank, shown)| shown.remove(&block).then_some(rank)).collect()
    }

    /// Remove a neighbor. Its offers become available to other neighbors.
    pub(super) fn forget(&mut self, rank: usize) {
        for block in self.shown.remove(&rank).unwrap_or_default() {
            self.left.entry(block).and_modify(|count| *count -= 1);
        }
    }

    /// Remove blocks that a neighbor already has from another source.
    pub(super) fn skip(&mut self, have: &BlockSet) {
        self.left.retain(|&block, _| !have.has(block));
        self.shown.values_mut().for_each(|shown| shown.retain(|&block| !have.has(block)));
    }
}

impl SwarmMember {
    /// Handle a sent block: the neighbors that were offered it see other blocks instead.
    pub(super) fn show_more(&mut self, block: usize, out: &mut Vec<Action>) {
        let Some(seeding) = &mut self.neighbors.seeding else { return };
        // Waiting neighbors fetch the block from its new holder.
        self.uploads.pass_on(block).into_iter().for_each(|to| send(out, to, SwarmMessage::Refused { block }));
        for rank in seeding.gave(block) {
            seeding.show(rank).into_iter().for_each(|block| send(out, rank, SwarmMessage::Have { block }));
        }
        self.show_all_if_out(out);
    }

    /// Offer all blocks to every neighbor once each block was sent.
    pub(super) fn show_all_if_out(&mut self, out: &mut Vec<Action>) {
        if self.neighbors.seeding.as_ref().is_some_and(|seeding| seeding.left.is_empty()) {
            self.neighbors.seeding = None;
            self.offer_to_all(true, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_shown_twice_only_when_all_have_been_shown() {
        let mut seeding = Seeding::new(5);

        assert_eq!([seeding.show(1), seeding.show(2)], [[0, 1], [2, 3]]);
        assert_eq!(seeding.gave(0), [1]);
        assert_eq!(seeding.show(1), [4]);
        assert_eq!(seeding.gave(4), [1]);
        assert_eq!(seeding.show(1), [2], "nothing else is left");
        assert_eq!(seeding.gave(2), [1, 2]);
    }

    #[test]
    fn blocks_offered_to_a_lost_neighbor_are_offered_to_others() {
        let mut seeding = Seeding::new(4);
        assert_eq!([seeding.show(1), seeding.show(2)], [[0, 1], [2, 3]]);

        seeding.forget(1);
        assert_eq!(seeding.gave(2), [2]);
        assert_eq!(seeding.show(2), [0]);
    }
}
