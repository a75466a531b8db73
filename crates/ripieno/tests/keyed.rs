//! Keyed aggregation compared with a map of rows.

use crate::common::keyed::{Column, KeyedCase, Oracle, blocks, random, take_all};
use ripieno::keyed::{Aggregation, BlockView, KeyColumn, KeyKind, KeyedCombine, KeyedSchema};
use ripieno::{Element, Error, Op};
use ripieno_kernels::Threads;

const OPS: [Op; 7] = [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::And, Op::Or, Op::Xor];

fn schema(keys: KeyKind, element: Element, width: usize, combine: KeyedCombine) -> KeyedSchema {
    KeyedSchema { keys, element, width, combine, label: 0 }
}

/// Return all combinations that this element type supports.
fn combines(element: Element) -> Vec<KeyedCombine> {
    let schema = |op| schema(KeyKind::Int64, element, 1, KeyedCombine::Op(op));
    let ops = OPS.into_iter().filter(|&op| schema(op).reduction().is_ok()).map(KeyedCombine::Op);
    ops.chain([KeyedCombine::Concat]).collect()
}

/// Return columns of up to a few hundred keys: few or many distinct keys, and equal, skewed and extreme keys.
fn columns() -> Vec<Column> {
    let mut next = random(4);
    let mut columns = vec![Column::Ints(vec![]), Column::Ints(vec![7; 300]), Column::Ints((0..500).collect())];
    for distinct in [3, 40, 1000] {
        columns.push(Column::Ints((0..700).map(|_| (next() % distinct) as i64 - 1).collect()));
    }
    columns.push(Column::Ints((0..700).map(|_| if next().is_multiple_of(2) { 5 } else { next() as i64 }).collect()));
    columns.push(Column::Ints([i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MIN].repeat(20)));
    let lengths = [0, 1, 7, 8, 16, 17, 90];
    let string =
        |next: &mut dyn FnMut() -> u64| vec![(next() % 3 + 253) as u8; lengths[next() as usize % lengths.len()]];
    columns.push(Column::Strings((0..600).map(|_| string(&mut next)).collect()));
    columns.push(Column::Strings((0..600).map(|i| format!("key {}", i * i % 331).into_bytes()).collect()));
    columns.push(Column::Strings(vec![]));
    columns
}

#[test]
fn equal_keys_combine_as_in_a_map() {
    for column in columns() {
        for element in Element::ALL {
            for combine in combines(element) {
                let case = KeyedCase::new(schema(column.kind(), element, 2, combine), &column);
                assert_eq!(case.blocks(3, 2, 130), Oracle::of(&case).blocks(), "{:?}", case.schema);
            }
        }
    }
}

