//! Seeding: the root gives every block out once before it gives any of them twice.
//!
//! It shows each neighbour a few of its blocks, those that the fewest have seen first, and others once one is out. What
//! is out somewhere comes from there, until all blocks are out. Then everybody may ask the root for any.
//!
//! Source: Hoffman, "Superseeding", BitTorrent enhancement proposal 16, 2008.

use super::{SwarmMember, tell};
use crate::swarm::{Action, Have, SwarmMessage};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Blocks that a neighbour sees at a time: one that comes to it, and one that it has asked for meanwhile.
const SHOWN_MAX: usize = 2;

#[derive(Debug)]
pub(super) struct Seeding {
    /// Blocks that are not out, and how many neighbours see them.
    left: BTreeMap<usize, usize>,
    /// What each neighbour sees of them.
    shown: BTreeMap<usize, BTreeSet<usize>>,
}

impl Seeding {
    pub(super) fn new(block_count: usize) -> Seeding {
        Seeding { left: (0..block_count).map(|block| (block, 0)).collect(), shown: BTreeMap::new() }
    }

    /// Shows a neighbour as much as it is to see at a time: what is new to it.
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

    /// What a neighbour may ask for, of `block_count` blocks.
    pub(super) fn seen_by(&mut self, rank: usize, block_count: usize) -> Have {
        self.show(rank);
        let mut have = Have::none(block_count);
        self.shown[&rank].iter().for_each(|&block| have.add(block));
        have
    }

    /// A block is out: who has seen it.
    fn gave(&mut self, block: usize) -> Vec<usize> {
        self.left.remove(&block);
        self.shown.iter_mut().filter_map(|(&rank, shown)| shown.remove(&block).then_some(rank)).collect()
    }

    /// A neighbour is gone: others see first what it has seen.
    pub(super) fn forget(&mut self, rank: usize) {
        for block in self.shown.remove(&rank).unwrap_or_default() {
            self.left.entry(block).and_modify(|count| *count -= 1);
        }
    }

    /// A neighbour has these from elsewhere.
    pub(super) fn skip(&mut self, have: &Have) {
        self.left.retain(|&block, _| !have.has(block));
        self.shown.values_mut().for_each(|shown| shown.retain(|&block| !have.has(block)));
    }
}

impl SwarmMember {
    /// A block has gone out: those that have seen it see others instead.
    pub(super) fn show_more(&mut self, block: usize, out: &mut Vec<Action>) {
        let Some(seeding) = &mut self.neighbours.seeding else { return };
        // Whoever waits for it gets it from the one that has it now.
        self.uploads.pass_on(block).into_iter().for_each(|to| tell(out, to, SwarmMessage::Refused { block }));
        for rank in seeding.gave(block) {
            seeding.show(rank).into_iter().for_each(|block| tell(out, rank, SwarmMessage::Have { block }));
        }
        self.show_all_if_out(out);
    }

    /// Once every block is out, offers all of them to everybody.
    pub(super) fn show_all_if_out(&mut self, out: &mut Vec<Action>) {
        if self.neighbours.seeding.as_ref().is_some_and(|seeding| seeding.left.is_empty()) {
            self.neighbours.seeding = None;
            self.greet_all(true, out);
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
    fn what_a_lost_neighbour_has_seen_is_shown_to_others() {
        let mut seeding = Seeding::new(4);
        assert_eq!([seeding.show(1), seeding.show(2)], [[0, 1], [2, 3]]);

        seeding.forget(1);
        assert_eq!(seeding.gave(2), [2]);
        assert_eq!(seeding.show(2), [0]);
    }
}
