//! A rank's indices as sorted keys, and the mapping between the caller's rows and the rows of the keys.
//!
//! Cost: one sort of the keys. Each reduction moves each row once in each direction, and once more if indices repeat.

use super::reduce::SparseSchema;
use super::team::{combine_from, fill_rows};
use crate::error::{Error, argument};
use ripieno_plan::sparse::sets::Sorted;
use ripieno_plan::sparse::team::{WorkTeam, cut, each, ranges};
use ripieno_plan::sparse::{Permutation, fit_row_numbers};
use ripieno_run::Element;
use ripieno_run::reduction::{Reduction, convert};
use ripieno_run::rows::gather_rows;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of invalid indices in an error message.
const MAX_NAMED_COUNT: usize = 3;

/// Approximate cost, in operations, of checking an index and of computing its key.
const CHECK_OPERATIONS: usize = 1;
const KEY_OPERATIONS: usize = 16;
/// Maximum bytes of rows with repeated indices that are reordered at a time.
const BLOCK_BYTES: usize = 8 << 10;

/// The mapping from the caller's indices to their keys.
#[derive(Clone)]
pub(super) struct IndexRows {
    /// For each of the caller's indices, the position of its key among the distinct keys.
    rows: Arc<Vec<u32>>,
    /// The caller's row numbers, sorted by key in a stable order.
    order: Arc<Vec<u32>>,
    key_count: usize,
}

/// Conversion of contributed rows from the caller's order to one row per key.
pub(super) enum OutConversion {
    /// Both orders are equal.
    Identity,
    /// For each key, the caller's row.
    Once(Arc<Vec<u32>>),
    /// The caller's row numbers sorted by key, and the position of the key of each. Rows of a repeated key are combined
    /// in the caller's order.
    Repeated { order: Arc<Vec<u32>>, rows: Vec<u32> },
}

/// Conversion of result rows from one row per key to the caller's order.
pub(super) enum InConversion {
    /// Both orders are equal.
    Identity,
    /// For each of the caller's rows, the row of its key.
    Rows(Arc<Vec<u32>>),
}

/// Check each index, and return one more than the largest.
pub(super) fn check(name: &'static str, indices: &[i64], size: Option<u64>, team: &dyn WorkTeam) -> Result<u64, Error> {
    if indices.len() > u32::MAX as usize {
        return Err(argument(name, format!("{} indices", indices.len()), &format!("at most {}", u32::MAX)));
    }
    let limit = size.unwrap_or(i64::MAX as u64);
    let operations = CHECK_OPERATIONS * indices.len();
    let largest = |piece: Range<usize>| indices[piece].iter().map(|&index| index as u64).max();
    let largest =
        each(team, operations, ranges(team, operations, indices.len(), 1), largest).into_iter().max().flatten();
    match largest.is_none_or(|largest| largest < limit) {
        true => Ok(largest.map_or(0, |largest| largest + 1)),
        false => Err(wrong_indices(name, indices, size)),
    }
}

/// Check that the rows of `index_count` indices, and of any union of them, have 32-bit numbers.
pub(super) fn check_numbers(index_count: usize, size: Option<u64>) -> Result<(), Error> {
    match fit_row_numbers(index_count, size.unwrap_or(u64::MAX)) {
        true => Ok(()),
        false => {
            let expected = format!("at most {0}, or a size of at most {0}", u32::MAX);
            Err(argument("out_indices and in_indices together", format!("{index_count} indices"), &expected))
        }
    }
}

/// Return the error that names some invalid indices and their positions.
fn wrong_indices(name: &'static str, indices: &[i64], size: Option<u64>) -> Error {
    let limit = size.unwrap_or(i64::MAX as u64);
    let wrong = || indices.iter().enumerate().filter(|(_, index)| **index as u64 >= limit);
    let named: Vec<String> =
        wrong().take(MAX_NAMED_COUNT).map(|(position, index)| format!("{index} at position {position}")).collect();
    let more = match wrong().count() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let expected = match size {
        Some(0) => "no index, for size=0".to_string(),
        Some(size) => format!("0 to {}, for size={size}", size - 1),
        None => format!("0 to {}", i64::MAX - 1),
    };
    argument(name, format!("{}{more}", named.join(", ")), &expected)
}

