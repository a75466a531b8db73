//! Gather and scatter of rows by number. [`crate::Reduction::combine_rows`] combines rows by number.
//!
//! Numbers may have any order and may repeat. Slices may have any alignment. Cost: one pass over the numbers.

/// Copy the rows `numbers` of `from` consecutively into `into`. A row has `row_bytes` bytes. Panics if `from` has no
/// such row, or if the length of `into` differs from the total size of the rows.
pub fn gather_rows(into: &mut [u8], from: &[u8], numbers: &[u32], row_bytes: usize) {
    assert_eq!(into.len(), numbers.len() * row_bytes, "into has one row per number");
    match row_bytes {
        4 => gather_short::<4>(into, from, numbers),
        8 => gather_short::<8>(into, from, numbers),
        16 => gather_short::<16>(into, from, numbers),
        32 => gather_short::<32>(into, from, numbers),
        64 => gather_short::<64>(into, from, numbers),
        _ => {
            for (row, &number) in into.chunks_exact_mut(row_bytes).zip(numbers) {
                row.copy_from_slice(&from[number as usize * row_bytes..][..row_bytes]);
            }
        }
    }
}

/// Copy the consecutive rows of `from` to the rows `numbers` of `into`. If a number repeats, the last row is kept. A
/// row has `row_bytes` bytes. Panics if `into` has no such row, or if the length of `from` differs from the total size
/// of the rows.
pub fn scatter_rows(into: &mut [u8], from: &[u8], numbers: &[u32], row_bytes: usize) {
    assert_eq!(from.len(), numbers.len() * row_bytes, "from has one row per number");
    match row_bytes {
        4 => scatter_short::<4>(into, from, numbers),
        8 => scatter_short::<8>(into, from, numbers),
        16 => scatter_short::<16>(into, from, numbers),
        32 => scatter_short::<32>(into, from, numbers),
        64 => scatter_short::<64>(into, from, numbers),
        _ => {
            for (row, &number) in from.chunks_exact(row_bytes).zip(numbers) {
                into[number as usize * row_bytes..][..row_bytes].copy_from_slice(row);
            }
        }
    }
}

fn gather_short<const ROW_BYTES: usize>(into: &mut [u8], from: &[u8], numbers: &[u32]) {
    let (rows, _) = from.as_chunks::<ROW_BYTES>();
    let (targets, _) = into.as_chunks_mut::<ROW_BYTES>();
    for (target, &number) in targets.iter_mut().zip(numbers) {
        *target = rows[number as usize];
    }
}

fn scatter_short<const ROW_BYTES: usize>(into: &mut [u8], from: &[u8], numbers: &[u32]) {
    let (rows, _) = from.as_chunks::<ROW_BYTES>();
    let (targets, _) = into.as_chunks_mut::<ROW_BYTES>();
    for (row, &number) in rows.iter().zip(numbers) {
        targets[number as usize] = *row;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Out of order, with one repeated number.
    const NUMBERS: [u32; 7] = [3, 0, 7, 8, 3, 1, 11];

    /// Run `test` on rows of all relevant lengths: a table of 12 rows of odd bytes, and one row of even bytes per
    /// number.
    fn on_rows(test: impl Fn(&mut [u8], &mut [u8], usize)) {
        for row_bytes in [1, 2, 3, 4, 5, 8, 12, 16, 20, 32, 40, 64, 100] {
            // Start at the second byte, so that no row is aligned.
            let mut table: Vec<u8> = (0..1 + 12 * row_bytes).map(|i| (i * 37) as u8 | 1).collect();
            let mut rows: Vec<u8> = (0..1 + NUMBERS.len() * row_bytes).map(|i| (i * 53) as u8 & !1).collect();
            test(&mut table[1..], &mut rows[1..], row_bytes);
        }
    }

    #[test]
    fn gathered_rows_match_the_table() {
        on_rows(|table, rows, row_bytes| {
            gather_rows(rows, table, &NUMBERS, row_bytes);
            for (row, number) in rows.chunks(row_bytes).zip(NUMBERS) {
                assert_eq!(
                    row,
                    &table[number as usize * row_bytes..][..row_bytes],
                    "row {number} of {row_bytes} bytes"
                );
            }
        });
    }

    #[test]
    fn scattered_rows_reach_their_positions_and_the_last_duplicate_wins() {
        on_rows(|table, rows, row_bytes| {
            let before = table.to_vec();
            scatter_rows(table, rows, &NUMBERS, row_bytes);
            for (number, found) in table.chunks(row_bytes).enumerate() {
                let last = NUMBERS.iter().rposition(|&target| target as usize == number);
                let expected = last.map_or(&before[number * row_bytes..], |row| &rows[row * row_bytes..]);
                assert_eq!(found, &expected[..row_bytes], "row {number} of {row_bytes} bytes");
            }
        });
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_row_that_does_not_exist_is_not_gathered() {
        gather_rows(&mut [0; 4], &[0; 12], &[3], 4);
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_long_row_that_does_not_exist_is_not_scattered() {
        scatter_rows(&mut [0; 120], &[0; 40], &[3], 40);
    }
}
