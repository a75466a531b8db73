//! Rows by number: gathered from a table, and scattered over one. [`crate::reduction::Reduction::combine_rows`] combines
//! them into one.
//!
//! Numbers may come in any order and repeat; slices may lie at any alignment. Cost: one pass over the numbers.

/// The rows `numbers` of `from`, one after the other, become `into`. A row has `row_bytes` bytes. Panics if `from` has no
/// such row, or `into` is not as long as the rows.
pub fn gather_rows(into: &mut [u8], from: &[u8], numbers: &[u32], row_bytes: usize) {
    assert_eq!(into.len(), numbers.len() * row_bytes, "there is a place for each row");
    match row_bytes {
        4 => gather_short::<4>(into, from, numbers),
        8 => gather_short::<8>(into, from, numbers),
        16 => gather_short::<16>(into, from, numbers),
        32 => gather_short::<32>(into, from, numbers),
        _ => {
            for (row, &number) in into.chunks_exact_mut(row_bytes).zip(numbers) {
                row.copy_from_slice(&from[number as usize * row_bytes..][..row_bytes]);
            }
        }
    }
}

/// The rows of `from`, one after the other, become the rows `numbers` of `into`; of those with one number the last stays.
/// A row has `row_bytes` bytes. Panics if `into` has no such row, or `from` is not as long as the rows.
pub fn scatter_rows(into: &mut [u8], from: &[u8], numbers: &[u32], row_bytes: usize) {
    assert_eq!(from.len(), numbers.len() * row_bytes, "there are as many rows as numbers");
    match row_bytes {
        4 => scatter_short::<4>(into, from, numbers),
        8 => scatter_short::<8>(into, from, numbers),
        16 => scatter_short::<16>(into, from, numbers),
        32 => scatter_short::<32>(into, from, numbers),
        _ => {
            for (row, &number) in from.chunks_exact(row_bytes).zip(numbers) {
                into[number as usize * row_bytes..][..row_bytes].copy_from_slice(row);
            }
        }
    }
}

fn gather_short<const ROW_BYTES: usize>(into: &mut [u8], from: &[u8], numbers: &[u32]) {
    let (rows, _) = from.as_chunks::<ROW_BYTES>();
    let (places, _) = into.as_chunks_mut::<ROW_BYTES>();
    for (place, &number) in places.iter_mut().zip(numbers) {
        *place = rows[number as usize];
    }
}

fn scatter_short<const ROW_BYTES: usize>(into: &mut [u8], from: &[u8], numbers: &[u32]) {
    let (rows, _) = from.as_chunks::<ROW_BYTES>();
    let (places, _) = into.as_chunks_mut::<ROW_BYTES>();
    for (row, &number) in rows.iter().zip(numbers) {
        places[number as usize] = *row;
    }
}
