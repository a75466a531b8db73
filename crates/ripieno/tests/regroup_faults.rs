//! Regroups that fail: different schemas or options, errors of the callback, and spill files that cannot be read.

use crate::common::regroups::{SUM, add, rows, schema, text, try_run};
use crate::common::{mismatch, world};
use ripieno::keyed::{Aggregation, KeyKind, KeyedBlock, KeyedCombine, KeyedSchema, MemoryLimit, Regroup};
use ripieno::{Element, Error, JobFailure, Op};
use std::collections::BTreeSet;

#[test]
fn different_schemas_are_reported_and_the_world_continues() {
    let (int64, default) = (schema(KeyKind::Int64, 1, SUM), Regroup::new(SUM));
    let others = [
        (KeyedSchema { width: 2, ..int64 }, default, "int64 keys, rows of int64 × 2"),
        (schema(KeyKind::Strings, 1, SUM), default, "string keys"),
        (KeyedSchema { combine: KeyedCombine::Op(Op::Max), ..int64 }, default, "rows of int64 × 1, max, merged by sum"),
        (KeyedSchema { element: Element::U64, ..int64 }, default, "rows of uint64 × 1"),
        (KeyedSchema { label: 3, ..int64 }, default, "label 3"),
        (int64, Regroup { balanced: true, ..default }, "merged by sum, balanced"),
        (int64, Regroup { call: 5, ..default }, "call #0000000000000005 of int64 keys"),
        (int64, Regroup::new(KeyedCombine::Op(Op::Max)), "× 1, sum, merged by max"),
    ];
    let results = world(3, |comm| {
        let each = |&(other, options, _): &(KeyedSchema, Regroup, &str)| {
            let (schema, options) = if comm.rank() == 2 { (other, options) } else { (int64, default) };
            try_run(comm, schema, &rows(comm.rank(), 10, 5, schema.width), None, &options).map(drop)
        };
        let announced = others.iter().map(each).collect::<Vec<_>>();
        comm.barrier(None).unwrap();
        announced
    });
    assert!(results.iter().all(|announced| *announced == results[0]), "all ranks get the same error");
    for (announced, (_, _, named)) in results[0].iter().zip(others) {
        let Err(Error::RowsDiffer { description }) = announced else { panic!("{announced:?}") };
        let (most, last) = description.split_once("; rank 2: ").unwrap();
        assert!(most.starts_with("ranks 0-1: ") && most.ends_with("int64 keys, rows of int64 × 1, sum, merged by sum"));
        assert!(last.contains(named), "{description}");
    }
}

#[test]
fn a_rank_without_rows_adopts_schema_and_merge_of_the_others() {
    let (strings, int64) = (schema(KeyKind::Strings, 2, KeyedCombine::Concat), schema(KeyKind::Int64, 0, SUM));
    for count in [30, 20_000] {
        let results = world(3, |comm| {
            let is_empty = comm.rank() != 1;
            let (schema, merge) = if is_empty { (int64, SUM) } else { (strings, KeyedCombine::Concat) };
            let rows = rows(comm.rank(), if is_empty { 0 } else { count }, 1 << 40, schema.width);
            let mut aggregation = Aggregation::new(schema, 3, None).unwrap();
            add(&mut aggregation, &rows, None);
            let (mut key_count, mut schemas) = (0, Vec::new());
            let mut keep = |schema: &KeyedSchema, block: KeyedBlock| {
                key_count += block.keys.len();
                schemas.push((*schema, block.keys.kind()));
                Ok(())
            };
            let regrouped = comm.regroup(aggregation, &Regroup::new(merge), &mut keep).unwrap();
            assert_eq!(regrouped.schema, strings);
            assert!(schemas.iter().all(|announced| *announced == (strings, KeyKind::Strings)), "{schemas:?}");
            (key_count, schemas.len())
        });
        assert!(results.iter().all(|&(key_count, block_count)| key_count > 0 && block_count > 0), "{results:?}");
        assert_eq!(results.iter().map(|(key_count, _)| key_count).sum::<usize>(), key_count_of(count));
    }
}

/// Return the number of distinct keys of rank 1 in the test above.
fn key_count_of(count: usize) -> usize {
    rows(1, count, 1 << 40, 2).keys.into_iter().map(text).collect::<BTreeSet<_>>().len()
}

