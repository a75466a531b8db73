//! String columns, and a hash table that numbers distinct strings.
//!
//! [`Strings`] borrows a column: offsets and bytes. [`StringTable`] assigns equal keys equal numbers, with open
//! addressing over slots of 32 bytes. A slot holds a key's hash, length and first 16 bytes. A probe for a key of up to
//! 16 bytes reads no other memory. A probe for a longer key reads the whole key only if hash, length and prefix match.
//! Growing moves slots by their stored hashes, without hashing keys again.
//! Cost: one or two prefetched cache lines per lookup; 64 to 128 bytes per key, plus the bytes of the keys.

use crate::simd::prefetch;
use std::fmt;
use std::ops::Range;

/// A column of byte strings: string `i` is `data[offsets[i]..offsets[i + 1]]`.
///
/// The layout of Arrow's large strings and large binaries; `offsets` need not begin at 0.
#[derive(Clone, Copy, Debug)]
pub struct Strings<'a> {
    offsets: &'a [i64],
    data: &'a [u8],
}

/// Error: the offsets do not split the data into strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadOffsets {
    /// Index of the invalid offset.
    pub at: usize,
    /// The invalid offset.
    pub offset: i64,
    /// The smallest valid value: the previous offset, or 0.
    pub min: i64,
    /// The largest valid value: the number of bytes of the data.
    pub max: usize,
}

impl fmt::Display for BadOffsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadOffsets { at, offset, min, max } = self;
        write!(f, "offset {at} of the strings is {offset}: expected one from {min} to {max}")
    }
}

impl std::error::Error for BadOffsets {}

impl<'a> Strings<'a> {
    /// Return the column with the given offsets and data. There is one more offset than strings; no offsets mean no
    /// strings.
    ///
    /// # Errors
    /// Returns the first offset that is negative, less than the previous one, or beyond the data.
    pub fn new(offsets: &'a [i64], data: &'a [u8]) -> Result<Strings<'a>, BadOffsets> {
        let mut min = 0;
        for (at, &offset) in offsets.iter().enumerate() {
            if offset < min || offset as u64 > data.len() as u64 {
                return Err(BadOffsets { at, offset, min, max: data.len() });
            }
            min = offset;
        }
        Ok(Strings { offsets, data })
    }

    /// Return the number of strings.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Return whether the column is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return string `i`.
    ///
    /// # Panics
    /// If `i` is not below the number of strings.
    #[inline]
    pub fn get(&self, i: usize) -> &'a [u8] {
        &self.data[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }

    /// Return the strings in the range `rows`.
    ///
    /// # Panics
    /// If the range exceeds the column.
    pub fn range(&self, rows: Range<usize>) -> Strings<'a> {
        if rows.is_empty() {
            return Strings { offsets: &[], data: self.data };
        }
        Strings { offsets: &self.offsets[rows.start..=rows.end], data: self.data }
    }

    /// Return the offsets and the data.
    pub fn columns(&self) -> (&'a [i64], &'a [u8]) {
        (self.offsets, self.data)
    }

    /// Iterate over the strings, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let data = self.data;
        self.offsets.windows(2).map(move |ends| &data[ends[0] as usize..ends[1] as usize])
    }

    /// Return the number of bytes of all strings.
    pub fn size_bytes(&self) -> usize {
        match (self.offsets.first(), self.offsets.last()) {
            (Some(first), Some(last)) => (last - first) as usize,
            _ => 0,
        }
    }
}

/// Bytes of a key that its slot stores.
pub(crate) const PREFIX_BYTES: usize = 16;
/// The number of an empty slot.
const VACANT: u32 = u32::MAX;
/// Prefetch distance, in keys.
const PREFETCH_DISTANCE: usize = 16;
/// Initial number of slots.
const FIRST_SLOTS: usize = 16;

#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct KeySlot {
    prefix: u128,
    hash: u64,
    /// The length of the key; [`u32::MAX`] stands for longer keys, which are compared in full.
    length: u32,
    number: u32,
}

const VACANT_SLOT: KeySlot = KeySlot { prefix: 0, hash: 0, length: 0, number: VACANT };

/// Assigns distinct keys the numbers 0, 1, 2 … in order of first appearance.
///
/// Equal keys must have equal hashes. The caller chooses the hash function.
///
/// ```
/// use ripieno_kernels::keyed::StringTable;
/// use xxhash_rust::xxh3::xxh3_64;
///
/// let mut table = StringTable::new();
/// let numbers = [b"to", b"be", b"or", b"to"].map(|key| table.number(key, xxh3_64(key)));
/// assert_eq!(numbers, [0, 1, 2, 0]);
/// assert_eq!(table.keys().get(2), b"or");
/// ```
#[derive(Clone, Debug)]
pub struct StringTable {
    slots: Vec<KeySlot>,
    /// The start of each key in `data`, and the end of the last key.
    offsets: Vec<i64>,
    data: Vec<u8>,
}

impl Default for StringTable {
    fn default() -> StringTable {
        StringTable::new()
    }
}

