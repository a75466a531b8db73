//! Wire encoding of blocks: keys, then counts if rows are kept, then rows.
//!
//! Rows are sent in the type in which they are added up, so partial sums of float16 and float32 are sent as float64.
//! Integers are sent in native byte order. For strings, the lengths come first, 4 bytes each, then the bytes of all
//! strings.

use super::super::block::{BlockView, KeyedBlock, KeyedCombine, KeyedSchema, PartSize};
use super::super::columns::{KeyKind, OwnedKeys};
use crate::error::{Error, argument};

/// Encoded size of the length of a string.
const LENGTH_BYTES: u64 = 4;

/// Return the encoded size of a block; `None` if no block of this schema can have this size.
pub(super) fn encoded_bytes(schema: &KeyedSchema, size: PartSize) -> Option<u64> {
    let PartSize { keys, key_bytes, rows } = size;
    let key_bytes = match schema.keys {
        KeyKind::Int64 => keys.checked_mul(8).filter(|&bytes| bytes == key_bytes)?,
        KeyKind::Strings => keys.checked_mul(LENGTH_BYTES)?.checked_add(key_bytes)?,
    };
    let count_bytes = match schema.combine {
        KeyedCombine::Op(_) => (rows == keys).then_some(0)?,
        KeyedCombine::Concat => (rows >= keys).then_some(keys.checked_mul(8)?)?,
    };
    let is_consistent = keys > 0 || key_bytes == 0 && rows == 0;
    let row_bytes = rows.checked_mul(schema.held_row_bytes() as u64)?;
    is_consistent.then_some(key_bytes.checked_add(count_bytes)?.checked_add(row_bytes)?)
}

/// Encode `block` into a buffer of exactly its encoded size.
pub(super) fn write(block: &KeyedBlock, into: &mut [u8]) -> Result<(), Error> {
    let mut rest = into;
    let mut take = |length| rest.split_off_mut(..length).expect("a block has the size of its part");
    match &block.keys {
        OwnedKeys::Int64(keys) => write_numbers(take(8 * keys.len()), keys, i64::to_ne_bytes),
        OwnedKeys::Strings { offsets, data } => {
            let length = |ends: &[i64]| u32::try_from(ends[1] - ends[0]);
            let lengths: Vec<u32> = offsets.windows(2).map(length).collect::<Result<_, _>>().map_err(|_| {
                argument("keys", "a key of 4 GiB or more", "shorter keys, because a regroup sends them to other ranks")
            })?;
            write_numbers(take(LENGTH_BYTES as usize * lengths.len()), &lengths, u32::to_ne_bytes);
            take(data.len()).copy_from_slice(data);
        }
    }
    let counts = block.counts.as_deref().unwrap_or_default();
    write_numbers(take(8 * counts.len()), counts, u64::to_ne_bytes);
    take(block.values.len()).copy_from_slice(&block.values);
    assert!(rest.is_empty(), "a block has the size of its part");
    Ok(())
}

/// Write numbers of `N` bytes at any alignment.
fn write_numbers<T: Copy, const N: usize>(into: &mut [u8], numbers: &[T], bytes: impl Fn(T) -> [u8; N]) {
    into.as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(place, &number)| *place = bytes(number));
}

/// A received block, with rows that stay in the receive buffer.
pub(super) struct ReceivedBlock<'a> {
    keys: OwnedKeys,
    counts: Option<Vec<u64>>,
    values: &'a [u8],
}

