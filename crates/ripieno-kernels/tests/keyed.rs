//! Hashes of keys, the table of integers, and rows by part.

use ripieno_kernels::keyed::{IntTable, RowParts, StagingBuffer, hash_int, hash_ints, hash_string, part_of, scatter};
use ripieno_kernels::{Simd, Threads};
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64;

/// Return a reproducible pseudorandom generator.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        xxh3_64(&state.to_le_bytes())
    }
}

#[test]
fn hashes_match_the_published_function() {
    // Known values of XXH3 with 64 bits and seed 0.
    assert_eq!(hash_string(b""), 0x2d06_8005_38d3_94c2);
    let mut next = random(1);
    let ends = [0, 1, -1, i64::MIN, i64::MAX, 1 << 32, (1 << 32) - 1];
    let keys: Vec<i64> = ends.into_iter().chain(std::iter::repeat_with(|| next() as i64).take(1000)).collect();
    let expected: Vec<u64> = keys.iter().map(|&key| hash_int(key)).collect();
    for simd in Simd::available() {
        let mut hashes = vec![5];
        hash_ints(&keys, simd, &mut hashes);
        assert_eq!(hashes[1..], expected, "{simd:?}");
    }
    for key in keys {
        assert_eq!(hash_int(key), xxh3_64(&key.to_le_bytes()), "{key}");
        assert_eq!(hash_int(key), hash_string(&key.to_le_bytes()), "{key}");
    }
}

#[test]
fn parts_cut_the_range_of_hashes_evenly() {
    for part_count in [1, 2, 3, 128, 1000] {
        assert_eq!((part_of(0, part_count), part_of(u64::MAX, part_count)), (0, part_count - 1));
        let mut counts = vec![0; part_count];
        (0..100 * part_count as i64).for_each(|key| counts[part_of(hash_int(key), part_count)] += 1);
        assert!(counts.iter().all(|count| (40..200).contains(count)), "{counts:?}");
    }
}

#[test]
fn integers_are_numbered_in_order_of_first_appearance() {
    let mut next = random(2);
    for distinct in [1, 2, 7, 100, 5000] {
        let ends = [i64::MIN, i64::MAX, 0, -1];
        let keys: Vec<i64> = ends.into_iter().chain((0..20_000).map(|_| (next() % distinct) as i64 - 3)).collect();
        let (mut seen, mut first) = (HashMap::new(), Vec::new());
        let expected: Vec<u32> = keys
            .iter()
            .map(|&key| {
                *seen.entry(key).or_insert_with(|| {
                    first.push(key);
                    first.len() as u32 - 1
                })
            })
            .collect();
        let hashes: Vec<u64> = keys.iter().map(|&key| hash_int(key)).collect();
        for mut table in Simd::available().into_iter().map(IntTable::with_simd) {
            let mut numbers = vec![9];
            for (keys, hashes) in keys.chunks(777).zip(hashes.chunks(777)) {
                table.number_all(keys, hashes, &mut numbers);
            }
            assert_eq!(numbers[1..], expected);
            assert_eq!((table.keys(), table.len()), (first.as_slice(), first.len()));
        }
    }
}

#[test]
fn rows_of_a_part_keep_their_order() {
    let mut next = random(3);
    for (row_count, part_count) in [(0, 1), (1, 1), (1000, 1), (1000, 3), (5000, 300)] {
        let parts: Vec<u32> = (0..row_count).map(|_| (next() % part_count) as u32).collect();
        let partition = RowParts::new(parts.clone(), part_count as usize).sorted();
        for part in 0..part_count as u32 {
            let expected: Vec<u32> = (0..row_count).filter(|&row| parts[row as usize] == part).collect();
            assert_eq!(partition.rows_of(part as usize), expected);
        }
    }
}

#[test]
fn scattered_rows_keep_their_order_for_any_number_of_ranges() {
    let mut next = random(4);
    for row_bytes in [0, 1, 2, 4, 8, 16, 24, 32, 64] {
        for range_count in [1, 2, 3] {
            let (part_count, mut expected) = (37, vec![StagingBuffer::default(); 37]);
            let mut staged = expected.clone();
            for row_count in [0, 5, 900] {
                let keys: Vec<i64> = (0..row_count).map(|_| next() as i64).collect();
                let rows: Vec<u8> = (0..row_count * row_bytes).map(|_| next() as u8).collect();
                let parts: Vec<u32> = (0..row_count).map(|_| (next() % part_count) as u32).collect();
                for (at, &part) in parts.iter().enumerate() {
                    expected[part as usize].keys.push(keys[at]);
                    expected[part as usize].rows.extend_from_slice(&rows[at * row_bytes..][..row_bytes]);
                }
                let ranges = (0..range_count)
                    .map(|range| range * row_count / range_count..(range + 1) * row_count / range_count);
                let ranges: Vec<RowParts> = ranges.map(|rows| RowParts::new(parts[rows].to_vec(), 37)).collect();
                scatter(&keys, &rows, row_bytes, &ranges, &mut staged, &Threads::new(2));
            }
            for (staged, expected) in staged.iter().zip(&expected) {
                assert_eq!((&staged.keys, &staged.rows), (&expected.keys, &expected.rows), "rows of {row_bytes} bytes");
            }
        }
    }
}
