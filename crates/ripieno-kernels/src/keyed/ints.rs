//! A hash table that numbers distinct integers.
//!
//! A line of 64 bytes, one cache line, holds five keys with their numbers. A full line overflows into the next line. A
//! lookup compares all five keys of the key's own line at once, without a data-dependent branch. The remaining keys of
//! a block are collected and searched one by one.
//! Cost: two to three nanoseconds per key while the table fits the cache; 17 to 55 bytes per distinct key.
//! Source: Ross, "Efficient hash probes on modern processors", ICDE 2007 (splash tables).

use super::hash_int;
use crate::Simd;
use crate::simd::prefetch;

/// The number of an empty slot.
const VACANT: u32 = u32::MAX;
/// Capacity of a line, in keys.
const LINE_CAPACITY: usize = 5;
/// Average number of keys per line at which the table grows.
const GROW_AT_KEYS_PER_LINE: usize = 3;
/// Initial number of lines.
const FIRST_LINES: usize = 8;
/// Number of keys in a block.
const BLOCK: usize = 1024;
/// Prefetch distance, in keys.
const PREFETCH_DISTANCE: usize = 64;

/// Keys with their numbers. The occupied slots come first; an empty slot has key 0 and the number `VACANT`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct KeyLine {
    keys: [i64; LINE_CAPACITY],
    /// The last entry is always `VACANT`: the result of a lookup without a match.
    numbers: [u32; LINE_CAPACITY + 1],
}

const VACANT_LINE: KeyLine = KeyLine { keys: [0; LINE_CAPACITY], numbers: [VACANT; LINE_CAPACITY + 1] };

/// Assigns distinct keys the numbers 0, 1, 2 … in order of first appearance.
///
/// The caller must pass the hashes of [`hash_int`].
///
/// ```
/// use ripieno_kernels::keyed::{IntTable, hash_int};
///
/// let (mut table, mut numbers) = (IntTable::new(), Vec::new());
/// let keys = [70, -3, 70];
/// table.number_all(&keys, &keys.map(hash_int), &mut numbers);
/// assert_eq!((numbers.as_slice(), table.keys()), (&[0, 1, 0][..], &[70, -3][..]));
/// ```
#[derive(Clone, Debug)]
pub struct IntTable {
    simd: Simd,
    /// The lines; their number is 0 or a power of two.
    lines: Vec<KeyLine>,
    keys: Vec<i64>,
    /// Scratch memory: positions of the keys of a block without a match in their own line.
    misses: Vec<u32>,
}

impl IntTable {
    /// Return an empty table, without allocating memory.
    pub fn new() -> IntTable {
        IntTable::with_simd(Simd::best())
    }

    /// Like [`IntTable::new`], with the given SIMD level.
    ///
    /// # Panics
    /// If the machine does not support the level.
    pub fn with_simd(simd: Simd) -> IntTable {
        simd.check();
        IntTable { simd, lines: Vec::new(), keys: Vec::new(), misses: Vec::new() }
    }

    /// Return the number of distinct keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Return whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Return the keys by number.
    pub fn keys(&self) -> &[i64] {
        &self.keys
    }

    /// Consume the table and return the keys by number.
    pub fn into_keys(self) -> Vec<i64> {
        self.keys
    }

