//! Results of each collective with each algorithm, compared with a single-threaded result.
//!
//! Most worlds use threads without membership. Tests of rendezvous and membership use endpoints.

use crate::common::{bytes, endpoint_world, mismatch, values, world};
use ripieno::net::LinkPolicy;
use ripieno::{
    Algorithm, BufferMemory, BufferPool, Collective, CollectiveTask, Communicator, Element, Error, JobFailure,
    NO_MEMORY, Needs, Op,
};
use std::sync::Mutex;
use std::time::Duration;

/// Return element `i` of the contribution of `rank`.
fn element(rank: usize, i: usize) -> i64 {
    (rank * 1000 + i) as i64
}

fn vector(rank: usize, length: usize) -> Vec<i64> {
    (0..length).map(|i| element(rank, i)).collect()
}

fn sum(p: usize, length: usize) -> Vec<i64> {
    (0..length).map(|i| (0..p).map(|rank| element(rank, i)).sum()).collect()
}

/// Return the names of the algorithms of a collective, and `None` for the default.
fn algorithms_of(collective: Collective) -> Vec<Option<&'static str>> {
    Algorithm::of(collective).map(|algorithm| Some(algorithm.name)).chain([None]).collect()
}

const WORLDS: [usize; 6] = [1, 2, 3, 4, 5, 7];
const LENGTHS: [usize; 4] = [0, 3, 1000, 20_011];

#[test]
fn allreduce_returns_the_sum_on_every_rank() {
    for p in WORLDS {
        for length in LENGTHS {
            let results = world(p, |comm| {
                algorithms_of(Collective::Allreduce)
                    .into_iter()
                    .map(|algorithm| {
                        let mut data = bytes(&vector(comm.rank(), length));
                        comm.allreduce(&mut data, Element::I64, Op::Sum, algorithm).unwrap();
                        values(&data)
                    })
                    .collect::<Vec<_>>()
            });
            assert!(results.iter().flatten().all(|result| *result == sum(p, length)), "p={p} length={length}");
        }
    }
}

#[test]
fn broadcast_returns_the_vector_of_the_root_on_every_rank() {
    for p in WORLDS {
        for length in LENGTHS {
            let results = world(p, |comm| {
                let mut results = Vec::new();
                for algorithm in algorithms_of(Collective::Broadcast) {
                    for root in 0..p {
                        let mut data = bytes(&vector(comm.rank(), length));
                        comm.broadcast(BufferMemory::Write(&mut data), Element::I64, root, algorithm).unwrap();
                        results.push((root, values(&data)));
                    }
                }
                results
            });
            for (root, result) in results.into_iter().flatten() {
                assert_eq!(result, vector(root, length), "p={p} length={length} root={root}");
            }
        }
    }
}

#[test]
fn reduce_returns_the_sum_on_the_root() {
    for p in WORLDS {
        let results = world(p, |comm| {
            let mut results = Vec::new();
            for algorithm in algorithms_of(Collective::Reduce) {
                for root in 0..p {
                    let mut data = bytes(&vector(comm.rank(), 5003));
                    comm.reduce(&mut data, Element::I64, Op::Sum, root, algorithm).unwrap();
                    if comm.rank() == root {
                        results.push(values(&data));
                    }
                }
            }
            results
        });
        assert!(results.iter().flatten().all(|result| *result == sum(p, 5003)), "p={p}");
    }
}

/// Return unequal counts, one of them zero.
fn counts(p: usize) -> Vec<usize> {
    (0..p).map(|rank| (rank * 37) % 11 * 100).collect()
}

/// Return the position of the chunk of `rank`.
fn chunk(counts: &[usize], rank: usize) -> std::ops::Range<usize> {
    let start: usize = counts[..rank].iter().sum();
    start..start + counts[rank]
}