impl StringTable {
    /// Return an empty table, with a minimal allocation.
    pub fn new() -> StringTable {
        StringTable { slots: Vec::new(), offsets: vec![0], data: Vec::new() }
    }

    /// Return the number of distinct keys.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Return whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the keys by number.
    pub fn keys(&self) -> Strings<'_> {
        Strings { offsets: &self.offsets, data: &self.data }
    }

    /// Return the size of the table's memory.
    pub fn size_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<KeySlot>() + self.offsets.capacity() * size_of::<i64>() + self.data.capacity()
    }

    /// Consume the table and return the keys by number, as offsets and bytes.
    pub fn into_columns(self) -> (Vec<i64>, Vec<u8>) {
        (self.offsets, self.data)
    }

    /// Append the numbers of `keys` to `into`. `hashes` holds the hash of each key.
    ///
    /// # Panics
    /// If `keys` and `hashes` differ in length, or there are 2^32 - 1 distinct keys.
    pub fn number_all(&mut self, keys: Strings<'_>, hashes: &[u64], into: &mut Vec<u32>) {
        assert_eq!(keys.len(), hashes.len(), "every key has its hash");
        let ahead = hashes.iter().skip(PREFETCH_DISTANCE).map(Some).chain(std::iter::repeat(None));
        into.extend(keys.iter().zip(hashes).zip(ahead).map(|((key, &hash), ahead)| {
            ahead.inspect(|&&hash| self.prefetch(hash));
            self.number(key, hash)
        }));
    }

    /// Return the number of `key`, which has the given hash. Assign the next number to a new key.
    ///
    /// # Panics
    /// If there are 2^32 - 1 distinct keys.
    #[inline]
    pub fn number(&mut self, key: &[u8], hash: u64) -> u32 {
        self.number_with_prefix(key, prefix(key), hash)
    }

    /// Like [`StringTable::number`], with the prefix that the caller has computed.
    #[inline(always)]
    pub(crate) fn number_with_prefix(&mut self, key: &[u8], prefix: u128, hash: u64) -> u32 {
        if self.is_full() {
            self.grow();
        }
        let length = key.len().min(u32::MAX as usize) as u32;
        let mut at = self.first_slot(hash);
        loop {
            let slot = self.slots[at];
            if slot.number == VACANT {
                return self.insert(at, key, KeySlot { prefix, hash, length, number: VACANT });
            }
            if slot.hash == hash && slot.length == length && slot.prefix == prefix {
                let rest_is_equal = key.len() <= PREFIX_BYTES || self.keys().get(slot.number as usize) == key;
                if rest_is_equal {
                    return slot.number;
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Prefetch the slot for a key with this hash.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(slot) = self.slots.get(self.first_slot(hash)) {
            prefetch(slot);
        }
    }

    /// Return the first slot to probe for a key with this hash.
    #[inline(always)]
    fn first_slot(&self, hash: u64) -> usize {
        hash as usize & self.slots.len().wrapping_sub(1)
    }

    fn is_full(&self) -> bool {
        self.len() * 2 >= self.slots.len()
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let count = (self.slots.len() * 2).max(FIRST_SLOTS);
        let old = std::mem::replace(&mut self.slots, vec![VACANT_SLOT; count]);
        for slot in old.into_iter().filter(|slot| slot.number != VACANT) {
            let mut at = self.first_slot(slot.hash);
            while self.slots[at].number != VACANT {
                at = (at + 1) & (count - 1);
            }
            self.slots[at] = slot;
        }
    }

    /// Store a new key in the empty slot `at` and return its number.
    #[cold]
    #[inline(never)]
    fn insert(&mut self, at: usize, key: &[u8], slot: KeySlot) -> u32 {
        let number = u32::try_from(self.len()).ok().filter(|&number| number != VACANT);
        let number = number.expect("a table holds fewer than 2^32 - 1 keys");
        self.data.extend_from_slice(key);
        self.offsets.push(self.data.len() as i64);
        self.slots[at] = KeySlot { number, ..slot };
        number
    }
}

/// Return the first 16 bytes of `key`, the first byte lowest, padded with zeros.
#[inline]
pub(crate) fn prefix(key: &[u8]) -> u128 {
    let low = |from: usize| -> u64 {
        let bytes = key[from..].first_chunk().expect("the caller has compared the length");
        u64::from_le_bytes(*bytes)
    };
    let half = |from: usize| -> u64 {
        let bytes = key[from..].first_chunk().expect("the caller has compared the length");
        u64::from(u32::from_le_bytes(*bytes))
    };
    let length = key.len();
    match length {
        // Two overlapping loads; the second is shifted into position.
        16.. => u128::from(low(0)) | u128::from(low(8)) << 64,
        8.. => u128::from(low(0)) | u128::from(low(length - 8)) << (8 * (length - 8)),
        4.. => u128::from(half(0) | half(length - 4) << (8 * (length - 4))),
        1.. => {
            let [first, middle, last] = [key[0], key[length / 2], key[length - 1]].map(u128::from);
            first | middle << (8 * (length / 2)) | last << (8 * (length - 1))
        }
        0 => 0,
    }
}
