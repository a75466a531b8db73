//! A rank's edges as a sparse matrix: a row per target, in it the numbers of the sources, ascending.

use super::numbering::{Numbering, number};
use crate::Threads;
use std::fmt;
use std::iter;

/// A sparse matrix by rows.
#[derive(Debug)]
pub struct Csr {
    /// Row `r` is entries `offsets[r] .. offsets[r + 1]`; never empty.
    offsets: Vec<usize>,
    /// The column of each entry, below `column_count`.
    columns: Vec<u32>,
    /// The value of each entry; ones if there are none.
    weights: Option<Vec<f64>>,
    column_count: usize,
}

/// A rank's edges: the matrix, and which vertices its rows and columns are.
#[derive(Debug)]
pub struct LocalGraph {
    /// The targets, those of most edges first.
    pub rows: Vec<i64>,
    /// The sources, those of most edges first.
    pub columns: Vec<i64>,
    /// An entry for each edge.
    pub matrix: Csr,
}

/// Looking up an id takes some 20 ns, as long as so many operations on numbers side by side.
const NUMBERING_OPERATIONS: usize = 1000;

/// A rank has more edges than 32 bits can count.
#[derive(Clone, Copy, Debug)]
pub struct TooManyEdges {
    /// How many it has.
    pub count: usize,
}

impl fmt::Display for TooManyEdges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} edges on one worker, which takes at most {}: use more workers", self.count, u32::MAX)
    }
}

impl LocalGraph {
    /// Numbers the ends of edges and sorts the edges.
    ///
    /// With `once`, edges of equal ends count as one; otherwise as many as there are. Cost: about fifty nanoseconds an
    /// edge where ids lie close together, else a hundred, and up to 72 bytes each while it lasts.
    ///
    /// # Errors
    /// There are too many edges.
    ///
    /// # Panics
    /// If the lengths differ, or there are weights and `once`, for then nothing says which weight counts.
    pub fn new(
        sources: &[i64],
        targets: &[i64],
        weights: Option<&[f64]>,
        once: bool,
        threads: &Threads,
    ) -> Result<LocalGraph, TooManyEdges> {
        assert_eq!(sources.len(), targets.len(), "an edge has two ends");
        assert!(weights.is_none_or(|weights| weights.len() == sources.len()), "a weight per edge");
        assert!(!once || weights.is_none(), "equal edges of different weights cannot count as one");
        if sources.len() > u32::MAX as usize {
            return Err(TooManyEdges { count: sources.len() });
        }
        let (mut rows, mut columns) = (None, None);
        let ends = vec![(targets, &mut rows), (sources, &mut columns)];
        let operations = NUMBERING_OPERATIONS * sources.len();
        threads.for_each(ends, operations, || (), |(), (ids, numbering)| *numbering = Some(number(ids)));
        let [rows, columns] = [rows, columns].map(|numbering| numbering.expect("both ends are numbered"));
        let mut matrix = Csr::of(&rows, &columns, weights);
        if once {
            matrix.merge_equal();
        }
        Ok(LocalGraph { rows: rows.ids, columns: columns.ids, matrix })
    }
}

impl Csr {
    fn of(rows: &Numbering, columns: &Numbering, weights: Option<&[f64]>) -> Csr {
        let (entries, weights) = match weights {
            None => (by_row(rows, columns, iter::repeat(())).into_iter().map(|(column, ())| column).collect(), None),
            Some(weights) => {
                let (entries, weights) = by_row(rows, columns, weights.iter().copied()).into_iter().unzip();
                (entries, Some(weights))
            }
        };
        Csr { offsets: offsets(&rows.counts), columns: entries, weights, column_count: columns.ids.len() }
    }

    /// Makes one of equal entries of a row, which follow each other.
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

    /// How many rows there are.
    pub fn row_count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// How many columns there are.
    pub fn column_count(&self) -> usize {
        self.column_count
    }

    /// How many entries there are.
    pub fn entry_count(&self) -> usize {
        self.columns.len()
    }

    /// Where each row begins, and the end of the last.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// The column of each entry.
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// The value of each entry, if they are not all one.
    pub fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }

    /// The sum of the entries of each column: what flows out of each source.
    pub fn column_sums(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.column_count];
        for (entry, &column) in self.columns.iter().enumerate() {
            sums[column as usize] += self.weights.as_ref().map_or(1.0, |weights| weights[entry]);
        }
        sums
    }
}

/// The column of each entry, with its weight, in the order of the rows, then the columns, then as they were.
///
/// Two stable counting sorts: by column, then the entries of one column after the other's by row.
fn by_row<W: Copy + Default>(rows: &Numbering, columns: &Numbering, weights: impl Iterator<Item = W>) -> Vec<(u32, W)> {
    let begins = offsets(&columns.counts);
    let entries = rows.numbers.iter().copied().zip(weights);
    let by_column = sorted(&begins, entries.zip(columns.numbers.iter().copied()));
    let of_columns = (0..).zip(begins.windows(2)).flat_map(|(column, ends)| {
        by_column[ends[0]..ends[1]].iter().map(move |&(row, weight)| ((column, weight), row))
    });
    sorted(&offsets(&rows.counts), of_columns)
}

/// Where each of some runs of so many entries begins, and the end of the last.
pub(super) fn offsets(counts: &[u32]) -> Vec<usize> {
    let mut offsets = vec![0; counts.len() + 1];
    for (at, &count) in counts.iter().enumerate() {
        offsets[at + 1] = offsets[at] + count as usize;
    }
    offsets
}

/// Values by their keys; those of equal keys, which go to the run of that number, in the order given.
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
