//! Assignment of keys to parts, and of parts to ranks.

use super::columns::KeyColumn;
use crate::error::{Error, argument};
use ripieno_kernels::Threads;
use ripieno_kernels::keyed::{RowParts, part_of, rehash};
use ripieno_net::MAX_WORLD_SIZE;
use std::ops::Range;

/// Minimum number of parts in total, chosen so that the table of a part fits a core's cache.
pub(super) const PART_COUNT: usize = 256;
/// Minimum number of parts per rank. It allows several waves even in large worlds.
const PARTS_PER_RANK: usize = 4;
/// Number of keys hashed at a time. Their hashes fit in the L1 cache.
const BLOCK_KEYS: usize = 1024;

/// The assignment of parts to ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartOwners {
    pub rank_count: usize,
    pub parts_per_rank: usize,
}

/// A range of added rows, and the part of each row.
pub(super) struct AssignedRows {
    pub rows: Range<usize>,
    pub parts: RowParts,
    /// The hash of each key; empty if not requested.
    pub hashes: Vec<u64>,
}

impl PartOwners {
    pub fn new(rank_count: usize) -> Result<PartOwners, Error> {
        if !(1..=MAX_WORLD_SIZE).contains(&rank_count) {
            return Err(argument("rank_count", rank_count, &format!("1 to {MAX_WORLD_SIZE}")));
        }
        Ok(PartOwners { rank_count, parts_per_rank: PART_COUNT.div_ceil(rank_count).max(PARTS_PER_RANK) })
    }

    pub fn part_count(&self) -> usize {
        self.rank_count * self.parts_per_rank
    }

    /// Check that `ranks` has one valid rank for each key.
    pub fn check(&self, ranks: &[u32], key_count: usize) -> Result<(), Error> {
        if ranks.len() != key_count {
            let expected = format!("one for each of {key_count} keys");
            return Err(argument("ranks", format!("{} ranks", ranks.len()), &expected));
        }
        let Some(row) = ranks.iter().position(|&rank| rank as usize >= self.rank_count) else { return Ok(()) };
        let expected = format!("ranks below the world size, {}", self.rank_count);
        Err(argument("ranks", format!("rank {} for the key of row {row}", ranks[row]), &expected))
    }

    /// Determine the part of each of `rows`, in one range per thread. `keys` and `ranks` have an entry for every row.
    pub fn assign(
        &self,
        keys: KeyColumn<'_>,
        ranks: Option<&[u32]>,
        rows: Range<usize>,
        with_hashes: bool,
        threads: &Threads,
    ) -> Vec<AssignedRows> {
        let length = rows.len();
        let count = threads.count().min(length.div_ceil(BLOCK_KEYS)).max(1);
        let cut = |at: usize| rows.start + length * at / count;
        let mut ranges: Vec<(Range<usize>, Option<AssignedRows>)> =
            (0..count).map(|at| (cut(at)..cut(at + 1), None)).collect();
        threads.for_each(ranges.iter_mut().collect(), 4 * length / count, Vec::new, |scratch, (rows, assigned)| {
            let mut all = Vec::new();
            let hashes = if with_hashes { &mut all } else { scratch };
            let parts = self.parts(keys, ranks, rows.clone(), !with_hashes, hashes);
            let parts = RowParts::new(parts, self.part_count());
            *assigned = Some(AssignedRows { rows: rows.clone(), parts, hashes: all });
        });
        ranges.into_iter().map(|(_, assigned)| assigned.expect("a thread has processed every range")).collect()
    }

    /// Return the part of each of `rows`. Writes the hashes of all rows to `hashes`, or only of the last block.
    fn parts(
        &self,
        keys: KeyColumn<'_>,
        ranks: Option<&[u32]>,
        rows: Range<usize>,
        keeps_last_block: bool,
        hashes: &mut Vec<u64>,
    ) -> Vec<u32> {
        let mut parts = Vec::with_capacity(rows.len());
        for start in rows.clone().step_by(BLOCK_KEYS) {
            let block = start..(start + BLOCK_KEYS).min(rows.end);
            if keeps_last_block {
                hashes.clear();
            }
            let first_new = hashes.len();
            keys.range(block.clone()).hash(hashes);
            let hashes = &hashes[first_new..];
            match ranks {
                None => parts.extend(hashes.iter().map(|&hash| part_of(hash, self.part_count()) as u32)),
                Some(ranks) => {
                    let per_rank = self.parts_per_rank;
                    let within = |hash| part_of(rehash(hash), per_rank) as u32;
                    let each = hashes.iter().zip(&ranks[block]);
                    parts.extend(each.map(|(&hash, &rank)| rank * per_rank as u32 + within(hash)));
                }
            }
        }
        parts
    }
}
