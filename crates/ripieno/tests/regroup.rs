//! Regroups compared with a single-threaded result, for all kinds of keys and combinations.

use crate::common::regroups::{KeysWithRows, SUM, add, expected, found, keys_of, rows, run, schema, try_run};
use crate::common::{endpoint_world, replicated_world, world};
use ripieno::keyed::{Aggregation, KeyColumn, KeyKind, KeyedBlock, KeyedCombine, KeyedSchema, MemoryLimit, Regroup};
use ripieno::net::LinkPolicy;
use ripieno::{Collective, Element, Op};
use ripieno_kernels::Threads;
use std::num::NonZeroUsize;

/// Return the rows of all ranks: more rows on later ranks, none on the first of several.
fn all_rows(p: usize, width: usize) -> Vec<KeysWithRows> {
    (0..p).map(|rank| rows(rank, if p > 1 { 350 * rank } else { 350 }, 300, width)).collect()
}

const CASES: [(KeyKind, KeyedCombine, KeyedCombine, usize); 9] = [
    (KeyKind::Int64, SUM, SUM, 1),
    (KeyKind::Int64, SUM, SUM, 0),
    (KeyKind::Int64, KeyedCombine::Concat, KeyedCombine::Concat, 2),
    (KeyKind::Int64, KeyedCombine::Concat, KeyedCombine::Op(Op::Max), 3),
    (KeyKind::Strings, SUM, SUM, 2),
    (KeyKind::Strings, KeyedCombine::Op(Op::Min), KeyedCombine::Op(Op::Min), 1),
    (KeyKind::Strings, KeyedCombine::Op(Op::Xor), KeyedCombine::Op(Op::Xor), 1),
    (KeyKind::Strings, KeyedCombine::Concat, KeyedCombine::Concat, 1),
    (KeyKind::Strings, KeyedCombine::Concat, SUM, 1),
];

#[test]
fn every_key_reaches_one_rank_with_all_its_rows() {
    for p in [1, 2, 3, 5, 8] {
        for (number, (keys, combine, merge, width)) in CASES.into_iter().enumerate() {
            let all = all_rows(p, width);
            let options = Regroup {
                balanced: number % 2 == 1,
                wave_bytes: [0, 3000, u64::MAX][number % 3],
                eager_bytes: [0, 100, usize::MAX][number % 3],
                ..Regroup::new(merge)
            };
            let results = world(p, |comm| run(comm, schema(keys, width, combine), &all[comm.rank()], &options));
            let rows_in: u64 = results.iter().map(|(_, regrouped)| regrouped.rows_in).sum();
            let rows_out: u64 = results.iter().map(|(_, regrouped)| regrouped.rows).sum();
            let key_count: u64 = results.iter().map(|(_, regrouped)| regrouped.keys).sum();
            let blocks: Vec<KeyedBlock> = results.into_iter().flat_map(|(blocks, _)| blocks).collect();
            let (found, case) = (found(&blocks, width), format!("p={p}, {keys:?}, {combine:?}, {merge:?} × {width}"));
            assert_eq!(found, expected(&all, keys, merge, width), "{case}");
            assert_eq!(key_count, found.len() as u64, "{case}");
            match (combine, merge) {
                (KeyedCombine::Concat, KeyedCombine::Concat) => {
                    assert_eq!((rows_in, rows_out), (row_count(&all), rows_in), "{case}")
                }
                (KeyedCombine::Concat, _) => assert_eq!((rows_in, rows_out), (row_count(&all), key_count), "{case}"),
                _ => assert!(rows_out == key_count && rows_in >= rows_out, "{case}"),
            }
        }
    }
}

fn row_count(all: &[KeysWithRows]) -> u64 {
    all.iter().map(|rows| rows.keys.len() as u64).sum()
}

#[test]
fn worlds_and_subgroups_regroup_over_shared_memory_and_tcp() {
    for links in [LinkPolicy::SharedMemory, LinkPolicy::Tcp] {
        let all: Vec<KeysWithRows> = (0..4).map(|rank| rows(rank, 20_000, 9000, 1)).collect();
        // Large enough for several waves of pulled blocks.
        let options = Regroup { wave_bytes: 40_000, eager_bytes: 2000, ..Regroup::new(SUM) };
        let results = endpoint_world(4, links, |comm| {
            let world_result = run(comm, schema(KeyKind::Int64, 1, SUM), &all[comm.rank()], &options);
            let part = comm.split(Some((comm.rank() % 2) as u32), -(comm.rank() as i64)).unwrap().unwrap();
            let subgroup_result = run(&part, schema(KeyKind::Strings, 1, SUM), &all[comm.rank()], &options);
            assert!(world_result.1.waves > 2 && subgroup_result.1.waves > 2, "{world_result:?}");
            (world_result.0, subgroup_result.0)
        });
        let (world_blocks, subgroup_blocks): (Vec<_>, Vec<_>) = results.into_iter().unzip();
        assert_eq!(found(&world_blocks.concat(), 1), expected(&all, KeyKind::Int64, SUM, 1));
        for color in 0..2 {
            let own: Vec<KeysWithRows> = (0..2).map(|index| rows(2 * index + color, 20_000, 9000, 1)).collect();
            let blocks = [&subgroup_blocks[color][..], &subgroup_blocks[2 + color]].concat();
            assert_eq!(found(&blocks, 1), expected(&own, KeyKind::Strings, SUM, 1));
        }
    }
}

