//! Sparse reductions compared with a single-threaded result, for all numbers of ranks and their factorizations.

use crate::common::sets::{IndexSets, KINDS, SetKind, combined, rows};
use crate::common::{bytes, endpoint_world, mismatch, values, world};
use ripieno::ElementShape;
use ripieno::net::LinkPolicy;
use ripieno::sparse::{SparseOptions, SparseSchema};
use ripieno::{Communicator, Element, Error, JobFailure, Op};
use ripieno_plan::sparse::Degrees;
use ripieno_plan::sparse::design::PacketCurve;

const SUM: SparseSchema = SparseSchema { element: Element::I64, width: 1, op: Op::Sum, row: ElementShape::Vector };

fn with_degrees(degrees: &Degrees) -> SparseOptions {
    SparseOptions { degrees: Some(degrees.clone()), ..SparseOptions::default() }
}

/// Configure and reduce, then do both in one pass; compare the results with the expected ones.
fn check(comm: &Communicator, sets: &IndexSets, width: usize, op: Op, options: &SparseOptions) {
    let rank = comm.rank();
    let (out_indices, in_indices, schema) =
        (&sets.out_indices[rank], &sets.in_indices[rank], SparseSchema { width, op, ..SUM });
    let contributed = bytes(&rows(rank, out_indices, width));
    let expected = combined(sets, rank, width, op);

    let configured = comm.sparse(out_indices, in_indices, options).unwrap();
    let case = || format!("{:?}, p={}, {}, {op:?} × {width}", sets.kind, comm.world_size(), configured.degrees());
    for round in 0..2 {
        let mut into = bytes(&vec![-1; in_indices.len() * width]);
        configured.reduce(&contributed, &mut into, schema).unwrap();
        assert_eq!(values(&into), expected, "{}, round {round}", case());
    }
    let mut into = bytes(&vec![-1; in_indices.len() * width]);
    comm.sparse_reduce(out_indices, &contributed, in_indices, &mut into, schema, options).unwrap();
    assert_eq!(values(&into), expected, "{} in one pass", case());
}

#[test]
fn every_factorization_computes_the_sum_for_1_to_33_ranks() {
    for p in 1..=33 {
        let degrees: Vec<Degrees> = Degrees::all(p).into_iter().chain([Degrees::smooth(p)]).collect();
        let sets: Vec<IndexSets> = KINDS.iter().map(|&kind| IndexSets::new(kind, p, 60)).collect();
        world(p, |comm| {
            for (number, degrees) in degrees.iter().enumerate() {
                check(comm, &sets[(p + number) % sets.len()], 1 + number % 3, Op::Sum, &with_degrees(degrees));
            }
        });
    }
}

#[test]
fn every_kind_of_set_supports_every_operation() {
    for p in [1, 2, 5, 6, 8] {
        world(p, |comm| {
            for (number, &kind) in KINDS.iter().enumerate() {
                let sets = IndexSets::new(kind, p, 200);
                for op in Op::ALL {
                    let dense_above = [0.0, 0.4, 2.0][number % 3];
                    let degrees = if number % 2 == 0 { None } else { Degrees::all(p).pop() };
                    check(comm, &sets, 3, op, &SparseOptions { degrees, dense_above, ..SparseOptions::default() });
                }
            }
        });
    }
}

#[test]
fn folded_ranks_work_with_dense_ranges() {
    for degrees in [Degrees::binary(3), Degrees::smooth(11), Degrees::binary(7)] {
        let p = degrees.world_size();
        world(p, |comm| {
            for (number, &kind) in KINDS.iter().enumerate() {
                let dense_above = [0.0, 0.1, 0.3, 0.6][number % 4];
                check(
                    comm,
                    &IndexSets::new(kind, p, 40),
                    2,
                    Op::Min,
                    &SparseOptions { dense_above, ..with_degrees(&degrees) },
                );
            }
        });
    }
}

