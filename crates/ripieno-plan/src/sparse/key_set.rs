//! Key sets: the keys of its range that a rank has, and the row of each.

use super::bits::Bits;
use super::merge;
use super::row_map::RowMap;
use super::team::WorkTeam;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// A set of keys of a range, with rows for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeySet {
    pub(super) range: Range<u64>,
    pub(super) keys: KeyForm,
}

/// Representation of the keys, which determines the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyForm {
    /// Ascending keys, with one row each.
    Listed(Vec<u64>),
    /// The keys with offsets in this bit set. Every key of the range has a row.
    Dense(Bits),
}

/// Largest ratio of keys in the range to keys in the lists for a union with a bit per key of the range. Above it,
/// lists are merged.
const BITS_PER_KEY: u64 = 32;

impl KeySet {
    /// Create the set of ascending keys of a range. A set of all keys is dense.
    pub(super) fn of(range: Range<u64>, keys: Vec<u64>) -> KeySet {
        let is_all = is_all(&range, keys.len());
        let keys = if is_all { KeyForm::Dense(Bits::all(keys.len())) } else { KeyForm::Listed(keys) };
        KeySet { range, keys }
    }

    /// Return the number of rows.
    pub(super) fn row_count(&self) -> usize {
        match &self.keys {
            KeyForm::Listed(keys) => keys.len(),
            KeyForm::Dense(members) => members.length(),
        }
    }

    pub(super) fn is_dense(&self) -> bool {
        matches!(self.keys, KeyForm::Dense(_))
    }

    /// Iterate over the keys in ascending order.
    pub(super) fn members(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match &self.keys {
            KeyForm::Listed(keys) => Box::new(keys.iter().copied()),
            KeyForm::Dense(members) => Box::new(members.numbers().map(|offset| self.range.start + offset as u64)),
        }
    }

    /// Return the rows of the keys of `range`, a part of this set's range.
    pub(super) fn rows_in(&self, range: &Range<u64>) -> Range<usize> {
        match &self.keys {
            KeyForm::Listed(keys) => {
                keys.partition_point(|&key| key < range.start)..keys.partition_point(|&key| key < range.end)
            }
            KeyForm::Dense(_) => (range.start - self.range.start) as usize..(range.end - self.range.start) as usize,
        }
    }

    /// Return the subset of the keys in `range`, with the existing rows.
    pub(super) fn part(&self, range: &Range<u64>) -> KeySet {
        let rows = self.rows_in(range);
        match &self.keys {
            KeyForm::Listed(keys) => KeySet::of(range.clone(), keys[rows].to_vec()),
            KeyForm::Dense(members) => KeySet { range: range.clone(), keys: KeyForm::Dense(members.part(rows)) },
        }
    }

    /// Return the row of a key, if the key is in the set or the set is dense.
    pub(super) fn row(&self, key: u64) -> Option<usize> {
        match &self.keys {
            KeyForm::Listed(keys) => keys.binary_search(&key).ok(),
            KeyForm::Dense(_) => Some((key - self.range.start) as usize),
        }
    }

    /// Return the keys of this set that are not in `other`, which has the same range.
    pub(super) fn missing_in(&self, other: &KeySet) -> Vec<u64> {
        match &other.keys {
            _ if self.keys == other.keys => Vec::new(),
            KeyForm::Dense(members) => {
                let is_missing = |key: &u64| !members.contains((key - other.range.start) as usize);
                self.members().filter(is_missing).collect()
            }
            KeyForm::Listed(keys) => {
                let mut next = 0;
                let is_missing = |key: &u64| {
                    next += keys[next..].iter().take_while(|&other_key| other_key < key).count();
                    keys.get(next) != Some(key)
                };
                self.members().filter(is_missing).collect()
            }
        }
    }

    /// Return the union of sets of one range, and per set the row in the union of each of its rows.
    ///
    /// The union is dense if one of the sets is dense, or if `dense_above` is negative. It is also dense if it has more
    /// than `dense_above` of the keys of a range of less than `2^32` keys. For this the sets together must have a key
    /// per [`BITS_PER_KEY`] keys of the range. Otherwise the sets are merged as lists.
    pub(super) fn union(
        range: &Range<u64>,
        parts: &[&KeySet],
        dense_above: f64,
        team: &dyn WorkTeam,
    ) -> (KeySet, Vec<RowMap>) {
        debug_assert!(parts.iter().all(|part| part.range == *range), "sets of one range");
        let length = length(range);
        let key_count: u64 = parts.iter().map(|part| part.row_count() as u64).sum();
        let is_dense = dense_above < 0.0 || parts.iter().any(|part| part.is_dense());
        if is_dense || length <= u64::from(u32::MAX) && length / BITS_PER_KEY <= key_count {
            return by_bits(range, parts, if is_dense { -1.0 } else { dense_above }, team);
        }
        let lists: Vec<&[u64]> = parts.iter().map(|part| part.listed()).collect();
        let (keys, maps) = merge::union(&lists, team);
        (KeySet { range: range.clone(), keys: KeyForm::Listed(keys) }, maps)
    }

    /// Return the listed keys; empty for a dense set.
    fn listed(&self) -> &[u64] {
        match &self.keys {
            KeyForm::Listed(keys) => keys,
            KeyForm::Dense(_) => &[],
        }
    }
}

/// Compute the union of sets of a range of less than `2^32` keys.
fn by_bits(range: &Range<u64>, parts: &[&KeySet], dense_above: f64, team: &dyn WorkTeam) -> (KeySet, Vec<RowMap>) {
    let offset = |key: &u64| (key - range.start) as usize;
    let lists: Vec<&[u64]> = parts.iter().map(|part| part.listed()).collect();
    let lengths: Vec<usize> = lists.iter().map(|list| list.len()).collect();
    let mut members = Bits::of(length(range) as usize, &lists, range.start, team);
    for part in parts {
        if let KeyForm::Dense(more) = &part.keys {
            members.insert_all(more);
        }
    }
    let count = members.count();
    if count as f64 > dense_above * members.length() as f64 || count == members.length() {
        let mut maps = RowMap::all(team, &lengths, |list, piece, rows| {
            rows.iter_mut().zip(&lists[list][piece]).for_each(|(row, key)| *row = offset(key) as u32);
        });
        for (map, _) in maps.iter_mut().zip(parts).filter(|(_, part)| part.is_dense()) {
            *map = RowMap::Run(0..members.length());
        }
        return (KeySet { range: range.clone(), keys: KeyForm::Dense(members) }, maps);
    }
    let ranks = members.ranks();
    let maps = RowMap::all(team, &lengths, |list, piece, rows| {
        rows.iter_mut().zip(&lists[list][piece]).for_each(|(row, key)| *row = ranks.rank(offset(key)));
    });
    (KeySet { range: range.clone(), keys: KeyForm::Listed(members.list(range.start, team)) }, maps)
}

/// Whether `count` keys are all keys of a range that a set may hold densely.
pub(super) fn is_all(range: &Range<u64>, count: usize) -> bool {
    count as u64 == length(range) && length(range) <= u64::from(u32::MAX)
}

/// Return the number of keys in a range.
pub(super) fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}
