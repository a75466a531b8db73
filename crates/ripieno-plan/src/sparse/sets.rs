//! Conversion of unordered keys to a sorted set with positions.

use super::bits::{Bits, fill};
use super::team::{WorkTeam, cut, each, ranges};
use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use core::slice::IterMut;

/// Estimated cost of a key in each of the three passes, in operations.
const KEY_OPERATIONS: usize = 8;
/// Target number of keys per bucket. A core's cache holds them together with the sort buffers.
const BUCKET_KEY_COUNT: usize = 1 << 14;
/// Largest number of buckets, as a power of two: a core can write to this many streams at once.
const BUCKET_BITS_MAX: u32 = 9;
/// Largest ratio of possible keys to present keys for sorting a bucket with a bit per possible key.
const BITS_PER_KEY: usize = 32;

/// Keys as a sorted set, with the position of each given key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sorted {
    /// The unique keys, ascending.
    pub keys: Vec<u64>,
    /// The position in `keys` of each given key.
    pub positions: Vec<u32>,
    /// The numbers of the given keys, ordered by key; numbers of equal keys ascend. Empty if not requested.
    pub order: Vec<u32>,
}

impl Sorted {
    /// Sort `keys` into a set, with `order` if `ordered` is true.
    ///
    /// Keys are distributed to buckets by the highest bits that differ between keys. Each bucket is sorted within a
    /// core's cache. Then every key reads its position from its bucket, so no pass accesses memory at random.
    /// Cost: three passes over the keys.
    ///
    /// # Panics
    ///
    /// If there are `2^32` keys or more.
    pub fn of(keys: &[u64], ordered: bool, team: &dyn WorkTeam) -> Sorted {
        assert!(keys.len() <= u32::MAX as usize, "positions fit into 32 bits");
        if keys.is_sorted() {
            let mut unique = Vec::with_capacity(keys.len());
            let positions = keys.iter().map(|&key| append(&mut unique, key)).collect();
            let order = if ordered { (0..keys.len() as u32).collect() } else { Vec::new() };
            return Sorted { keys: unique, positions, order };
        }
        let operations = KEY_OPERATIONS * keys.len();
        let buckets = Buckets::of(keys);
        let chunks = ranges(team, operations, keys.len(), 1);
        let counts = each(team, operations, chunks.clone(), |chunk| buckets.counts(&keys[chunk]));
        let length = |bucket: usize| counts.iter().map(|counts| counts[bucket] as usize).sum();
        let lengths: Vec<usize> = (0..buckets.count()).map(length).collect();

        let (mut bucketed, mut order) = (vec![0; keys.len()], vec![0; if ordered { keys.len() } else { 0 }]);
        let shares = by_chunk(&mut bucketed, &counts).into_iter().zip(&chunks).collect();
        each(team, operations, shares, |(mut slots, chunk): (Vec<IterMut<'_, u64>>, &Range<usize>)| {
            keys[chunk.clone()].iter().for_each(|&key| *next(&mut slots[buckets.number(key)]) = key);
        });
        if ordered {
            let shares = by_chunk(&mut order, &counts).into_iter().zip(&chunks).collect();
            each(team, operations, shares, |(mut slots, chunk): (Vec<IterMut<'_, u32>>, &Range<usize>)| {
                let numbers = chunk.start as u32..;
                let numbered = keys[chunk.clone()].iter().zip(numbers);
                numbered.for_each(|(&key, number)| *next(&mut slots[buckets.number(key)]) = number);
            });
        }

        let mut slots = vec![0; keys.len()];
        let mut all = bucket_slices(&mut bucketed, &mut slots, &mut order, &lengths).into_iter();
        let shares = ranges(team, operations, buckets.count(), 1);
        let shares = shares.into_iter().map(|share| all.by_ref().take(share.len()).collect()).collect();
        let unique_counts = each(team, operations, shares, |share: Vec<Bucket<'_>>| {
            let mut sorter = Sorter::new(buckets.shift);
            share.into_iter().map(|bucket| sorter.sort(bucket)).collect::<Vec<usize>>()
        });
        let unique_counts = unique_counts.concat();
        let base = |next: &mut u32, count: &usize| Some(mem::replace(next, *next + *count as u32));
        let bases: Vec<u32> = unique_counts.iter().scan(0, base).collect();

        let mut positions = vec![0; keys.len()];
        let pieces = cut(&mut positions, chunks.iter().map(Range::len)).into_iter();
        let shares = pieces.zip(by_chunk(&mut slots, &counts)).zip(&chunks).collect();
        each(team, operations, shares, |((positions, mut slots), chunk): (ChunkShare<'_>, &Range<usize>)| {
            for (position, &key) in positions.iter_mut().zip(&keys[chunk.clone()]) {
                let bucket = buckets.number(key);
                *position = bases[bucket] + *next(&mut slots[bucket]);
            }
        });
        close_gaps(&mut bucketed, &lengths, &unique_counts);
        Sorted { keys: bucketed, positions, order }
    }
}