#[test]
fn allgather_and_gather_return_the_chunks_of_all() {
    for p in WORLDS {
        let counts = counts(p);
        let total: usize = counts.iter().sum();
        let expected: Vec<i64> = (0..p).flat_map(|rank| vector(rank, total)[chunk(&counts, rank)].to_vec()).collect();
        world(p, |comm| {
            for algorithm in algorithms_of(Collective::Allgather) {
                let mut data = bytes(&vector(comm.rank(), total));
                match comm.allgather(&mut data, Element::I64, &counts, algorithm) {
                    Ok(()) => assert_eq!(values(&data), expected, "allgather by {algorithm:?}, p={p}"),
                    Err(refused) => assert_eq!(
                        (p % 2, refused.to_string().as_str()),
                        (
                            1,
                            "algorithm=neighbour-exchange: expected another one, because neighbour-exchange needs an \
                             even number of ranks"
                        )
                    ),
                }
            }
            for algorithm in algorithms_of(Collective::Gather) {
                for root in 0..p {
                    let mut data = bytes(&vector(comm.rank(), total));
                    comm.gather(&mut data, Element::I64, &counts, root, algorithm).unwrap();
                    assert!(comm.rank() != root || values(&data) == expected, "gather by {algorithm:?}, p={p}");
                }
            }
        });
    }
}

#[test]
fn reduce_scatter_and_scatter_return_the_chunk_of_each_rank() {
    for p in WORLDS {
        let counts = counts(p);
        let total: usize = counts.iter().sum();
        world(p, |comm| {
            let mine = chunk(&counts, comm.rank());
            for algorithm in algorithms_of(Collective::ReduceScatter) {
                let mut data = bytes(&vector(comm.rank(), total));
                comm.reduce_scatter(&mut data, Element::I64, &counts, Op::Sum, algorithm).unwrap();
                assert_eq!(values(&data)[mine.clone()], sum(p, total)[mine.clone()], "by {algorithm:?}, p={p}");
            }
            for algorithm in algorithms_of(Collective::Scatter) {
                for root in 0..p {
                    let mut data = bytes(&vector(comm.rank(), total));
                    comm.scatter(BufferMemory::Write(&mut data), Element::I64, &counts, root, algorithm).unwrap();
                    assert_eq!(
                        values(&data)[mine.clone()],
                        vector(root, total)[mine.clone()],
                        "by {algorithm:?}, p={p}"
                    );
                }
            }
        });
    }
}

/// Counts per rank: uneven, with empty chunks, and all at one rank.
fn divisions(p: usize) -> Vec<Vec<usize>> {
    let alone = |owner| (0..p).map(|rank| if rank == owner { 9000 } else { 0 }).collect();
    vec![counts(p), vec![3; p], (0..p).map(|rank| rank % 2 * 7).collect(), alone(0), alone(p - 1), vec![0; p]]
}

#[test]
fn ranks_other_than_the_root_gather_and_scatter_their_own_chunk_alone() {
    for p in WORLDS {
        for counts in divisions(p) {
            let total: usize = counts.iter().sum();
            world(p, |comm| {
                let (rank, own) = (comm.rank(), chunk(&counts, comm.rank()));
                for root in 0..p {
                    for algorithm in algorithms_of(Collective::Gather) {
                        let expected: Vec<i64> =
                            (0..p).flat_map(|rank| vector(rank, total)[chunk(&counts, rank)].to_vec()).collect();
                        let mine = bytes(&vector(rank, total)[own.clone()]);
                        let mut all = bytes(&vec![-1; total]);
                        all[own.start * 8..own.end * 8].copy_from_slice(&mine);
                        let memory = match rank == root {
                            true => BufferMemory::Write(&mut all),
                            false => BufferMemory::Read(&mine),
                        };
                        let task = CollectiveTask::Gather { chunks: &counts, root };
                        comm.run(&task, Element::I64, algorithm, [memory, NO_MEMORY]).unwrap();
                        assert!(rank != root || values(&all) == expected, "by {algorithm:?}, counts {counts:?}");
                    }
                    for algorithm in algorithms_of(Collective::Scatter) {
                        let all = bytes(&vector(root, total));
                        let mut mine = bytes(&vec![-1; own.len()]);
                        let memory = match rank == root {
                            true => BufferMemory::Read(&all),
                            false => BufferMemory::Write(&mut mine),
                        };
                        comm.scatter(memory, Element::I64, &counts, root, algorithm).unwrap();
                        let expected = &vector(root, total)[own.clone()];
                        assert!(rank == root || values(&mine) == expected, "by {algorithm:?}, counts {counts:?}");
                    }
                }
            });
        }
    }
}