/// Return the sorted distinct keys of `indices`, and the mapping from the indices to the keys. The order of the rows is
/// computed only for contributed rows (`is_contributed`).
pub(super) fn sorted(
    indices: &[i64],
    permutation: &Permutation,
    is_contributed: bool,
    team: &dyn WorkTeam,
) -> (Vec<u64>, IndexRows) {
    let (mut keys, operations) = (vec![0; indices.len()], KEY_OPERATIONS * indices.len());
    let pieces = ranges(team, operations, indices.len(), 1);
    let pieces = cut(&mut keys, pieces.iter().map(Range::len)).into_iter().zip(pieces).collect();
    each(team, operations, pieces, |(keys, piece): (&mut [u64], Range<usize>)| {
        keys.iter_mut().zip(&indices[piece]).for_each(|(key, &index)| *key = permutation.key(index as u64));
    });
    let Sorted { keys, positions: places, order } = Sorted::of(&keys, is_contributed, team);
    let key_count = keys.len();
    (keys, IndexRows { rows: places.into(), order: order.into(), key_count })
}

impl IndexRows {
    /// Return the number of the caller's indices.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Return the number of distinct indices.
    pub fn key_count(&self) -> usize {
        self.key_count
    }

    /// Return the conversion for contributed rows.
    pub fn out_conversion(&self, team: &dyn WorkTeam) -> OutConversion {
        if self.key_count < self.rows.len() {
            let mut rows = vec![0; self.rows.len()];
            let operations = CHECK_OPERATIONS * rows.len();
            let pieces = ranges(team, operations, rows.len(), 1);
            let pieces = cut(&mut rows, pieces.iter().map(Range::len)).into_iter().zip(pieces).collect();
            each(team, operations, pieces, |(rows, piece): (&mut [u32], Range<usize>)| {
                rows.iter_mut().zip(&self.order[piece]).for_each(|(row, &number)| *row = self.rows[number as usize]);
            });
            return OutConversion::Repeated { order: self.order.clone(), rows };
        }
        if is_identity(&self.rows) { OutConversion::Identity } else { OutConversion::Once(self.order.clone()) }
    }

    /// Return the conversion for result rows.
    pub fn in_conversion(&self) -> InConversion {
        match self.key_count == self.rows.len() && is_identity(&self.rows) {
            true => InConversion::Identity,
            false => InConversion::Rows(self.rows.clone()),
        }
    }
}

impl OutConversion {
    /// Fill `rows`, one per key, from the caller's `values`. Rows of a repeated index accumulate in the type
    /// [`Element::accumulator`], and are rounded once.
    pub fn fill(
        &self,
        rows: &mut [u8],
        values: &[u8],
        schema: SparseSchema<'_>,
        team: &dyn WorkTeam,
    ) -> Result<(), Error> {
        let row_bytes = schema.row_bytes();
        match self {
            OutConversion::Identity => rows.copy_from_slice(values),
            OutConversion::Once(order) => fill_rows(team, rows, row_bytes, order.len(), |piece, rows| {
                gather_rows(rows, values, &order[piece], row_bytes);
            }),
            OutConversion::Repeated { order, rows: numbers } => {
                let held = schema.element.accumulator(schema.op);
                let reduction = Reduction::of(held, schema.op).map_err(Error::Unsupported)?;
                fill_rows(team, rows, row_bytes, order.len(), |piece, rows| {
                    let first = |row: usize| numbers.partition_point(|&number| (number as usize) < row);
                    let there = first(piece.start)..first(piece.end);
                    let (order, numbers) = (&order[there.clone()], &numbers[there]);
                    if held == schema.element {
                        (reduction.fill)(rows);
                        combine_repeated(rows, piece.start, values, (order, numbers), row_bytes, reduction);
                    } else {
                        accumulate_repeated(rows, piece.start, values, (order, numbers), schema, (held, reduction));
                    }
                });
            }
        }
        Ok(())
    }
}