    /// Return the size of the table's memory.
    pub fn size_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<KeyLine>() + self.keys.capacity() * size_of::<i64>()
    }

    /// Append the numbers of `keys` to `into`. `hashes` holds the hash of each key.
    ///
    /// # Panics
    /// If `keys` and `hashes` differ in length, or there are more than 2^32 - 1 distinct keys.
    pub fn number_all(&mut self, keys: &[i64], hashes: &[u64], into: &mut Vec<u32>) {
        assert_eq!(keys.len(), hashes.len(), "every key has its hash");
        let mut misses = std::mem::take(&mut self.misses);
        for (keys, hashes) in keys.chunks(BLOCK).zip(hashes.chunks(BLOCK)) {
            let begin = into.len();
            if self.lines.is_empty() {
                self.grow();
            }
            misses.clear();
            match self.simd {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the machine supports the level, see `with_simd`.
                Simd::Avx512 => unsafe { find_with_avx512(&self.lines, keys, hashes, into, &mut misses) },
                _ => find(&self.lines, keys, hashes, into, &mut misses),
            }
            for &at in &misses {
                into[begin + at as usize] = self.number(keys[at as usize], hashes[at as usize]);
            }
        }
        self.misses = misses;
    }

    /// Return the number of `key`, which has the given hash. Assign the next number to a new key.
    ///
    /// # Panics
    /// If there are more than 2^32 - 1 distinct keys.
    pub fn number(&mut self, key: i64, hash: u64) -> u32 {
        if self.keys.len() >= self.lines.len() * GROW_AT_KEYS_PER_LINE {
            self.grow();
        }
        let mask = self.lines.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let line = &mut self.lines[at];
            for (stored, number) in line.keys.iter_mut().zip(&mut line.numbers) {
                if *number == VACANT {
                    *number = next_number(&self.keys);
                    *stored = key;
                    self.keys.push(key);
                    return *number;
                }
                if *stored == key {
                    return *number;
                }
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let count = (self.lines.len() * 2).max(FIRST_LINES);
        self.lines = vec![VACANT_LINE; count];
        for (number, &key) in (0..).zip(&self.keys) {
            let mut at = hash_int(key) as usize & (count - 1);
            let (line, slot) = loop {
                let line = &mut self.lines[at];
                if let Some(slot) = line.numbers[..LINE_CAPACITY].iter().position(|&number| number == VACANT) {
                    break (line, slot);
                }
                at = (at + 1) & (count - 1);
            };
            line.keys[slot] = key;
            line.numbers[slot] = number;
        }
    }
}

impl Default for IntTable {
    fn default() -> IntTable {
        IntTable::new()
    }
}

fn next_number(keys: &[i64]) -> u32 {
    let number = u32::try_from(keys.len()).ok().filter(|&number| number != VACANT);
    number.expect("a table holds at most 2^32 - 1 keys")
}

/// Append the number of each key to `into`. Keys without a match in their own line get `VACANT`, and their positions go
/// to `misses`.
fn find(lines: &[KeyLine], keys: &[i64], hashes: &[u64], into: &mut Vec<u32>, misses: &mut Vec<u32>) {
    find_by(lines, keys, hashes, into, misses, |line, key| {
        let each = line.keys.iter().enumerate();
        each.fold(0, |equal, (slot, &stored)| equal | u32::from(stored == key) << slot)
    });
}

/// Like [`find`], with the whole line as one vector.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn find_with_avx512(lines: &[KeyLine], keys: &[i64], hashes: &[u64], into: &mut Vec<u32>, misses: &mut Vec<u32>) {
    use std::arch::x86_64::{_mm512_cmpeq_epi64_mask, _mm512_load_si512, _mm512_set1_epi64};
    find_by(lines, keys, hashes, into, misses, |line, key| {
        // SAFETY: a line has 64 bytes and is aligned to 64 bytes.
        let line = unsafe { _mm512_load_si512(std::ptr::from_ref(line).cast()) };
        u32::from(_mm512_cmpeq_epi64_mask(line, _mm512_set1_epi64(key)))
    });
}

/// Search the own line of each key. `equal` returns a bit mask; its lowest bits state which keys of a line match.
#[inline(always)]
fn find_by(
    lines: &[KeyLine],
    keys: &[i64],
    hashes: &[u64],
    into: &mut Vec<u32>,
    misses: &mut Vec<u32>,
    equal: impl Fn(&KeyLine, i64) -> u32,
) {
    let mask = lines.len() - 1;
    misses.resize(keys.len(), 0);
    let mut miss_count = 0;
    let begin = into.len();
    into.resize(begin + keys.len(), 0);
    let into = &mut into[begin..];
    for (at, ((&key, &hash), into)) in keys.iter().zip(hashes).zip(into).enumerate() {
        if let Some(&ahead) = hashes.get(at + PREFETCH_DISTANCE) {
            prefetch(&lines[ahead as usize & mask]);
        }
        let line = &lines[hash as usize & mask];
        let slot = (equal(line, key) | 1 << LINE_CAPACITY).trailing_zeros() as usize;
        let number = line.numbers[slot];
        *into = number;
        misses[miss_count] = at as u32;
        miss_count += usize::from(number == VACANT);
    }
    misses.truncate(miss_count);
}
