//! Row maps: into which rows of a layer the rows of a message go.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

/// The row of each of several rows that follow each other, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowMap {
    /// They follow each other there as well.
    Run(Range<usize>),
    /// The row of each.
    Rows(Arc<[u32]>),
}

impl RowMap {
    /// The map of the given rows.
    pub(super) fn of(rows: Vec<u32>) -> RowMap {
        match (rows.first(), rows.last()) {
            (Some(&first), Some(&last)) if (last - first) as usize + 1 != rows.len() => RowMap::Rows(rows.into()),
            (Some(&first), Some(&last)) => RowMap::Run(first as usize..last as usize + 1),
            _ => RowMap::Run(0..0),
        }
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        match self {
            RowMap::Run(run) => run.len(),
            RowMap::Rows(rows) => rows.len(),
        }
    }

    /// Whether they are all of `row_count` rows: such rows become those of a layer unchanged, others are combined into
    /// identities.
    pub fn covers(&self, row_count: usize) -> bool {
        self.len() == row_count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where row `i` goes.
    pub(super) fn row(&self, i: usize) -> u32 {
        match self {
            RowMap::Run(run) => (run.start + i) as u32,
            RowMap::Rows(rows) => rows[i],
        }
    }

    /// This map, and then `next`.
    pub(super) fn then(&self, next: &RowMap) -> RowMap {
        match (self, next) {
            _ if self.is_empty() => RowMap::Run(0..0),
            (RowMap::Run(run), RowMap::Run(next)) => RowMap::Run(next.start + run.start..next.start + run.end),
            (RowMap::Run(run), RowMap::Rows(next)) => RowMap::of(next[run.clone()].to_vec()),
            (RowMap::Rows(rows), RowMap::Run(Range { start: 0, .. })) => RowMap::Rows(rows.clone()),
            (RowMap::Rows(rows), _) => RowMap::of(rows.iter().map(|&row| next.row(row as usize)).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn rows_that_follow_each_other_are_a_run() {
        assert_eq!(RowMap::of(vec![]), RowMap::Run(0..0));
        assert_eq!(RowMap::of(vec![7]), RowMap::Run(7..8));
        assert_eq!(RowMap::of(vec![3, 4, 5]), RowMap::Run(3..6));
        assert_eq!(RowMap::of(vec![3, 5]), RowMap::Rows([3, 5].into()));
    }

    #[test]
    fn one_map_after_the_other_is_a_map() {
        let maps = [vec![], vec![0, 1, 2, 3], vec![1, 2], vec![0, 2], vec![1, 3]].map(RowMap::of);
        let nexts = [vec![0, 1, 2, 3], vec![5, 6, 7, 8], vec![0, 2, 3, 4], vec![4, 5, 6, 9]].map(RowMap::of);
        for map in &maps {
            for next in &nexts {
                let rows = (0..map.len()).map(|i| next.row(map.row(i) as usize)).collect();
                assert_eq!(map.then(next), RowMap::of(rows));
            }
        }
    }
}
