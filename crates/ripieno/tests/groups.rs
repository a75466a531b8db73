//! Communicators of subgroups, background calls, and scans, rotations and neighbor exchanges.

use ripieno::net::ThreadFabric;
use ripieno::{BufferMemory, CollectiveTask, Communicator, Element, Error, JobFailure, Op, WholeBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

fn world<R: Send>(p: usize, program: impl Fn(&Communicator) -> R + Sync) -> Vec<R> {
    let fabrics = ThreadFabric::group(p).unwrap();
    std::thread::scope(|scope| {
        let ranks: Vec<_> =
            fabrics.into_iter().map(|fabric| scope.spawn(|| program(&Communicator::new(Box::new(fabric))))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn bytes(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn values(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|value| u64::from_ne_bytes(value.try_into().unwrap())).collect()
}

/// Wait until another thread has made the condition true.
fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "the condition is not met in time");
        thread::yield_now();
    }
}

/// Run `program` while another thread is in a barrier, and return the result of the barrier. If `is_interrupted`, the
/// interrupt function interrupts the waits of this thread, but not the barrier.
fn run_during_barrier(comm: &Communicator, is_interrupted: bool, program: impl FnOnce()) -> Result<(), Error> {
    let (has_waited, me): (_, ThreadId) = (Arc::new(AtomicBool::new(false)), thread::current().id());
    let flag = has_waited.clone();
    comm.set_interrupt(move || {
        flag.store(true, SeqCst);
        is_interrupted && thread::current().id() == me
    })
    .unwrap();
    thread::scope(|scope| {
        let barrier = scope.spawn(|| comm.barrier(None));
        wait_until(|| has_waited.load(SeqCst));
        program();
        barrier.join().unwrap()
    })
}

#[test]
fn a_subgroup_is_closed_while_another_thread_is_in_a_call() {
    let is_closed = AtomicBool::new(false);
    world(2, |comm| {
        let child = comm.split(Some(0), 0).unwrap().unwrap();
        if comm.rank() == 1 {
            wait_until(|| is_closed.load(SeqCst));
            return comm.barrier(None).unwrap();
        }
        let close = || {
            child.close();
            assert_eq!(child.barrier(None), Err(Error::Closed));
            is_closed.store(true, SeqCst);
        };
        run_during_barrier(comm, false, close).unwrap();
    });
}

#[test]
fn a_wait_ends_with_its_call_while_another_thread_is_in_a_call() {
    let [is_in_barrier, has_waited] = [const { AtomicBool::new(false) }; 2];
    world(2, |comm| {
        if comm.rank() == 1 {
            wait_until(|| is_in_barrier.load(SeqCst));
            comm.send(&bytes(&[7]), Element::U64, 0).unwrap();
            wait_until(|| has_waited.load(SeqCst));
            return comm.barrier(None).unwrap();
        }
        let handle = comm
            .start(
                &CollectiveTask::PointToPoint { from: 1, to: 0, vector: WholeBuffer },
                Element::U64,
                None,
                bytes(&[0]),
            )
            .unwrap();
        let wait = || {
            is_in_barrier.store(true, SeqCst);
            assert_eq!(values(&handle.wait().unwrap()), [7]);
            has_waited.store(true, SeqCst);
        };
        run_during_barrier(comm, false, wait).unwrap();
    });
}

#[test]
fn waiting_for_the_call_of_another_thread_can_be_interrupted() {
    let is_interrupted = AtomicBool::new(false);
    let results = world(2, |comm| {
        if comm.rank() == 1 {
            wait_until(|| is_interrupted.load(SeqCst));
            return comm.barrier(None);
        }
        let barrier = || {
            assert_eq!(comm.barrier(None), Err(Error::Interrupted));
            is_interrupted.store(true, SeqCst);
        };
        run_during_barrier(comm, true, barrier)
    });
    for result in results {
        let Err(Error::Failed(JobFailure::RankFailed { rank: 0, cause, .. })) = result else { panic!("{result:?}") };
        assert!(cause.contains("interrupted"), "{cause}");
    }
}

#[test]
fn read_only_memory_for_a_result_is_rejected() {
    world(2, |comm| {
        let (mut vector, other) = (bytes(&[1, 2]), bytes(&[3, 4]));
        let allreduce = comm.run(
            &CollectiveTask::Allreduce { op: Op::Sum, vector: WholeBuffer },
            Element::U64,
            None,
            [BufferMemory::Read(&other), BufferMemory::Read(&[])],
        );
        let rotate = comm.run(
            &CollectiveTask::Rotate { distance: 1, out: WholeBuffer, into: WholeBuffer },
            Element::U64,
            None,
            [BufferMemory::Write(&mut vector), BufferMemory::Read(&other)],
        );
        for (refused, name) in [(allreduce, "first buffer"), (rotate, "second buffer")] {
            assert!(
                matches!(&refused, Err(Error::Argument { name: refused_name, .. }) if *refused_name == name),
                "{refused:?}"
            );
        }
        assert_eq!(sum(comm, 1), Ok(2));
    });
}

#[test]
fn adopted_racks_apply_to_later_calls_and_groups() {
    let racks = [0, 1, 0, 1, 2, 0];
    world(racks.len(), |comm| {
        let before = comm.group(&[0, 1, 2, 3, 4, 5]).unwrap();
        assert_eq!(sum(comm, 1), Ok(6));
        comm.adopt_racks(&racks).unwrap();
        assert_eq!(sum(comm, 1), Ok(6));
        assert_eq!(comm.topology().racks(), racks);
        let after = comm.group(&[5, 4, 1, 0, 2, 3]).unwrap();
        assert_eq!(after.topology().racks(), [0, 1, 2, 0, 0, 2]);
        assert_eq!(before.topology().rack_count(), 1);
        assert_eq!((sum(&after, 2), sum(&before, 3)), (Ok(12), Ok(18)));
    });
}

/// Return the sum of `number` over all ranks.
fn sum(comm: &Communicator, number: usize) -> Result<u64, Error> {
    let mut vector = bytes(&[number as u64]);
    comm.allreduce(&mut vector, Element::U64, Op::Sum, None).map(|()| values(&vector)[0])
}

#[test]
fn nested_splits_have_their_own_ranks_and_results() {
    for p in [1, 2, 5, 8] {
        world(p, |comm| {
            let child = comm.split(Some(comm.rank() as u32 % 2), -(comm.rank() as i64)).unwrap().unwrap();
            let members: Vec<usize> = (0..p).rev().filter(|rank| rank % 2 == comm.rank() % 2).collect();
            assert_eq!(child.world_ranks(), members);
            assert_eq!(child.world_ranks()[child.rank()], comm.rank());
            let grandchild = child.split((child.rank() > 0).then_some(7), 0).unwrap();
            assert_eq!(grandchild.is_none(), child.rank() == 0);

            assert_eq!(sum(&child, comm.rank()).unwrap() as usize, members.iter().sum::<usize>());
            if let Some(grandchild) = &grandchild {
                assert_eq!(sum(grandchild, comm.rank()).unwrap() as usize, members[1..].iter().sum::<usize>());
            }
            assert_eq!(sum(comm, comm.rank()).unwrap() as usize, (0..p).sum::<usize>());
        });
    }
}

#[test]
fn closing_the_world_closes_its_subgroups_but_not_vice_versa() {
    world(2, |comm| {
        let [first, second] = [0, 0].map(|color| comm.split(Some(color), 0).unwrap().unwrap());
        first.close();
        assert_eq!(first.barrier(None), Err(Error::Closed));
        assert_eq!(sum(&second, 1), Ok(2));
        comm.barrier(None).unwrap();
        comm.close();
        assert_eq!((second.barrier(None), comm.barrier(None)), (Err(Error::Closed), Err(Error::Closed)));
        assert_eq!(
            comm.start(&CollectiveTask::Barrier { token: WholeBuffer }, Element::U8, None, vec![0]).map(drop),
            Err(Error::Closed)
        );
    });
}

#[test]
fn calls_of_two_communicators_in_different_orders_are_a_mismatch_that_names_both() {
    let results = world(2, |comm| {
        let [first, second] = [0, 0].map(|color| comm.split(Some(color), 0).unwrap().unwrap());
        let (own_first, own_second) = if comm.rank() == 0 { (&first, &second) } else { (&second, &first) };
        sum(own_first, 1).and_then(|_| sum(own_second, 1))
    });
    for result in results {
        let Err(Error::Failed(JobFailure::Mismatch { description })) = result else { panic!("{result:?}") };
        assert!(description.matches("of communicator").count() == 2, "{description}");
    }
}

#[test]
fn blocking_calls_between_background_calls_keep_the_order() {
    for p in [1, 2, 4] {
        world(p, |comm| {
            let task = CollectiveTask::Allreduce { op: Op::Sum, vector: WholeBuffer };
            let start = |i: u64| comm.start(&task, Element::U64, None, bytes(&vec![i; 30_000])).unwrap();
            let handles: Vec<_> = (0..8).map(start).collect();
            assert_eq!(sum(comm, 3).unwrap(), 3 * p as u64);
            drop(start(99));
            for (i, handle) in handles.into_iter().enumerate().rev() {
                assert_eq!(values(&handle.wait().unwrap()), vec![(i * p) as u64; 30_000]);
            }
        });
    }
}

#[test]
fn a_background_call_ends_without_a_wait() {
    world(3, |comm| {
        let task = CollectiveTask::Allreduce { op: Op::Sum, vector: WholeBuffer };
        // The vector exceeds the capacity of the links, so a thread must advance the call.
        let handle = comm.start(&task, Element::U64, None, bytes(&vec![1; 1 << 18])).unwrap();
        wait_until(|| handle.is_done());
        assert_eq!(values(&handle.wait().unwrap()), vec![3; 1 << 18]);
    });
}

#[test]
fn every_handle_reports_the_failure() {
    let results = world(2, |comm| {
        let task = CollectiveTask::Allreduce { op: Op::Sum, vector: WholeBuffer };
        let lengths = [100, 100 + comm.rank()];
        let handles = lengths.map(|n| comm.start(&task, Element::U64, None, bytes(&vec![1; n])).unwrap());
        let [fine, wrong] = handles.map(|handle| {
            let ended = handle.join();
            assert_eq!(handle.join(), ended, "a second wait returns the same");
            ended
        });
        (fine, wrong, comm.barrier(None))
    });
    for (fine, wrong, next) in results {
        // The first failure ends all calls in flight.
        assert!(matches!(fine, Ok(()) | Err(Error::Failed(JobFailure::Mismatch { .. }))), "{fine:?}");
        assert!(matches!(wrong, Err(Error::Failed(JobFailure::Mismatch { .. }))), "{wrong:?}");
        assert!(matches!(next, Err(Error::Failed(JobFailure::Mismatch { .. }))), "{next:?}");
    }
}

#[test]
fn scans_rotations_and_neighbor_exchanges_match_a_serial_result() {
    for p in [1, 2, 3, 5] {
        world(p, |comm| {
            let rank = comm.rank();
            let mut vector = bytes(&[rank as u64 + 1]);
            comm.scan(&mut vector, Element::U64, Op::Sum, None).unwrap();
            assert_eq!(values(&vector), [(1..=rank as u64 + 1).sum::<u64>()]);
            let mut vector = bytes(&[rank as u64 + 1]);
            comm.exscan(&mut vector, Element::U64, Op::Sum, None).unwrap();
            assert_eq!(values(&vector), [if rank == 0 { 1 } else { (1..=rank as u64).sum() }]);

            for distance in 0..p + 2 {
                let before = (rank + 2 * p - distance % p) % p;
                let mut into = vec![0; 8 * before];
                comm.rotate(&bytes(&vec![rank as u64; rank]), &mut into, Element::U64, distance, None).unwrap();
                assert_eq!(values(&into), vec![before as u64; before]);
            }

            let peers: Vec<usize> = if p == 1 { vec![] } else { vec![(rank + 1) % p] };
            let from: Vec<usize> = if p == 1 { vec![] } else { vec![(rank + p - 1) % p] };
            let with_one = |peers: &[usize]| peers.iter().map(|&peer| (peer, 1)).collect::<Vec<_>>();
            let mut into = vec![0; 8 * from.len()];
            let out = bytes(&vec![rank as u64; peers.len()]);
            let (out_peers, in_peers) = (with_one(&peers), with_one(&from));
            comm.neighbour_exchange(&out, &out_peers, &mut into, &in_peers, Element::U64, None).unwrap();
            assert_eq!(values(&into), from.iter().map(|&peer| peer as u64).collect::<Vec<_>>());
        });
    }
}