#[test]
fn sparse_reductions_work_over_shared_memory_and_tcp() {
    for links in [LinkPolicy::SharedMemory, LinkPolicy::Tcp] {
        let sets = IndexSets::new(SetKind::Random, 4, 30_000);
        endpoint_world(4, links, |comm| check(comm, &sets, 3, Op::Sum, &with_degrees(&"2x2".parse().unwrap())));
    }
}

#[test]
fn subgroups_reduce_independently() {
    world(6, |comm| {
        let part = comm.split(Some((comm.rank() % 2) as u32), -(comm.rank() as i64)).unwrap().unwrap();
        let sets = IndexSets::new(SetKind::PowerLaw, 3, 100 + comm.rank() as u64 % 2);
        check(&part, &sets, 2, Op::Max, &SparseOptions::default());
        check(comm, &IndexSets::new(SetKind::Disjoint, 6, 50), 1, Op::Sum, &SparseOptions::default());
    });
}

/// Return floats with an order-dependent sum.
fn floats(rank: usize, count: usize) -> Vec<u8> {
    let value =
        |i: usize| (0.1f32 + rank as f32 * 1.7).powi(1 + i as i32 % 9) * if i.is_multiple_of(2) { 1.0 } else { -0.3 };
    (0..count).flat_map(|i| value(i).to_ne_bytes()).collect()
}

#[test]
fn one_pass_and_every_run_produce_the_same_bits() {
    let schema = SparseSchema { element: Element::F32, width: 1, op: Op::Sum, row: ElementShape::Vector };
    for (degrees, dense_above) in [("12", 2.0), ("3x4", 2.0), ("2x2x3", 0.3), ("3x4", 0.0)] {
        let options = SparseOptions { dense_above, ..with_degrees(&degrees.parse().unwrap()) };
        let sets = IndexSets::new(SetKind::Random, 12, 500);
        let once = || {
            world(12, |comm| {
                let (out_indices, in_indices) = (&sets.out_indices[comm.rank()], &sets.in_indices[comm.rank()]);
                let (mut first, mut second) = (vec![0; 4 * in_indices.len()], vec![0; 4 * in_indices.len()]);
                let contributed = floats(comm.rank(), out_indices.len());
                comm.sparse(out_indices, in_indices, &options)
                    .unwrap()
                    .reduce(&contributed, &mut first, schema)
                    .unwrap();
                comm.sparse_reduce(out_indices, &contributed, in_indices, &mut second, schema, &options).unwrap();
                assert_eq!(first, second, "{degrees}, dense above {dense_above}");
                first
            })
        };
        assert_eq!(once(), once());
    }
}

/// The sets are large enough to wake threads. They contain repeated indices; some are stored as lists, others densely.
#[test]
fn any_number_of_threads_produces_the_same_bits() {
    const COUNT: i64 = 400_000;
    let schema = SparseSchema { element: Element::F32, width: 1, op: Op::Sum, row: ElementShape::Vector };
    for (size, stride, dense_above) in [(COUNT as u64 / 2, 1, 0.9), (1 << 40, 2_600_003, 0.9), (1 << 20, 7, 0.0)] {
        let found = |threads: usize, contributor_count: usize| {
            world(2, |comm| {
                let index = |at: i64| (at * stride + comm.rank() as i64 * 5) % size as i64;
                let out_indices: Vec<i64> =
                    (0..if comm.rank() < contributor_count { COUNT } else { 0 }).map(index).collect();
                let in_indices: Vec<i64> = (0..COUNT).rev().map(|at| at * stride % size as i64).collect();
                let threads = threads.try_into().unwrap();
                let options = SparseOptions {
                    size: Some(size),
                    missing_is_zero: true,
                    dense_above,
                    threads,
                    ..SparseOptions::default()
                };
                let (mut first, mut second) = (vec![0; 4 * in_indices.len()], vec![0; 4 * in_indices.len()]);
                let contributed = floats(comm.rank(), out_indices.len());
                comm.sparse(&out_indices, &in_indices, &options)
                    .unwrap()
                    .reduce(&contributed, &mut first, schema)
                    .unwrap();
                comm.sparse_reduce(&out_indices, &contributed, &in_indices, &mut second, schema, &options).unwrap();
                assert!(first == second, "{threads} threads, {size}, in one pass");
                first
            })
        };
        for contributor_count in [1, 2] {
            let with_one_thread = found(1, contributor_count);
            assert!(with_one_thread[0].iter().any(|&byte| byte != 0));
            for threads in [2, 3, 5] {
                assert!(
                    found(threads, contributor_count) == with_one_thread,
                    "{threads} threads, {size}, {contributor_count} contributors"
                );
            }
        }
    }
}

