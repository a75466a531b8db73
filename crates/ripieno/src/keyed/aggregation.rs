//! Keyed aggregation: rows arrive in many adds, and rows of equal keys are combined as they arrive.
//!
//! While there are few keys, one initial table that fits a core's cache holds all keys and rows. With more keys or
//! several threads, rows are first partitioned. Integer keys with short rows are scattered to staging buffers, and
//! combined once many rows are staged. For other keys, only the row numbers are sorted. Each thread then processes
//! whole parts, so rows of a key are combined in order of arrival, for any number of threads.
//! Source: Müller et al., "Cache-efficient aggregation: hashing is sorting", SIGMOD 2015.

use super::block::{BlockView, KeyedBlock, KeyedCombine, KeyedSchema};
use super::columns::{KeyColumn, KeyKind};
use super::limit::{Limited, MemoryLimit};
use super::owners::{PART_COUNT, PartOwners};
use super::part::{AddedRows, KeyedPart, PartScratch};
use super::parts::Parts;
use crate::error::{Error, argument};
use ripieno_kernels::Threads;
use ripieno_kernels::keyed::{StagingBuffer, is_scattered, scatter};
use ripieno_run::Element;
use std::ops::Range;

/// Size of the initial table that causes its split into parts.
const INITIAL_TABLE_BYTES: usize = 512 << 10;
/// Number of rows that each thread adds at a time.
const CHUNK_ROWS: usize = 1 << 18;
/// Number of rows that are added to the initial table at a time.
const INITIAL_CHUNK_ROWS: usize = 1 << 14;
/// Minimum and maximum of the limit of staged bytes. In between, the limit is twice the size of the tables.
const STAGED_LIMITS_BYTES: [usize; 2] = [16 << 20, 64 << 20];
/// Approximate cost of adding a row, in operations.
const ROW_OPERATIONS: usize = 10;
/// Maximum number of threads that add rows: one per part.
const MAX_THREADS: usize = PART_COUNT;

/// Rows under keys, with equal keys combined.
///
/// A key belongs to part `part_of(hash, part_count)`. A part belongs to rank `part / parts_per_rank`.
/// Rows of a key are combined in order of arrival, for any number of threads and any memory limit.
#[derive(Debug)]
pub struct Aggregation {
    pub(super) schema: KeyedSchema,
    pub(super) owners: PartOwners,
    /// The table of all keys while there are few keys. The parts are empty then.
    initial: Option<KeyedPart>,
    parts: Vec<KeyedPart>,
    /// The staged rows of each part.
    staged: Vec<StagingBuffer>,
    limited: Option<Limited>,
    /// The error of an operation that failed halfway. An unknown subset of its rows was added.
    failed: Option<Error>,
}

impl Aggregation {
    /// Create an empty aggregation with keys owned by `rank_count` ranks.
    ///
    /// # Errors
    /// The operation is not defined for the element type; `rank_count` is 0 or larger than a job can be; or a row is
    /// larger than any memory.
    pub fn new(schema: KeyedSchema, rank_count: usize, limit: Option<MemoryLimit>) -> Result<Aggregation, Error> {
        schema.check_width()?;
        let (reduction, owners) = (schema.reduction()?, PartOwners::new(rank_count)?);
        let part_count = owners.part_count();
        Ok(Aggregation {
            schema,
            owners,
            initial: reduction.is_some().then(|| KeyedPart::new(&schema, reduction)),
            parts: (0..part_count).map(|_| KeyedPart::new(&schema, reduction)).collect(),
            staged: vec![StagingBuffer::default(); part_count],
            limited: limit.map(|limit| Limited::new(limit, part_count)),
            failed: None,
        })
    }

    /// Return the schema of the data.
    pub fn schema(&self) -> &KeyedSchema {
        &self.schema
    }

    /// Return the number of parts per rank.
    pub fn parts_per_rank(&self) -> usize {
        self.owners.parts_per_rank
    }

    /// Add a row for each key. `ranks` are the owners of the rows; without it, the hash determines them.
    ///
    /// # Errors
    /// If the keys are of another kind, the values are not one row per key, or a rank is invalid, nothing is added. If
    /// the disk is full, an unknown subset of the rows is added, and every later call fails with the same error.
    pub fn add(
        &mut self,
        keys: KeyColumn<'_>,
        values: &[u8],
        ranks: Option<&[u32]>,
        threads: &Threads,
    ) -> Result<(), Error> {
        self.schema.check(keys.kind(), keys.len() as u64, values)?;
        if let Some(ranks) = ranks {
            self.owners.check(ranks, keys.len())?;
        }
        let threads = Threads::with_simd(threads.count().min(MAX_THREADS), threads.simd());
        let rows = AddedRows { element: self.schema.element, bytes: values };
        self.change(|own| own.add_rows(keys, rows, ranks, &threads))
    }

    /// Run an operation that may fail halfway. After such a failure, every later operation returns the same error.
    fn change(&mut self, work: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        self.check_usable()?;
        let done = work(self);
        self.failed = done.clone().err();
        done
    }

