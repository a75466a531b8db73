//! Keyed rows for each rank of a world, and the expected results of their regroup.

use super::sets::SetRandom;
use ripieno::keyed::{
    Aggregation, KeyColumn, KeyKind, KeyedBlock, KeyedCombine, KeyedSchema, OwnedKeys, Regroup, Regrouped, Strings,
};
use ripieno::{Communicator, Element, Error, Op};
use ripieno_kernels::Threads;
use std::collections::BTreeMap;

/// The keys of a rank and their rows of small values.
pub struct KeysWithRows {
    pub keys: Vec<i64>,
    pub values: Vec<i64>,
}

/// The rows of each key, concatenated.
pub type RegroupedRows = BTreeMap<Vec<u8>, Vec<i64>>;

pub fn rows(rank: usize, count: usize, key_count: u64, width: usize) -> KeysWithRows {
    let mut random = SetRandom(rank as u64 * 77 + key_count);
    let keys = (0..count).map(|_| random.below(key_count) as i64 - 3).collect();
    let values = (0..count * width).map(|_| random.below(9) as i64 - 4).collect();
    KeysWithRows { keys, values }
}

/// Return a string key of variable length for a number.
pub fn text(key: i64) -> Vec<u8> {
    format!("{key}").repeat((key.unsigned_abs() % 5) as usize).into_bytes()
}

pub fn add(aggregation: &mut Aggregation, rows: &KeysWithRows, ranks: Option<&[u32]>) {
    let threads = Threads::new(1);
    let bytes = super::bytes(&rows.values);
    match aggregation.schema().keys {
        KeyKind::Int64 => aggregation.add(KeyColumn::Int64(&rows.keys), &bytes, ranks, &threads).unwrap(),
        KeyKind::Strings => {
            let texts: Vec<Vec<u8>> = rows.keys.iter().map(|&key| text(key)).collect();
            let mut offsets = vec![0];
            texts.iter().for_each(|text| offsets.push(offsets[offsets.len() - 1] + text.len() as i64));
            let data = texts.concat();
            aggregation
                .add(KeyColumn::Strings(Strings::new(&offsets, &data).unwrap()), &bytes, ranks, &threads)
                .unwrap();
        }
    }
}

fn bytes_of(keys: KeyKind, key: i64) -> Vec<u8> {
    match keys {
        KeyKind::Int64 => key.to_ne_bytes().to_vec(),
        KeyKind::Strings => text(key),
    }
}

fn apply(op: Op, a: i64, b: i64) -> i64 {
    match op {
        Op::Sum => a + b,
        Op::Prod => a.wrapping_mul(b),
        Op::Min => a.min(b),
        Op::Max => a.max(b),
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::Function => unreachable!("rows combine by operations"),
    }
}

/// Return the rows of all ranks after a regroup.
pub fn expected(all: &[KeysWithRows], keys: KeyKind, merge: KeyedCombine, width: usize) -> RegroupedRows {
    let mut found = RegroupedRows::new();
    for rows in all {
        for (at, &key) in rows.keys.iter().enumerate() {
            let row = &rows.values[at * width..(at + 1) * width];
            let known = found.entry(bytes_of(keys, key)).or_default();
            match merge {
                KeyedCombine::Op(op) if !known.is_empty() => {
                    known.iter_mut().zip(row).for_each(|(a, &b)| *a = apply(op, *a, b));
                }
                _ => known.extend_from_slice(row),
            }
        }
    }
    found
}

/// Return the keys of a block as bytes.
pub fn keys_of(block: &KeyedBlock) -> Vec<Vec<u8>> {
    match &block.keys {
        OwnedKeys::Int64(keys) => keys.iter().map(|key| key.to_ne_bytes().to_vec()).collect(),
        OwnedKeys::Strings { offsets, data } => {
            offsets.windows(2).map(|ends| data[ends[0] as usize..ends[1] as usize].to_vec()).collect()
        }
    }
}

/// Return the rows of the blocks, and check that each key occurs once.
pub fn found(blocks: &[KeyedBlock], width: usize) -> RegroupedRows {
    let mut found = RegroupedRows::new();
    for block in blocks {
        let mut rest = &super::values(&block.values)[..];
        for (at, key) in keys_of(block).into_iter().enumerate() {
            let count = block.counts.as_ref().map_or(1, |counts| counts[at] as usize);
            let row = rest.split_off(..count * width).unwrap();
            assert!(found.insert(key, row.to_vec()).is_none(), "each key has one owner");
        }
        assert!(rest.is_empty());
    }
    found
}

pub const SUM: KeyedCombine = KeyedCombine::Op(Op::Sum);

pub fn schema(keys: KeyKind, width: usize, combine: KeyedCombine) -> KeyedSchema {
    KeyedSchema { keys, element: Element::I64, width, combine, label: 0 }
}

/// Regroup `rows`. `ranks` holds the owner of each row, if given.
pub fn try_run(
    comm: &Communicator,
    schema: KeyedSchema,
    rows: &KeysWithRows,
    ranks: Option<&[u32]>,
    options: &Regroup,
) -> Result<(Vec<KeyedBlock>, Regrouped), Error> {
    let mut aggregation = Aggregation::new(schema, comm.world_size(), None).unwrap();
    add(&mut aggregation, rows, ranks);
    let mut blocks = Vec::new();
    let regrouped = comm.regroup(aggregation, options, &mut |_, block| {
        blocks.push(block);
        Ok(())
    })?;
    Ok((blocks, regrouped))
}

pub fn run(
    comm: &Communicator,
    schema: KeyedSchema,
    rows: &KeysWithRows,
    options: &Regroup,
) -> (Vec<KeyedBlock>, Regrouped) {
    try_run(comm, schema, rows, None, options).unwrap()
}
