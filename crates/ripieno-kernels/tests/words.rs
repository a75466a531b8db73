//! Word search and word counts.

use ripieno_kernels::Simd;
use ripieno_kernels::keyed::Strings;
use ripieno_kernels::text::WordCounts;
use std::collections::HashMap;

fn is_blank(byte: u8) -> bool {
    b" \t\n\x0b\x0c\r".contains(&byte)
}

/// Return the distinct words in order of first appearance, with their counts.
fn expected(text: &[u8], lower: bool) -> Vec<(Vec<u8>, u64)> {
    let (mut places, mut counts) = (HashMap::new(), Vec::new());
    for word in text.split(|&byte| is_blank(byte)).filter(|word| !word.is_empty()) {
        let word = if lower { word.to_ascii_lowercase() } else { word.to_vec() };
        let place = *places.entry(word.clone()).or_insert(counts.len());
        if place == counts.len() {
            counts.push((word, 0));
        }
        counts[place].1 += 1;
    }
    counts
}

fn columns(counts: &WordCounts) -> Vec<(Vec<u8>, u64)> {
    assert_eq!(counts.words().len(), counts.counts().len());
    counts.words().iter().map(<[u8]>::to_vec).zip(counts.counts().iter().copied()).collect()
}

fn check(text: &[u8]) {
    for simd in Simd::available() {
        for lower in [false, true] {
            let mut counts = WordCounts::with_simd(lower, simd);
            counts.add(text);
            assert!(columns(&counts) == expected(text, lower), "{simd:?}, lower {lower}, {} bytes", text.len());
        }
    }
}

/// Return random bytes; about one in `one_in` is blank.
fn random_text(length: usize, one_in: u64, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    };
    (0..length)
        .map(|_| if next() % one_in == 0 { b" \t\n\x0b\x0c\r"[next() as usize % 6] } else { next() as u8 })
        .collect()
}

#[test]
fn every_byte_divides_words_or_is_part_of_one() {
    for byte in 0..=u8::MAX {
        check(&[b'a', byte, b'b', byte]);
    }
}

#[test]
fn words_of_random_bytes_are_the_ones_between_blanks() {
    for length in (0..200).chain([8191, 8192, 8193, 16384, 50_000]) {
        for one_in in [1, 2, 6, 40, 100_000] {
            check(&random_text(length, one_in, length as u64 * one_in));
        }
    }
}

#[test]
fn few_distinct_words_have_high_counts() {
    let words = random_text(400, 5, 1);
    check(&words.repeat(300));
}

#[test]
fn a_word_longer_than_a_window_is_one_word() {
    for length in [8127, 8128, 8191, 8192, 8193, 16383, 16384, 16385, 30_000] {
        let long = b"aB".repeat(length / 2 + 1)[..length].to_vec();
        for text in [&long[..], &[b"x ", &long[..]].concat(), &[&long[..], b"\n", &long[..], b" x"].concat()] {
            check(text);
        }
    }
}

#[test]
fn texts_and_counts_add_up() {
    let text = random_text(30_000, 6, 7);
    // A text divided within words would yield their pieces, so the cuts follow blanks.
    let cut = 20_000 + text[20_000..].iter().position(|&byte| is_blank(byte)).unwrap();
    let (first, second) = text.split_at(cut);
    let mut together = WordCounts::new(false);
    together.add(first);
    together.add(second);
    assert_eq!(columns(&together), expected(&text, false));

    let mut separate = [first, second].map(|text| {
        let mut counts = WordCounts::new(false);
        counts.add(text);
        counts
    });
    let [first, second] = &mut separate;
    first.absorb(second);
    assert_eq!(columns(first), columns(&together));

    let words = columns(second);
    let (offsets, data, numbers) = second.take();
    assert!(Strings::new(&offsets, &data).unwrap().iter().eq(words.iter().map(|(word, _)| word.as_slice())));
    assert!(numbers.iter().eq(words.iter().map(|(_, count)| count)));
    assert_eq!((second.words().len(), second.counts().len()), (0, 0));
    second.add(&text);
    assert_eq!(columns(second), columns(&together));
}
