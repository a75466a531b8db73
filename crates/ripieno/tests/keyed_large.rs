//! Aggregations of many rows: splits of the initial table, staged rows, and memory limits.

use crate::common::keyed::{Column, KeyedCase, Oracle, random, take_all};
use ripieno::keyed::{Aggregation, KeyedCombine, KeyedSchema, MemoryLimit};
use ripieno::{Element, Error, Op};
use ripieno_kernels::Threads;
use std::path::Path;

fn schema(column: &Column, element: Element, width: usize, combine: KeyedCombine) -> KeyedSchema {
    KeyedSchema { keys: column.kind(), element, width, combine, label: 0 }
}

/// Return many keys. One key has half of the rows.
fn skewed(row_count: u64, distinct: u64) -> Column {
    let mut next = random(6);
    let key = |_| if next().is_multiple_of(2) { 11 } else { (next() % distinct) as i64 - 100 };
    Column::Ints((0..row_count).map(key).collect())
}

fn words(row_count: u64, distinct: u64) -> Column {
    let mut next = random(7);
    let word = |_| {
        let number = next() % distinct;
        "x".repeat((number % 30) as usize).into_bytes().into_iter().chain(number.to_string().into_bytes()).collect()
    };
    Column::Strings((0..row_count).map(word).collect())
}

fn limited(schema: KeyedSchema, bytes: u64, directory: &Path) -> Aggregation {
    Aggregation::new(schema, 2, Some(MemoryLimit { bytes, directory: directory.to_path_buf() })).unwrap()
}

#[test]
fn many_rows_combine_as_in_a_map_for_any_number_of_threads() {
    // Enough rows to stage them and to split the initial table.
    for (column, width) in [(skewed(250_000, 60_000), 8), (skewed(60_000, 30_000), 5), (words(60_000, 30_000), 1)] {
        let case = KeyedCase::new(schema(&column, Element::F64, width, KeyedCombine::Op(Op::Sum)), &column);
        let mut expected = Oracle::of(&case).blocks();
        let rows = case.ordered_blocks(2, 1, usize::MAX);
        assert_eq!(rows, case.ordered_blocks(2, 3, 90_000));
        let mut sorted = rows;
        sorted.sort();
        expected.sort();
        assert!(sorted == expected, "{:?}", case.schema);
    }
}

#[test]
fn spilled_rows_have_the_same_bits() {
    let directory = tempfile::tempdir().unwrap();
    for column in [skewed(12_000, 5_000), words(12_000, 5_000)] {
        for (element, width, combine) in [
            (Element::F64, 1, KeyedCombine::Op(Op::Sum)),
            (Element::F32, 3, KeyedCombine::Op(Op::Prod)),
            (Element::I64, 1, KeyedCombine::Op(Op::Sum)),
            (Element::F64, 1, KeyedCombine::Op(Op::Max)),
            (Element::U8, 0, KeyedCombine::Op(Op::Sum)),
            (Element::F64, 1, KeyedCombine::Concat),
            (Element::U8, 0, KeyedCombine::Concat),
        ] {
            let case = KeyedCase::new(schema(&column, element, width, combine), &column);
            let expected = case.ordered_blocks(2, 1, 5000);
            for (limit_bytes, thread_count, add_rows) in [(400_000, 2, 12_000), (100_000, 1, 5000), (5000, 1, 4000)] {
                let aggregation = limited(case.schema, limit_bytes, directory.path());
                let parts = case.sealed_in(aggregation, thread_count, add_rows);
                assert!(parts.spilled_bytes() > 0 || limit_bytes > 100_000, "{:?} within {limit_bytes}", case.schema);
                assert!(take_all(parts) == expected, "{:?} within {limit_bytes}", case.schema);
            }
        }
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "no files remain");
}

#[test]
fn the_held_memory_stays_within_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let limit_bytes = 2 << 20;
    for (column, combine) in [
        (skewed(400_000, 100_000), KeyedCombine::Op(Op::Sum)),
        (skewed(400_000, 100_000), KeyedCombine::Concat),
        (words(300_000, 100_000), KeyedCombine::Op(Op::Sum)),
    ] {
        let case = KeyedCase::new(schema(&column, Element::F64, 1, combine), &column);
        let mut aggregation = limited(case.schema, limit_bytes, directory.path());
        for start in (0..column.len()).step_by(50_000) {
            case.add_to(&mut aggregation, start..start + 50_000, None, 1).unwrap();
            assert!(aggregation.held_bytes() as u64 <= limit_bytes, "{} bytes are held", aggregation.held_bytes());
        }
        assert!(aggregation.spilled_bytes() > 0);
        let parts = aggregation.seal(&Threads::new(1)).unwrap();
        assert!(parts.held_bytes() as u64 <= limit_bytes, "{} bytes are held", parts.held_bytes());
    }
}

#[test]
fn spilled_aggregations_are_absorbed_and_merged_within_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let column = skewed(40_000, 10_000);
    for combine in [KeyedCombine::Op(Op::Sum), KeyedCombine::Concat] {
        let case = KeyedCase::new(schema(&column, Element::F64, 1, combine), &column);
        let absorbed = |new: &dyn Fn() -> Aggregation| {
            let (mut own, mut other) = (new(), new());
            case.add_to(&mut own, 0..15_000, None, 1).unwrap();
            case.add_to(&mut other, 15_000..40_000, None, 1).unwrap();
            own.absorb(other).unwrap();
            own.seal(&Threads::new(1)).unwrap()
        };
        let expected = take_all(absorbed(&|| Aggregation::new(case.schema, 2, None).unwrap()));
        let parts = absorbed(&|| limited(case.schema, 200_000, directory.path()));
        assert!(parts.spilled_bytes() > 0);
        assert!(take_all(parts) == expected, "{combine:?}");
    }
}

#[test]
fn the_error_names_a_missing_spill_directory() {
    let column = skewed(1000, 1000);
    let case = KeyedCase::new(schema(&column, Element::F64, 1, KeyedCombine::Op(Op::Sum)), &column);
    let mut aggregation = limited(case.schema, 100, Path::new("/not/there"));
    let error = case.add_to(&mut aggregation, 0..1000, None, 1).unwrap_err();
    assert!(matches!(&error, Error::Spill { directory, .. } if directory == Path::new("/not/there")));
    let message = error.to_string();
    assert!(message.contains("/not/there: ") && message.contains("larger memory_limit"), "{message}");

    // Only some of the rows were added, so the aggregation is unusable.
    assert_eq!(case.add_to(&mut aggregation, 0..1, None, 1), Err(error.clone()));
    let mut complete = Aggregation::new(case.schema, 2, None).unwrap();
    case.add_to(&mut complete, 0..1000, None, 1).unwrap();
    assert_eq!(aggregation.absorb(complete), Err(error.clone()));
    assert_eq!(aggregation.seal(&Threads::new(1)).unwrap_err(), error);
}