#[test]
fn alltoall_delivers_every_chunk_to_its_rank() {
    let uneven: fn(usize, usize) -> usize = |from, to| (from * 3 + to * 5) % 7 * 50;
    for (count, needs) in [(uneven, &[Needs::Nothing][..]), (|_, _| 70, &[Needs::Nothing, Needs::EqualChunks])] {
        for p in WORLDS {
            world(p, |comm| {
                let rank = comm.rank();
                let out_counts: Vec<usize> = (0..p).map(|to| count(rank, to)).collect();
                let in_counts: Vec<usize> = (0..p).map(|from| count(from, rank)).collect();
                let out: Vec<i64> = (0..p).flat_map(|to| vec![element(rank, to); count(rank, to)]).collect();
                let expected: Vec<i64> = (0..p).flat_map(|from| vec![element(from, rank); count(from, rank)]).collect();
                for algorithm in Algorithm::of(Collective::Alltoall).filter(|known| needs.contains(&known.needs)) {
                    let (name, mut into) = (Some(algorithm.name), vec![0; expected.len() * 8]);
                    comm.alltoall(&bytes(&out), &out_counts, &mut into, &in_counts, Element::I64, name).unwrap();
                    assert_eq!(values(&into), expected, "by {}, p={p}", algorithm.name);
                }
            });
        }
    }
}

#[test]
fn floats_sum_to_the_same_bits_on_every_rank_and_in_every_run() {
    let once = || {
        world(5, |comm| {
            algorithms_of(Collective::Allreduce)
                .into_iter()
                .flat_map(|algorithm| {
                    let part = |i: usize| (0.1f32 + comm.rank() as f32 * 1.7).powi(1 + i as i32 % 9).to_ne_bytes();
                    let mut data: Vec<u8> = (0..3001).flat_map(part).collect();
                    comm.allreduce(&mut data, Element::F32, Op::Sum, algorithm).unwrap();
                    data
                })
                .collect::<Vec<u8>>()
        })
    };
    let first = once();
    assert!(first.iter().all(|rank| *rank == first[0]));
    assert_eq!(first, once());
}

#[test]
fn messages_arrive_between_collectives() {
    world(3, |comm| {
        let mut token = bytes(&[7]);
        match comm.rank() {
            0 => comm.send(&token, Element::I64, 1).unwrap(),
            1 => {
                comm.receive(&mut token, Element::I64, 0).unwrap();
                comm.send(&bytes(&[values(&token)[0] + 1]), Element::I64, 2).unwrap();
            }
            _ => comm.receive(&mut token, Element::I64, 1).unwrap(),
        }
        comm.barrier(None).unwrap();
        assert!(comm.rank() != 2 || values(&token) == [8]);
    });
}

#[test]
fn no_rank_leaves_a_barrier_before_all_have_entered() {
    for p in WORLDS {
        let entered_count = Mutex::new(0);
        world(p, |comm| {
            for round in 1..=20 {
                *entered_count.lock().unwrap() += 1;
                comm.barrier(None).unwrap();
                assert!(*entered_count.lock().unwrap() >= round * p);
                comm.barrier(None).unwrap();
            }
        });
    }
}

#[test]
fn traffic_is_counted() {
    let sent: Vec<u64> = world(4, |comm| {
        let mut data = vec![0; 4000];
        comm.allreduce(&mut data, Element::F32, Op::Sum, Some("ring")).unwrap();
        assert_eq!(comm.statistics().unwrap().received_bytes, 2 * 3 * 1000);
        comm.statistics().unwrap().sent_bytes
    });
    assert_eq!(sent, [2 * 3 * 1000; 4], "every rank sends 2 (p-1)/p n bytes");
}

type RankCall = fn(&mut Communicator) -> Result<(), Error>;