#[test]
fn different_calls_are_a_mismatch() {
    let (int64, default) = (schema(KeyKind::Int64, 1, SUM), Regroup::new(SUM));
    let results = world(3, |comm| {
        let options = if comm.rank() == 2 { Regroup { wave_bytes: 5, ..default } } else { default };
        try_run(comm, int64, &rows(comm.rank(), 10, 5, 1), None, &options).map(drop)
    });
    for result in results {
        let description = mismatch(result);
        assert!(description.contains("regroup(step 0, 258 parts, "), "{description}");
        assert!(description.contains("waves of up to 5 bytes"), "{description}");
    }
    let results = world(2, |comm| match comm.rank() {
        0 => comm.allreduce(&mut [0; 8], Element::I64, Op::Sum, None),
        _ => try_run(comm, int64, &rows(1, 10, 5, 1), None, &default).map(drop),
    });
    results.into_iter().for_each(|result| assert!(mismatch(result).contains("allreduce(int64 × 1, sum")));
}

#[test]
fn an_error_of_the_block_callback_ends_the_job() {
    let failed = Error::Callback { cause: "the disk is full".to_string(), traceback: "line 3".to_string() };
    let results = world(3, |comm| {
        let mut aggregation = Aggregation::new(schema(KeyKind::Int64, 1, SUM), 3, None).unwrap();
        add(&mut aggregation, &rows(comm.rank(), 5000, 1 << 40, 1), None);
        let options = Regroup { wave_bytes: 1000, ..Regroup::new(SUM) };
        let mut refuse = |_: &KeyedSchema, _| if comm.rank() == 1 { Err(failed.clone()) } else { Ok(()) };
        let ended = comm.regroup(aggregation, &options, &mut refuse);
        (ended.map(drop), comm.barrier(None))
    });
    assert_eq!(results[1].0, Err(failed));
    for (rank, (ended, after)) in results.into_iter().enumerate() {
        let Err(Error::Failed(JobFailure::RankFailed { rank: 1, cause, traceback, .. })) = after else {
            panic!("{after:?}")
        };
        assert_eq!((&cause[..], &traceback[..]), ("the disk is full", "line 3"));
        assert!(rank == 1 || matches!(ended, Err(Error::Failed(_))), "{ended:?}");
    }
}

#[test]
fn rows_that_cannot_be_sealed_end_the_job() {
    let results = world(3, |comm| {
        let directory = tempfile::tempdir().unwrap();
        let limit = MemoryLimit { bytes: 100_000, directory: directory.path().to_path_buf() };
        let mut aggregation = Aggregation::new(schema(KeyKind::Int64, 1, SUM), 3, Some(limit)).unwrap();
        add(&mut aggregation, &rows(comm.rank(), 20_000, 1 << 40, 1), None);
        assert!(aggregation.spilled_bytes() > 0);
        if comm.rank() == 1 {
            directory.close().unwrap();
        }
        comm.regroup(aggregation, &Regroup::new(SUM), &mut |_, _| Ok(())).map(drop)
    });
    for (rank, ended) in results.into_iter().enumerate() {
        match rank {
            1 => assert!(matches!(ended, Err(Error::Spill { .. })), "{ended:?}"),
            _ => assert!(matches!(ended, Err(Error::Failed(JobFailure::RankFailed { rank: 1, .. }))), "{ended:?}"),
        }
    }
}

#[test]
fn invalid_options_are_rejected_before_anything_is_sent() {
    world(2, |comm| {
        let none = |schema, ranks| Aggregation::new(schema, ranks, None).unwrap();
        let int64 = schema(KeyKind::Int64, 1, SUM);
        let refused = comm.regroup(none(int64, 3), &Regroup::new(SUM), &mut |_, _| Ok(()));
        assert!(matches!(refused, Err(Error::Argument { name: "ranks of the aggregation", .. })), "{refused:?}");
        let floats = KeyedSchema { element: Element::F32, combine: KeyedCombine::Concat, ..int64 };
        let refused = comm.regroup(none(floats, 2), &Regroup::new(KeyedCombine::Op(Op::Or)), &mut |_, _| Ok(()));
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
        let nothing =
            comm.regroup(none(int64, 2), &Regroup::new(SUM), &mut |_, _| panic!("there is no block")).unwrap();
        assert_eq!((nothing.waves, nothing.rows_in, nothing.keys), (0, 0, 0));
    });
}