impl<'a> ReceivedBlock<'a> {
    /// Decode a block of this size from the front of `bytes`, which must be long enough. The error describes the
    /// invalid block.
    pub fn read(schema: &KeyedSchema, size: &PartSize, bytes: &mut &'a [u8]) -> Result<ReceivedBlock<'a>, String> {
        let mut take = |length: u64| bytes.split_off(..length as usize).expect("sizes were added up");
        let keys = match schema.keys {
            KeyKind::Int64 => OwnedKeys::Int64(read_numbers(take(size.key_bytes), i64::from_ne_bytes)),
            KeyKind::Strings => {
                let lengths = read_numbers(take(size.keys * LENGTH_BYTES), u32::from_ne_bytes);
                let mut end = 0;
                let ends = lengths.iter().map(|&length| {
                    end += i64::from(length);
                    end
                });
                let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
                if end as u64 != size.key_bytes {
                    return Err(format!("keys of {end} bytes: expected {}, as announced", size.key_bytes));
                }
                OwnedKeys::Strings { offsets, data: take(size.key_bytes).to_vec() }
            }
        };
        let counts =
            (schema.combine == KeyedCombine::Concat).then(|| read_numbers(take(size.keys * 8), u64::from_ne_bytes));
        if let Some(counts) = &counts {
            let rows = counts.iter().try_fold(0u64, |sum, &count| sum.checked_add(count));
            if rows != Some(size.rows) || counts.contains(&0) {
                return Err(format!("counts that do not add up to the {} announced rows", size.rows));
            }
        }
        Ok(ReceivedBlock { keys, counts, values: take(size.rows * schema.held_row_bytes() as u64) })
    }

    pub fn view(&self) -> BlockView<'_> {
        BlockView { keys: self.keys.view(), counts: self.counts.as_deref(), values: self.values }
    }
}

/// Read numbers of `N` bytes at any alignment.
fn read_numbers<T, const N: usize>(bytes: &[u8], number: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|bytes| number(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Element, Op};

    const STRINGS: KeyedSchema = KeyedSchema {
        keys: KeyKind::Strings,
        element: Element::I16,
        width: 3,
        combine: KeyedCombine::Concat,
        label: 0,
    };

    fn block() -> KeyedBlock {
        let keys = OwnedKeys::Strings { offsets: vec![0, 2, 2, 7], data: b"abcdefg".to_vec() };
        KeyedBlock { keys, counts: Some(vec![1, 3, 1]), values: (0..30).collect() }
    }

    fn written(block: &KeyedBlock, size: PartSize) -> Vec<u8> {
        let mut bytes = vec![0; encoded_bytes(&STRINGS, size).unwrap() as usize];
        write(block, &mut bytes).unwrap();
        bytes
    }

    const SIZE: PartSize = PartSize { keys: 3, key_bytes: 7, rows: 5 };

    #[test]
    fn a_block_round_trips_unchanged() {
        let bytes = written(&block(), SIZE);
        assert_eq!(bytes.len(), 3 * 4 + 7 + 3 * 8 + 30);
        let mut rest = &bytes[..];
        let arrived = ReceivedBlock::read(&STRINGS, &SIZE, &mut rest).unwrap();
        assert_eq!((arrived.keys, arrived.counts, arrived.values), (block().keys, block().counts, &block().values[..]));
        assert!(rest.is_empty());
    }

    #[test]
    fn lengths_and_counts_that_do_not_add_up_are_rejected() {
        let refused = |place: usize, value: u8| {
            let mut bytes = written(&block(), SIZE);
            bytes[place] = value;
            ReceivedBlock::read(&STRINGS, &SIZE, &mut &bytes[..]).err()
        };
        assert_eq!(refused(0, 2), None);
        assert!(refused(0, 3).unwrap().contains("keys of 8 bytes"));
        let first_count = 3 * 4 + 7;
        for (place, value) in [(first_count, 0), (first_count, 2), (first_count + 7, 0xff)] {
            assert!(refused(place, value).unwrap().contains("5 announced rows"), "byte {place}");
        }
    }

    #[test]
    fn integers_are_written_at_any_alignment() {
        let schema = KeyedSchema {
            keys: KeyKind::Int64,
            element: Element::U8,
            width: 1,
            combine: KeyedCombine::Op(Op::Sum),
            label: 0,
        };
        let size = PartSize { keys: 2, key_bytes: 16, rows: 2 };
        let block = KeyedBlock { keys: OwnedKeys::Int64(vec![i64::MIN, 7]), counts: None, values: vec![3, 4] };
        let mut bytes = [0; 1 + 18];
        write(&block, &mut bytes[1..]).unwrap();
        let arrived = ReceivedBlock::read(&schema, &size, &mut &bytes[1..]).unwrap();
        assert_eq!((arrived.keys, arrived.values), (block.keys, &[3, 4][..]));
    }
}
