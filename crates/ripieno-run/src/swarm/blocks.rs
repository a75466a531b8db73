//! Block digests of a value, and the search for blocks that are already present.

use super::frame::{Digest, digest};
use ripieno_plan::swarm::BlockSet;

/// Digests of the blocks of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDigests {
    /// Size of the value in bytes.
    pub bytes: usize,
    /// Size of all blocks except the last, in bytes.
    pub block_bytes: usize,
    /// One digest per block; zeros without verification.
    pub digests: Vec<Digest>,
    /// Whether blocks are compared with their digests.
    pub is_verified: bool,
}

impl BlockDigests {
    /// Compute the digests of a value.
    pub fn of(value: &[u8], block_bytes: usize) -> BlockDigests {
        assert!(block_bytes > 0, "a block has at least one byte");
        let digests = value.chunks(block_bytes).map(digest).collect();
        BlockDigests { bytes: value.len(), block_bytes, digests, is_verified: true }
    }

    /// Describe a value of `bytes` without verification of blocks.
    pub fn unverified(bytes: usize, block_bytes: usize) -> BlockDigests {
        assert!(block_bytes > 0, "a block has at least one byte");
        let digests = vec![Digest::default(); bytes.div_ceil(block_bytes)];
        BlockDigests { bytes, block_bytes, digests, is_verified: false }
    }

    /// Return the blocks that `bytes` contains at their positions. Without verification no block is known to be
    /// correct.
    pub fn found_in(&self, bytes: &[u8]) -> BlockSet {
        let mut have = BlockSet::none(self.digests.len());
        if !self.is_verified {
            return have;
        }
        let right = bytes.chunks(self.block_bytes).zip(&self.digests).enumerate();
        right.filter(|(_, (block, expected))| digest(block) == **expected).for_each(|(block, _)| have.add(block));
        have
    }

    /// Return whether `bytes` are the contents of a block; without verification, whether they have its length.
    pub fn is_block(&self, block: usize, bytes: &[u8]) -> bool {
        self.digests.get(block).is_some_and(|expected| match self.is_verified {
            true => digest(bytes) == *expected,
            false => bytes.len() == self.block_bytes.min(self.bytes - block * self.block_bytes),
        })
    }

    /// Return the total size of the given blocks in bytes.
    pub fn bytes_of(&self, have: &BlockSet) -> usize {
        let last_bytes = self.bytes - self.digests.len().saturating_sub(1) * self.block_bytes;
        match self.digests.len().checked_sub(1) {
            Some(last) if have.has(last) => (have.count() - 1) * self.block_bytes + last_bytes,
            _ => have.count() * self.block_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_at_their_positions_are_found_and_counted() {
        let value: Vec<u8> = (0..250).collect();
        let blocks = BlockDigests::of(&value, 100);
        assert_eq!(blocks.bytes_of(&blocks.found_in(&value)), 250);
        let mut damaged = value.clone();
        damaged[120] ^= 1;
        let found = blocks.found_in(&damaged);
        assert_eq!((found.has(0), found.has(1), found.has(2), blocks.bytes_of(&found)), (true, false, true, 150));
        assert_eq!(blocks.bytes_of(&blocks.found_in(&value[..249])), 200, "the last one is not whole");
        assert!(blocks.is_block(2, &value[200..]) && !blocks.is_block(1, &value[200..]));
        assert!(!blocks.is_block(3, &[]));
        let unverified = BlockDigests::unverified(250, 100);
        assert_eq!(unverified.found_in(&value), BlockSet::none(3));
        assert!(unverified.is_block(2, &damaged[..50]) && !unverified.is_block(2, &damaged[..51]));
        let empty = BlockDigests::of(&[], 100);
        assert_eq!((empty.found_in(&[]).is_all(), empty.bytes_of(&BlockSet::none(0))), (true, 0));
    }
}
