//! Files of which the blocks are known: what a broadcast of a file reads at its root, and fills elsewhere.

use ripieno_net::links::HostMemory;
use ripieno_plan::swarm::{Discipline, Have, Manifest};
pub use ripieno_run::swarm::{BlockDigests, Digest};
use std::io;
use std::path::Path;

/// A file, mapped, with the digests that its blocks have or are to have.
pub struct BlockFile {
    pub(crate) memory: HostMemory,
    pub(crate) blocks: BlockDigests,
    pub(crate) have: Have,
}

impl BlockFile {
    /// A file that is whole, cut into blocks of `block_bytes` or as usual. It is read from end to end.
    pub fn read(path: &Path, block_bytes: Option<usize>) -> io::Result<BlockFile> {
        let memory = HostMemory::of_file(path)?;
        let manifest = Manifest::new(memory.len(), block_bytes, Discipline::Chain, 1);
        let blocks = BlockDigests::of(&memory, manifest.block_bytes);
        let have = Have::all(blocks.digests.len());
        Ok(BlockFile { memory, blocks, have })
    }

    /// The same of a file that may have these blocks: None if it has not, or is not there.
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

    /// A file to be filled with these blocks, all of which have room on its disk. What it has of them stays.
    pub fn fill(path: &Path, blocks: BlockDigests) -> io::Result<BlockFile> {
        let (memory, old_bytes) = HostMemory::in_file(path, blocks.bytes)?;
        let have = match old_bytes {
            0 => Have::none(blocks.digests.len()),
            _ => blocks.found_in(&memory),
        };
        Ok(BlockFile { memory, blocks, have })
    }

    /// Where the blocks begin that it lacks.
    pub fn missing(&self) -> Vec<usize> {
        let lacks = |block: &usize| !self.have.has(*block);
        (0..self.blocks.digests.len()).filter(lacks).map(|block| block * self.blocks.block_bytes).collect()
    }

    /// Takes the block that begins at `start`, one that it lacks, if these are its bytes; whether they are.
    pub fn put(&mut self, start: usize, bytes: &[u8]) -> bool {
        let block = start / self.blocks.block_bytes;
        let is_right = self.blocks.is_block(block, bytes) && start.is_multiple_of(self.blocks.block_bytes);
        if is_right {
            self.memory[start..start + bytes.len()].copy_from_slice(bytes);
            self.have.add(block);
        }
        is_right
    }

    /// What it is made of.
    pub fn blocks(&self) -> &BlockDigests {
        &self.blocks
    }

    /// How much of it is here.
    pub fn found_bytes(&self) -> usize {
        self.blocks.bytes_of(&self.have)
    }
}
