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
    let whole = Span::whole(Buffer::MAIN, LENGTH_BYTES / 8, 8);
    let mut plan = Plan::new();
    if rank > 0 {
        plan.receive(rank - 1, whole);
    }
    if rank < 2 {
        plan.send(rank + 1, whole);
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
        for sequence in 0..3 {
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
fn other_memory_is_copied() {
    let traffic = run(|| vec![0; LENGTH_BYTES], std::convert::identity);
    let traffic: Vec<_> = traffic.iter().map(|traffic| (traffic.sent_bytes, traffic.zero_copy_bytes)).collect();
    let all = LENGTH_BYTES as u64;
    assert_eq!(traffic, [(all, 0), (all, 0), (0, 0)]);
}
