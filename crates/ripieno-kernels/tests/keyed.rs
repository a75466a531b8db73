//! Hashes of keys, the table of integers, and rows by part.

use ripieno_kernels::keyed::{IntTable, Partition, hash_int, hash_string, part_of};
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64;

/// Numbers that look random; the same in every run.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        xxh3_64(&state.to_le_bytes())
    }
}

#[test]
fn hashes_are_those_of_the_published_function() {
    // Known values of XXH3 with 64 bits and seed 0.
    assert_eq!(hash_string(b""), 0x2d06_8005_38d3_94c2);
    let mut next = random(1);
    let ends = [0, 1, -1, i64::MIN, i64::MAX, 1 << 32, (1 << 32) - 1];
    for key in ends.into_iter().chain(std::iter::repeat_with(|| next() as i64).take(1000)) {
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
        let mut table = IntTable::new();
        for _ in 0..2 {
            let mut numbers = vec![9];
            for (keys, hashes) in keys.chunks(777).zip(hashes.chunks(777)) {
                table.number_all(keys, hashes, &mut numbers);
            }
            assert_eq!(numbers[1..], expected);
            assert_eq!((table.keys(), table.len()), (first.as_slice(), first.len()));
            table.clear();
            assert!(table.is_empty());
        }
    }
}

#[test]
fn rows_of_a_part_keep_their_order() {
    let mut next = random(3);
    for (row_count, part_count) in [(0, 1), (1, 1), (1000, 1), (1000, 3), (5000, 300)] {
        let parts: Vec<u32> = (0..row_count).map(|_| (next() % part_count) as u32).collect();
        let partition = Partition::new(&parts, part_count as usize);
        for part in 0..part_count as u32 {
            let expected: Vec<u32> = (0..row_count).filter(|&row| parts[row as usize] == part).collect();
            assert_eq!(partition.rows_of(part as usize), expected);
        }
    }
}
