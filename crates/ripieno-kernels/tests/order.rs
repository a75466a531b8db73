//! Order of strings compared with the standard library, and joining of byte pieces.

use ripieno_kernels::keyed::{Strings, joined_pieces, order_of_strings};

/// Return keys of 0 to 20 bytes with many duplicates, common prefixes, zeros and bytes above ASCII.
fn keys() -> Vec<Vec<u8>> {
    let mut state = 1_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..3000)
        .map(|_| (0..next(21)).map(|at| b"a\0\xffb"[next(if at < 7 { 1 } else { 4 }) as usize]).collect())
        .collect()
}

#[test]
fn strings_are_in_the_order_of_their_bytes_and_equal_ones_in_theirs() {
    let keys = keys();
    let ends = keys.iter().scan(3, |end, key| {
        *end += key.len() as i64;
        Some(*end)
    });
    let offsets: Vec<i64> = std::iter::once(3).chain(ends).collect();
    let data = [b"off".to_vec(), keys.concat()].concat();
    let column = Strings::new(&offsets, &data).unwrap();

    let mut expected: Vec<i64> = (0..keys.len() as i64).collect();
    expected.sort_by_key(|&row| &keys[row as usize]);
    assert_eq!(order_of_strings(column, false), expected);
    expected.sort();
    expected.sort_by_key(|&row| std::cmp::Reverse(&keys[row as usize]));
    assert_eq!(order_of_strings(column, true), expected);
    assert!(order_of_strings(column.range(0..0), false).is_empty());

    let lengths: Vec<i64> = expected.iter().map(|&row| keys[row as usize].len() as i64).collect();
    let starts: Vec<i64> = expected.iter().map(|&row| offsets[row as usize]).collect();
    let joined: Vec<u8> = expected.iter().flat_map(|&row| keys[row as usize].clone()).collect();
    assert_eq!(joined_pieces(&data, &starts, &lengths), Some(joined));
}

#[test]
fn pieces_outside_of_the_data_are_refused() {
    let pieces = |start, length| joined_pieces(b"abc", &[start], &[length]);
    assert_eq!(pieces(3, 0), Some(vec![]));
    for (start, length) in [(4, 0), (0, 4), (-1, 1), (1, -1), (i64::MAX, i64::MAX)] {
        assert_eq!(pieces(start, length), None);
    }
    assert_eq!(joined_pieces(b"abc", &[0], &[]), None);
}