/// A row that only one rank contributes is copied, not added to zero: an addition could change the sign of zero or a
/// NaN's bits.
#[test]
fn negative_zeros_and_nans_have_the_same_bits_in_one_pass() {
    let change = [-0.0f32, f32::from_bits(0xffc0_1234), 1.5, f32::from_bits(0x7fc0_0001)];
    let schema = SparseSchema { element: Element::F32, width: 1, op: Op::Sum, row: ElementShape::Vector };
    let kinds = [SetKind::Identical, SetKind::Single, SetKind::Sparse];
    for (kind, degrees) in kinds.iter().flat_map(|&kind| ["1", "2", "2x3", "6", "2x2+1"].map(|text| (kind, text))) {
        let degrees: Degrees = degrees.parse().unwrap();
        let (p, options) = (degrees.world_size(), with_degrees(&degrees));
        let sets = IndexSets::new(kind, p, 40);
        let results = world(p, |comm| {
            let (out_indices, in_indices) = (&sets.out_indices[comm.rank()], &sets.in_indices[comm.rank()]);
            let (mut first, mut second) = (vec![0; 4 * in_indices.len()], vec![0; 4 * in_indices.len()]);
            let contributed: Vec<u8> = (0..out_indices.len()).flat_map(|at| change[at % 4].to_ne_bytes()).collect();
            comm.sparse(out_indices, in_indices, &options).unwrap().reduce(&contributed, &mut first, schema).unwrap();
            comm.sparse_reduce(out_indices, &contributed, in_indices, &mut second, schema, &options).unwrap();
            assert_eq!(first, second, "{kind:?}, {degrees}");
            first
        });
        if kind == SetKind::Single {
            assert!(results.iter().all(|bits| *bits == (-0.0f32).to_ne_bytes()), "{degrees}: {results:?}");
        }
    }
}

#[test]
fn a_thousand_rounds_produce_no_wrong_value() {
    let sets = IndexSets::new(SetKind::PowerLaw, 4, 3000);
    world(4, |comm| {
        let (rank, out_indices, in_indices) =
            (comm.rank(), &sets.out_indices[comm.rank()], &sets.in_indices[comm.rank()]);
        let (base, expected) = (rows(rank, out_indices, 1), combined(&sets, rank, 1, Op::Sum));
        let configured = comm.sparse(out_indices, in_indices, &with_degrees(&"2x2".parse().unwrap())).unwrap();
        let mut into = vec![0; 8 * in_indices.len()];
        for round in 1..=1000 {
            let contributed: Vec<i64> = base.iter().map(|value| value * round).collect();
            configured.reduce(&bytes(&contributed), &mut into, SUM).unwrap();
            assert!(values(&into).iter().zip(&expected).all(|(found, sum)| *found == sum * round), "round {round}");
        }
    });
}