#[test]
fn spilled_parts_have_the_same_result() {
    let directory = tempfile::tempdir().unwrap();
    for (keys, combine, merge) in [
        (KeyKind::Int64, SUM, SUM),
        (KeyKind::Strings, SUM, SUM),
        (KeyKind::Int64, KeyedCombine::Concat, KeyedCombine::Concat),
        (KeyKind::Strings, KeyedCombine::Concat, SUM),
    ] {
        let all: Vec<KeysWithRows> = (0..3).map(|rank| rows(rank, 10_000, 6000, 1)).collect();
        let once = |limit_bytes: Option<u64>| {
            let limit = limit_bytes.map(|bytes| MemoryLimit { bytes, directory: directory.path().to_path_buf() });
            let options = limit_bytes.iter().fold(Regroup::new(merge), |options, &bytes| options.within(bytes));
            let results = world(3, |comm| {
                let mut aggregation = Aggregation::new(schema(keys, 1, combine), 3, limit.clone()).unwrap();
                add(&mut aggregation, &all[comm.rank()], None);
                let mut blocks = Vec::new();
                let mut keep = |_: &KeyedSchema, block| {
                    blocks.push(block);
                    Ok(())
                };
                let regrouped = comm.regroup(aggregation, &options, &mut keep).unwrap();
                assert_eq!(regrouped.spilled_bytes > 0, limit_bytes.is_some(), "{regrouped:?}");
                assert_eq!(regrouped.waves > 1, limit_bytes.is_some(), "{regrouped:?}");
                blocks
            });
            results.concat()
        };
        let spilled = once(Some(100_000));
        assert_eq!(found(&spilled, 1), expected(&all, keys, merge, 1), "{keys:?}, {combine:?}");
        assert_eq!(spilled, once(None), "{keys:?}, {combine:?}");
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "spill files have no names");
}

#[test]
fn replicas_get_the_same_blocks() {
    for links in [LinkPolicy::SharedMemory, LinkPolicy::Tcp] {
        let all: Vec<KeysWithRows> = (0..2).map(|rank| rows(rank, 5000, 3000, 1)).collect();
        let options = Regroup { wave_bytes: 5000, eager_bytes: 500, ..Regroup::new(SUM) };
        let results = replicated_world(4, 2, links, |world| {
            let comm = world.replicate(2).unwrap();
            let (blocks, regrouped) = run(&comm, schema(KeyKind::Strings, 1, SUM), &all[comm.rank()], &options);
            assert!(regrouped.waves > 2, "{regrouped:?}");
            world.barrier(None).unwrap();
            blocks
        });
        assert_eq!(results[..2], results[2..]);
        assert_eq!(found(&results[..2].concat(), 1), expected(&all, KeyKind::Strings, SUM, 1));
    }
}

/// Return floats with an order-dependent sum.
fn floats(rank: usize, count: usize) -> Vec<u8> {
    (0..count).flat_map(|at| ((0.1 + rank as f64 * 1.7).powi(1 + at as i32 % 9) * 1e-3).to_ne_bytes()).collect()
}

#[test]
fn wave_size_and_thread_count_do_not_change_the_bits() {
    let all: Vec<KeysWithRows> = (0..3).map(|rank| rows(rank, 3000, 700, 0)).collect();
    for combine in [SUM, KeyedCombine::Concat] {
        let schema = KeyedSchema { element: Element::F64, ..schema(KeyKind::Int64, 1, combine) };
        let once = |options: Regroup| {
            world(3, |comm| {
                let mut aggregation = Aggregation::new(schema, 3, None).unwrap();
                let keys = &all[comm.rank()].keys;
                let values = floats(comm.rank(), keys.len());
                aggregation.add(KeyColumn::Int64(keys), &values, None, &Threads::new(1)).unwrap();
                let mut blocks = Vec::new();
                let mut keep = |_: &KeyedSchema, block| {
                    blocks.push(block);
                    Ok(())
                };
                comm.regroup(aggregation, &options, &mut keep).unwrap();
                blocks
            })
        };
        let default = once(Regroup::new(SUM));
        for wave_bytes in [0, 2000, 20_000] {
            for (threads, pulls) in [(1, 1), (4, 3)].map(|(threads, pulls)| (number(threads), number(pulls))) {
                let options = Regroup { wave_bytes, eager_bytes: 64, threads, pulls, ..Regroup::new(SUM) };
                assert_eq!(once(options), default, "{combine:?}, waves of {wave_bytes}, {threads} threads");
            }
        }
    }
}

