//! Columns of keys, borrowed and owned.

use ripieno_kernels::Simd;
use ripieno_kernels::keyed::{Strings, hash_ints, hash_string};
use std::ops::Range;

/// Kind of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// 64-bit integers.
    Int64,
    /// Byte strings of any length.
    Strings,
}

impl KeyKind {
    /// Return the name in messages.
    pub fn name(self) -> &'static str {
        match self {
            KeyKind::Int64 => "int64",
            KeyKind::Strings => "string",
        }
    }
}

/// A borrowed column of keys.
#[derive(Clone, Copy, Debug)]
pub enum KeyColumn<'a> {
    /// Integers.
    Int64(&'a [i64]),
    /// Byte strings.
    Strings(Strings<'a>),
}

/// A column of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedKeys {
    /// Integers.
    Int64(Vec<i64>),
    /// Byte strings: string `i` is `data[offsets[i]..offsets[i + 1]]`.
    Strings {
        /// Start of each string, and the end of the last: one more entry than strings.
        offsets: Vec<i64>,
        /// The bytes of all strings.
        data: Vec<u8>,
    },
}

impl KeyColumn<'_> {
    /// Return the number of keys.
    pub fn len(&self) -> usize {
        match self {
            KeyColumn::Int64(keys) => keys.len(),
            KeyColumn::Strings(keys) => keys.len(),
        }
    }

    /// Return whether the column is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the kind of the keys.
    pub fn kind(&self) -> KeyKind {
        match self {
            KeyColumn::Int64(_) => KeyKind::Int64,
            KeyColumn::Strings(_) => KeyKind::Strings,
        }
    }

    /// Return the size of the keys in bytes: 8 for an integer, 8 and its own length for a string.
    pub fn size_bytes(&self) -> usize {
        match self {
            KeyColumn::Int64(keys) => size_of_val(*keys),
            KeyColumn::Strings(keys) => keys.len() * size_of::<i64>() + keys.size_bytes(),
        }
    }

    /// Return the keys with numbers `rows`.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub fn range(&self, rows: Range<usize>) -> Self {
        match self {
            KeyColumn::Int64(keys) => KeyColumn::Int64(&keys[rows]),
            KeyColumn::Strings(keys) => KeyColumn::Strings(keys.range(rows)),
        }
    }

    /// Append the hash of each key to `into`.
    pub(super) fn hash(&self, into: &mut Vec<u64>) {
        match self {
            KeyColumn::Int64(keys) => hash_ints(keys, Simd::best(), into),
            KeyColumn::Strings(keys) => into.extend(keys.iter().map(hash_string)),
        }
    }
}

impl OwnedKeys {
    /// Create an empty column.
    pub fn none(kind: KeyKind) -> OwnedKeys {
        match kind {
            KeyKind::Int64 => OwnedKeys::Int64(Vec::new()),
            KeyKind::Strings => OwnedKeys::Strings { offsets: vec![0], data: Vec::new() },
        }
    }

    /// Reserve memory for `count` more keys; for strings, with `string_bytes` in total.
    pub(super) fn reserve(&mut self, count: usize, string_bytes: usize) {
        match self {
            OwnedKeys::Int64(keys) => keys.reserve_exact(count),
            OwnedKeys::Strings { offsets, data } => {
                offsets.reserve_exact(count);
                data.reserve_exact(string_bytes);
            }
        }
    }

    /// Append `keys` of the same kind.
    pub(super) fn append(&mut self, keys: OwnedKeys) {
        match (self, keys) {
            (OwnedKeys::Int64(all), OwnedKeys::Int64(keys)) => all.extend(keys),
            (OwnedKeys::Strings { offsets: ends, data: all }, OwnedKeys::Strings { offsets, data }) => {
                let shift = all.len() as i64 - offsets[0];
                ends.extend(offsets[1..].iter().map(|end| end + shift));
                all.extend(data);
            }
            _ => unreachable!("blocks of one schema have keys of one kind"),
        }
    }

    /// Borrow the column.
    ///
    /// # Panics
    /// If the offsets of strings are not valid for their data.
    pub fn view(&self) -> KeyColumn<'_> {
        match self {
            OwnedKeys::Int64(keys) => KeyColumn::Int64(keys),
            OwnedKeys::Strings { offsets, data } => {
                KeyColumn::Strings(Strings::new(offsets, data).unwrap_or_else(|bad| panic!("{bad}")))
            }
        }
    }

    /// Return the number of keys.
    pub fn len(&self) -> usize {
        match self {
            OwnedKeys::Int64(keys) => keys.len(),
            OwnedKeys::Strings { offsets, .. } => offsets.len().saturating_sub(1),
        }
    }

    /// Return whether the column is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the kind of the keys.
    pub fn kind(&self) -> KeyKind {
        match self {
            OwnedKeys::Int64(_) => KeyKind::Int64,
            OwnedKeys::Strings { .. } => KeyKind::Strings,
        }
    }
}
