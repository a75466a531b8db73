//! Columns of keys with values, aggregated by the crate and by a map.

use ripieno::keyed::{Aggregation, KeyColumn, KeyKind, KeyedBlock, KeyedCombine, KeyedSchema, OwnedKeys, Parts};
use ripieno::{Element, Error};
use ripieno_kernels::Threads;
use ripieno_run::reduction::{Reduction, convert};
use std::collections::BTreeMap;
use std::ops::Range;

/// All keys with their rows. Keys ascend unless stated otherwise.
pub type TestKeyedRows = Vec<(Vec<u8>, Vec<u8>)>;

/// Return a generator of pseudo-random numbers, the same in each run.
pub fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A column of keys.
#[derive(Clone)]
pub enum Column {
    Ints(Vec<i64>),
    Strings(Vec<Vec<u8>>),
}

impl Column {
    pub fn kind(&self) -> KeyKind {
        match self {
            Column::Ints(_) => KeyKind::Int64,
            Column::Strings(_) => KeyKind::Strings,
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Column::Ints(keys) => keys.len(),
            Column::Strings(keys) => keys.len(),
        }
    }

    /// Return the keys as bytes.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        match self {
            Column::Ints(keys) => keys.iter().map(|key| key.to_le_bytes().to_vec()).collect(),
            Column::Strings(keys) => keys.clone(),
        }
    }

    fn range(&self, rows: Range<usize>) -> OwnedKeys {
        match self {
            Column::Ints(keys) => OwnedKeys::Int64(keys[rows].to_vec()),
            Column::Strings(keys) => {
                let ends = keys[rows.clone()].iter().scan(0, |end, key| {
                    *end += key.len() as i64;
                    Some(*end)
                });
                OwnedKeys::Strings { offsets: [0].into_iter().chain(ends).collect(), data: keys[rows].concat() }
            }
        }
    }
}

/// Keys with a row of small values each, and the schema of the aggregation.
#[derive(Clone)]
pub struct KeyedCase<'a> {
    pub schema: KeyedSchema,
    pub column: &'a Column,
    pub values: Vec<u8>,
}