fn number(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

#[test]
fn keys_of_a_part_are_ordered_by_first_appearance_and_rows_of_a_key_by_rank() {
    world(3, |comm| {
        let rank = comm.rank() as i64;
        // Each rank first contributes a key of its own, then the common keys in descending order. Rank 1 owns all keys.
        let keys: Vec<i64> = [100 + rank].into_iter().chain((0..40).rev()).collect();
        let values = keys.iter().map(|&key| rank * 1000 + key).collect();
        let owners = vec![1u32; keys.len()];
        let rows = KeysWithRows { keys, values };
        let schema = schema(KeyKind::Int64, 1, KeyedCombine::Concat);
        let (blocks, _) = try_run(comm, schema, &rows, Some(&owners), &Regroup::new(KeyedCombine::Concat)).unwrap();
        assert_eq!(blocks.is_empty(), rank != 1);
        let order = |key: i64| if key >= 100 { (key - 100, 0) } else { (0, 40 - key) };
        for block in &blocks {
            let keys: Vec<i64> =
                keys_of(block).iter().map(|key| i64::from_ne_bytes(key[..].try_into().unwrap())).collect();
            assert!(keys.is_sorted_by_key(|&key| order(key)), "{keys:?}");
            let expected: Vec<i64> = keys
                .iter()
                .flat_map(|&key| {
                    if key >= 100 {
                        vec![(key - 100) * 1000 + key]
                    } else {
                        (0..3).map(|rank| rank * 1000 + key).collect()
                    }
                })
                .collect();
            assert_eq!(crate::common::values(&block.values), expected);
        }
    });
}

/// One key has half of all rows. Its owner gets few other rows; the other ranks get equal shares of the rest.
#[test]
fn a_heavy_key_does_not_unbalance_the_other_keys() {
    let p = 5;
    let all: Vec<KeysWithRows> = (0..p)
        .map(|rank| {
            let mut rows = rows(rank, 20_000, 1 << 40, 1);
            rows.keys.iter_mut().step_by(2).for_each(|key| *key = 7);
            rows
        })
        .collect();
    let loads = |balanced: bool| {
        let options = Regroup { balanced, ..Regroup::new(KeyedCombine::Concat) };
        let schema = schema(KeyKind::Int64, 1, KeyedCombine::Concat);
        let mut loads: Vec<u64> = world(p, |comm| run(comm, schema, &all[comm.rank()], &options).1.rows);
        loads.sort_unstable();
        loads
    };
    let heavy = 50_000;
    let [balanced, hashed] = [true, false].map(loads);
    assert_eq!(balanced.iter().sum::<u64>(), 100_000);
    assert!((heavy..heavy + 1000).contains(balanced.last().unwrap()), "{balanced:?}");
    assert!(balanced[..p - 1].iter().all(|load| load.abs_diff(heavy / (p as u64 - 1)) < 500), "{balanced:?}");
    // With hashes alone, the same rank also owns a fifth of the other rows.
    assert!(*hashed.last().unwrap() > heavy + 9000, "{hashed:?}");
}

#[test]
fn a_rank_with_all_rows_sends_at_most_twice_the_wave_size() {
    let (p, wave_bytes) = (5, 10_000);
    let all: Vec<KeysWithRows> =
        (0..p).map(|rank| rows(rank, if rank == 2 { 20_000 } else { 0 }, 1 << 40, 1)).collect();
    let options = Regroup { wave_bytes, ..Regroup::new(SUM) };
    let results = world(p, |comm| run(comm, schema(KeyKind::Int64, 1, SUM), &all[comm.rank()], &options));
    let (blocks, regrouped): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    assert_eq!(found(&blocks.concat(), 1), expected(&all, KeyKind::Int64, SUM, 1));
    let sent_bytes = 16 * regrouped[2].rows_sent;
    assert!(sent_bytes <= regrouped[2].waves as u64 * 2 * wave_bytes, "{regrouped:?}");
}

#[test]
fn data_is_sent_in_several_waves_by_default() {
    let all: Vec<KeysWithRows> = (0..3).map(|rank| rows(rank, 100_000, 1 << 40, 1)).collect();
    let waves = |options: Regroup| {
        let results = world(3, |comm| run(comm, schema(KeyKind::Int64, 1, SUM), &all[comm.rank()], &options));
        let (blocks, regrouped): (Vec<_>, Vec<_>) = results.into_iter().unzip();
        (regrouped[0].waves, blocks)
    };
    let (default, single) = (waves(Regroup::new(SUM)), waves(Regroup::new(SUM).in_waves_of(u64::MAX)));
    assert!(default.0 >= 4 && single.0 == 1, "{} and {} waves", default.0, single.0);
    assert_eq!(default.1, single.1);
}

/// Traffic in addition to blocks: 24 bytes of sizes per part and 40 bytes more to each rank; with several waves, 8
/// bytes per part to each rank; per pulled block, one byte in each direction.
#[test]
fn ranks_send_only_blocks_sizes_and_grants() {
    for (p, eager_bytes, count) in [(2, usize::MAX, 1000), (3, 0, 1000), (5, 0, 1000), (3, usize::MAX, 20_000)] {
        let all: Vec<KeysWithRows> = (0..p).map(|rank| rows(rank, count, 1 << 40, 2)).collect();
        let options = Regroup { eager_bytes, ..Regroup::new(SUM) };
        let results = world(p, |comm| run(comm, schema(KeyKind::Int64, 2, SUM), &all[comm.rank()], &options).1);
        let parts_per_rank = Aggregation::new(schema(KeyKind::Int64, 2, SUM), p, None).unwrap().parts_per_rank();
        for regrouped in results {
            let (peers, is_small) = (p as u64 - 1, count == 1000);
            assert_eq!(regrouped.waves == 1, is_small);
            let sizes = peers * (40 + parts_per_rank as u64 * if is_small { 24 } else { 24 + 8 });
            let grants = if eager_bytes == 0 { 2 * peers } else { 0 };
            assert_eq!(regrouped.bytes_sent, sizes + regrouped.rows_sent * (8 + 16) + grants, "p={p}");
            assert!(regrouped.rows_sent > 0 && regrouped.rows_sent < regrouped.rows_in);
        }
    }
}

/// A small regroup has two steps: an exchange of sizes, which also compares the calls of the ranks, and one wave. Other
/// regroups exchange the sizes of parts before the waves.
#[test]
fn a_small_regroup_is_two_collectives() {
    let default = Regroup::new(SUM);
    for (p, count, options, others, waves) in [
        (2, 10, default, &[][..], 1),
        (3, 10, default, &[], 1),
        (3, 0, default, &[], 0),
        (2, 10, Regroup { balanced: true, ..default }, &[Collective::Allgather, Collective::Regroup], 1),
        (2, 40_000, default, &[Collective::Allgather], 2),
    ] {
        let schema = schema(KeyKind::Int64, 2, SUM);
        world(p, |comm| {
            // The last rank has no rows.
            let count = if comm.rank() + 1 < p { count } else { 0 };
            let all = rows(comm.rank(), count, 1 << 40, 2);
            let begun = || comm.flight(Some(1)).unwrap().records.last().map_or(0, |(number, _)| number + 1);
            let before = begun();
            let (_, regrouped) = run(comm, schema, &all, &options);
            let all = comm.flight(None).unwrap().records.into_iter().filter(|(number, _)| *number >= before);
            let collectives: Vec<Collective> = all.map(|(_, record)| record.collective).collect();
            let waves = vec![Collective::Regroup; waves];
            assert_eq!(collectives, [&[Collective::Regroup], others, &waves].concat(), "p={p}, {regrouped:?}");
        });
    }
}

#[test]
fn local_reduction_sends_one_row_per_key() {
    let all: Vec<KeysWithRows> = (0..4).map(|rank| rows(rank, 8000, 100, 4)).collect();
    let sent = |combine: KeyedCombine| {
        let options = Regroup { wave_bytes: u64::MAX, ..Regroup::new(SUM) };
        let results = world(4, |comm| run(comm, schema(KeyKind::Int64, 4, combine), &all[comm.rank()], &options));
        let (blocks, regrouped): (Vec<_>, Vec<_>) = results.into_iter().unzip();
        assert_eq!(found(&blocks.concat(), 4), expected(&all, KeyKind::Int64, SUM, 4));
        regrouped.iter().map(|regrouped| regrouped.rows_sent).sum::<u64>()
    };
    // Three quarters of the 100 keys of each of 4 ranks have another owner.
    let (with, without) = (sent(SUM), sent(KeyedCombine::Concat));
    assert_eq!(with, 300);
    assert!((20_000..28_000).contains(&without), "{without}");
}
