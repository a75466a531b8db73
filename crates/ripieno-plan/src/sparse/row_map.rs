//! Row maps: the target rows of a message in a layer.

use super::team::{WorkTeam, cut, each, ranges};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter;
use core::ops::Range;

/// Estimated cost of finding the row of a key, in operations.
pub(super) const ROW_OPERATIONS: usize = 4;

/// Target rows of a sequence of consecutive rows, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowMap {
    /// The target rows are consecutive as well.
    Run(Range<usize>),
    /// The target row of each row.
    Rows(Arc<[u32]>),
}

impl RowMap {
    /// Create the map to the given rows.
    pub(super) fn of(rows: Arc<[u32]>) -> RowMap {
        match (rows.first(), rows.last()) {
            (Some(&first), Some(&last)) if (last - first) as usize + 1 != rows.len() => RowMap::Rows(rows),
            (Some(&first), Some(&last)) => RowMap::Run(first as usize..last as usize + 1),
            _ => RowMap::Run(0..0),
        }
    }

    /// Create one map per list. `fill` computes the rows of a piece: its arguments are the number of the list, the
    /// position of the piece in the list, and the output.
    pub(super) fn all(
        team: &dyn WorkTeam,
        lengths: &[usize],
        fill: impl Fn(usize, Range<usize>, &mut [u32]) + Sync,
    ) -> Vec<RowMap> {
        let operations = ROW_OPERATIONS * lengths.iter().sum::<usize>();
        let zeros = |length: usize| iter::repeat_n(0, length).collect();
        let mut maps: Vec<Arc<[u32]>> = each(team, operations, lengths.to_vec(), zeros);
        let mut pieces = Vec::new();
        for (number, map) in maps.iter_mut().enumerate() {
            let ranges = ranges(team, operations, map.len(), 1);
            let rows = cut(Arc::get_mut(map).expect("the value is not shared yet"), ranges.iter().map(Range::len));
            pieces.extend(ranges.into_iter().zip(rows).map(|(range, rows)| (number, range, rows)));
        }
        each(team, operations, pieces, |(number, range, rows)| fill(number, range, rows));
        maps.into_iter().map(RowMap::of).collect()
    }

    /// Return the number of rows.
    pub fn len(&self) -> usize {
        match self {
            RowMap::Run(run) => run.len(),
            RowMap::Rows(rows) => rows.len(),
        }
    }

    /// Whether the target rows are all of `row_count` rows. Then they become the rows of a layer unchanged; otherwise
    /// they are combined into identities.
    pub fn covers(&self, row_count: usize) -> bool {
        self.len() == row_count
    }

    /// Whether the map has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the rows that map to the rows of `range`.
    pub fn rows_to(&self, range: &Range<usize>) -> Range<usize> {
        match self {
            RowMap::Run(run) => {
                let of = |row: usize| row.clamp(run.start, run.end) - run.start;
                of(range.start)..of(range.end)
            }
            RowMap::Rows(rows) => {
                let of = |limit: usize| rows.partition_point(|&row| (row as usize) < limit);
                of(range.start)..of(range.end)
            }
        }
    }

    /// Return the target of row `i`.
    pub(super) fn row(&self, i: usize) -> u32 {
        match self {
            RowMap::Run(run) => (run.start + i) as u32,
            RowMap::Rows(rows) => rows[i],
        }
    }

    /// Compose this map with `next`.
    pub(super) fn then(&self, next: &RowMap) -> RowMap {
        match (self, next) {
            _ if self.is_empty() => RowMap::Run(0..0),
            (RowMap::Run(run), RowMap::Run(next)) => RowMap::Run(next.start + run.start..next.start + run.end),
            (RowMap::Run(run), RowMap::Rows(next)) => RowMap::of(next[run.clone()].into()),
            (RowMap::Rows(rows), RowMap::Run(Range { start: 0, .. })) => RowMap::Rows(rows.clone()),
            (RowMap::Rows(rows), _) => RowMap::of(rows.iter().map(|&row| next.row(row as usize)).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::team::tests::ReverseTeam;
    use super::*;
    use alloc::vec;

    #[test]
    fn consecutive_rows_form_a_run() {
        assert_eq!(RowMap::of([].into()), RowMap::Run(0..0));
        assert_eq!(RowMap::of([7].into()), RowMap::Run(7..8));
        assert_eq!(RowMap::of([3, 4, 5].into()), RowMap::Run(3..6));
        assert_eq!(RowMap::of([3, 5].into()), RowMap::Rows([3, 5].into()));
    }

    #[test]
    fn any_team_computes_the_same_maps() {
        for size in 1..5 {
            let fill = |list: usize, piece: Range<usize>, rows: &mut [u32]| {
                rows.iter_mut().zip(piece).for_each(|(row, at)| *row = (at * (list + 1)) as u32);
            };
            let maps = RowMap::all(&ReverseTeam(size), &[0, 3, 7], fill);
            assert_eq!(maps[..2], [RowMap::Run(0..0), RowMap::Rows([0, 2, 4].into())]);
            assert_eq!(maps[2], RowMap::Rows((0..7).map(|at| 3 * at).collect()));
        }
    }

    #[test]
    fn the_rows_that_map_to_a_range_are_returned() {
        for map in [vec![], vec![2, 3, 4], vec![1, 3, 6]].map(|rows| RowMap::of(rows.into())) {
            for (start, end) in (0..9).flat_map(|start| (start..9).map(move |end| (start, end))) {
                let found = map.rows_to(&(start..end));
                assert!((0..map.len()).all(|i| (start..end).contains(&(map.row(i) as usize)) == found.contains(&i)));
            }
        }
    }

    #[test]
    fn composed_maps_select_the_same_rows() {
        let maps = [vec![], vec![0, 1, 2, 3], vec![1, 2], vec![0, 2], vec![1, 3]].map(|rows| RowMap::of(rows.into()));
        let nexts = [vec![0, 1, 2, 3], vec![5, 6, 7, 8], vec![0, 2, 3, 4], vec![4, 5, 6, 9]]
            .map(|rows| RowMap::of(rows.into()));
        for map in &maps {
            for next in &nexts {
                let rows = (0..map.len()).map(|i| next.row(map.row(i) as usize)).collect();
                assert_eq!(map.then(next), RowMap::of(rows));
            }
        }
    }
}
