//! Radix partition of integer keys and short rows: appends each row to the buffer of its part.
//!
//! Each thread takes a range of the rows. Its write positions are computed in advance, so rows keep their order for any
//! number of threads.
//! Cost: about three nanoseconds for a key with a row of eight bytes, up to a few hundred parts.

use super::RowParts;
use crate::Threads;

/// The keys and rows of a part.
#[derive(Clone, Debug, Default)]
pub struct StagingBuffer {
    /// The keys.
    pub keys: Vec<i64>,
    /// One row per key.
    pub rows: Vec<u8>,
}

impl StagingBuffer {
    /// Return the size of the allocated memory.
    pub fn size_bytes(&self) -> usize {
        self.keys.capacity() * size_of::<i64>() + self.rows.capacity()
    }
}

/// Return whether [`scatter`] supports rows of `row_bytes` bytes. Rows of other sizes should stay in place.
pub fn is_scattered(row_bytes: usize) -> bool {
    scatter_function(row_bytes).is_some()
}

/// The work of one thread.
struct ScatterTask<'a> {
    keys: &'a [i64],
    rows: &'a [u8],
    parts: &'a [u32],
    /// The position of the next row of each part.
    ends: Vec<WriteCursor>,
}

#[derive(Clone, Copy)]
struct WriteCursor {
    key: *mut i64,
    row: *mut u8,
}

// SAFETY: only the thread of the range writes to the memory behind its cursors.
unsafe impl Send for WriteCursor {}

/// Append keys and rows to the buffers of their parts, in order. Each element of `ranges` holds the parts of
/// consecutive rows, for one thread.
///
/// # Panics
/// If lengths differ, a range has a different number of parts, or the row size is not supported (see [`is_scattered`]).
pub fn scatter(
    keys: &[i64],
    rows: &[u8],
    row_bytes: usize,
    ranges: &[RowParts],
    into: &mut [StagingBuffer],
    threads: &Threads,
) {
    let scatter_range = scatter_function(row_bytes).expect("rows of this size are scattered");
    assert_eq!(keys.len(), ranges.iter().map(|range| range.parts().len()).sum(), "the ranges contain all rows");
    assert_eq!(rows.len(), keys.len() * row_bytes, "there is a row for each key");
    assert!(ranges.iter().all(|range| range.counts().len() == into.len()), "each range counts the rows of all parts");
    let added = |part: usize| ranges.iter().map(|range| range.counts()[part]).sum::<usize>();

    let mut ends: Vec<Vec<WriteCursor>> = ranges.iter().map(|_| Vec::with_capacity(into.len())).collect();
    for (part, staged) in into.iter_mut().enumerate() {
        staged.keys.reserve(added(part));
        staged.rows.reserve(added(part) * row_bytes);
        let mut at = staged.keys.len();
        assert_eq!(staged.rows.len(), at * row_bytes, "a part has a row for each key");
        for (range, ends) in ranges.iter().zip(&mut ends) {
            // SAFETY: `at` is at most the length plus the reserved capacity.
            let end = unsafe {
                let row = staged.rows.as_mut_ptr().add(at * row_bytes);
                WriteCursor { key: staged.keys.as_mut_ptr().add(at), row }
            };
            ends.push(end);
            at += range.counts()[part];
        }
    }
    let operations = 10 * keys.len() / ranges.len().max(1);
    let (mut keys, mut rows) = (keys, rows);
    let work = ranges.iter().zip(ends).map(|(range, ends)| {
        let (own_keys, other_keys) = keys.split_at(range.parts().len());
        let (own_rows, other_rows) = rows.split_at(range.parts().len() * row_bytes);
        (keys, rows) = (other_keys, other_rows);
        ScatterTask { keys: own_keys, rows: own_rows, parts: range.parts(), ends }
    });
    // SAFETY: the memory behind a cursor holds all rows of its range and part, and no other range writes there.
    threads.for_each(work.collect(), operations, || (), |(), range| unsafe { scatter_range(range) });
    for (part, staged) in into.iter_mut().enumerate() {
        // SAFETY: these rows have been written.
        unsafe {
            staged.keys.set_len(staged.keys.len() + added(part));
            staged.rows.set_len(staged.rows.len() + added(part) * row_bytes);
        }
    }
}

/// Return the loop for rows of this size.
fn scatter_function(row_bytes: usize) -> Option<unsafe fn(ScatterTask<'_>)> {
    Some(match row_bytes {
        0 => scatter_keys,
        1 => scatter_rows::<1>,
        2 => scatter_rows::<2>,
        4 => scatter_rows::<4>,
        8 => scatter_rows::<8>,
        16 => scatter_rows::<16>,
        24 => scatter_rows::<24>,
        32 => scatter_rows::<32>,
        64 => scatter_rows::<64>,
        _ => return None,
    })
}

/// # Safety
/// The memory behind each cursor must hold all keys of its part in the range.
unsafe fn scatter_keys(mut range: ScatterTask<'_>) {
    for (&key, &part) in range.keys.iter().zip(range.parts) {
        let end = &mut range.ends[part as usize];
        // SAFETY: the caller guarantees the capacity.
        unsafe {
            end.key.write(key);
            end.key = end.key.add(1);
        }
    }
}

/// # Safety
/// The memory behind each cursor must hold all keys and rows of its part in the range.
unsafe fn scatter_rows<const ROW_BYTES: usize>(mut range: ScatterTask<'_>) {
    let (rows, _) = range.rows.as_chunks::<ROW_BYTES>();
    for ((&key, row), &part) in range.keys.iter().zip(rows).zip(range.parts) {
        let end = &mut range.ends[part as usize];
        // SAFETY: the caller guarantees the capacity. A byte array has no alignment requirement.
        unsafe {
            end.key.write(key);
            end.row.cast::<[u8; ROW_BYTES]>().write(*row);
            end.key = end.key.add(1);
            end.row = end.row.add(ROW_BYTES);
        }
    }
}
