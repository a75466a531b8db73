//! Blocks: distinct keys and their rows.

use super::columns::{KeyColumn, KeyKind, OwnedKeys};
use crate::error::{Error, argument};
use ripieno_plan::Op;
use ripieno_run::Element;
use ripieno_run::reduction::{Reduction, convert};

/// Combination of the rows of equal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyedCombine {
    /// Combine them into one row, element by element, in order of arrival, starting from the operation's identity. Sums
    /// and products of floats below 64 bits accumulate in float64, and are rounded once.
    Op(Op),
    /// Keep all rows, one after the other, in order of arrival.
    Concat,
}

impl KeyedCombine {
    /// Return the operation, if there is one.
    pub fn op(self) -> Option<Op> {
        match self {
            KeyedCombine::Op(op) => Some(op),
            KeyedCombine::Concat => None,
        }
    }
}

/// Types of keyed data, and the combination of rows with equal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyedSchema {
    /// Kind of the keys.
    pub keys: KeyKind,
    /// Type of the values.
    pub element: Element,
    /// Number of elements in a row; 0 for keys without values.
    pub width: usize,
    /// Combination of the rows of equal keys.
    pub combine: KeyedCombine,
    /// A number with which the caller distinguishes schemas. Ranks compare it together with the other fields.
    pub label: u64,
}

/// Distinct keys and their rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedBlock {
    /// The keys, all distinct.
    pub keys: OwnedKeys,
    /// Number of rows of each key, contiguous and in order of arrival; `None` if there is one row per key.
    pub counts: Option<Vec<u64>>,
    /// The rows, in the order of the keys.
    pub values: Vec<u8>,
}

/// A borrowed block.
#[derive(Clone, Copy, Debug)]
pub struct BlockView<'a> {
    /// The keys, all distinct.
    pub keys: KeyColumn<'a>,
    /// Number of rows of each key, contiguous; `None` if there is one row per key.
    pub counts: Option<&'a [u64]>,
    /// The rows, in the order of the keys.
    pub values: &'a [u8],
}

/// Size of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartSize {
    /// Number of distinct keys.
    pub keys: u64,
    /// Bytes of the keys: 8 for an integer; the bytes of a string, without its offset.
    pub key_bytes: u64,
    /// Number of rows. It equals `keys`, unless all rows are kept ([`KeyedCombine::Concat`]).
    pub rows: u64,
}

impl KeyedSchema {
    /// Return the size of a row.
    pub fn row_bytes(&self) -> usize {
        self.width * self.element.size_bytes()
    }

    /// Return the held type: the type of accumulated rows until all rows of a key have arrived.
    pub(super) fn held_element(&self) -> Element {
        self.combine.op().map_or(self.element, |op| self.element.accumulator(op))
    }

    /// Return the size of a row in its held type.
    pub(super) fn held_row_bytes(&self) -> usize {
        self.width * self.held_element().size_bytes()
    }

    /// Return the reduction of rows with equal keys, in the held type; `None` if all rows are kept.
    ///
    /// # Errors
    /// The operation is not defined for the element type.
    pub fn reduction(&self) -> Result<Option<&'static Reduction>, Error> {
        match self.combine {
            KeyedCombine::Op(op) => Reduction::of(self.held_element(), op).map(Some).map_err(Error::Unsupported),
            KeyedCombine::Concat => Ok(None),
        }
    }

    /// Reject a row that is larger than any memory.
    pub(super) fn check_width(&self) -> Result<(), Error> {
        let max_width = isize::MAX as usize / self.held_element().size_bytes();
        if self.width > max_width {
            let held = self.held_element().name();
            return Err(argument("width", self.width, &format!("at most {max_width} elements of {held}")));
        }
        Ok(())
    }

    /// Reject keys of another kind, and values that are not `row_count` rows.
    pub(super) fn check(&self, keys: KeyKind, row_count: u64, values: &[u8]) -> Result<(), Error> {
        if keys != self.keys {
            return Err(argument(
                "keys",
                format!("a column of {}", keys.name()),
                &format!("{} keys", self.keys.name()),
            ));
        }
        if row_count.checked_mul(self.row_bytes() as u64) != Some(values.len() as u64) {
            let expected = format!("{row_count} rows of {} bytes, one row per key", self.row_bytes());
            return Err(argument("values", format!("{} bytes", values.len()), &expected));
        }
        Ok(())
    }
}

