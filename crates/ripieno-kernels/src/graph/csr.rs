//! A rank's edges as a sparse matrix: one row per target with ascending source numbers.

use super::numbering::{Numbering, number};
use crate::Threads;
use std::fmt;
use std::iter;

/// A sparse matrix in compressed row form.
#[derive(Debug)]
pub struct Csr {
    /// Row `r` consists of entries `offsets[r] .. offsets[r + 1]`; never empty.
    offsets: Vec<usize>,
    /// The column of each entry, below `column_count`.
    columns: Vec<u32>,
    /// The value of each entry; all ones if `None`.
    weights: Option<Vec<f64>>,
    column_count: usize,
}

/// A rank's edges: the matrix, and the vertices of its rows and columns.
#[derive(Debug)]
pub struct LocalGraph {
    /// The targets, by descending number of edges.
    pub rows: Vec<i64>,
    /// The sources, by descending number of edges.
    pub columns: Vec<i64>,
    /// One entry per edge.
    pub matrix: Csr,
}

/// Estimated cost of looking up an id (about 20 ns), in vectorized operations.
const NUMBERING_OPERATIONS: usize = 1000;

/// Error: a rank has more edges than 32 bits can count.
#[derive(Clone, Copy, Debug)]
pub struct TooManyEdges {
    /// Number of edges.
    pub count: usize,
}

impl fmt::Display for TooManyEdges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} edges on one worker, which takes at most {}: use more workers", self.count, u32::MAX)
    }
}

impl LocalGraph {
    /// Number the ends of edges and sort the edges.
    ///
    /// With `merge_duplicates`, edges with equal ends count as one.
    /// Cost: about fifty nanoseconds per edge for clustered ids, otherwise a hundred. It temporarily takes up to 72
    /// bytes per edge.
    ///
    /// # Errors
    /// If there are too many edges.
    ///
    /// # Panics
    /// If the lengths differ, or if weights are given with `merge_duplicates`, because the weight of merged edges would
    /// be ambiguous.
    pub fn new(
        sources: &[i64],
        targets: &[i64],
        weights: Option<&[f64]>,
        merge_duplicates: bool,
        threads: &Threads,
    ) -> Result<LocalGraph, TooManyEdges> {
        assert_eq!(sources.len(), targets.len(), "an edge has two ends");
        assert!(weights.is_none_or(|weights| weights.len() == sources.len()), "a weight per edge");
        assert!(!merge_duplicates || weights.is_none(), "equal edges of different weights cannot count as one");
        if sources.len() > u32::MAX as usize {
            return Err(TooManyEdges { count: sources.len() });
        }
        let (mut rows, mut columns) = (None, None);
        let ends = vec![(targets, &mut rows), (sources, &mut columns)];
        let operations = NUMBERING_OPERATIONS * sources.len();
        threads.for_each(ends, operations, || (), |(), (ids, numbering)| *numbering = Some(number(ids)));
        let [rows, columns] = [rows, columns].map(|numbering| numbering.expect("both ends are numbered"));
        let mut matrix = Csr::of(&rows, &columns, weights);
        if merge_duplicates {
            matrix.merge_equal();
        }
        Ok(LocalGraph { rows: rows.ids, columns: columns.ids, matrix })
    }
}

impl Csr {
    fn of(rows: &Numbering, columns: &Numbering, weights: Option<&[f64]>) -> Csr {
        let (entries, weights) = match weights {
            None => {
                (entries_by_row(rows, columns, iter::repeat(())).into_iter().map(|(column, ())| column).collect(), None)
            }
            Some(weights) => {
                let (entries, weights) = entries_by_row(rows, columns, weights.iter().copied()).into_iter().unzip();
                (entries, Some(weights))
            }
        };
        Csr { offsets: offsets(&rows.counts), columns: entries, weights, column_count: columns.ids.len() }
    }

    /// Merge equal entries of a row, which are adjacent.
    fn merge_equal(&mut self) {
        let (mut kept, mut begin) = (0, 0);
        for row in 0..self.row_count() {
            let (end, first) = (self.offsets[row + 1], kept);
            for entry in begin..end {
                let column = self.columns[entry];
                if kept == first || self.columns[kept - 1] != column {
                    self.columns[kept] = column;
                    kept += 1;
                }
            }
            begin = end;
            self.offsets[row + 1] = kept;
        }
        self.columns.truncate(kept);
        self.columns.shrink_to_fit();
    }

    /// Return the number of rows.
    pub fn row_count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Return the number of columns.
    pub fn column_count(&self) -> usize {
        self.column_count
    }

    /// Return the number of entries.
    pub fn entry_count(&self) -> usize {
        self.columns.len()
    }

    /// Return the start of each row, and the end of the last one.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// Return the column of each entry.
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// Return the value of each entry, or `None` if all are one.
    pub fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }

    /// Return the sum of the entries of each column: the total weight of the edges out of each source.
    pub fn column_sums(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.column_count];
        for (entry, &column) in self.columns.iter().enumerate() {
            sums[column as usize] += self.weights.as_ref().map_or(1.0, |weights| weights[entry]);
        }
        sums
    }
}

/// Return the column and weight of each entry, ordered by row, column and original position.
///
/// Two stable counting sorts: by column, then the entries of all columns by row.
fn entries_by_row<W: Copy + Default>(
    rows: &Numbering,
    columns: &Numbering,
    weights: impl Iterator<Item = W>,
) -> Vec<(u32, W)> {
    let begins = offsets(&columns.counts);
    let entries = rows.numbers.iter().copied().zip(weights);
    let by_column = sorted(&begins, entries.zip(columns.numbers.iter().copied()));
    let entries_by_column = (0..).zip(begins.windows(2)).flat_map(|(column, ends)| {
        by_column[ends[0]..ends[1]].iter().map(move |&(row, weight)| ((column, weight), row))
    });
    sorted(&offsets(&rows.counts), entries_by_column)
}

/// Return the start of each of several runs with these counts, and the end of the last one.
pub(super) fn offsets(counts: &[u32]) -> Vec<usize> {
    let mut offsets = vec![0; counts.len() + 1];
    for (at, &count) in counts.iter().enumerate() {
        offsets[at + 1] = offsets[at] + count as usize;
    }
    offsets
}

/// Sort values by their keys, which are run numbers. Values with equal keys keep their order.
pub(super) fn sorted<T: Copy + Default>(offsets: &[usize], keyed: impl Iterator<Item = (T, u32)>) -> Vec<T> {
    let mut next = offsets.to_vec();
    let mut sorted = vec![T::default(); offsets[offsets.len() - 1]];
    keyed.for_each(|(value, key)| {
        let next = &mut next[key as usize];
        sorted[*next] = value;
        *next += 1;
    });
    sorted
}