    fn check_usable(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Add rows that have been checked.
    fn add_rows(
        &mut self,
        keys: KeyColumn<'_>,
        all: AddedRows<'_>,
        ranks: Option<&[u32]>,
        threads: &Threads,
    ) -> Result<(), Error> {
        let (mut start, mut scratch) = (0, PartScratch::default());
        while start < keys.len() {
            let uses_initial = self.initial.is_some() && ranks.is_none() && threads.count() == 1;
            let max_count = if uses_initial { INITIAL_CHUNK_ROWS } else { CHUNK_ROWS * threads.count() };
            let rows = self.chunk(keys, start..keys.len(), max_count);
            start = rows.end;
            self.spill_to_fit(self.growth_bytes(keys.range(rows.clone())))?;
            match &mut self.initial {
                Some(initial) if uses_initial => {
                    let row_bytes = self.schema.row_bytes();
                    let bytes = &all.bytes[rows.start * row_bytes..rows.end * row_bytes];
                    initial.add(keys.range(rows), AddedRows { bytes, ..all }, &mut scratch);
                    if initial.size_bytes() > INITIAL_TABLE_BYTES {
                        self.split_initial(threads);
                    }
                }
                _ => {
                    self.split_initial(threads);
                    self.add_to_parts(keys, all, ranks, rows, threads);
                }
            }
        }
        Ok(())
    }

    /// Return the first of `rows` to add together: at most `max_count`, and as many as the memory limit allows.
    fn chunk(&self, keys: KeyColumn<'_>, rows: Range<usize>, max_count: usize) -> Range<usize> {
        let mut count = rows.len().min(max_count);
        if let Some(limited) = &self.limited {
            while count > 1 && self.growth_bytes(keys.range(rows.start..rows.start + count)) > limited.chunk_bytes() {
                count /= 2;
            }
        }
        rows.start..rows.start + count
    }

    /// Add rows to their parts, or stage them there.
    fn add_to_parts(
        &mut self,
        keys: KeyColumn<'_>,
        all: AddedRows<'_>,
        ranks: Option<&[u32]>,
        rows: Range<usize>,
        threads: &Threads,
    ) {
        let row_bytes = self.schema.width * all.element.size_bytes();
        if let KeyColumn::Int64(keys) = keys
            && is_scattered(row_bytes)
            && all.element == self.schema.element
        {
            let ranges = self.owners.assign(KeyColumn::Int64(keys), ranks, rows.clone(), false, threads);
            let ranges: Vec<_> = ranges.into_iter().map(|range| range.parts).collect();
            let bytes = &all.bytes[rows.start * row_bytes..rows.end * row_bytes];
            scatter(&keys[rows], bytes, row_bytes, &ranges, &mut self.staged, threads);
            let staged_bytes: usize = self.staged.iter().map(|staged| staged.keys.len() * (8 + row_bytes)).sum();
            if staged_bytes >= self.max_staged_bytes() {
                self.add_staged(threads);
            }
            return;
        }
        let row_count = rows.len();
        let ranges = self.owners.assign(keys, ranks, rows, true, threads);
        let sorted: Vec<_> = ranges.iter().map(|range| range.parts.sorted()).collect();
        let operations = ROW_OPERATIONS * row_count * (1 + row_bytes / 16) / self.parts.len();
        let parts = self.parts.iter_mut().enumerate().collect();
        threads.for_each(parts, operations, PartScratch::default, |scratch, (at, part)| {
            for (range, sorted) in ranges.iter().zip(&sorted) {
                part.add_assigned(range, sorted.rows_of(at), keys, all, scratch);
            }
        });
    }

    /// Return the number of staged bytes at which rows are combined: combining many rows at once loads each table into
    /// the cache only once.
    fn max_staged_bytes(&self) -> usize {
        let [min, max] = STAGED_LIMITS_BYTES;
        let table_bytes: usize = self.parts.iter().map(KeyedPart::size_bytes).sum();
        let allowed = self.limited.as_ref().map_or(max, Limited::chunk_bytes);
        (2 * table_bytes).clamp(min, max).min(allowed)
    }

    /// Combine the staged rows.
    pub(super) fn add_staged(&mut self, threads: &Threads) {
        let row_count: usize = self.staged.iter().map(|staged| staged.keys.len()).sum();
        let operations = ROW_OPERATIONS * row_count / self.parts.len();
        let parts = self.parts.iter_mut().zip(&mut self.staged).collect();
        let element = self.schema.element;
        threads.for_each(parts, operations, PartScratch::default, |scratch, (part, staged)| {
            part.add_staged(staged, element, scratch);
        });
    }

    /// Split the initial table into the parts. From now on, all rows are added to parts.
    pub(super) fn split_initial(&mut self, threads: &Threads) {
        if let Some(initial) = self.initial.take().filter(|initial| !initial.is_empty()) {
            let block = initial.into_block();
            let (rows, held) = (0..block.keys.len(), self.schema.held_element());
            self.add_to_parts(
                block.keys.view(),
                AddedRows { element: held, bytes: &block.values },
                None,
                rows,
                threads,
            );
        }
    }

    /// Add the rows of a block. All its keys must belong to part `part`.
    ///
    /// # Errors
    /// See [`Aggregation::add`].
    ///
    /// # Panics
    /// If there is no such part.
    pub fn add_block(&mut self, block: &KeyedBlock, part: usize) -> Result<(), Error> {
        self.add_view(&block.view(), part)
    }

    /// Add the rows of a borrowed block, like [`Aggregation::add_block`].
    ///
    /// # Errors
    /// See [`Aggregation::add`].
    ///
    /// # Panics
    /// If there is no such part.
    pub fn add_view(&mut self, block: &BlockView<'_>, part: usize) -> Result<(), Error> {
        block.check(&self.schema)?;
        self.change(|own| own.add_view_of(block, own.schema.element, part))
    }

    /// Add the rows of a block with values of type `element`.
    fn add_view_of(&mut self, block: &BlockView<'_>, element: Element, part: usize) -> Result<(), Error> {
        self.split_initial(&Threads::new(1));
        self.spill_to_fit(self.growth_bytes(block.keys) + block.values.len())?;
        let mut scratch = PartScratch::default();
        self.parts[part].add_staged(&mut self.staged[part], self.schema.element, &mut scratch);
        self.parts[part].add_block(block, element, &mut scratch);
        Ok(())
    }

    /// Add all rows of `other`, after the existing rows.
    ///
    /// # Errors
    /// `other` has another schema or other ranks; otherwise see [`Aggregation::add`].
    pub fn absorb(&mut self, other: Aggregation) -> Result<(), Error> {
        if (self.schema, self.owners) != (other.schema, other.owners) {
            let of = |of: &Aggregation| format!("{:?} for {} ranks", of.schema, of.owners.rank_count);
            return Err(argument("aggregation", of(&other), &of(self)));
        }
        self.change(|own| {
            let mut parts = other.seal(&Threads::new(1))?;
            for part in 0..parts.part_count() {
                if parts.size(part).keys > 0 {
                    own.add_view_of(&parts.take_held(part)?.view(), own.schema.held_element(), part)?;
                }
            }
            Ok(())
        })
    }

    /// Return the maximum memory that adding a row for each of these keys may take. Tables and rows double their size
    /// when they grow.
    fn growth_bytes(&self, keys: KeyColumn<'_>) -> usize {
        let table_bytes = match self.schema.keys {
            KeyKind::Int64 => 64,
            KeyKind::Strings => 128,
        };
        let link_bytes = if self.schema.combine == KeyedCombine::Concat { 8 } else { 0 };
        2 * keys.size_bytes() + keys.len() * (table_bytes + link_bytes + 2 * self.schema.held_row_bytes())
    }

    /// End the adds, and return the parts.
    ///
    /// # Errors
    /// An earlier add has failed; or spilled parts cannot be read back, or the disk is too full to merge them.
    pub fn seal(mut self, threads: &Threads) -> Result<Parts, Error> {
        self.check_usable()?;
        self.split_initial(threads);
        self.add_staged(threads);
        self.staged.fill(StagingBuffer::default());
        if let Some(limited) = self.limited.as_ref().filter(|limited| limited.spilled_bytes() > 0) {
            self.spill_to_fit(limited.bytes() / 2)?;
        }
        Parts::sealed(self.schema, self.owners, self.parts, self.limited, threads)
    }

    /// Return the number of bytes written to spill files so far.
    pub fn spilled_bytes(&self) -> u64 {
        self.limited.as_ref().map_or(0, Limited::spilled_bytes)
    }

    /// Return the memory held in bytes.
    pub fn held_bytes(&self) -> usize {
        let parts: usize = self.parts.iter().chain(&self.initial).map(KeyedPart::size_bytes).sum();
        let staged: usize = self.staged.iter().map(|staged| staged.size_bytes()).sum();
        parts + staged
    }

    /// Spill the largest parts until half of the limit is free, if `more_bytes` more might exceed the limit.
    fn spill_to_fit(&mut self, more_bytes: usize) -> Result<(), Error> {
        let Some(limit_bytes) = self.limited.as_ref().map(Limited::bytes) else { return Ok(()) };
        if self.held_bytes().saturating_add(more_bytes) <= limit_bytes {
            return Ok(());
        }
        let threads = Threads::new(1);
        self.split_initial(&threads);
        self.add_staged(&threads);
        let mut held_bytes = self.held_bytes();
        let mut largest: Vec<usize> = (0..self.parts.len()).filter(|&at| !self.parts[at].is_empty()).collect();
        largest.sort_by_key(|&at| std::cmp::Reverse(self.parts[at].size_bytes()));
        let limited = self.limited.as_mut().expect("there is a limit");
        for at in largest {
            if held_bytes <= limit_bytes / 2 {
                break;
            }
            let part = &mut self.parts[at];
            held_bytes -= part.size_bytes() + self.staged[at].size_bytes();
            limited.spill(at, part, &self.schema)?;
            self.staged[at] = Default::default();
        }
        Ok(())
    }
}