/// Calls of rank 2 while the other ranks call an allreduce of two floats, and their descriptions in the mismatch.
const MISMATCHED_CALLS: [(RankCall, &str); 5] = [
    (|comm| comm.barrier(None), "barrier"),
    (|comm| comm.broadcast(BufferMemory::Write(&mut [0; 8]), Element::F32, 0, Some("flat")), "broadcast(float32 × 2"),
    (|comm| comm.allreduce(&mut [0; 12], Element::F32, Op::Sum, None), "allreduce(float32 × 3"),
    (|comm| comm.allreduce(&mut [0; 8], Element::I32, Op::Sum, None), "allreduce(int32 × 2"),
    (|comm| comm.allreduce(&mut [0; 8], Element::F32, Op::Max, None), "allreduce(float32 × 2, max"),
];

/// Return the description of the mismatch that this rank gets if rank 2 of three ranks makes `call`.
fn mismatch_of_calls(comm: &mut Communicator, call: RankCall) -> String {
    let first = match comm.rank() {
        2 => call(comm),
        _ => comm.allreduce(&mut [0; 8], Element::F32, Op::Sum, None),
    };
    // A rank that needs no data from the others detects the mismatch in its next call.
    mismatch(first.and_then(|()| comm.barrier(None)))
}

#[test]
fn a_different_collective_size_type_or_op_is_a_mismatch_on_every_rank() {
    for (call, expected) in MISMATCHED_CALLS {
        let worlds = [
            world(3, |comm| mismatch_of_calls(comm, call)),
            endpoint_world(3, LinkPolicy::SharedMemory, |comm| mismatch_of_calls(comm, call)),
            endpoint_world(3, LinkPolicy::Tcp, |comm| mismatch_of_calls(comm, call)),
        ];
        for descriptions in worlds {
            assert!(descriptions.iter().all(|text| *text == descriptions[0]), "{descriptions:?}");
            assert!(descriptions[0].contains(&format!("rank 2 called {expected}")), "{descriptions:?}");
            assert!(descriptions[0].contains("called allreduce(float32 × 2, sum"), "{descriptions:?}");
        }
    }
}

#[test]
fn endpoints_carry_every_allreduce_over_memory_and_over_tcp() {
    for links in [LinkPolicy::SharedMemory, LinkPolicy::Tcp] {
        let results = endpoint_world(3, links, |comm| {
            algorithms_of(Collective::Allreduce)
                .into_iter()
                .map(|algorithm| {
                    let mut data = bytes(&vector(comm.rank(), 300_007));
                    comm.allreduce(&mut data, Element::I64, Op::Sum, algorithm).unwrap();
                    values(&data)
                })
                .collect::<Vec<_>>()
        });
        assert!(results.iter().flatten().all(|result| *result == sum(3, 300_007)), "{links:?}");
    }
}

#[test]
fn counts_that_do_not_fit_are_a_mismatch() {
    let descriptions = world(2, |comm| {
        let (out, into) = if comm.rank() == 0 { ([1, 2], [1, 1]) } else { ([1, 1], [1, 1]) };
        let mut received = vec![0; 16];
        let data = vec![0; 8 * out.iter().sum::<usize>()];
        mismatch(comm.alltoall(&data, &out, &mut received, &into, Element::I64, None).and_then(|()| comm.barrier(None)))
    });
    assert!(descriptions[0].contains("rank 1 called alltoall"), "{descriptions:?}");
    assert!(descriptions[0].contains("expects 8 bytes of rank 0, which sends 16"), "{descriptions:?}");
}

#[test]
fn the_failure_names_a_rank_that_leaves_early() {
    let results = world(3, |comm| if comm.rank() == 1 { Ok(()) } else { comm.barrier(None) });
    for rank in [0, 2] {
        let Err(Error::Failed(JobFailure::RankFailed { rank, cause, .. })) = &results[rank] else {
            panic!("{results:?}")
        };
        assert_eq!(*rank, 1);
        assert!(cause.contains("left"), "{cause}");
    }
}

#[test]
fn invalid_arguments_are_reported_by_name() {
    world(2, |comm| {
        let text = |result: Result<(), Error>| result.unwrap_err().to_string();
        let mut data = vec![0; 8];
        assert_eq!(
            text(comm.gather(&mut data, Element::F32, &[1, 1], 0, Some("rng"))),
            "algorithm=rng: expected one of direct, binomial for gather"
        );
        assert_eq!(text(comm.reduce(&mut data, Element::F32, Op::Sum, 2, None)), "root=2: expected 0 to 1");
        assert_eq!(text(comm.allgather(&mut data, Element::F32, &[1, 2], None)), "counts=[1, 2]: expected a sum of 2");
        assert_eq!(
            text(comm.allreduce(&mut data[..3], Element::F32, Op::Sum, None)),
            "length in bytes=3: expected a multiple of 4, the size of float32"
        );
        assert!(text(comm.allreduce(&mut data, Element::F32, Op::Or, None)).contains("no meaning on float32"));
        comm.barrier(None).unwrap();
    });
}

