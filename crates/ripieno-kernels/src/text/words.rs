//! Word counting: words are found, hashed and counted in one pass, without an allocation per word.
//!
//! A window of text is converted to the list of its word boundaries, from bit masks of 64 bytes. Every word of up to 16
//! bytes is a 128-bit number, hashed by one multiplication and found in its slot of a [`StringTable`].
//! Cost: some 60 cycles per word of real text; slots and counts are prefetched.

use super::blanks::{BLOCK_BYTES, BlankJob, Blanks, is_blank, run};
use crate::Simd;
use crate::keyed::{PREFIX_BYTES, StringTable, Strings, prefix};
use crate::simd::prefetch;
use xxhash_rust::xxh3::xxh3_64;

/// Size of a window; its word boundaries stay in the L1 cache.
const WINDOW_BYTES: usize = 8192;

/// Counts of distinct words.
///
/// Words are the longest runs of bytes that are not ASCII white space (space, `\t`, `\n`, `\v`, `\f`, `\r`), as in
/// Python's `bytes.split()`. Other bytes, including zeros, are part of words. With `lower`, ASCII letters are converted
/// to lower case.
///
/// ```
/// use ripieno_kernels::text::WordCounts;
///
/// let mut counts = WordCounts::new(false);
/// counts.add(b"to be\n or not\tto be");
/// assert_eq!(counts.words().iter().collect::<Vec<_>>(), [&b"to"[..], b"be", b"or", b"not"]);
/// assert_eq!(counts.counts(), [2, 2, 1, 1]);
/// ```
#[derive(Clone, Debug)]
pub struct WordCounts {
    table: StringTable,
    counts: Vec<u64>,
    lower: bool,
    simd: Simd,
}

impl WordCounts {
    /// Create empty counts. With `lower`, ASCII letters are converted to lower case.
    pub fn new(lower: bool) -> WordCounts {
        WordCounts::with_simd(lower, Simd::best())
    }

    /// Create empty counts with a chosen SIMD level.
    ///
    /// # Panics
    /// If the machine lacks the level.
    pub fn with_simd(lower: bool, simd: Simd) -> WordCounts {
        simd.check();
        WordCounts { table: StringTable::new(), counts: Vec::new(), lower, simd }
    }

    /// Return the distinct words in order of first appearance.
    pub fn words(&self) -> Strings<'_> {
        self.table.keys()
    }

    /// Return the count of each distinct word.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Return the memory use of words and counts in bytes.
    pub fn size_bytes(&self) -> usize {
        self.table.size_bytes() + self.counts.capacity() * size_of::<u64>()
    }

    /// Take the words as a column, offsets and bytes, and their counts. The counts are empty afterwards.
    pub fn take(&mut self) -> (Vec<i64>, Vec<u8>, Vec<u64>) {
        let (offsets, data) = std::mem::take(&mut self.table).into_columns();
        (offsets, data, std::mem::take(&mut self.counts))
    }

    /// Count the words of `text`.
    ///
    /// # Panics
    /// If there are 2^32 - 1 distinct words.
    pub fn add(&mut self, text: &[u8]) {
        run(self.simd, WordCount { into: self, text });
    }

    /// Add the counts of `other`. New words are appended in the order of `other`.
    ///
    /// # Panics
    /// If there are 2^32 - 1 distinct words.
    pub fn absorb(&mut self, other: &WordCounts) {
        for (word, &count) in other.words().iter().zip(&other.counts) {
            self.count(word, count);
        }
    }

    fn count(&mut self, word: &[u8], count: u64) {
        let prefix = prefix(word);
        let number = self.table.number_with_prefix(word, prefix, hash(word, prefix)) as usize;
        self.counts.resize(self.table.len(), 0);
        self.counts[number] += count;
    }
}

/// Constants that make the halves of a word nonzero.
const LOW_KEY: u64 = 0x9e37_79b9_7f4a_7c15;
const HIGH_KEY: u64 = 0xd1b5_4a32_d192_ed03;

/// Return the hash of a word: for a word that fits into its prefix, a folded 128-bit product. The factors are folded in
/// too, so if one factor is zero, the other one still distinguishes words.
#[inline(always)]
fn hash(word: &[u8], prefix: u128) -> u64 {
    if word.len() > PREFIX_BYTES {
        return xxh3_64(word);
    }
    let low = prefix as u64 ^ LOW_KEY;
    let high = (prefix >> 64) as u64 ^ HIGH_KEY ^ word.len() as u64;
    let product = u128::from(low) * u128::from(high);
    product as u64 ^ (product >> 64) as u64 ^ low ^ high
}

/// Job that counts the words of `text` into `into`.
struct WordCount<'a> {
    into: &'a mut WordCounts,
    text: &'a [u8],
}

impl BlankJob for WordCount<'_> {
    type Output = ();

    #[inline(always)]
    fn run<B: Blanks>(self) {
        let WordCount { into, text } = self;
        let mut boundaries = WordBoundaries { positions: [0; MAX_BOUNDARIES], count: 0 };
        let mut lower_window = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let window = &rest[..rest.len().min(WINDOW_BYTES)];
            let unfinished = boundaries.find::<B>(window);
            let end = match unfinished {
                None => window.len(),
                Some(_) if window.len() == rest.len() => {
                    boundaries.finish(window.len());
                    window.len()
                }
                // No byte is blank: the word is at least as long as a window.
                Some(0) => rest.iter().position(|&byte| is_blank(byte)).unwrap_or(rest.len()),
                // The next window starts with this word.
                Some(start) => start,
            };
            let (mut window, after) = rest.split_at(end);
            if into.lower {
                lower_window.clear();
                lower_window.extend(window.iter().map(u8::to_ascii_lowercase));
                window = &lower_window;
            }
            if unfinished == Some(0) {
                into.count(window, 1);
            } else {
                into.count_between(&boundaries, window);
            }
            rest = after;
        }
    }
}

