//! Row selection in a run: maps the progress of an operation to its span, and moves the selected rows.

use super::SEGMENT_BYTES;
use super::schedule::Schedule;
use crate::reduction::Reduction;
use crate::rows::gather_rows;
use ripieno_plan::Rows;
use std::ops::Range;

/// Return the limit of step `index`, if it or a step that it waits for selects rows.
///
/// A step that combines rows waits for all earlier steps that do so. Usually the oldest one blocks it. Therefore the
/// dependencies are checked from the oldest on, until one of them allows no further byte.
#[inline(never)]
pub(super) fn limit(schedule: &Schedule, passed: &[usize], index: usize) -> usize {
    let step = &schedule.steps[index];
    let (rows, mine) = (step.operation.rows(), passed[index]);
    if mine == step.length_bytes {
        return mine;
    }
    // Position and limit in the span that contains the selected rows.
    let (mine_in_span, mut limit_in_span) = (rows.map_or(0, |rows| position(rows, mine)), usize::MAX);
    let mut limit = step.length_bytes;
    for dependency in &schedule.dependencies[step.dependencies.clone()] {
        let done = passed[dependency.on];
        if done == dependency.length_bytes {
            continue;
        }
        let position = match schedule.steps[dependency.on].operation.rows() {
            Some(rows) if dependency.follows_rows => position(rows, done),
            _ => done,
        };
        let reached = position as isize + dependency.shift;
        if reached >= dependency.high as isize {
            continue;
        }
        let reached = reached.max(dependency.low as isize) as usize;
        let (limit, mine_there) =
            if dependency.selects_rows { (&mut limit_in_span, mine_in_span) } else { (&mut limit, mine) };
        if reached <= mine_there {
            return mine;
        }
        *limit = reached.min(*limit);
    }
    match rows {
        Some(rows) if limit_in_span < usize::MAX => limit.min(passed_below(rows, limit_in_span)),
        _ => limit,
    }
}

/// Return the first byte of the span that an operation has yet to pass after `passed` bytes of its rows. At least one
/// row is incomplete.
fn position(rows: &Rows, passed: usize) -> usize {
    let row_bytes = rows.row_bytes();
    rows.numbers()[passed / row_bytes] as usize * row_bytes + passed % row_bytes
}

/// Return the number of bytes of the rows below byte `position` of the span.
fn passed_below(rows: &Rows, position: usize) -> usize {
    let (numbers, row_bytes) = (rows.numbers(), rows.row_bytes());
    let (row, rest) = (position / row_bytes, position % row_bytes);
    let below = numbers.partition_point(|&number| (number as usize) < row);
    let is_cut = numbers.get(below).is_some_and(|&number| number as usize == row);
    below * row_bytes + if is_cut { rest } else { 0 }
}

/// Bytes `from..to` of consecutive selected rows, as positions in the span: the rest of the first row, whole rows,
/// and the start of the last row.
struct RowRange<'a> {
    head: Range<usize>,
    whole_rows: &'a [u32],
    tail: Range<usize>,
}

impl RowRange<'_> {
    fn of(rows: &Rows, from: usize, to: usize) -> RowRange<'_> {
        let (numbers, row_bytes) = (rows.numbers(), rows.row_bytes());
        let (first, last) = (from.div_ceil(row_bytes), to / row_bytes);
        let start = |row: usize| numbers[row] as usize * row_bytes;
        if first > last {
            let start = start(last);
            return RowRange { head: start + from % row_bytes..start + to % row_bytes, whole_rows: &[], tail: 0..0 };
        }
        let head = if from < first * row_bytes {
            start(first - 1) + from % row_bytes..start(first - 1) + row_bytes
        } else {
            0..0
        };
        let tail = if to > last * row_bytes { start(last)..start(last) + to % row_bytes } else { 0..0 };
        RowRange { head, whole_rows: &numbers[first..last], tail }
    }
}

/// Copy the bytes of the rows of `table`, from byte `from` on, into `into`.
pub(super) fn gather(into: &mut [u8], table: &[u8], rows: &Rows, from: usize) {
    let RowRange { head, whole_rows, tail } = RowRange::of(rows, from, from + into.len());
    let (first, rest) = into.split_at_mut(head.len());
    let (middle, last) = rest.split_at_mut(whole_rows.len() * rows.row_bytes());
    first.copy_from_slice(&table[head]);
    gather_rows(middle, table, whole_rows, rows.row_bytes());
    last.copy_from_slice(&table[tail]);
}

/// Combine `bytes`, whole elements, into the rows of `table`, from byte `from` on.
pub(super) fn combine(table: &mut [u8], bytes: &[u8], rows: &Rows, from: usize, reduction: &Reduction) {
    let RowRange { head, whole_rows, tail } = RowRange::of(rows, from, from + bytes.len());
    let (first, rest) = bytes.split_at(head.len());
    let (middle, last) = rest.split_at(whole_rows.len() * rows.row_bytes());
    (reduction.combine)(&mut table[head], first);
    (reduction.combine_rows)(table, middle, whole_rows, rows.row_bytes());
    (reduction.combine)(&mut table[tail], last);
}

/// Fill the bytes `from..to`, whole elements, of the rows of `table`.
pub(super) fn fill(table: &mut [u8], rows: &Rows, from: usize, to: usize, fill: fn(&mut [u8])) {
    let RowRange { head, whole_rows, tail } = RowRange::of(rows, from, to);
    fill(&mut table[head]);
    whole_rows.iter().for_each(|&row| fill(&mut table[row as usize * rows.row_bytes()..][..rows.row_bytes()]));
    fill(&mut table[tail]);
}

/// Memory for gathered rows that a link has yet to accept, with one segment per lane that sends rows. The most recently
/// released segment is reused first, because it is still cached.
#[derive(Debug, Default)]
pub(super) struct Staging {
    memory: Vec<u8>,
    /// Start positions of the unused segments.
    free: Vec<usize>,
    /// Staged rows of the next step, per lane.
    staged: Vec<Option<StagedRows>>,
}

/// Bytes `from..to` of the rows of a step, and their position.
#[derive(Clone, Copy, Debug)]
struct StagedRows {
    from: usize,
    to: usize,
    start: usize,
}

impl Staging {
    /// Prepare for a run of `schedule`.
    pub fn reset(&mut self, schedule: &Schedule) {
        let segment_count = schedule.row_lane_count;
        if segment_count == 0 {
            return;
        }
        self.memory.resize(self.memory.len().max(segment_count * SEGMENT_BYTES), 0);
        self.free.clear();
        self.free.extend((0..segment_count).map(|segment| segment * SEGMENT_BYTES));
        self.staged.clear();
        self.staged.resize(schedule.lanes.len(), None);
    }

    /// Return the bytes of `rows` of `table` from `from` on. Rows that were gathered for `lane` before and not sent
    /// come first. Otherwise gather up to `to`, at most one segment.
    pub fn gathered(&mut self, lane: usize, table: &[u8], rows: &Rows, from: usize, to: usize) -> &[u8] {
        if from == to {
            return &[];
        }
        let staged = *self.staged[lane].get_or_insert_with(|| {
            let start = self.free.pop().expect("a segment for each lane that sends rows");
            gather(&mut self.memory[start..start + to - from], table, rows, from);
            StagedRows { from, to, start }
        });
        &self.memory[staged.start + from - staged.from..staged.start + staged.to - staged.from]
    }

    /// Release the segment of `lane` after the link has accepted its bytes.
    pub fn release(&mut self, lane: usize) {
        self.free.extend(self.staged[lane].take().map(|staged| staged.start));
    }
}