/// Positions of a chunk, and its slots in each bucket.
type ChunkShare<'a> = (&'a mut [u32], Vec<IterMut<'a, u32>>);

/// Return the next slot of a bucket.
#[inline]
fn next<'a, T>(slots: &mut IterMut<'a, T>) -> &'a mut T {
    slots.next().expect("a slot for each key")
}

/// Append a key unless it equals the last key. Return its position.
fn append(unique: &mut Vec<u64>, key: u64) -> u32 {
    if unique.last() != Some(&key) {
        unique.push(key);
    }
    unique.len() as u32 - 1
}

/// Assignment of keys to buckets by the highest of the bits that differ between keys.
struct Buckets {
    shift: u32,
    mask: u64,
}

impl Buckets {
    fn of(keys: &[u64]) -> Buckets {
        let differing = keys.iter().fold(0, |differing, key| differing | (key ^ keys[0]));
        let bit_count = u64::BITS - differing.leading_zeros();
        let bucket_bits =
            (keys.len() / BUCKET_KEY_COUNT).checked_ilog2().unwrap_or(0).min(BUCKET_BITS_MAX).min(bit_count);
        Buckets { shift: bit_count - bucket_bits, mask: (1 << bucket_bits) - 1 }
    }

    fn count(&self) -> usize {
        self.mask as usize + 1
    }

    #[inline]
    fn number(&self, key: u64) -> usize {
        // With a single bucket, all bits of the keys may differ.
        (key.unbounded_shr(self.shift) & self.mask) as usize
    }

    fn counts(&self, keys: &[u64]) -> Vec<u32> {
        let mut counts = vec![0; self.count()];
        keys.iter().for_each(|&key| counts[self.number(key)] += 1);
        counts
    }
}

/// Divide slots bucket by bucket, and within a bucket chunk by chunk. Return each chunk's slots in each bucket.
fn by_chunk<'a, T>(slots: &'a mut [T], counts: &[Vec<u32>]) -> Vec<Vec<IterMut<'a, T>>> {
    let bucket_count = counts[0].len();
    let lengths = (0..bucket_count).flat_map(|bucket| counts.iter().map(move |counts| counts[bucket] as usize));
    let mut shares: Vec<Vec<IterMut<'a, T>>> = counts.iter().map(|_| Vec::with_capacity(bucket_count)).collect();
    for (number, piece) in cut(slots, lengths).into_iter().enumerate() {
        shares[number % counts.len()].push(piece.iter_mut());
    }
    shares
}

/// Move the unique keys of each bucket directly after the keys of the previous buckets, and truncate the rest.
fn close_gaps(keys: &mut Vec<u64>, lengths: &[usize], unique_counts: &[usize]) {
    let (mut from, mut to) = (0, 0);
    for (&length, &count) in lengths.iter().zip(unique_counts) {
        if from > to {
            keys.copy_within(from..from + count, to);
        }
        (from, to) = (from + length, to + count);
    }
    keys.truncate(to);
}

/// The keys of a bucket, with output space for the position of each key in the bucket, and the numbers of the keys if
/// requested.
struct Bucket<'a> {
    keys: &'a mut [u64],
    positions: &'a mut [u32],
    numbers: &'a mut [u32],
}

fn bucket_slices<'a>(
    keys: &'a mut [u64],
    positions: &'a mut [u32],
    numbers: &'a mut [u32],
    lengths: &[usize],
) -> Vec<Bucket<'a>> {
    let is_ordered = !numbers.is_empty();
    let numbers = cut(numbers, lengths.iter().map(|&length| if is_ordered { length } else { 0 }));
    let positions = cut(positions, lengths.iter().copied());
    let keys = cut(keys, lengths.iter().copied());
    let bucket = |((keys, positions), numbers)| Bucket { keys, positions, numbers };
    keys.into_iter().zip(positions).zip(numbers).map(bucket).collect()
}

/// Sorter of buckets with keys that differ only in their lowest bits.
struct Sorter {
    low_bits: u32,
    items: Vec<(u64, u32)>,
    moved: Vec<(u64, u32)>,
    starts: Vec<u32>,
    numbers: Vec<u32>,
}

const DIGIT_BITS: usize = 8;
const DIGIT_COUNT: usize = u64::BITS as usize / DIGIT_BITS;

fn digit(key: u64, number: usize) -> usize {
    (key >> (DIGIT_BITS * number)) as usize & ((1 << DIGIT_BITS) - 1)
}

impl Sorter {
    fn new(low_bits: u32) -> Sorter {
        Sorter { low_bits, items: Vec::new(), moved: Vec::new(), starts: Vec::new(), numbers: Vec::new() }
    }