#[test]
fn rows_of_any_width_combine() {
    for column in columns() {
        for width in [0, 1, 3, 8, 33, 100] {
            for combine in [KeyedCombine::Op(Op::Sum), KeyedCombine::Concat] {
                let case = KeyedCase::new(schema(column.kind(), Element::F32, width, combine), &column);
                assert_eq!(case.blocks(1, 1, 1000), Oracle::of(&case).blocks(), "{:?}", case.schema);
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_threads_or_the_rows_per_add() {
    for column in columns() {
        for combine in [KeyedCombine::Op(Op::Sum), KeyedCombine::Concat] {
            let case = KeyedCase::new(schema(column.kind(), Element::F64, 1, combine), &column);
            let expected = case.ordered_blocks(5, 1, 1000);
            for (thread_count, add_rows) in [(1, 1), (2, 1000), (3, 100), (4, 13)] {
                assert_eq!(case.ordered_blocks(5, thread_count, add_rows), expected, "{:?}", case.schema);
            }
        }
    }
}

#[test]
fn the_caller_may_assign_keys_to_ranks() {
    for column in columns() {
        for combine in [KeyedCombine::Op(Op::Max), KeyedCombine::Concat] {
            let case = KeyedCase::new(schema(column.kind(), Element::I16, 1, combine), &column);
            let ranks: Vec<u32> = column.keys().iter().map(|key| key.len() as u32 * 31 % 3).collect();
            let mut aggregation = Aggregation::new(case.schema, 3, None).unwrap();
            case.add_to(&mut aggregation, 0..column.len(), Some(&ranks), 2).unwrap();
            let per_rank = aggregation.parts_per_rank();
            let mut parts = aggregation.seal(&Threads::new(2)).unwrap();
            let mut found = Vec::new();
            for part in 0..parts.part_count() {
                let rows = blocks(&case.schema, vec![parts.take(part).unwrap()]);
                let is_owner = |key: &[u8]| key.len() * 31 % 3 == part / per_rank;
                assert!(rows.iter().all(|(key, _)| is_owner(key)));
                found.extend(rows);
            }
            found.sort();
            assert_eq!(found, Oracle::of(&case).blocks());
        }
    }
}

#[test]
fn absorbed_rows_follow_the_existing_rows() {
    for column in columns() {
        for combine in [KeyedCombine::Op(Op::Prod), KeyedCombine::Concat] {
            let case = KeyedCase::new(schema(column.kind(), Element::U32, 3, combine), &column);
            let [mut own, mut other] = [0, 1].map(|_| Aggregation::new(case.schema, 2, None).unwrap());
            let half = column.len() / 2;
            case.add_to(&mut own, 0..half, None, 1).unwrap();
            case.add_to(&mut other, half..column.len(), None, 1).unwrap();
            own.absorb(other).unwrap();
            let mut found = take_all(own.seal(&Threads::new(1)).unwrap());
            found.sort();
            assert_eq!(found, Oracle::of(&case).blocks());
        }
    }
}

#[test]
fn concatenated_rows_may_be_combined_later() {
    for column in columns() {
        let concatenated = KeyedCase::new(schema(column.kind(), Element::F64, 1, KeyedCombine::Concat), &column);
        let mut parts = concatenated.sealed(2, 1, 50);
        let summed = KeyedSchema { combine: KeyedCombine::Op(Op::Sum), ..concatenated.schema };
        let mut aggregation = Aggregation::new(summed, 2, None).unwrap();
        for part in 0..parts.part_count() {
            let size = parts.size(part);
            let block = parts.take(part).unwrap();
            assert_eq!((size.keys, size.rows), (block.keys.len() as u64, block.view().row_count()));
            aggregation.add_block(&block, part).unwrap();
        }
        let mut found = take_all(aggregation.seal(&Threads::new(1)).unwrap());
        found.sort();
        assert_eq!(found, Oracle::of(&KeyedCase { schema: summed, ..concatenated }).blocks());
    }
}

#[test]
fn mismatched_input_is_rejected_by_name() {
    let sums = schema(KeyKind::Int64, Element::F64, 1, KeyedCombine::Op(Op::Sum));
    let (keys, threads) = (KeyColumn::Int64(&[1, 2, 3]), Threads::new(1));
    let mut aggregation = Aggregation::new(sums, 4, None).unwrap();
    let mut refused =
        |keys, values: &[u8], ranks| aggregation.add(keys, values, ranks, &threads).unwrap_err().to_string();
    assert_eq!(refused(keys, &[0; 23], None), "values=23 bytes: expected 3 rows of 8 bytes, one row per key");
    assert_eq!(refused(keys, &[0; 24], Some(&[0, 0])), "ranks=2 ranks: expected one for each of 3 keys");
    assert_eq!(
        refused(keys, &[0; 24], Some(&[0, 4, 9])),
        "ranks=rank 4 for the key of row 1: expected ranks below the world size, 4"
    );
    let strings = KeyColumn::Strings(ripieno::keyed::Strings::new(&[0, 1], b"a").unwrap());
    assert_eq!(refused(strings, &[0; 8], None), "keys=a column of string: expected int64 keys");
    let xor = KeyedSchema { combine: KeyedCombine::Op(Op::Xor), ..sums };
    assert!(matches!(Aggregation::new(xor, 1, None), Err(Error::Unsupported(_))));
    let other = Aggregation::new(sums, 5, None).unwrap();
    assert!(matches!(aggregation.absorb(other), Err(Error::Argument { name: "aggregation", .. })));
}

#[test]
fn sizes_beyond_any_memory_are_rejected_by_name() {
    let sums = schema(KeyKind::Int64, Element::F64, 1, KeyedCombine::Op(Op::Sum));
    let refused = |schema, ranks| Aggregation::new(schema, ranks, None).unwrap_err().to_string();
    let expected = "width=2305843009213693952: expected at most 1152921504606846975 elements of float64";
    assert_eq!(refused(KeyedSchema { width: 1 << 61, ..sums }, 1), expected);
    for ranks in [0, 1 << 63, usize::MAX] {
        assert_eq!(refused(sums, ranks), format!("rank_count={ranks}: expected 1 to 1000000"));
    }
    for width in [0, 1] {
        let mut aggregation = Aggregation::new(KeyedSchema { width, ..sums }, 1, None).unwrap();
        let mut refused = |counts: &[u64]| {
            let view = BlockView { keys: KeyColumn::Int64(&[1, 2]), counts: Some(counts), values: &vec![0; 8 * width] };
            aggregation.add_view(&view, 0).unwrap_err().to_string()
        };
        assert_eq!(
            refused(&[2, u64::MAX]),
            format!("counts={} rows or more: expected at most as many as memory has bytes", u64::MAX)
        );
        assert_eq!(refused(&[1, 0]), "counts=0 for key 1: expected at least one row for each key");
    }
}

#[test]
fn rows_may_be_added_by_any_number_of_threads() {
    let column = Column::Ints((0..5000).collect());
    let case = KeyedCase::new(schema(column.kind(), Element::F64, 5, KeyedCombine::Op(Op::Sum)), &column);
    assert_eq!(case.ordered_blocks(2, usize::MAX, 5000), case.ordered_blocks(2, 1, 5000));
}
