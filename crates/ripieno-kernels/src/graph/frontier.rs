//! A step of a breadth-first search: each unvisited row takes the smallest id among its columns in the frontier.
//!
//! Bottom-up step: rows that were reached before are skipped, and the frontier is a bitmap, which stays in the cache.
//! Cost: one test of a bit per entry of an unvisited row.
//! Source: Beamer, Asanović and Patterson, "Direction-optimizing breadth-first search", SC 2012, section 4.

use super::Csr;
use super::product::PARTS_PER_THREAD;
use crate::Threads;

/// The result of a row without a column in the frontier.
pub const NO_SOURCE: i64 = i64::MAX;

impl Csr {
    /// Overwrite `out` with the smallest of the `ids` of each unvisited row's columns in the frontier, or
    /// [`NO_SOURCE`].
    ///
    /// `ids` and `frontier` have an entry per column, `is_unvisited` and `out` one per row.
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn min_sources(
        &self,
        ids: &[i64],
        frontier: &[bool],
        is_unvisited: &[bool],
        out: &mut [i64],
        threads: &Threads,
    ) {
        assert_eq!((ids.len(), frontier.len()), (self.column_count(), self.column_count()), "an entry per column");
        assert_eq!((is_unvisited.len(), out.len()), (self.row_count(), self.row_count()), "an entry per row");
        let bits = bitmap(frontier);
        let runs = self.runs_of(out, 1, threads.count() * PARTS_PER_THREAD);
        let operations = 4 * self.entry_count() / runs.len().max(1);
        threads.for_each(
            runs,
            operations,
            || (),
            |(), (first, out)| {
                for (row, out) in (first..).zip(out) {
                    *out = if is_unvisited[row] { self.min_source(row, ids, &bits) } else { NO_SOURCE };
                }
            },
        );
    }

    fn min_source(&self, row: usize, ids: &[i64], bits: &[u64]) -> i64 {
        let columns = &self.columns()[self.offsets()[row]..self.offsets()[row + 1]];
        let is_set = |&&column: &&u32| {
            // SAFETY: columns are below `column_count`, the number of bits.
            let word = unsafe { bits.get_unchecked(column as usize / 64) };
            word >> (column % 64) & 1 == 1
        };
        columns.iter().filter(is_set).map(|&column| ids[column as usize]).min().unwrap_or(NO_SOURCE)
    }
}

/// Return a bit per value.
fn bitmap(values: &[bool]) -> Vec<u64> {
    let word = |bits: &[bool]| bits.iter().rev().fold(0, |word, &bit| word << 1 | u64::from(bit));
    values.chunks(64).map(word).collect()
}