/// Combine the rows `order` of `values` into the rows `numbers`. `rows` begins with row `first`.
fn combine_repeated(
    rows: &mut [u8],
    first: usize,
    values: &[u8],
    (order, numbers): (&[u32], &[u32]),
    row_bytes: usize,
    reduction: &Reduction,
) {
    let (mut block, block_rows) = ([0; BLOCK_BYTES], (BLOCK_BYTES / row_bytes).max(1));
    for (order, numbers) in order.chunks(block_rows).zip(numbers.chunks(block_rows)) {
        let block: &[u8] = match block.get_mut(..order.len() * row_bytes) {
            Some(block) => {
                gather_rows(block, values, order, row_bytes);
                block
            }
            // A row is longer than the block.
            None => &values[order[0] as usize * row_bytes..][..row_bytes],
        };
        combine_from(rows, first, block, numbers, row_bytes, reduction);
    }
}

/// Combine rows like [`combine_repeated`], but accumulate in type `held` and round once.
///
/// The function processes a few rows, or a few columns of a row, at a time. Their accumulators fit in the L1 cache.
fn accumulate_repeated(
    rows: &mut [u8],
    first: usize,
    values: &[u8],
    (order, numbers): (&[u32], &[u32]),
    schema: SparseSchema<'_>,
    (held, reduction): (Element, &Reduction),
) {
    let (row_bytes, size_bytes) = (schema.row_bytes(), schema.element.size_bytes());
    let max_columns = schema.width.min(BLOCK_BYTES / held.size_bytes());
    let block_rows = BLOCK_BYTES / (max_columns * held.size_bytes());
    let (mut sums, mut gathered, mut converted) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES], [0; BLOCK_BYTES]);
    let mut start = 0;
    for (at, rows) in rows.chunks_mut(block_rows * row_bytes).enumerate() {
        let (first, row_count) = (first + at * block_rows, rows.len() / row_bytes);
        let end = start + numbers[start..].partition_point(|&number| (number as usize) < first + row_count);
        for column in (0..schema.width).step_by(max_columns) {
            let column_count = max_columns.min(schema.width - column);
            let (piece_bytes, held_bytes) = (column_count * size_bytes, column_count * held.size_bytes());
            let sums = &mut sums[..row_count * held_bytes];
            (reduction.fill)(sums);
            for (order, numbers) in order[start..end].chunks(block_rows).zip(numbers[start..end].chunks(block_rows)) {
                let gathered = &mut gathered[..order.len() * piece_bytes];
                if piece_bytes == row_bytes {
                    gather_rows(gathered, values, order, row_bytes);
                } else {
                    for (piece, &row) in gathered.chunks_exact_mut(piece_bytes).zip(order) {
                        piece.copy_from_slice(&values[row as usize * row_bytes + column * size_bytes..][..piece_bytes]);
                    }
                }
                let converted = &mut converted[..order.len() * held_bytes];
                convert(schema.element, held, gathered, converted);
                combine_from(sums, first, converted, numbers, held_bytes, reduction);
            }
            for (row, sums) in rows.chunks_exact_mut(row_bytes).zip(sums.chunks_exact(held_bytes)) {
                convert(held, schema.element, sums, &mut row[column * size_bytes..][..piece_bytes]);
            }
        }
        start = end;
    }
}

impl InConversion {
    /// Fill the caller's rows from the rows of the keys.
    pub fn fill(&self, into: &mut [u8], rows: &[u8], row_bytes: usize, team: &dyn WorkTeam) {
        match self {
            InConversion::Identity => into.copy_from_slice(rows),
            InConversion::Rows(numbers) => fill_rows(team, into, row_bytes, numbers.len(), |piece, into| {
                gather_rows(into, rows, &numbers[piece], row_bytes);
            }),
        }
    }
}

