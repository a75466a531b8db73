//! Columns of strings, and the table that numbers distinct strings.

use ripieno_kernels::keyed::{BadOffsets, StringTable, Strings};
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64;

/// Number keys with the standard library's map.
fn expected(keys: &[Vec<u8>]) -> (Vec<u32>, Vec<&[u8]>) {
    let (mut numbers, mut distinct) = (HashMap::new(), Vec::new());
    let of_each = keys.iter().map(|key| {
        *numbers.entry(key.as_slice()).or_insert_with(|| {
            distinct.push(key.as_slice());
            distinct.len() as u32 - 1
        })
    });
    (of_each.collect(), distinct)
}

fn column(keys: &[Vec<u8>]) -> (Vec<i64>, Vec<u8>) {
    let ends = keys.iter().scan(0, |end, key| {
        *end += key.len() as i64;
        Some(*end)
    });
    (std::iter::once(0).chain(ends).collect(), keys.concat())
}

fn check(keys: &[Vec<u8>], hash: impl Fn(&[u8]) -> u64) {
    let (offsets, data) = column(keys);
    let keys_column = Strings::new(&offsets, &data).unwrap();
    let hashes: Vec<u64> = keys_column.iter().map(hash).collect();
    let (numbers, distinct) = expected(keys);
    let mut table = StringTable::new();
    let mut into = vec![7];
    table.number_all(keys_column, &hashes, &mut into);
    assert_eq!(into[1..], numbers);
    assert!(table.keys().iter().eq(distinct.iter().copied()));
    assert_eq!(table.len(), distinct.len());
}

/// Return keys that differ only in their ends, their lengths or trailing zeros.
fn similar_keys() -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for length in 0..40 {
        for last in [0, 1, b'a'] {
            for middle in [0, b'b'] {
                let mut key = vec![b'a'; length];
                key.iter_mut().skip(length / 2).for_each(|byte| *byte = middle);
                key.iter_mut().last().into_iter().for_each(|byte| *byte = last);
                keys.push(key);
            }
        }
    }
    keys.extend_from_within(..);
    keys
}

#[test]
fn equal_keys_have_equal_numbers_for_any_hashes() {
    check(&[], xxh3_64);
    check(&similar_keys(), xxh3_64);
    // All keys in one slot, or in one of two slots that meet at the end of the table.
    check(&similar_keys(), |_| u64::MAX);
    check(&similar_keys(), |key| key.len() as u64 % 2);
}

#[test]
fn a_table_that_grows_keeps_its_numbers() {
    let keys: Vec<Vec<u8>> =
        (0..20_000u64).map(|i| (i * i % 7919).to_string().repeat(i as usize % 7 + 1).into_bytes()).collect();
    check(&keys, xxh3_64);
}

#[test]
fn columns_return_ranges_of_their_strings() {
    let (offsets, data) = ([2, 4, 4, 7], b"xxabcdexx");
    let strings = Strings::new(&offsets, data).unwrap();
    assert_eq!(strings.iter().collect::<Vec<_>>(), [&b"ab"[..], b"", b"cde"]);
    assert_eq!((strings.len(), strings.size_bytes(), strings.get(2)), (3, 5, &b"cde"[..]));
    assert_eq!(strings.range(1..3).iter().collect::<Vec<_>>(), [&b""[..], b"cde"]);
    assert!(strings.range(3..3).is_empty());
    assert!(Strings::new(&[], &[]).unwrap().is_empty());
}

#[test]
fn offsets_that_do_not_ascend_within_the_data_are_reported() {
    let bad = |offsets: &[i64]| Strings::new(offsets, b"abc").unwrap_err();
    assert_eq!(bad(&[-1, 2]), BadOffsets { at: 0, offset: -1, min: 0, max: 3 });
    assert_eq!(bad(&[0, 2, 1]), BadOffsets { at: 2, offset: 1, min: 2, max: 3 });
    assert_eq!(bad(&[0, 4]).to_string(), "offset 1 of the strings is 4: expected one from 0 to 3");
}