    /// Sort a bucket and return the number of unique keys. The unique keys move to the front in ascending order,
    /// `positions` receives their positions, and `numbers` is ordered.
    fn sort(&mut self, bucket: Bucket<'_>) -> usize {
        let Bucket { keys, positions, numbers } = bucket;
        let count = match 1_usize.checked_shl(self.low_bits) {
            _ if keys.is_empty() => return 0,
            Some(range) if range / BITS_PER_KEY <= keys.len() => by_bits(keys, positions, range),
            _ => self.by_digits(keys, positions),
        };
        if !numbers.is_empty() {
            self.order(positions, numbers, count);
        }
        count
    }

    /// Radix sort from the lowest digit, which is stable.
    fn by_digits(&mut self, keys: &mut [u64], positions: &mut [u32]) -> usize {
        let mut counts = [[0_u32; 1 << DIGIT_BITS]; DIGIT_COUNT];
        for &key in &*keys {
            counts.iter_mut().enumerate().for_each(|(number, counts)| counts[digit(key, number)] += 1);
        }
        self.items.clear();
        self.items.extend(keys.iter().copied().zip(0..));
        self.moved.resize(keys.len(), (0, 0));
        for (number, counts) in counts.iter_mut().enumerate() {
            if counts.contains(&(keys.len() as u32)) {
                continue;
            }
            add_up(counts);
            for &item in &self.items {
                let position = &mut counts[digit(item.0, number)];
                self.moved[*position as usize] = item;
                *position += 1;
            }
            mem::swap(&mut self.items, &mut self.moved);
        }
        let mut last = 0;
        keys[0] = self.items[0].0;
        for &(key, slot) in &self.items {
            last += usize::from(key != keys[last]);
            keys[last] = key;
            positions[slot as usize] = last as u32;
        }
        last + 1
    }

    /// Order ascending numbers by the positions of their keys; `count` is the number of unique keys.
    fn order(&mut self, positions: &[u32], numbers: &mut [u32], count: usize) {
        self.starts.clear();
        self.starts.resize(count, 0);
        positions.iter().for_each(|&position| self.starts[position as usize] += 1);
        add_up(&mut self.starts);
        self.numbers.clear();
        self.numbers.extend_from_slice(numbers);
        for (&number, &position) in self.numbers.iter().zip(positions) {
            let start = &mut self.starts[position as usize];
            numbers[*start as usize] = number;
            *start += 1;
        }
    }
}

/// Replace each count by the sum of the counts before it.
fn add_up(counts: &mut [u32]) {
    let mut next = 0;
    for count in counts {
        next += mem::replace(count, next);
    }
}

/// Sort with a bit per possible key; `range` is their number, a power of two.
fn by_bits(keys: &mut [u64], positions: &mut [u32], range: usize) -> usize {
    let (low, high) = (range as u64 - 1, keys[0] & !(range as u64 - 1));
    let mut members = Bits::none(range);
    keys.iter().for_each(|key| members.insert((key & low) as usize));
    let ranks = members.ranks();
    positions.iter_mut().zip(&*keys).for_each(|(position, key)| *position = ranks.rank((key & low) as usize));
    let count = members.count();
    fill(&mut keys[..count], members.numbers().map(|number| high | number as u64));
    count
}

#[cfg(test)]
mod tests {
    use super::super::team::SingleThread;
    use super::super::team::tests::ReverseTeam;
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    fn keys() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(prop_oneof![0..20_u64, (1_u64 << 40)..(1 << 40) + 3000, any::<u64>()], 0..300)
    }

    /// The result that [`Sorted::of`] must return.
    fn expected_set(keys: &[u64]) -> Sorted {
        let set: Vec<u64> = keys.iter().copied().collect::<BTreeSet<u64>>().into_iter().collect();
        let positions = keys.iter().map(|key| set.binary_search(key).unwrap() as u32).collect();
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_by_key(|&number| keys[number as usize]);
        Sorted { keys: set, positions, order }
    }

    proptest! {
        #[test]
        fn any_team_sorts_keys_correctly(keys in keys(), size in 1..7_usize) {
            let expected = expected_set(&keys);
            prop_assert_eq!(&Sorted::of(&keys, true, &ReverseTeam(size)), &expected);
            prop_assert_eq!(Sorted::of(&keys, false, &ReverseTeam(size)), Sorted { order: Vec::new(), ..expected });
        }

        #[test]
        fn sorted_keys_get_the_same_result(mut keys in prop::collection::vec(0..50_u64, 0..100)) {
            keys.sort_unstable();
            prop_assert_eq!(Sorted::of(&keys, true, &SingleThread), expected_set(&keys));
        }
    }

    #[test]
    fn many_keys_are_sorted_in_dense_and_sparse_buckets() {
        for (count, range) in [(100_000, 50_000), (100_000, 1 << 22), (100_000, 1 << 45), (70_000, u64::MAX)] {
            let key = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % range;
            let keys: Vec<u64> = (0..count).map(key).collect();
            let expected = expected_set(&keys);
            (1..4).for_each(|size| assert_eq!(Sorted::of(&keys, true, &ReverseTeam(size)), expected));
        }
    }
}