/// Number of words looked up together, so that their memory accesses overlap.
const BATCH: usize = 32;

/// A word to look up.
#[derive(Clone, Copy, Default)]
struct WordLookup {
    prefix: u128,
    hash: u64,
    start: u32,
    end: u32,
}

impl WordCounts {
    /// Count the words of `window` between the boundaries `boundaries`.
    #[inline(always)]
    fn count_between(&mut self, boundaries: &WordBoundaries, window: &[u8]) {
        let mut words = [WordLookup::default(); BATCH];
        let mut numbers = [0; BATCH];
        for boundaries in boundaries.positions[..boundaries.count].chunks(2 * BATCH) {
            let words = &mut words[..boundaries.len() / 2];
            let numbers = &mut numbers[..boundaries.len() / 2];
            for (ends, word) in boundaries.chunks_exact(2).zip(&mut *words) {
                *word = WordLookup::new(window, ends[0], ends[1]);
                self.table.prefetch(word.hash);
            }
            for (word, number) in words.iter().zip(&mut *numbers) {
                let bytes = &window[word.start as usize..word.end as usize];
                *number = self.table.number_with_prefix(bytes, word.prefix, word.hash) as usize;
                if let Some(count) = self.counts.get(*number) {
                    prefetch(count);
                }
            }
            self.counts.resize(self.table.len(), 0);
            for &number in &*numbers {
                self.counts[number] += 1;
            }
        }
    }
}

impl WordLookup {
    #[inline(always)]
    fn new(window: &[u8], start: u32, end: u32) -> WordLookup {
        let word = &window[start as usize..end as usize];
        let prefix = match window[start as usize..].first_chunk() {
            Some(&bytes) => u128::from_le_bytes(bytes) & PREFIX_MASKS[word.len().min(PREFIX_BYTES)],
            None => prefix(word),
        };
        WordLookup { prefix, hash: hash(word, prefix), start, end }
    }
}

/// Masks of the lowest bytes of a prefix, indexed by their number.
const PREFIX_MASKS: [u128; PREFIX_BYTES + 1] = {
    let mut masks = [u128::MAX; PREFIX_BYTES + 1];
    let mut length = 0;
    while length < PREFIX_BYTES {
        masks[length] = (1 << (8 * length)) - 1;
        length += 1;
    }
    masks
};

/// Largest number of boundaries: every byte of a window, plus the last block, which is written as a whole.
const MAX_BOUNDARIES: usize = WINDOW_BYTES + BLOCK_BYTES;

/// Alternating starts and ends of the words in a window.
struct WordBoundaries {
    positions: [u32; MAX_BOUNDARIES],
    count: usize,
}

impl WordBoundaries {
    /// Add the end of the word left out by [`WordBoundaries::find`].
    fn finish(&mut self, end: usize) {
        self.positions[self.count + 1] = end as u32;
        self.count += 2;
    }

    /// Find the boundaries in `window`. If the last word may continue after the window, it is left out and its start is
    /// returned.
    #[inline(always)]
    fn find<B: Blanks>(&mut self, window: &[u8]) -> Option<usize> {
        self.count = 0;
        let mut is_preceded_by_blank = 1;
        let (blocks, rest) = window.as_chunks::<BLOCK_BYTES>();
        for (i, block) in blocks.iter().enumerate() {
            is_preceded_by_blank = self.add(i * BLOCK_BYTES, B::of(block), is_preceded_by_blank);
        }
        if !rest.is_empty() {
            let mut block = [b' '; BLOCK_BYTES];
            block[..rest.len()].copy_from_slice(rest);
            self.add(blocks.len() * BLOCK_BYTES, B::of(&block), is_preceded_by_blank);
        }
        let unfinished = self.count % 2 == 1;
        self.count -= usize::from(unfinished);
        unfinished.then(|| self.positions[self.count] as usize)
    }

    /// Add the boundaries of the block at `from`. `is_preceded_by_blank` and the result state whether the byte before a
    /// block is blank.
    #[inline(always)]
    fn add(&mut self, from: usize, blanks: u64, is_preceded_by_blank: u64) -> u64 {
        // Boundaries are written eight at a time: a loop with an unpredictable count would be slower.
        const STEP: usize = 8;
        let mut boundaries = blanks ^ (blanks << 1 | is_preceded_by_blank);
        let count = boundaries.count_ones() as usize;
        let positions = &mut self.positions[self.count..][..BLOCK_BYTES];
        for positions in positions.chunks_exact_mut(STEP).take(count.div_ceil(STEP)) {
            for place in positions {
                *place = from as u32 + boundaries.trailing_zeros();
                boundaries &= boundaries.wrapping_sub(1);
            }
        }
        self.count += count;
        blanks >> 63
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn words_with_a_zero_factor_still_have_distinct_hashes() {
        let words = |fixed: u64, place: usize| {
            (0..10_000u64).map(move |number| {
                let mut word = [b'.'; PREFIX_BYTES];
                word[8 - place..][..8].copy_from_slice(&number.to_le_bytes());
                word[place..][..8].copy_from_slice(&fixed.to_le_bytes());
                hash(&word, prefix(&word))
            })
        };
        let distinct: BTreeSet<u64> = words(LOW_KEY, 0).collect();
        assert_eq!(distinct.len(), 10_000);
        let distinct: BTreeSet<u64> = words(HIGH_KEY ^ PREFIX_BYTES as u64, 8).collect();
        assert_eq!(distinct.len(), 10_000);
    }
}