#[test]
fn a_missing_index_is_an_error_on_every_rank_or_zero() {
    for p in [1, 2, 5] {
        world(p, |comm| {
            let rank = comm.rank() as i64;
            let (out_indices, in_indices) = ([rank, 100], [100, 7000 + rank, 500, 500]);
            let mut examples: Vec<u64> = (0..p as u64).map(|rank| 7000 + rank).collect();
            examples.insert(0, 500);
            let expected = Error::MissingIndices { count: p as u64 + 1, examples };
            for size in [None, Some(1 << 40)] {
                let options = SparseOptions { size, ..SparseOptions::default() };
                assert_eq!(comm.sparse(&out_indices, &in_indices, &options).err(), Some(expected.clone()));
                let (contributed, mut into) = (bytes(&[1, 2]), vec![0; 32]);
                let refused = comm.sparse_reduce(&out_indices, &contributed, &in_indices, &mut into, SUM, &options);
                assert_eq!(refused, Err(expected.clone()));
                for dense_above in [0.0, 2.0].into_iter().take(if size.is_none() { 2 } else { 0 }) {
                    let options = SparseOptions { missing_is_zero: true, dense_above, ..options.clone() };
                    for op in [Op::Sum, Op::Min, Op::And] {
                        let combined = if op == Op::Sum { 2 * p as i64 } else { 2 };
                        let schema = SparseSchema { op, ..SUM };
                        comm.sparse(&out_indices, &in_indices, &options)
                            .unwrap()
                            .reduce(&contributed, &mut into, schema)
                            .unwrap();
                        assert_eq!(values(&into), [combined, 0, 0, 0], "{op:?}");
                        into.fill(9);
                        comm.sparse_reduce(&out_indices, &contributed, &in_indices, &mut into, schema, &options)
                            .unwrap();
                        assert_eq!(values(&into), [combined, 0, 0, 0], "{op:?} in one pass");
                    }
                }
            }
        });
    }
}

#[test]
fn different_options_are_reported_to_every_rank() {
    let errors = world(3, |comm| {
        let options = SparseOptions { missing_is_zero: comm.rank() == 2, ..SparseOptions::default() };
        let errors = comm.sparse(&[1], &[1], &options).err().unwrap().to_string();
        comm.barrier(None).unwrap();
        errors
    });
    assert_eq!(errors[0], errors[1]);
    assert_eq!(errors[0], errors[2]);
    let options = |missing: &str| format!("size=None, degrees=None, missing={missing}, dense_above=0.9, packets #");
    assert!(errors[0].starts_with(&format!("rank 2 passed {}", options("zero"))), "{errors:?}");
    assert!(errors[0].contains(&format!(", rank 0 passed {}", options("error"))), "{errors:?}");
    assert!(errors[0].ends_with(": expected the same on every rank"), "{errors:?}");
}

#[test]
fn different_packet_costs_are_reported_to_every_rank() {
    let errors = world(2, |comm| {
        comm.keep_packets(PacketCurve::memory().with_contention(comm.rank() as f64 * 1e-6));
        comm.sparse(&[1], &[1], &SparseOptions::default()).err().unwrap().to_string()
    });
    assert!(errors[0].contains(", packets #") && errors[0] == errors[1], "{errors:?}");
}

#[test]
fn invalid_indices_are_reported_before_anything_is_sent() {
    world(2, |comm| {
        let errors = |out_indices: &[i64], in_indices: &[i64], size| {
            let options = SparseOptions { size, ..SparseOptions::default() };
            comm.sparse(out_indices, in_indices, &options).err().unwrap().to_string()
        };
        assert_eq!(
            errors(&[3, -1, 4, -7], &[], None),
            "out_indices=-1 at position 1, -7 at position 3: expected 0 to 9223372036854775806"
        );
        assert_eq!(
            errors(&[], &[9, 10, 11, 12, 13], Some(10)),
            "in_indices=10 at position 1, 11 at position 2, 12 at position 3 and 1 more: expected 0 to 9, for size=10"
        );
        comm.barrier(None).unwrap();
    });
}