#[test]
fn counts_of_the_own_chunk_must_be_equal() {
    world(2, |comm| {
        let (rank, out, mut into) = (comm.rank(), [0; 3], [0; 4]);
        let assert_error = |result: Result<(), Error>, into: &str, out: &str| {
            let expected =
                format!("elements from itself={into}: expected {out}, the elements of rank {rank} for itself");
            assert_eq!(result.unwrap_err().to_string(), expected);
        };
        for distance in [0, 2] {
            assert_error(comm.rotate(&out, &mut into, Element::U8, distance, None), "4", "3");
        }
        let (out_counts, in_counts) = if rank == 0 { ([1, 2], [2, 2]) } else { ([2, 1], [2, 2]) };
        assert_error(comm.alltoall(&out, &out_counts, &mut into, &in_counts, Element::U8, None), "2", "1");
        let mut exchange = |out_peers: &[(usize, usize)], in_peers: &[(usize, usize)]| {
            let sum = |peers: &[(usize, usize)]| peers.iter().map(|&(_, count)| count).sum::<usize>();
            let into = &mut into[..sum(in_peers)];
            comm.neighbour_exchange(&out[..sum(out_peers)], out_peers, into, in_peers, Element::U8, None)
        };
        assert_error(exchange(&[(rank, 3)], &[(rank, 4)]), "4", "3");
        assert_error(exchange(&[(rank, 3)], &[]), "none", "3");
        assert_error(exchange(&[], &[(rank, 4)]), "4", "none");
        exchange(&[(rank, 3)], &[(rank, 3)]).unwrap();
        comm.barrier(None).unwrap();
    });
}

#[test]
fn a_send_of_shared_memory_returns_before_the_receive_starts() {
    let (has_sent, sent) = std::sync::mpsc::channel();
    let sent = Mutex::new(sent);
    let early = world(2, |comm| {
        let mut buffer = BufferPool::default().take(512 << 10).unwrap();
        match comm.rank() {
            0 => {
                comm.send(buffer.bytes_mut(), Element::U8, 1).unwrap();
                has_sent.send(()).is_ok()
            }
            _ => {
                let is_early = sent.lock().unwrap().recv_timeout(Duration::from_secs(5)).is_ok();
                comm.receive(buffer.bytes_mut(), Element::U8, 0).unwrap();
                is_early
            }
        }
    });
    assert_eq!(early, [true, true]);
}

#[test]
fn a_message_may_arrive_long_before_its_receiver_reaches_an_earlier_collective() {
    let (sent, received) = (std::sync::Barrier::new(2), Mutex::new(Vec::new()));
    world(3, |comm| {
        let mut data = bytes(&[5]);
        match comm.rank() {
            // Rank 2 sends its part of the reduction to the root at once and exchanges no data with rank 1.
            2 => {
                comm.reduce(&mut data, Element::I64, Op::Sum, 0, Some("binomial")).unwrap();
                sent.wait();
                comm.send(&bytes(&[9]), Element::I64, 1).unwrap();
            }
            1 => {
                let mut message = vec![0; 8];
                std::thread::scope(|scope| {
                    // The receiver waits longer than the stall limit, so it sends an inquiry.
                    scope.spawn(|| {
                        std::thread::sleep(Duration::from_millis(1300));
                        sent.wait();
                    });
                    comm.receive(&mut message, Element::I64, 2).unwrap();
                });
                *received.lock().unwrap() = values(&message);
                comm.reduce(&mut data, Element::I64, Op::Sum, 0, Some("binomial")).unwrap();
            }
            _ => comm.reduce(&mut data, Element::I64, Op::Sum, 0, Some("binomial")).unwrap(),
        }
    });
    assert_eq!(*received.lock().unwrap(), [9]);
}
