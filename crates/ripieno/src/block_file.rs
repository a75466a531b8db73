//! Files with known block digests: the source of a file broadcast at its root, and its destination elsewhere.

use ripieno_net::links::HostMemory;
pub use ripieno_plan::swarm::BLOCKS_MAX;
use ripieno_plan::swarm::{BlockManifest, BlockSet, Discipline};
pub use ripieno_run::swarm::{BlockDigests, Digest};
use std::io;
use std::path::Path;

/// A mapped file, with the actual or expected digests of its blocks.
pub struct BlockFile {
    pub(crate) memory: HostMemory,
    pub(crate) blocks: BlockDigests,
    pub(crate) have: BlockSet,
}

impl BlockFile {
    /// Open a complete file and divide it into blocks of `block_bytes` or a default size. If `is_verified`, read it to
    /// compute the digests.
    pub fn read(path: &Path, block_bytes: Option<usize>, is_verified: bool) -> io::Result<BlockFile> {
        let memory = HostMemory::of_file(path)?;
        let manifest = BlockManifest::new(memory.len(), block_bytes, Discipline::Chain, 1);
        let blocks = match is_verified {
            true => BlockDigests::of(&memory, manifest.block_bytes),
            false => BlockDigests::unverified(memory.len(), manifest.block_bytes),
        };
        let have = BlockSet::all(blocks.digests.len());
        Ok(BlockFile { memory, blocks, have })
    }

    /// Open a file if it consists of these blocks. Return `None` if a block differs or the file does not exist.
    pub fn find(path: &Path, blocks: BlockDigests) -> io::Result<Option<BlockFile>> {
        let memory = match HostMemory::of_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if memory.len() != blocks.bytes {
            return Ok(None);
        }
        let have = blocks.found_in(&memory);
        Ok(have.is_all().then_some(BlockFile { memory, blocks, have }))
    }

    /// Open or create a file for these blocks, and reserve its disk space. Keeps the blocks that the file already has.
    pub fn fill(path: &Path, blocks: BlockDigests) -> io::Result<BlockFile> {
        let (memory, old_bytes) = HostMemory::in_file(path, blocks.bytes)?;
        let have = match old_bytes {
            0 => BlockSet::none(blocks.digests.len()),
            _ => blocks.found_in(&memory),
        };
        Ok(BlockFile { memory, blocks, have })
    }

    /// Return the offsets of the missing blocks.
    pub fn missing(&self) -> Vec<usize> {
        let is_missing = |block: &usize| !self.have.has(*block);
        (0..self.blocks.digests.len()).filter(is_missing).map(|block| block * self.blocks.block_bytes).collect()
    }

    /// Store the block at offset `start` if its digest matches, and return whether it matches.
    pub fn put(&mut self, start: usize, bytes: &[u8]) -> bool {
        let block = start / self.blocks.block_bytes;
        let is_valid = self.blocks.is_block(block, bytes) && start.is_multiple_of(self.blocks.block_bytes);
        if is_valid {
            self.memory[start..start + bytes.len()].copy_from_slice(bytes);
            self.have.add(block);
        }
        is_valid
    }

    /// Return the digests of the blocks.
    pub fn blocks(&self) -> &BlockDigests {
        &self.blocks
    }

    /// Return the number of bytes present.
    pub fn found_bytes(&self) -> usize {
        self.blocks.bytes_of(&self.have)
    }
}
