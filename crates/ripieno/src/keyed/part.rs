//! One part: the keys of a range of hashes, and their rows as far as they have come.

use super::block::{Block, Combine, Form, PartSize};
use super::columns::{KeyKind, Keys, OwnedKeys};
use ripieno_kernels::keyed::{IntTable, StringTable};
use ripieno_run::reduction::Reduction;

/// Numbers of distinct keys, of either kind.
#[derive(Debug)]
enum Table {
    Ints(IntTable),
    Strings(StringTable),
}

#[derive(Debug)]
pub(super) struct Part {
    table: Table,
    /// With an operation a row per key; without, all rows in order of arrival.
    values: Vec<u8>,
    /// Without an operation, whose row each of `values` is.
    owners: Vec<u32>,
    /// Scratch: the numbers of the keys at hand.
    numbers: Vec<u32>,
}

impl Part {
    pub fn new(kind: KeyKind) -> Part {
        let table = match kind {
            KeyKind::Int64 => Table::Ints(IntTable::new()),
            KeyKind::Strings => Table::Strings(StringTable::new()),
        };
        Part { table, values: Vec::new(), owners: Vec::new(), numbers: Vec::new() }
    }

    /// Combines rows, `counts[i]` for key `i` or one each, with those that have come.
    pub fn add(
        &mut self,
        form: &Form,
        reduction: Option<&Reduction>,
        keys: Keys<'_>,
        hashes: &[u64],
        counts: Option<&[u64]>,
        values: &[u8],
    ) {
        self.numbers.clear();
        self.table.number_all(keys, hashes, &mut self.numbers);
        if let Some(counts) = counts {
            let each = self.numbers.iter().zip(counts);
            self.numbers = each.flat_map(|(&number, &count)| std::iter::repeat_n(number, count as usize)).collect();
        }
        let row_bytes = form.row_bytes();
        match reduction {
            None => {
                self.owners.extend_from_slice(&self.numbers);
                self.values.extend_from_slice(values);
            }
            Some(reduction) if row_bytes > 0 => {
                let known_bytes = self.values.len();
                self.values.resize(self.table.len() * row_bytes, 0);
                (reduction.fill)(&mut self.values[known_bytes..]);
                (reduction.combine_rows)(&mut self.values, values, &self.numbers, row_bytes);
            }
            Some(_) => {}
        }
    }

    pub fn size(&self, form: &Form) -> PartSize {
        let (keys, key_bytes) = (self.table.len(), self.table.key_bytes());
        let rows = if form.combine == Combine::Concat { self.owners.len() } else { keys };
        PartSize { keys: keys as u64, key_bytes: key_bytes as u64, rows: rows as u64 }
    }

    /// What has come, as a block.
    pub fn into_block(self, form: &Form) -> Block {
        let key_count = self.table.len();
        let keys = self.table.into_keys();
        if form.combine != Combine::Concat {
            return Block { keys, counts: None, values: self.values };
        }
        let mut counts = vec![0u64; key_count];
        self.owners.iter().for_each(|&owner| counts[owner as usize] += 1);
        let values = sorted(&self.values, &self.owners, &counts, form.row_bytes());
        Block { keys, counts: Some(counts), values }
    }
}

/// Rows by their owners, those of one in the order given.
fn sorted(rows: &[u8], owners: &[u32], counts: &[u64], row_bytes: usize) -> Vec<u8> {
    let mut end = 0;
    let mut places = Vec::with_capacity(counts.len());
    for &count in counts {
        places.push(end);
        end += count as usize;
    }
    let mut sorted = vec![0; rows.len()];
    for (at, &owner) in owners.iter().enumerate() {
        let place = &mut places[owner as usize];
        sorted[*place * row_bytes..][..row_bytes].copy_from_slice(&rows[at * row_bytes..][..row_bytes]);
        *place += 1;
    }
    sorted
}

impl Table {
    fn len(&self) -> usize {
        match self {
            Table::Ints(table) => table.len(),
            Table::Strings(table) => table.len(),
        }
    }

    fn key_bytes(&self) -> usize {
        match self {
            Table::Ints(table) => size_of_val(table.keys()),
            Table::Strings(table) => table.keys().size_bytes(),
        }
    }

    fn number_all(&mut self, keys: Keys<'_>, hashes: &[u64], into: &mut Vec<u32>) {
        match (self, keys) {
            (Table::Ints(table), Keys::Int64(keys)) => table.number_all(keys, hashes, into),
            (Table::Strings(table), Keys::Strings(keys)) => table.number_all(keys, hashes, into),
            _ => unreachable!("keys of another kind are refused"),
        }
    }

    fn into_keys(self) -> OwnedKeys {
        match self {
            Table::Ints(table) => OwnedKeys::Int64(table.into_keys()),
            Table::Strings(table) => {
                let (offsets, data) = table.into_columns();
                OwnedKeys::Strings { offsets, data }
            }
        }
    }
}
