//! Files with known block digests, for Python.

use crate::errors;
use pyo3::prelude::*;
use ripieno::block_file::{self, BlockDigests, Digest};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A file and its blocks, until a broadcast takes it.
#[pyclass(frozen, module = "ripieno._native")]
pub struct BlockFile {
    inner: Mutex<Option<block_file::BlockFile>>,
    blocks: BlockDigests,
    #[pyo3(get)]
    found_bytes: usize,
}

#[pymethods]
impl BlockFile {
    /// Open a complete file, and read all of it.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf, block_bytes: Option<usize>) -> PyResult<BlockFile> {
        made(&path, py.detach(|| block_file::BlockFile::read(&path, block_bytes)))
    }

    /// Open a file that may have these blocks; None if its blocks differ, or if it does not exist.
    #[staticmethod]
    fn find(
        py: Python<'_>,
        path: PathBuf,
        length_bytes: usize,
        block_bytes: usize,
        digests: &[u8],
    ) -> PyResult<Option<BlockFile>> {
        let blocks = blocks(length_bytes, block_bytes, digests)?;
        let found = py.detach(|| block_file::BlockFile::find(&path, blocks)).transpose();
        found.map(|found| made(&path, found)).transpose()
    }

    /// Open a file to be filled with these blocks. Blocks that it already has are kept.
    #[staticmethod]
    fn fill(
        py: Python<'_>,
        path: PathBuf,
        length_bytes: usize,
        block_bytes: usize,
        digests: &[u8],
    ) -> PyResult<BlockFile> {
        let blocks = blocks(length_bytes, block_bytes, digests)?;
        made(&path, py.detach(|| block_file::BlockFile::fill(&path, blocks)))
    }

    /// Return the offsets of the missing blocks.
    fn missing(&self) -> PyResult<Vec<usize>> {
        self.with(|file| file.missing())
    }

    /// Store the missing block at offset `start` if its digest matches, and return whether it does.
    fn put(&self, py: Python<'_>, start: usize, bytes: &[u8]) -> PyResult<bool> {
        py.detach(|| self.with(|file| file.put(start, bytes)))
    }

    /// Return the length of the file, the length of a block, and the concatenated digests of the blocks.
    fn blocks(&self) -> (usize, usize, Vec<u8>) {
        (self.blocks.bytes, self.blocks.block_bytes, self.blocks.digests.concat())
    }
}

impl BlockFile {
    fn with<R>(&self, look: impl FnOnce(&mut block_file::BlockFile) -> R) -> PyResult<R> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.as_mut().map(look).ok_or_else(taken)
    }

    pub fn take(&self) -> PyResult<block_file::BlockFile> {
        let taken = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(self::taken)
    }
}

fn taken() -> PyErr {
    errors::input("this file is part of a broadcast already".to_string())
}

fn made(path: &Path, made: io::Result<block_file::BlockFile>) -> PyResult<BlockFile> {
    let file = made.map_err(|error| errors::from_file(&error, path))?;
    let (blocks, found_bytes) = (file.blocks().clone(), file.found_bytes());
    Ok(BlockFile { inner: Mutex::new(Some(file)), blocks, found_bytes })
}

fn blocks(bytes: usize, block_bytes: usize, digests: &[u8]) -> PyResult<BlockDigests> {
    let (digests, rest) = digests.as_chunks::<{ size_of::<Digest>() }>();
    if block_bytes == 0 || !rest.is_empty() || digests.len() != bytes.div_ceil(block_bytes) {
        return Err(errors::input(format!(
            "{} digests of blocks of {block_bytes} bytes: not of this file",
            digests.len()
        )));
    }
    Ok(BlockDigests { bytes, block_bytes, digests: digests.to_vec() })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BlockFile>()
}
