//! Sets of the blocks of a value that a member has.

use alloc::vec;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A set of blocks of one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "SerializedBlockSet", try_from = "SerializedBlockSet")]
pub struct BlockSet {
    words: Vec<u64>,
    block_count: usize,
    count: usize,
}

/// Serialized form of a set, without the count, which follows from the words.
#[derive(Serialize, Deserialize)]
struct SerializedBlockSet {
    words: Vec<u64>,
    block_count: usize,
}

impl From<BlockSet> for SerializedBlockSet {
    fn from(BlockSet { words, block_count, .. }: BlockSet) -> SerializedBlockSet {
        SerializedBlockSet { words, block_count }
    }
}

impl TryFrom<SerializedBlockSet> for BlockSet {
    type Error = &'static str;

    fn try_from(SerializedBlockSet { words, block_count }: SerializedBlockSet) -> Result<BlockSet, &'static str> {
        let is_within = |(index, word): (usize, &u64)| match block_count - index * 64 {
            left @ 0..64 => word >> left == 0,
            _ => true,
        };
        if words.len() != block_count.div_ceil(64) || !words.iter().enumerate().all(is_within) {
            return Err("the set must have one bit per block");
        }
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        Ok(BlockSet { words, block_count, count })
    }
}

impl BlockSet {
    /// Create an empty set for a value of `block_count` blocks.
    pub fn none(block_count: usize) -> BlockSet {
        BlockSet { words: vec![0; block_count.div_ceil(64)], block_count, count: 0 }
    }

    /// Create the set of all `block_count` blocks.
    pub fn all(block_count: usize) -> BlockSet {
        let mut have = BlockSet::none(block_count);
        (0..block_count).for_each(|block| have.add(block));
        have
    }

    /// Return the number of blocks of the value.
    pub fn block_count(&self) -> usize {
        self.block_count
    }

    /// Return the number of blocks in the set.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether the set contains every block of the value.
    pub fn is_all(&self) -> bool {
        self.count == self.block_count
    }

    /// Whether the set contains this block. False for a number beyond the last block of the value.
    pub fn has(&self, block: usize) -> bool {
        self.words.get(block / 64).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// Add a block of the value.
    pub fn add(&mut self, block: usize) {
        assert!(block < self.block_count, "the block number is below the number of blocks");
        if !self.has(block) {
            self.words[block / 64] |= 1 << (block % 64);
            self.count += 1;
        }
    }

    /// Remove a block.
    pub fn remove(&mut self, block: usize) {
        if self.has(block) {
            self.words[block / 64] &= !(1 << (block % 64));
            self.count -= 1;
        }
    }

    /// Add all blocks of another set of the same value.
    pub fn extend(&mut self, other: &BlockSet) {
        for (own, other_word) in self.words.iter_mut().zip(&other.words) {
            self.count += (other_word & !*own).count_ones() as usize;
            *own |= other_word;
        }
    }

    /// Iterate over the blocks that are in `other` and not in this set, in ascending order.
    pub fn obtainable_from<'a>(&'a self, other: &'a BlockSet) -> impl Iterator<Item = usize> + 'a {
        let words = self.words.iter().zip(&other.words).map(|(own, other_word)| other_word & !own);
        words.enumerate().flat_map(|(index, word)| {
            let bits = core::iter::successors(Some(word), |word| Some(word & word.wrapping_sub(1)));
            bits.take_while(|&word| word != 0).map(move |word| index * 64 + word.trailing_zeros() as usize)
        })
    }

    /// Iterate over the missing blocks in ascending order.
    pub fn missing(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.block_count).filter(|&block| !self.has(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obtainable_blocks_are_the_blocks_of_the_other_set_only() {
        let (mut one, mut other) = (BlockSet::none(130), BlockSet::none(130));
        [0, 64, 129].into_iter().for_each(|block| one.add(block));
        [0, 1, 63, 64, 128].into_iter().for_each(|block| other.add(block));

        assert!(one.obtainable_from(&other).eq([1, 63, 128]));
        one.extend(&other);
        assert!(one.obtainable_from(&other).next().is_none());
        assert_eq!((one.count(), one.missing().count()), (6, 124));
        assert!(BlockSet::all(130).is_all() && BlockSet::none(0).is_all());
    }
}