impl<'a> KeyedCase<'a> {
    pub fn new(schema: KeyedSchema, column: &'a Column) -> KeyedCase<'a> {
        let mut next = random(9);
        let element_count = column.len() * schema.width;
        let values = match schema.element {
            // The sums depend on the order of the values.
            Element::F64 => (0..element_count).flat_map(|_| (next() as f64 * 1e-19 - 0.7).to_ne_bytes()).collect(),
            Element::F32 => (0..element_count).flat_map(|_| (next() as f32 * 1e-19 - 0.7).to_ne_bytes()).collect(),
            // Any bits except NaNs, because the bits of a sum with NaNs depend on its order.
            Element::F16 | Element::Bf16 => {
                (0..element_count).flat_map(|_| (next() as u16 & 0xbfff).to_ne_bytes()).collect()
            }
            _ => (0..element_count * schema.element.size_bytes()).map(|_| next() as u8).collect(),
        };
        KeyedCase { schema, column, values }
    }

    /// Add the rows in the range `rows`. `ranks` holds the owner of each row of the case.
    pub fn add_to(
        &self,
        aggregation: &mut Aggregation,
        rows: Range<usize>,
        ranks: Option<&[u32]>,
        thread_count: usize,
    ) -> Result<(), Error> {
        let (keys, row_bytes) = (self.column.range(rows.clone()), self.schema.row_bytes());
        let values = &self.values[rows.start * row_bytes..rows.end * row_bytes];
        aggregation.add(keys.view(), values, ranks.map(|ranks| &ranks[rows]), &Threads::new(thread_count))
    }

    /// Aggregate all rows for `rank_count` ranks, `add_rows` rows per call.
    pub fn sealed(&self, rank_count: usize, thread_count: usize, add_rows: usize) -> Parts {
        let aggregation = Aggregation::new(self.schema, rank_count, None).unwrap();
        self.sealed_in(aggregation, thread_count, add_rows)
    }

    /// Aggregate all rows in `aggregation`, `add_rows` rows per call.
    pub fn sealed_in(&self, mut aggregation: Aggregation, thread_count: usize, add_rows: usize) -> Parts {
        for start in (0..self.column.len()).step_by(add_rows) {
            let rows = start..(start + add_rows).min(self.column.len());
            self.add_to(&mut aggregation, rows, None, thread_count).unwrap();
        }
        aggregation.seal(&Threads::new(thread_count)).unwrap()
    }

    /// Return the rows of [`KeyedCase::sealed`] by part, in the order within the part.
    pub fn ordered_blocks(&self, rank_count: usize, thread_count: usize, add_rows: usize) -> TestKeyedRows {
        take_all(self.sealed(rank_count, thread_count, add_rows))
    }

    /// Return the rows of [`KeyedCase::sealed`] by key.
    pub fn blocks(&self, rank_count: usize, thread_count: usize, add_rows: usize) -> TestKeyedRows {
        let mut rows = self.ordered_blocks(rank_count, thread_count, add_rows);
        rows.sort();
        rows
    }
}

/// Return the keys of all parts with their rows.
pub fn take_all(mut parts: Parts) -> TestKeyedRows {
    let (schema, part_count) = (*parts.schema(), parts.part_count());
    let take = |part| {
        let size = parts.size(part);
        let block = parts.take(part).unwrap();
        assert_eq!(block.size(), size, "the size is known before the part is taken");
        block
    };
    blocks(&schema, (0..part_count).map(take).collect())
}

/// Return the keys of the blocks with their rows.
pub fn blocks(schema: &KeyedSchema, blocks: Vec<KeyedBlock>) -> TestKeyedRows {
    let mut rows = Vec::new();
    for block in blocks {
        assert_eq!(block.counts.is_some(), schema.combine == KeyedCombine::Concat);
        let keys: Vec<Vec<u8>> = match block.view().keys {
            KeyColumn::Int64(keys) => keys.iter().map(|key| key.to_le_bytes().to_vec()).collect(),
            KeyColumn::Strings(keys) => keys.iter().map(<[u8]>::to_vec).collect(),
        };
        let mut rest = block.values.as_slice();
        for (at, key) in keys.into_iter().enumerate() {
            let count = block.counts.as_ref().map_or(1, |counts| counts[at] as usize);
            let (own, others) = rest.split_at(count * schema.row_bytes());
            rows.push((key, [own, &vec![0xaa; count * usize::from(schema.width == 0)]].concat()));
            rest = others;
        }
        assert!(rest.is_empty(), "every row has its key");
    }
    rows
}

/// The expected result, as a map from keys to rows.
pub struct Oracle {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Oracle {
    pub fn of(case: &KeyedCase<'_>) -> Oracle {
        let (mut map, row_bytes) = (BTreeMap::<_, Vec<u8>>::new(), case.schema.row_bytes());
        let (element, op) = (case.schema.element, case.schema.combine.op());
        let held = op.map_or(element, |op| element.accumulator(op));
        let converted = |from: Element, to: Element, row: &[u8]| {
            if from == to {
                return row.to_vec();
            }
            let mut into = vec![0; case.schema.width * to.size_bytes()];
            convert(from, to, row, &mut into);
            into
        };
        let reduction = op.map(|op| Reduction::of(held, op).unwrap());
        for (at, key) in case.column.keys().into_iter().enumerate() {
            let row = &case.values[at * row_bytes..][..row_bytes];
            let combined = map.entry(key);
            match reduction {
                // Rows without values are counted: one byte per row.
                None => combined.or_default().extend(if row_bytes == 0 { &[0xaa] } else { row }),
                Some(_) if row_bytes == 0 => drop(combined.or_insert(vec![0xaa])),
                Some(reduction) => {
                    let combined = combined.or_insert_with(|| {
                        let mut identity = vec![0; case.schema.width * held.size_bytes()];
                        (reduction.fill)(&mut identity);
                        identity
                    });
                    (reduction.combine)(combined, &converted(element, held, row));
                }
            }
        }
        if reduction.is_some() && row_bytes > 0 {
            map.values_mut().for_each(|row| *row = converted(held, element, row));
        }
        Oracle { map }
    }

    pub fn blocks(&self) -> TestKeyedRows {
        self.map.clone().into_iter().collect()
    }
}
