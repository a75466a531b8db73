//! A table that numbers distinct integers.
//!
//! Keys lie in lines of five with their numbers, a cache line each; a line that is full goes on in the next. Most keys
//! are found in their own line by comparing all five at once, without a branch that depends on data: those that are not
//! are set aside, a block at a time, and looked for one by one.
//! Cost: two to three nanoseconds a key while the table fits the cache, 17 to 55 bytes for each distinct one.
//! After: Ross, "Efficient hash probes on modern processors", ICDE 2007 (splash tables).

use super::hash_int;
use crate::Simd;
use crate::simd::prefetch;

/// The number of no key.
const VACANT: u32 = u32::MAX;
/// Keys of a line.
const LINE_KEYS: usize = 5;
/// Lines have so many keys on average when the table grows.
const KEYS_PER_LINE: usize = 3;
/// Lines of a table with its first key.
const FIRST_LINES: usize = 8;
/// So many keys are looked for together.
const BLOCK: usize = 1024;
/// So many keys ahead, lines are asked for.
const AHEAD: usize = 64;

/// Keys and their numbers. Those that are not taken yet are 0 and vacant, after those that are.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct KeyLine {
    keys: [i64; LINE_KEYS],
    /// The last one is always vacant: that of a key which is not here.
    numbers: [u32; LINE_KEYS + 1],
}

const VACANT_LINE: KeyLine = KeyLine { keys: [0; LINE_KEYS], numbers: [VACANT; LINE_KEYS + 1] };

/// Numbers distinct keys 0, 1, 2 … in order of first appearance.
///
/// The hash of a key is that of [`hash_int`].
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
    /// None, or a power of two.
    lines: Vec<KeyLine>,
    keys: Vec<i64>,
    /// Scratch: which keys of a block are not in their own line.
    others: Vec<u32>,
}

impl IntTable {
    /// A table of no keys, without memory.
    pub fn new() -> IntTable {
        IntTable::with_simd(Simd::best())
    }

    /// As [`IntTable::new`], with a chosen SIMD level.
    ///
    /// # Panics
    /// If the machine lacks the level.
    pub fn with_simd(simd: Simd) -> IntTable {
        simd.check();
        IntTable { simd, lines: Vec::new(), keys: Vec::new(), others: Vec::new() }
    }

    /// How many distinct keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys by number.
    pub fn keys(&self) -> &[i64] {
        &self.keys
    }

    /// The keys by number; the table is gone.
    pub fn into_keys(self) -> Vec<i64> {
        self.keys
    }

    /// The memory that the table has taken.
    pub fn size_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<KeyLine>() + self.keys.capacity() * size_of::<i64>()
    }

    /// Appends the numbers of `keys`, whose hashes are `hashes`, to `into`.
    ///
    /// # Panics
    /// If there is not a hash for each key, or there are 2^32 - 1 distinct keys.
    pub fn number_all(&mut self, keys: &[i64], hashes: &[u64], into: &mut Vec<u32>) {
        assert_eq!(keys.len(), hashes.len(), "every key has its hash");
        let mut others = std::mem::take(&mut self.others);
        for (keys, hashes) in keys.chunks(BLOCK).zip(hashes.chunks(BLOCK)) {
            let begin = into.len();
            if self.lines.is_empty() {
                self.grow();
            }
            others.clear();
            match self.simd {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the machine has the level, see `with_simd`.
                Simd::Avx512 => unsafe { find_with_avx512(&self.lines, keys, hashes, into, &mut others) },
                _ => find(&self.lines, keys, hashes, into, &mut others),
            }
            for &at in &others {
                into[begin + at as usize] = self.number(keys[at as usize], hashes[at as usize]);
            }
        }
        self.others = others;
    }

    /// The number of `key`, whose hash is `hash`; a new one if the table does not have it.
    ///
    /// # Panics
    /// If there are 2^32 - 1 distinct keys.
    pub fn number(&mut self, key: i64, hash: u64) -> u32 {
        if self.keys.len() >= self.lines.len() * KEYS_PER_LINE {
            self.grow();
        }
        let mask = self.lines.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let line = &mut self.lines[at];
            for (kept, number) in line.keys.iter_mut().zip(&mut line.numbers) {
                if *number == VACANT {
                    *number = next_number(&self.keys);
                    *kept = key;
                    self.keys.push(key);
                    return *number;
                }
                if *kept == key {
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
            let (line, place) = loop {
                let line = &mut self.lines[at];
                if let Some(place) = line.numbers[..LINE_KEYS].iter().position(|&number| number == VACANT) {
                    break (line, place);
                }
                at = (at + 1) & (count - 1);
            };
            line.keys[place] = key;
            line.numbers[place] = number;
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
    number.expect("a table holds fewer than 2^32 - 1 keys")
}

/// Appends the number of each key to `into`; those that are not in their own line are vacant, and `others`.
fn find(lines: &[KeyLine], keys: &[i64], hashes: &[u64], into: &mut Vec<u32>, others: &mut Vec<u32>) {
    find_by(lines, keys, hashes, into, others, |line, key| {
        let each = line.keys.iter().enumerate();
        each.fold(0, |equal, (place, &kept)| equal | u32::from(kept == key) << place)
    });
}

/// The whole line is one vector.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn find_with_avx512(lines: &[KeyLine], keys: &[i64], hashes: &[u64], into: &mut Vec<u32>, others: &mut Vec<u32>) {
    use std::arch::x86_64::{_mm512_cmpeq_epi64_mask, _mm512_load_si512, _mm512_set1_epi64};
    find_by(lines, keys, hashes, into, others, |line, key| {
        // SAFETY: a line has 64 bytes, aligned.
        let line = unsafe { _mm512_load_si512(std::ptr::from_ref(line).cast()) };
        u32::from(_mm512_cmpeq_epi64_mask(line, _mm512_set1_epi64(key)))
    });
}

/// `equal` says in its lowest bits which of the keys of a line are equal to a key.
#[inline(always)]
fn find_by(
    lines: &[KeyLine],
    keys: &[i64],
    hashes: &[u64],
    into: &mut Vec<u32>,
    others: &mut Vec<u32>,
    equal: impl Fn(&KeyLine, i64) -> u32,
) {
    let mask = lines.len() - 1;
    others.resize(keys.len(), 0);
    let mut other_count = 0;
    let begin = into.len();
    into.resize(begin + keys.len(), 0);
    let into = &mut into[begin..];
    for (at, ((&key, &hash), into)) in keys.iter().zip(hashes).zip(into).enumerate() {
        if let Some(&ahead) = hashes.get(at + AHEAD) {
            prefetch(&lines[ahead as usize & mask]);
        }
        let line = &lines[hash as usize & mask];
        let place = (equal(line, key) | 1 << LINE_KEYS).trailing_zeros() as usize;
        let number = line.numbers[place];
        *into = number;
        others[other_count] = at as u32;
        other_count += usize::from(number == VACANT);
    }
    others.truncate(other_count);
}