impl KeyedBlock {
    /// Borrow the block.
    ///
    /// # Panics
    /// If the offsets of string keys are not valid for their data.
    pub fn view(&self) -> BlockView<'_> {
        BlockView { keys: self.keys.view(), counts: self.counts.as_deref(), values: &self.values }
    }

    /// Return the size of the block.
    pub fn size(&self) -> PartSize {
        let key_bytes = match &self.keys {
            OwnedKeys::Int64(keys) => size_of_val(&keys[..]),
            OwnedKeys::Strings { data, .. } => data.len(),
        };
        PartSize { keys: self.keys.len() as u64, key_bytes: key_bytes as u64, rows: self.view().row_count() }
    }

    /// Return the memory used by the block.
    pub(super) fn size_bytes(&self) -> usize {
        let key_bytes = match &self.keys {
            OwnedKeys::Int64(keys) => keys.capacity() * size_of::<i64>(),
            OwnedKeys::Strings { offsets, data } => offsets.capacity() * size_of::<i64>() + data.capacity(),
        };
        key_bytes
            + self.counts.as_ref().map_or(0, |counts| counts.capacity() * size_of::<u64>())
            + self.values.capacity()
    }

    /// Concatenate `blocks` of this schema. No two of them may contain the same key.
    pub fn joined(mut blocks: Vec<KeyedBlock>, schema: &KeyedSchema) -> KeyedBlock {
        if blocks.len() == 1 {
            return blocks.remove(0);
        }
        let count = |of: fn(&KeyedBlock) -> usize| blocks.iter().map(of).sum();
        let mut joined = KeyedBlock::none(schema);
        joined.keys.reserve(count(|block| block.keys.len()), count(|block| block.size().key_bytes as usize));
        joined.values.reserve_exact(count(|block| block.values.len()));
        for block in blocks {
            joined.keys.append(block.keys);
            if let (Some(all), Some(counts)) = (&mut joined.counts, block.counts) {
                all.extend(counts);
            }
            joined.values.extend(block.values);
        }
        joined
    }

    /// Convert the values from one type to another.
    pub(super) fn converted(self, from: Element, to: Element) -> KeyedBlock {
        if from == to {
            return self;
        }
        let mut values = vec![0; self.values.len() / from.size_bytes() * to.size_bytes()];
        convert(from, to, &self.values, &mut values);
        KeyedBlock { values, ..self }
    }

    /// Create an empty block for data of this schema.
    pub fn none(schema: &KeyedSchema) -> KeyedBlock {
        let counts = (schema.combine == KeyedCombine::Concat).then(Vec::new);
        KeyedBlock { keys: OwnedKeys::none(schema.keys), counts, values: Vec::new() }
    }
}

impl BlockView<'_> {
    /// Return the number of rows of all keys. The sum of invalid counts saturates.
    pub fn row_count(&self) -> u64 {
        let sum = |counts: &[u64]| counts.iter().fold(0, |sum: u64, &count| sum.saturating_add(count));
        self.counts.map_or(self.keys.len() as u64, sum)
    }

    /// Reject data that is not a block of this schema. [`KeyedSchema::combine`] is not compared.
    pub(super) fn check(&self, schema: &KeyedSchema) -> Result<(), Error> {
        if let Some(counts) = self.counts
            && counts.len() != self.keys.len()
        {
            return Err(argument("counts", counts.len(), &format!("one for each of {} keys", self.keys.len())));
        }
        if let Some(at) = self.counts.and_then(|counts| counts.iter().position(|&count| count == 0)) {
            return Err(argument("counts", format!("0 for key {at}"), "at least one row for each key"));
        }
        let row_count = self.row_count();
        if row_count > isize::MAX as u64 {
            return Err(argument("counts", format!("{row_count} rows or more"), "at most as many as memory has bytes"));
        }
        schema.check(self.keys.kind(), row_count, self.values)
    }
}
