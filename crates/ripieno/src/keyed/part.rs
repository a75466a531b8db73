//! One part: the keys of a range of hashes, and the rows received so far.

use super::block::{BlockView, KeyedBlock, KeyedSchema};
use super::columns::{KeyColumn, KeyKind, OwnedKeys};
use super::owners::AssignedRows;
use ripieno_kernels::keyed::{IntTable, StagingBuffer, StringTable};
use ripieno_run::Element;
use ripieno_run::reduction::{Reduction, convert};

/// Maximum number of rows combined at a time.
const BLOCK_ROWS: usize = 1024;
/// Maximum bytes of rows combined at a time.
const BLOCK_BYTES: usize = 64 << 10;

/// Distinct keys, and their combined or kept rows.
#[derive(Debug)]
pub(super) struct KeyedPart {
    table: KeyTable,
    /// Number of elements of a row, and their type in memory.
    width: usize,
    element: Element,
    /// Reduction of rows with equal keys. With `None`, the part keeps all rows.
    reduction: Option<&'static Reduction>,
    /// With a reduction, one row per key; otherwise all rows in order of arrival.
    values: Vec<u8>,
    /// Without a reduction, the number of the key of each row in `values`.
    owners: Vec<u32>,
}

/// Table that numbers distinct keys, of either kind.
#[derive(Debug)]
enum KeyTable {
    Ints(IntTable),
    Strings(StringTable),
}

/// Scratch memory of a thread that adds rows to parts.
#[derive(Debug, Default)]
pub(super) struct PartScratch {
    keys: Vec<i64>,
    hashes: Vec<u64>,
    numbers: Vec<u32>,
    rows: Vec<u8>,
    converted: Vec<u8>,
}

/// Rows to add, contiguous. Their element type may differ from the part's.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddedRows<'a> {
    pub element: Element,
    pub bytes: &'a [u8],
}

/// The contents of a part as columns.
pub(super) struct PartColumns<'a> {
    pub keys: KeyColumn<'a>,
    /// The number of the key of each row in `values`; `None` if there is one row per key.
    pub owners: Option<&'a [u32]>,
    pub values: &'a [u8],
}

impl KeyedPart {
    /// Create an empty part for data of this schema. Without a reduction, it keeps all rows.
    pub fn new(schema: &KeyedSchema, reduction: Option<&'static Reduction>) -> KeyedPart {
        let table = match schema.keys {
            KeyKind::Int64 => KeyTable::Ints(IntTable::new()),
            KeyKind::Strings => KeyTable::Strings(StringTable::new()),
        };
        let (width, element) = (schema.width, schema.held_element());
        KeyedPart { table, width, element, reduction, values: Vec::new(), owners: Vec::new() }
    }

    /// Return whether the part is empty.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Return the memory used by the part.
    pub fn size_bytes(&self) -> usize {
        let table = match &self.table {
            KeyTable::Ints(table) => table.size_bytes(),
            KeyTable::Strings(table) => table.size_bytes(),
        };
        table + self.values.capacity() + self.owners.capacity() * size_of::<u32>()
    }