#[test]
fn a_different_configuration_width_type_or_op_is_a_mismatch_on_every_rank() {
    type FormChange = fn(SparseSchema) -> (usize, SparseSchema);
    let cases: [(FormChange, &str); 4] = [
        (|schema| (1, schema), "sparse-reduce(rows of float32 × 1, sum, configuration 2)"),
        (|schema| (0, SparseSchema { width: 2, ..schema }), "sparse-reduce(rows of float32 × 2, sum, configuration 1)"),
        (
            |schema| (0, SparseSchema { element: Element::I32, ..schema }),
            "sparse-reduce(rows of int32 × 1, sum, configuration 1)",
        ),
        (
            |schema| (0, SparseSchema { op: Op::Max, ..schema }),
            "sparse-reduce(rows of float32 × 1, max, configuration 1)",
        ),
    ];
    for (change, called) in cases {
        // A rank may receive the mismatch while it configures.
        let run = |comm: &mut Communicator| {
            let options = SparseOptions::default();
            let configured = [comm.sparse(&[1, 2, 3], &[3], &options)?, comm.sparse(&[1, 2, 3], &[3], &options)?];
            let schema = SparseSchema { element: Element::F32, width: 1, op: Op::Sum, row: ElementShape::Vector };
            let (which, schema) = if comm.rank() == 2 { change(schema) } else { (0, schema) };
            let (contributed, mut into) = (vec![0; 12 * schema.width], vec![0; 4 * schema.width]);
            configured[which].reduce(&contributed, &mut into, schema)?;
            comm.barrier(None)
        };
        let reduce = |comm: &mut Communicator| mismatch(run(comm));
        for descriptions in [world(3, reduce), endpoint_world(3, LinkPolicy::Tcp, reduce)] {
            assert!(descriptions.iter().all(|text| *text == descriptions[0]), "{descriptions:?}");
            assert!(descriptions[0].contains(&format!("rank 2 called {called}")), "{descriptions:?}");
        }
    }
}

#[test]
fn the_others_fail_if_a_rank_leaves() {
    let results = world(3, |comm| {
        let configured = comm.sparse(&[1, 2, 3], &[3, 1, 2], &SparseOptions::default()).unwrap();
        match comm.rank() {
            1 => Ok(()),
            _ => configured.reduce(&[1; 24], &mut [0; 24], SUM).and_then(|()| comm.barrier(None)),
        }
    });
    for rank in [0, 2] {
        assert!(matches!(results[rank], Err(Error::Failed(JobFailure::RankFailed { rank: 1, .. }))), "{results:?}");
    }
}

#[test]
fn invalid_arguments_are_reported() {
    world(2, |comm| {
        let configured = comm.sparse(&[5, 6], &[6], &SparseOptions::default()).unwrap();
        let errors = |value_bytes: usize, into: usize, schema| {
            configured.reduce(&vec![0; value_bytes], &mut vec![0; into], schema).unwrap_err().to_string()
        };
        assert_eq!(errors(8, 8, SUM), "values=8 bytes: expected 2 rows of 8 bytes, one per index");
        assert_eq!(errors(16, 9, SUM), "into=9 bytes: expected 1 rows of 8 bytes, one per index");
        assert_eq!(errors(0, 0, SparseSchema { width: 0, ..SUM }), "width=0: expected at least one element in a row");
        let bits = SparseSchema { element: Element::F64, width: 1, op: Op::Xor, row: ElementShape::Vector };
        assert!(errors(16, 8, bits).contains("op xor has no meaning on float64"));
        let huge = |width| errors(16, 8, SparseSchema { width, ..SUM });
        assert_eq!(huge(1 << 61), "width=2305843009213693952: expected a row that memory can hold");
        assert!(huge(1 << 60).starts_with("values=16 bytes: expected 2 rows of 9223372036854775808 bytes"));
        for text in ["2y1", "3x2"] {
            let refused = SparseOptions::parse(None, Some(text), false, 2.0, 2).unwrap_err().to_string();
            let expected = "expected direct, binary or factors such as 8x4x2 whose product is 2, the number of ranks";
            assert_eq!(refused, format!("degrees={text}: {expected}"));
        }
        let refused = comm.sparse(&[], &[], &with_degrees(&Degrees::direct(6))).err().unwrap().to_string();
        assert_eq!(refused, "degrees=6: expected factors whose product is 2, the number of ranks");
        comm.barrier(None).unwrap();
    });
}