fn is_identity(rows: &[u32]) -> bool {
    rows.iter().enumerate().all(|(at, &row)| at == row as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elements::ElementShape;
    use ripieno_plan::Op;
    use ripieno_plan::sparse::team::{SingleThread, WorkPiece};

    fn schema(element: Element, width: usize) -> SparseSchema<'static> {
        SparseSchema { element, width, op: Op::Sum, row: ElementShape::Vector }
    }

    /// A team that divides all work, however small.
    struct SplittingTeam(usize);

    impl WorkTeam for SplittingTeam {
        fn piece_count(&self, _operations: usize) -> usize {
            self.0
        }

        fn compute(&self, operations: usize, pieces: Vec<WorkPiece<'_>>) {
            SingleThread.compute(operations, pieces);
        }
    }

    #[test]
    fn rows_of_repeated_indices_are_combined_and_results_repeated() {
        let permutation = Permutation::new(9);
        let (row_bytes, contributed) = (2, [1, 2, 10, 20, 100, 200]);
        for (indices, expected) in [([4, 8, 4], [101, 202, 10, 20, 101, 202]), ([4, 8, 5], [1, 2, 10, 20, 100, 200])] {
            for team in [1, 2, 3].map(SplittingTeam) {
                let (keys, places) = sorted(&indices, &permutation, true, &team);
                let (mut rows, mut back) = (vec![9; row_bytes * keys.len()], [0; 6]);
                places
                    .out_conversion(&team)
                    .fill(&mut rows, &contributed, schema(Element::U8, row_bytes), &team)
                    .unwrap();
                places.in_conversion().fill(&mut back, &rows, row_bytes, &team);
                assert_eq!(back, expected);
            }
        }
    }

    #[test]
    fn floats_of_repeated_indices_accumulate_in_order_in_float64() {
        let permutation = Permutation::new(50);
        let indices: Vec<i64> = (0..5000).map(|at| at * at % 50).collect();
        // The widest rows are accumulated in several blocks of columns.
        for width in [1, 3, 700, 1500] {
            let value = |row: usize, column: usize| (0.1 + (row + column) as f32).powi(1 + row as i32 % 5);
            let row_count = if width > 100 { 200 } else { 5000 };
            let indices = &indices[..row_count];
            let values: Vec<f32> = (0..row_count * width).map(|at| value(at / width, at % width)).collect();
            let mut sums = vec![0.0; 50 * width];
            for (at, &value) in values.iter().enumerate() {
                sums[indices[at / width] as usize * width + at % width] += f64::from(value);
            }
            let rounded = |&index: &i64| sums[index as usize * width..][..width].iter().map(|&sum| sum as f32);
            let expected: Vec<u8> = indices.iter().flat_map(rounded).flat_map(f32::to_ne_bytes).collect();
            let contributed: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
            for team in [1, 2, 3, 7].map(SplittingTeam) {
                let (keys, places) = sorted(indices, &permutation, true, &team);
                let (mut rows, mut back) = (vec![9; 4 * width * keys.len()], vec![0; 4 * width * indices.len()]);
                places.out_conversion(&team).fill(&mut rows, &contributed, schema(Element::F32, width), &team).unwrap();
                places.in_conversion().fill(&mut back, &rows, 4 * width, &team);
                assert!(back == expected, "rows of {width}");
            }
        }
    }

    #[test]
    fn repeated_rows_that_are_longer_than_a_block_are_combined() {
        let permutation = Permutation::new(9);
        let row_bytes = BLOCK_BYTES + 1;
        let contributed: Vec<u8> = (0..3 * row_bytes).map(|at| at as u8 % 50).collect();
        for team in [1, 2].map(SplittingTeam) {
            let (keys, places) = sorted(&[4, 8, 4], &permutation, true, &team);
            let mut rows = vec![9; row_bytes * keys.len()];
            places.out_conversion(&team).fill(&mut rows, &contributed, schema(Element::U8, row_bytes), &team).unwrap();
            let row = &rows[places.rows[0] as usize * row_bytes..][..row_bytes];
            assert!((0..row_bytes).all(|at| row[at] == contributed[at] + contributed[2 * row_bytes + at]));
        }
    }

    #[test]
    fn rows_in_key_order_are_not_moved() {
        let permutation = Permutation::new(100);
        let in_order: Vec<i64> = [3, 17, 60, 99].map(|key| permutation.index(key) as i64).to_vec();
        let (_, places) = sorted(&in_order, &permutation, true, &SingleThread);
        assert!(matches!(
            (places.out_conversion(&SingleThread), places.in_conversion()),
            (OutConversion::Identity, InConversion::Identity)
        ));
        let more = [&in_order[..], &in_order[3..]].concat();
        let (_, places) = sorted(&more, &permutation, true, &SingleThread);
        assert!(matches!(
            (places.out_conversion(&SingleThread), places.in_conversion()),
            (OutConversion::Repeated { .. }, InConversion::Rows(_))
        ));
    }
}
