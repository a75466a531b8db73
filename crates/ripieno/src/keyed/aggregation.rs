//! Keyed aggregation: rows come in many adds, those of equal keys combine as they come.

use super::block::{Block, BlockView, Form};
use super::columns::Keys;
use super::part::Part;
use super::parts::Parts;
use crate::error::{Error, argument};
use ripieno_kernels::Threads;
use ripieno_kernels::keyed::{Partition, part_of, rehash};
use std::path::PathBuf;

/// Parts in all, at least: tables that are small enough for a core's cache.
const PART_COUNT: usize = 128;
/// Parts of a rank, at least: what a rank receives comes in several waves.
const PARTS_PER_RANK: usize = 4;

/// How much memory an aggregation may hold, and where it goes on when that is not enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes of tables, values and rows.
    pub bytes: u64,
    /// Where files without names take what is more.
    pub directory: PathBuf,
}

/// Rows under keys, equal keys combined.
///
/// The key decides the part: `part_of(hash, part_count)`, and the part its home rank: `part / parts_per_rank`. Rows of a
/// key combine in the order in which they are added, whatever the number of threads.
#[derive(Debug)]
pub struct Aggregation {
    form: Form,
    rank_count: usize,
    limit: Option<MemoryLimit>,
    parts: Vec<Part>,
}

impl Aggregation {
    /// No rows yet, of keys that have their homes at `rank_count` ranks.
    ///
    /// # Errors
    /// The operation has no meaning on the element.
    ///
    /// # Panics
    /// If there are no ranks.
    pub fn new(form: Form, rank_count: usize, limit: Option<MemoryLimit>) -> Result<Aggregation, Error> {
        assert!(rank_count > 0, "somebody keeps the keys");
        form.reduction()?;
        let parts_per_rank = PART_COUNT.div_ceil(rank_count).max(PARTS_PER_RANK);
        let parts = (0..rank_count * parts_per_rank).map(|_| Part::new(form.keys)).collect();
        Ok(Aggregation { form, rank_count, limit, parts })
    }

    /// What the data looks like.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// How many parts there are for each rank.
    pub fn parts_per_rank(&self) -> usize {
        self.parts.len() / self.rank_count
    }

    /// Adds a row for each key. `ranks` are the home ranks of the rows, if not the hash decides.
    ///
    /// # Errors
    /// Keys of another kind, values that are not a row per key, a rank that is not there, or a disk that is full.
    pub fn add(
        &mut self,
        keys: Keys<'_>,
        values: &[u8],
        ranks: Option<&[u32]>,
        _threads: &Threads,
    ) -> Result<(), Error> {
        self.form.check(keys.kind(), keys.len() as u64, values)?;
        let hashes = keys.hashes();
        let parts = self.parts_of(&hashes, ranks)?;
        let partition = Partition::new(&parts, self.parts.len());
        let reduction = self.form.reduction()?;
        let row_bytes = self.form.row_bytes();
        for (at, part) in self.parts.iter_mut().enumerate() {
            let rows = partition.rows_of(at);
            let hashes: Vec<u64> = rows.iter().map(|&row| hashes[row as usize]).collect();
            let each = rows.iter().flat_map(|&row| &values[row as usize * row_bytes..][..row_bytes]);
            let values: Vec<u8> = each.copied().collect();
            part.add(&self.form, reduction, keys.gathered(rows).view(), &hashes, None, &values);
        }
        Ok(())
    }

    /// The part of each row.
    fn parts_of(&self, hashes: &[u64], ranks: Option<&[u32]>) -> Result<Vec<u32>, Error> {
        let Some(ranks) = ranks else {
            return Ok(hashes.iter().map(|&hash| part_of(hash, self.parts.len()) as u32).collect());
        };
        if ranks.len() != hashes.len() {
            return Err(argument(
                "ranks",
                format!("{} ranks", ranks.len()),
                &format!("one for each of {} keys", hashes.len()),
            ));
        }
        if let Some(row) = ranks.iter().position(|&rank| rank as usize >= self.rank_count) {
            let value = format!("rank {} for the key of row {row}", ranks[row]);
            return Err(argument("ranks", value, &format!("ranks below the world size, {}", self.rank_count)));
        }
        let per_rank = self.parts_per_rank();
        let part = |(&hash, &rank): (&u64, &u32)| rank * per_rank as u32 + part_of(rehash(hash), per_rank) as u32;
        Ok(hashes.iter().zip(ranks).map(part).collect())
    }

    /// Adds the rows of a block, all of whose keys belong to part `part`.
    ///
    /// # Errors
    /// As [`Aggregation::add`].
    ///
    /// # Panics
    /// If there is no such part.
    pub fn add_block(&mut self, block: &Block, part: usize) -> Result<(), Error> {
        self.add_view(&block.view(), part)
    }

    /// Adds the rows of a block that lives elsewhere, as [`Aggregation::add_block`] does.
    ///
    /// # Errors
    /// As [`Aggregation::add`].
    ///
    /// # Panics
    /// If there is no such part.
    pub fn add_view(&mut self, block: &BlockView<'_>, part: usize) -> Result<(), Error> {
        block.check(&self.form)?;
        let reduction = self.form.reduction()?;
        let hashes = block.keys.hashes();
        self.parts[part].add(&self.form, reduction, block.keys, &hashes, block.counts, block.values);
        Ok(())
    }

    /// Adds all rows of `other`, after those that have come.
    ///
    /// # Errors
    /// `other` has another form or other ranks; or as [`Aggregation::add`].
    pub fn absorb(&mut self, other: Aggregation) -> Result<(), Error> {
        if (self.form, self.rank_count) != (other.form, other.rank_count) {
            let of = |of: &Aggregation| format!("{:?} for {} ranks", of.form, of.rank_count);
            return Err(argument("aggregation", of(&other), &of(self)));
        }
        for (at, part) in other.parts.into_iter().enumerate() {
            self.add_block(&part.into_block(&other.form), at)?;
        }
        Ok(())
    }

    /// Bytes that were written to files so far.
    pub fn spilled_bytes(&self) -> u64 {
        0
    }

    /// Ends the adding.
    ///
    /// # Errors
    /// What was spilled cannot be read back.
    pub fn seal(self, _threads: &Threads) -> Result<Parts, Error> {
        let parts = self.parts.into_iter().map(Some).collect();
        Ok(Parts { form: self.form, rank_count: self.rank_count, parts })
    }
}