    /// Return the contents of the part as columns.
    pub fn columns(&self) -> PartColumns<'_> {
        let owners = self.reduction.is_none().then_some(self.owners.as_slice());
        PartColumns { keys: self.table.keys(), owners, values: &self.values }
    }

    /// Remove all contents. If `keeps_rows`, the part keeps all rows from now on.
    pub fn restart(&mut self, schema: &KeyedSchema, keeps_rows: bool) {
        *self = KeyedPart::new(schema, self.reduction.filter(|_| !keeps_rows));
    }

    /// Add a row for each key.
    pub fn add(&mut self, keys: KeyColumn<'_>, rows: AddedRows<'_>, scratch: &mut PartScratch) {
        let row_bytes = self.width * rows.element.size_bytes();
        for start in (0..keys.len()).step_by(BLOCK_ROWS) {
            let end = (start + BLOCK_ROWS).min(keys.len());
            let keys = keys.range(start..end);
            scratch.hashes.clear();
            keys.hash(&mut scratch.hashes);
            scratch.numbers.clear();
            self.table.number_all(keys, &scratch.hashes, &mut scratch.numbers);
            let rows = AddedRows { bytes: &rows.bytes[start * row_bytes..end * row_bytes], ..rows };
            self.add_numbered(&scratch.numbers, rows.held_in(self.element, &mut scratch.converted));
        }
    }

    /// Add the staged rows, and clear the staging buffer.
    pub fn add_staged(&mut self, staged: &mut StagingBuffer, element: Element, scratch: &mut PartScratch) {
        self.add(KeyColumn::Int64(&staged.keys), AddedRows { element, bytes: &staged.rows }, scratch);
        staged.keys.clear();
        staged.rows.clear();
    }

    /// Add the rows with numbers `rows`, counted from the first assigned row. `keys` and `all` belong to all rows.
    pub fn add_assigned(
        &mut self,
        assigned: &AssignedRows,
        rows: &[u32],
        keys: KeyColumn<'_>,
        all: AddedRows<'_>,
        scratch: &mut PartScratch,
    ) {
        let (row_bytes, first) = (self.width * all.element.size_bytes(), assigned.rows.start);
        for rows in rows.chunks((BLOCK_BYTES / row_bytes.max(1)).clamp(1, BLOCK_ROWS)) {
            self.number_rows(keys, first, &assigned.hashes, rows, scratch);
            scratch.rows.clear();
            for &row in rows {
                scratch.rows.extend_from_slice(&all.bytes[(first + row as usize) * row_bytes..][..row_bytes]);
            }
            let rows = AddedRows { bytes: &scratch.rows, ..all };
            self.add_numbered(&scratch.numbers, rows.held_in(self.element, &mut scratch.converted));
        }
    }

    /// Write the key number of each row of `rows`, counted from `first`, to the scratch memory.
    fn number_rows(
        &mut self,
        keys: KeyColumn<'_>,
        first: usize,
        hashes: &[u64],
        rows: &[u32],
        scratch: &mut PartScratch,
    ) {
        let PartScratch { keys: own_keys, hashes: own_hashes, numbers, .. } = scratch;
        numbers.clear();
        match (&mut self.table, keys) {
            (KeyTable::Ints(table), KeyColumn::Int64(keys)) => {
                own_keys.clear();
                own_keys.extend(rows.iter().map(|&row| keys[first + row as usize]));
                own_hashes.clear();
                own_hashes.extend(rows.iter().map(|&row| hashes[row as usize]));
                table.number_all(own_keys, own_hashes, numbers);
            }
            (KeyTable::Strings(table), KeyColumn::Strings(keys)) => {
                let number = |&row: &u32| table.number(keys.get(first + row as usize), hashes[row as usize]);
                numbers.extend(rows.iter().map(number));
            }
            _ => unreachable!("keys of another kind are rejected"),
        }
    }

    /// Add the rows of a block with values of type `element`.
    pub fn add_block(&mut self, block: &BlockView<'_>, element: Element, scratch: &mut PartScratch) {
        let rows = AddedRows { element, bytes: block.values };
        let Some(counts) = block.counts else { return self.add(block.keys, rows, scratch) };
        let numbers = self.numbers(block.keys, scratch);
        let repeat = |(&number, &count)| std::iter::repeat_n(number, count as usize);
        let numbers: Vec<u32> = numbers.iter().zip(counts).flat_map(repeat).collect();
        self.add_numbered(&numbers, rows.held_in(self.element, &mut scratch.converted));
    }

    /// Return the number of each key. A new key gets the next free number.
    pub fn numbers(&mut self, keys: KeyColumn<'_>, scratch: &mut PartScratch) -> Vec<u32> {
        scratch.hashes.clear();
        keys.hash(&mut scratch.hashes);
        let mut numbers = Vec::with_capacity(keys.len());
        self.table.number_all(keys, &scratch.hashes, &mut numbers);
        numbers
    }

    /// Add one row for each of the key numbers. The rows have the element type of this part.
    pub fn add_numbered(&mut self, numbers: &[u32], rows: &[u8]) {
        let Some(reduction) = self.reduction else {
            self.owners.extend_from_slice(numbers);
            self.values.extend_from_slice(rows);
            return;
        };
        let row_bytes = self.row_bytes();
        if row_bytes > 0 {
            let known_bytes = self.values.len();
            self.values.resize(self.table.len() * row_bytes, 0);
            (reduction.fill)(&mut self.values[known_bytes..]);
            (reduction.combine_rows)(&mut self.values, rows, numbers, row_bytes);
        }
    }

    /// Convert the contents to a block of rows in the type of this part.
    pub fn into_block(self) -> KeyedBlock {
        let row_bytes = self.row_bytes();
        let keys = self.table.into_keys();
        if self.reduction.is_some() {
            return KeyedBlock { keys, counts: None, values: self.values };
        }
        let mut counts = vec![0; keys.len()];
        self.owners.iter().for_each(|&owner| counts[owner as usize] += 1);
        let values = sorted(&self.values, &self.owners, &counts, row_bytes);
        KeyedBlock { keys, counts: Some(counts), values }
    }

    /// Return the size of a row in the type of this part.
    fn row_bytes(&self) -> usize {
        self.width * self.element.size_bytes()
    }
}

impl<'a> AddedRows<'a> {
    /// Return the same rows in type `held`. A conversion stores its result in `converted`.
    fn held_in(self, held: Element, converted: &'a mut Vec<u8>) -> &'a [u8] {
        if self.element == held {
            return self.bytes;
        }
        converted.resize(self.bytes.len() / self.element.size_bytes() * held.size_bytes(), 0);
        convert(self.element, held, self.bytes, converted);
        converted
    }
}

/// Sort rows by the number of their key; the sort is stable.
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

impl KeyTable {
    fn len(&self) -> usize {
        match self {
            KeyTable::Ints(table) => table.len(),
            KeyTable::Strings(table) => table.len(),
        }
    }

    fn keys(&self) -> KeyColumn<'_> {
        match self {
            KeyTable::Ints(table) => KeyColumn::Int64(table.keys()),
            KeyTable::Strings(table) => KeyColumn::Strings(table.keys()),
        }
    }

    fn number_all(&mut self, keys: KeyColumn<'_>, hashes: &[u64], into: &mut Vec<u32>) {
        match (self, keys) {
            (KeyTable::Ints(table), KeyColumn::Int64(keys)) => table.number_all(keys, hashes, into),
            (KeyTable::Strings(table), KeyColumn::Strings(keys)) => table.number_all(keys, hashes, into),
            _ => unreachable!("keys of another kind are rejected"),
        }
    }

    fn into_keys(self) -> OwnedKeys {
        match self {
            KeyTable::Ints(table) => OwnedKeys::Int64(table.into_keys()),
            KeyTable::Strings(table) => {
                let (offsets, data) = table.into_columns();
                OwnedKeys::Strings { offsets, data }
            }
        }
    }
}
