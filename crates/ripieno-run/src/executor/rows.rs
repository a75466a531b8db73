//! Rows in a run: where an operation that chooses rows stands in its span, and the rows that a visit moves.

use super::SEGMENT_BYTES;
use super::schedule::Schedule;
use crate::reduction::Reduction;
use crate::rows::gather_rows;
use ripieno_plan::Rows;
use std::ops::Range;

/// How far step `index` may go now, when it or a step that it waits for chooses rows.
///
/// A step that combines rows waits for all that did so before it, of which the oldest one is mostly what holds it up:
/// they are looked at in this order, and none behind the first that allows no byte more.
#[inline(never)]
pub(super) fn limit(schedule: &Schedule, passed: &[usize], index: usize) -> usize {
    let step = &schedule.steps[index];
    let (rows, mine) = (step.operation.rows(), passed[index]);
    if mine == step.length_bytes {
        return mine;
    }
    // In the span that the step chooses its rows from: where it stands, and how far it may go.
    let (mine_in_span, mut limit_in_span) = (rows.map_or(0, |rows| position(rows, mine)), usize::MAX);
    let mut limit = step.length_bytes;
    for dependency in &schedule.dependencies[step.dependencies.clone()] {
        let done = passed[dependency.on];
        if done == dependency.length_bytes {
            continue;
        }
        let position = match schedule.steps[dependency.on].operation.rows() {
            Some(rows) if dependency.on_rows => position(rows, done),
            _ => done,
        };
        let reached = position as isize + dependency.shift;
        if reached >= dependency.high as isize {
            continue;
        }
        let reached = reached.max(dependency.low as isize) as usize;
        let (limit, mine_there) =
            if dependency.of_rows { (&mut limit_in_span, mine_in_span) } else { (&mut limit, mine) };
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

/// The first byte of the span that an operation still has to pass when `passed` bytes of its rows have, not all.
fn position(rows: &Rows, passed: usize) -> usize {
    let row_bytes = rows.row_bytes();
    rows.numbers()[passed / row_bytes] as usize * row_bytes + passed % row_bytes
}

/// How many bytes of the rows lie below byte `position` of the span.
fn passed_below(rows: &Rows, position: usize) -> usize {
    let (numbers, row_bytes) = (rows.numbers(), rows.row_bytes());
    let (row, rest) = (position / row_bytes, position % row_bytes);
    let below = numbers.partition_point(|&number| (number as usize) < row);
    let is_cut = numbers.get(below).is_some_and(|&number| number as usize == row);
    below * row_bytes + if is_cut { rest } else { 0 }
}

/// Bytes `from..to` of rows that follow each other, as places in the span: the first row from where it is cut on, whole
/// rows, and the last row up to where it is cut.
struct Cut<'a> {
    head: Range<usize>,
    whole: &'a [u32],
    tail: Range<usize>,
}

impl Cut<'_> {
    fn of(rows: &Rows, from: usize, to: usize) -> Cut<'_> {
        let (numbers, row_bytes) = (rows.numbers(), rows.row_bytes());
        let (first, last) = (from.div_ceil(row_bytes), to / row_bytes);
        let start = |row: usize| numbers[row] as usize * row_bytes;
        if first > last {
            let start = start(last);
            return Cut { head: start + from % row_bytes..start + to % row_bytes, whole: &[], tail: 0..0 };
        }
        let head = if from < first * row_bytes {
            start(first - 1) + from % row_bytes..start(first - 1) + row_bytes
        } else {
            0..0
        };
        let tail = if to > last * row_bytes { start(last)..start(last) + to % row_bytes } else { 0..0 };
        Cut { head, whole: &numbers[first..last], tail }
    }
}

/// Bytes `from..` of the rows of `table`, one after the other, become `into`.
pub(super) fn gather(into: &mut [u8], table: &[u8], rows: &Rows, from: usize) {
    let Cut { head, whole, tail } = Cut::of(rows, from, from + into.len());
    let (first, rest) = into.split_at_mut(head.len());
    let (middle, last) = rest.split_at_mut(whole.len() * rows.row_bytes());
    first.copy_from_slice(&table[head]);
    gather_rows(middle, table, whole, rows.row_bytes());
    last.copy_from_slice(&table[tail]);
}

/// Combines `bytes`, whole elements, into the bytes `from..` of the rows of `table`.
pub(super) fn combine(table: &mut [u8], bytes: &[u8], rows: &Rows, from: usize, reduction: &Reduction) {
    let Cut { head, whole, tail } = Cut::of(rows, from, from + bytes.len());
    let (first, rest) = bytes.split_at(head.len());
    let (middle, last) = rest.split_at(whole.len() * rows.row_bytes());
    (reduction.combine)(&mut table[head], first);
    (reduction.combine_rows)(table, middle, whole, rows.row_bytes());
    (reduction.combine)(&mut table[tail], last);
}

/// Fills the bytes `from..to`, whole elements, of the rows of `table`.
pub(super) fn fill(table: &mut [u8], rows: &Rows, from: usize, to: usize, fill: fn(&mut [u8])) {
    let Cut { head, whole, tail } = Cut::of(rows, from, to);
    fill(&mut table[head]);
    whole.iter().for_each(|&row| fill(&mut table[row as usize * rows.row_bytes()..][..rows.row_bytes()]));
    fill(&mut table[tail]);
}

/// Memory for rows that were gathered and that a link has still to take: a segment for each lane that sends rows. Those
/// that are not in use are taken from the top, where the caches know them.
#[derive(Debug, Default)]
pub(super) struct Staging {
    memory: Vec<u8>,
    /// Where segments that are not in use begin.
    free: Vec<usize>,
    /// Per lane: what of its next step lies there.
    staged: Vec<Option<StagedRows>>,
}

/// Bytes `from..to` of the rows of a step, and where they lie.
#[derive(Clone, Copy, Debug)]
struct StagedRows {
    from: usize,
    to: usize,
    start: usize,
}

impl Staging {
    /// Makes ready for a run of `schedule`.
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

    /// The bytes of `rows` of `table` from `from` on: what the link left of those that were gathered for `lane`, else
    /// those up to `to`, a segment at most, gathered now.
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

    /// The link has taken all that was gathered for `lane`.
    pub fn release(&mut self, lane: usize) {
        self.free.extend(self.staged[lane].take().map(|staged| staged.start));
    }
}
