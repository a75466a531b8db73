//! Files with known block digests, for Python.

use crate::errors;
use pyo3::prelude::*;
use ripieno::block_file::{self, BLOCKS_MAX, BlockDigests, Digest};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A file and the digests of its blocks, until a broadcast takes the file.
#[pyclass(frozen, module = "ripieno._native")]
pub struct BlockFile {
    inner: Mutex<Option<block_file::BlockFile>>,
    blocks: BlockDigests,
    #[pyo3(get)]
    found_bytes: usize,
}

#[pymethods]
impl BlockFile {
    /// Open a complete file. With `verify`, read it and compute the digests of its blocks.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf, block_bytes: Option<usize>, verify: bool) -> PyResult<BlockFile> {
        wrapped(&path, py.detach(|| block_file::BlockFile::read(&path, block_bytes, verify)))
    }

    /// Open a file if it consists of these blocks. Return None if a block differs or the file does not exist.
    #[staticmethod]
    fn find(
        py: Python<'_>,
        path: PathBuf,
        length_bytes: usize,
        block_bytes: usize,
        digests: &[u8],
    ) -> PyResult<Option<BlockFile>> {
        let blocks = blocks(length_bytes, block_bytes, digests)?;
        let opened = py.detach(|| block_file::BlockFile::find(&path, blocks)).transpose();
        opened.map(|opened| wrapped(&path, opened)).transpose()
    }

    /// Open or create a file for these blocks. Keep the blocks that the file already has.
    #[staticmethod]
    fn fill(
        py: Python<'_>,
        path: PathBuf,
        length_bytes: usize,
        block_bytes: usize,
        digests: &[u8],
    ) -> PyResult<BlockFile> {
        let blocks = blocks(length_bytes, block_bytes, digests)?;
        wrapped(&path, py.detach(|| block_file::BlockFile::fill(&path, blocks)))
    }

    /// Return the offsets of the missing blocks.
    fn missing(&self) -> PyResult<Vec<usize>> {
        self.with(|file| file.missing())
    }

    /// Store the block at offset `start` if its digest matches, and return whether it matches.
    fn put(&self, py: Python<'_>, start: usize, bytes: &[u8]) -> PyResult<bool> {
        py.detach(|| self.with(|file| file.put(start, bytes)))
    }

    /// Return the length of the file, the length of a block, and the concatenated digests of the blocks. There are no
    /// digests without verification.
    fn blocks(&self) -> (usize, usize, Vec<u8>) {
        let digests = if self.blocks.is_verified { self.blocks.digests.concat() } else { Vec::new() };
        (self.blocks.bytes, self.blocks.block_bytes, digests)
    }
}

impl BlockFile {
    fn with<R>(&self, work: impl FnOnce(&mut block_file::BlockFile) -> R) -> PyResult<R> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.as_mut().map(work).ok_or_else(in_use)
    }

    pub fn take(&self) -> PyResult<block_file::BlockFile> {
        let file = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        file.ok_or_else(in_use)
    }
}

fn in_use() -> PyErr {
    errors::input("a broadcast already uses this file".to_string())
}

fn wrapped(path: &Path, wrapped: io::Result<block_file::BlockFile>) -> PyResult<BlockFile> {
    let file = wrapped.map_err(|error| errors::from_file(&error, path))?;
    let (blocks, found_bytes) = (file.blocks().clone(), file.found_bytes());
    Ok(BlockFile { inner: Mutex::new(Some(file)), blocks, found_bytes })
}

fn blocks(bytes: usize, block_bytes: usize, digests: &[u8]) -> PyResult<BlockDigests> {
    let block_count = bytes.div_ceil(block_bytes.max(1));
    if block_count > BLOCKS_MAX {
        return Err(errors::input(format!(
            "{block_count} blocks of {block_bytes} bytes: expected at most {BLOCKS_MAX}"
        )));
    }
    if digests.is_empty() && block_bytes > 0 {
        return Ok(BlockDigests::unverified(bytes, block_bytes));
    }
    let (digests, rest) = digests.as_chunks::<{ size_of::<Digest>() }>();
    if block_bytes == 0 || !rest.is_empty() || digests.len() != block_count {
        return Err(errors::input(format!(
            "{} digests of blocks of {block_bytes} bytes: expected the digests of a file of {bytes} bytes",
            digests.len()
        )));
    }
    Ok(BlockDigests { bytes, block_bytes, digests: digests.to_vec(), is_verified: true })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("BLOCKS_MAX", BLOCKS_MAX)?;
    module.add_class::<BlockFile>()
}
