//! Bit sets of small numbers.

use super::team::{WorkTeam, cut, each, ranges};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Estimated cost of adding a number to a set and of listing it, in operations.
const INSERT_OPERATIONS: usize = 4;
const LIST_OPERATIONS: usize = 4;

/// A subset of the numbers `0..length`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    words: Vec<u64>,
    length: usize,
}

impl Bits {
    /// Create an empty set.
    pub(super) fn none(length: usize) -> Bits {
        Bits { words: vec![0; length.div_ceil(64)], length }
    }

    /// Create the set of all numbers.
    pub(super) fn all(length: usize) -> Bits {
        let mut bits = Bits { words: vec![u64::MAX; length.div_ceil(64)], length };
        bits.clear_excess_bits();
        bits
    }

    /// Create the union of ascending lists, with `start` subtracted from each number.
    pub(super) fn of(length: usize, lists: &[&[u64]], start: u64, team: &dyn WorkTeam) -> Bits {
        let mut bits = Bits::none(length);
        let operations = INSERT_OPERATIONS * lists.iter().map(|list| list.len()).sum::<usize>();
        let sections = ranges(team, operations, length, 64);
        let words = cut(&mut bits.words, sections.iter().map(|section| section.len().div_ceil(64)));
        let pieces = words.into_iter().zip(&sections).collect();
        each(team, operations, pieces, |(words, section): (&mut [u64], &Range<usize>)| {
            let (first, end) = (start + section.start as u64, start + section.end as u64);
            for list in lists {
                let indices = list.partition_point(|&key| key < first)..list.partition_point(|&key| key < end);
                let numbers = list[indices].iter().map(|key| (key - first) as usize);
                numbers.for_each(|number| words[number / 64] |= 1 << (number % 64));
            }
        });
        bits
    }

    /// Return the number of possible members.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Return the number of members.
    pub(super) fn count(&self) -> usize {
        self.count_in(&(0..self.length))
    }

    /// Return the number of members in a range that satisfies the conditions of [`Bits::numbers_in`].
    fn count_in(&self, range: &Range<usize>) -> usize {
        self.words[range.start / 64..range.end.div_ceil(64)].iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Add a number.
    pub(super) fn insert(&mut self, number: usize) {
        assert!(number < self.length, "a number is below the length");
        self.words[number / 64] |= 1 << (number % 64);
    }

    /// Whether a number is a member.
    pub(super) fn contains(&self, number: usize) -> bool {
        self.words[number / 64] >> (number % 64) & 1 == 1
    }

    /// Add all members of a set of equal length.
    pub(super) fn insert_all(&mut self, other: &Bits) {
        assert_eq!(self.length, other.length, "both sets have the same length");
        self.words.iter_mut().zip(&other.words).for_each(|(word, more)| *word |= more);
    }

    /// Return the members in `range`, relative to its start.
    pub(super) fn part(&self, range: Range<usize>) -> Bits {
        let length = range.len();
        let (first, shift) = (range.start / 64, range.start % 64);
        let word = |index: usize| self.words.get(index).copied().unwrap_or(0);
        let shifted = |index: usize| match shift {
            0 => word(first + index),
            _ => word(first + index) >> shift | word(first + index + 1) << (64 - shift),
        };
        let mut part = Bits { words: (0..length.div_ceil(64)).map(shifted).collect(), length };
        part.clear_excess_bits();
        part
    }

    /// Iterate over the members in ascending order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.numbers_in(0..self.length)
    }

