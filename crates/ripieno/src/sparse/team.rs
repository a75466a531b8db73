//! The threads of a rank as a team for sparse reductions, and the division of rows into pieces.
//!
//! Work is divided by the destination of rows: no two threads write to the same row. The rows for one destination are
//! combined in the same order as with one thread.

use ripieno_kernels::Threads;
use ripieno_plan::sparse::team::{WorkPiece, WorkTeam, cut, each, ranges};
use ripieno_run::reduction::Reduction;
use std::num::NonZeroUsize;
use std::ops::Range;

/// Approximate fixed cost of moving a row, in operations, and the number of bytes that cost one more operation.
const ROW_OPERATIONS: usize = 4;
const BYTES_PER_OPERATION: usize = 8;
/// Number of row numbers that are converted at a time.
const BLOCK_ROWS: usize = 1024;

/// The threads of a rank.
pub(super) struct RankThreads(Threads);

impl RankThreads {
    pub fn new(count: NonZeroUsize) -> RankThreads {
        RankThreads(Threads::new(count.get()))
    }
}

impl WorkTeam for RankThreads {
    fn piece_count(&self, operations: usize) -> usize {
        self.0.part_count(operations)
    }

    fn compute(&self, operations: usize, pieces: Vec<WorkPiece<'_>>) {
        let of_each = operations / pieces.len().max(1);
        self.0.for_each(pieces, of_each, || (), |(), piece| piece());
    }
}

/// Fill `rows` in parallel. `fill` computes one piece of them. The estimated cost is the cost of moving `moved_count`
/// rows.
pub(super) fn fill_rows(
    team: &dyn WorkTeam,
    rows: &mut [u8],
    row_bytes: usize,
    moved_count: usize,
    fill: impl Fn(Range<usize>, &mut [u8]) + Sync,
) {
    let operations = moved_count * (ROW_OPERATIONS + row_bytes / BYTES_PER_OPERATION);
    if team.piece_count(operations) == 1 {
        // Repeated reductions must not allocate.
        return fill(0..rows.len() / row_bytes, rows);
    }
    let pieces = ranges(team, operations, rows.len() / row_bytes, 1);
    let slices = cut(rows, pieces.iter().map(|piece| piece.len() * row_bytes));
    each(team, operations, pieces.into_iter().zip(slices).collect(), |(piece, slice)| fill(piece, slice));
}

/// Combine the rows of `from` into the rows `numbers` of a table. `into` begins with row `first` of the table.
pub(super) fn combine_from(
    into: &mut [u8],
    first: usize,
    from: &[u8],
    numbers: &[u32],
    row_bytes: usize,
    reduction: &Reduction,
) {
    if first == 0 {
        return (reduction.combine_rows)(into, from, numbers, row_bytes);
    }
    let mut relative = [0; BLOCK_ROWS];
    for (from, numbers) in from.chunks(BLOCK_ROWS * row_bytes).zip(numbers.chunks(BLOCK_ROWS)) {
        let relative = &mut relative[..numbers.len()];
        relative.iter_mut().zip(numbers).for_each(|(relative, number)| *relative = number - first as u32);
        (reduction.combine_rows)(into, from, relative, row_bytes);
    }
}
