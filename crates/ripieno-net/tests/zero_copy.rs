//! Zero-copy sends: long sends from memory that peers can map are not copied.

use crate::common::header;
use ripieno_net::ThreadFabric;
use ripieno_net::links::Region;
use ripieno_plan::{Buffer, Collective, Plan, Span};
use ripieno_run::{BufferMemory, Executor, PreparedCall, RunTraffic, Schedule};
use std::sync::Arc;

const LENGTH_BYTES: usize = 8 << 20;

/// Return the plan of a rank in a chain of three; the middle rank forwards data while it receives.
fn plan(rank: usize) -> Plan {
    let full_span = Span::whole(Buffer::MAIN, LENGTH_BYTES / 8, 8);
    let mut plan = Plan::new();
    if rank > 0 {
        plan.receive(rank - 1, full_span);
    }
    if rank < 2 {
        plan.send(rank + 1, full_span);
    }
    plan
}

/// Return the traffic of each rank in the chain, with vectors from `vector`.
fn run<V: AsMut<[u8]>>(vector: impl Fn() -> V + Sync, prepare: fn(Schedule) -> Schedule) -> Vec<RunTraffic> {
    let run = |(rank, mut fabric): (usize, ThreadFabric)| {
        let mut vector = vector();
        let bytes = &mut vector.as_mut()[..LENGTH_BYTES];
        let expected: Vec<u8> = (0..LENGTH_BYTES).map(|index| ((index * 31) >> 7) as u8).collect();
        if rank == 0 {
            bytes.copy_from_slice(&expected);
        }
        let mut executor = Executor::default();
        let mut traffic = RunTraffic::default();
        // Links time the second read of the same memory, and may copy afterwards.
        for sequence in 0..2 {
            let schedule = Arc::new(prepare(Schedule::new(&plan(rank))));
            let header = header(sequence, Collective::Broadcast);
            let prepared = PreparedCall::new(header.communicator, header.call, schedule).unwrap();
            traffic = executor.run(&mut fabric, sequence, &prepared, &mut [BufferMemory::Write(bytes)]).unwrap();
            assert!(*bytes == expected, "rank {rank} has the bytes");
        }
        traffic
    };
    std::thread::scope(|scope| {
        let ranks = ThreadFabric::group(3).unwrap().into_iter().enumerate();
        let threads: Vec<_> = ranks.map(|rank| scope.spawn(|| run(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn no_byte_of_a_region_is_copied() {
    for prepare in [std::convert::identity, Schedule::for_message] {
        let traffic = run(|| Region::new(LENGTH_BYTES).unwrap().unwrap(), prepare);
        let traffic: Vec<_> = traffic.iter().map(|traffic| (traffic.sent_bytes, traffic.zero_copy_bytes)).collect();
        let all = LENGTH_BYTES as u64;
        assert_eq!(traffic, [(all, all), (all, all), (0, 0)]);
    }
}

#[test]
fn exchanged_bytes_of_other_memory_are_copied_once() {
    let traffic = ThreadFabric::group(2).unwrap().into_iter().enumerate();
    let exchange = |(rank, mut fabric): (usize, ThreadFabric)| {
        let block =
            |of: usize| Span { start_bytes: of * LENGTH_BYTES, ..Span::whole(Buffer::MAIN, LENGTH_BYTES / 8, 8) };
        let mut plan = Plan::new();
        plan.send(1 - rank, block(rank));
        plan.receive(1 - rank, block(1 - rank));
        let mut bytes = vec![rank as u8; 2 * LENGTH_BYTES];
        let header = header(0, Collective::Allgather);
        let prepared = PreparedCall::new(header.communicator, header.call, Arc::new(Schedule::new(&plan))).unwrap();
        let mut executor = Executor::default();
        let traffic = executor.run(&mut fabric, 0, &prepared, &mut [BufferMemory::Write(&mut bytes)]).unwrap();
        assert!(
            bytes[..LENGTH_BYTES].iter().all(|&byte| byte == 0) && bytes[LENGTH_BYTES..].iter().all(|&byte| byte == 1)
        );
        (traffic.sent_bytes, traffic.zero_copy_bytes)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = traffic.map(|rank| scope.spawn(|| exchange(rank))).collect();
        let all = LENGTH_BYTES as u64;
        // A rank without a core of its own does not wait for its receiver.
        let has_cores = std::thread::available_parallelism().unwrap().get() >= 2;
        let expected = (all, if has_cores { all } else { 0 });
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), expected));
    });
}

#[test]
fn relayed_bytes_of_other_memory_are_copied() {
    let traffic = run(|| vec![0; LENGTH_BYTES], std::convert::identity);
    assert_eq!((traffic[1].sent_bytes, traffic[1].zero_copy_bytes), (LENGTH_BYTES as u64, 0));
}