    /// Iterate over the members in a range in ascending order. The range starts at a multiple of 64. It ends at a
    /// multiple of 64 or at the end of the set.
    pub(super) fn numbers_in(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let first = range.start / 64;
        self.words[first..range.end.div_ceil(64)].iter().enumerate().flat_map(move |(index, &word)| {
            let rests = core::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)));
            rests.take_while(|&rest| rest != 0).map(move |rest| 64 * (first + index) + rest.trailing_zeros() as usize)
        })
    }

    /// Return `start` plus each member, in ascending order.
    pub(super) fn list(&self, start: u64, team: &dyn WorkTeam) -> Vec<u64> {
        let operations = LIST_OPERATIONS * self.count() + self.words.len();
        let sections = ranges(team, operations, self.length, 64);
        let count = |range: &Range<usize>| self.count_in(range);
        let mut list = vec![0; self.count()];
        let pieces = cut(&mut list, sections.iter().map(count)).into_iter().zip(&sections).collect();
        each(team, operations, pieces, |(piece, section): (&mut [u64], &Range<usize>)| {
            fill(piece, self.numbers_in(section.clone()).map(|number| start + number as u64));
        });
        list
    }

    /// Count the members before each word, for rank queries.
    pub(super) fn ranks(&self) -> MemberRanks<'_> {
        let below = self.words.iter().scan(0_u32, |count, word| {
            let below = *count;
            *count += word.count_ones();
            Some(below)
        });
        MemberRanks { bits: self, below: below.collect() }
    }

    /// Append the set as bytes, lowest numbers first.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        let end = into.len() + self.length.div_ceil(8);
        self.words.iter().for_each(|word| into.extend_from_slice(&word.to_le_bytes()));
        into.truncate(end);
    }

    /// Decode the output of [`Bits::write`]. Return `None` if a bit beyond the length is set. The length of `bytes`
    /// must match `length`.
    pub(super) fn read(bytes: &[u8], length: usize) -> Option<Bits> {
        assert_eq!(bytes.len(), length.div_ceil(8), "one bit per number");
        let word = |chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        };
        let bits = Bits { words: bytes.chunks(8).map(word).collect(), length };
        let mut clean = bits.words.last().copied();
        if let (Some(last), false) = (&mut clean, length.is_multiple_of(64)) {
            *last &= (1 << (length % 64)) - 1;
        }
        (clean == bits.words.last().copied()).then_some(bits)
    }

    fn clear_excess_bits(&mut self) {
        if let (Some(last), false) = (self.words.last_mut(), self.length.is_multiple_of(64)) {
            *last &= (1 << (self.length % 64)) - 1;
        }
    }
}

/// Write `numbers` to `target`. Internal iteration is faster than `next` for chained iterators.
pub(super) fn fill(target: &mut [u64], numbers: impl Iterator<Item = u64>) {
    let mut target = target.iter_mut();
    numbers.for_each(|number| *target.next().expect("a position for each number") = number);
}

/// Positions of the members within a set.
pub(super) struct MemberRanks<'a> {
    bits: &'a Bits,
    below: Vec<u32>,
}

impl MemberRanks<'_> {
    /// Return the number of members smaller than `number`.
    pub(super) fn rank(&self, number: usize) -> u32 {
        let below = self.bits.words[number / 64] & ((1 << (number % 64)) - 1);
        self.below[number / 64] + below.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_ranks_and_bytes_agree_with_the_numbers() {
        for length in [0, 1, 63, 64, 65, 200] {
            let numbers: Vec<usize> = (0..length).filter(|number| number * number % 7 < 3).collect();
            let mut bits = Bits::none(length);
            numbers.iter().for_each(|&number| bits.insert(number));
            assert!(bits.numbers().eq(numbers.iter().copied()));
            assert_eq!(bits.count(), numbers.len());
            assert!((0..length).all(|number| bits.contains(number) == numbers.contains(&number)));
            numbers.iter().enumerate().for_each(|(i, &number)| assert_eq!(bits.ranks().rank(number), i as u32));

            for start in 0..length {
                for end in start..=length {
                    let part =
                        numbers.iter().filter(|number| (start..end).contains(number)).map(|number| number - start);
                    assert!(bits.part(start..end).numbers().eq(part));
                }
            }
            let mut bytes = Vec::new();
            bits.write(&mut bytes);
            assert_eq!(Bits::read(&bytes, length), Some(bits.clone()));
            if !length.is_multiple_of(8) {
                *bytes.last_mut().unwrap() |= 0x80;
                assert_eq!(Bits::read(&bytes, length), None);
            }
            let mut all = bits.clone();
            all.insert_all(&Bits::all(length));
            assert_eq!((all.count(), all), (length, Bits::all(length)));
        }
    }
}
