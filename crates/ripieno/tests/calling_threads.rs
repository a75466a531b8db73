//! Calls from several threads of one rank. The calling thread gets the core, even if it is biased to another thread.

use crate::common::{bytes, world};
use ripieno::{CollectiveTask, Communicator, Element, Op, WholeBuffer};
use std::thread::scope;

/// Number of calls after which the core is biased to a thread.
const CALL_COUNT: usize = 200;

/// Run `count` sums of ones over both ranks.
fn sum_ones(comm: &Communicator, count: usize) {
    for _ in 0..count {
        let mut vector = bytes(&[1, 1]);
        comm.allreduce(&mut vector, Element::I64, Op::Sum, None).unwrap();
        assert_eq!(vector, bytes(&[2, 2]));
    }
}

#[test]
fn a_thread_may_call_after_another_thread_got_the_bias() {
    let calls = world(2, |comm| {
        for turn in 0..3 {
            sum_ones(comm, CALL_COUNT << turn);
            scope(|scope| scope.spawn(|| sum_ones(comm, 10)).join().unwrap());
        }
        comm.statistics().unwrap().call_count
    });
    assert_eq!(calls, [7 * CALL_COUNT as u64 + 30; 2]);
}

#[test]
fn concurrent_calls_of_several_threads_all_succeed() {
    world(1, |comm| {
        sum_of_one(comm, CALL_COUNT);
        scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| sum_of_one(comm, 20 * CALL_COUNT)))));
        assert_eq!(comm.statistics().unwrap().call_count, 61 * CALL_COUNT as u64);
    });
}

fn sum_of_one(comm: &Communicator, count: usize) {
    (0..count).for_each(|_| comm.allreduce(&mut bytes(&[1]), Element::I64, Op::Sum, None).unwrap());
}

#[test]
fn a_background_call_continues_while_its_thread_makes_no_call() {
    world(2, |comm| {
        sum_ones(comm, CALL_COUNT);
        let task = CollectiveTask::Allreduce { op: Op::Sum, vector: WholeBuffer };
        for _ in 0..10 {
            let handle = comm.start(&task, Element::I64, None, bytes(&[1; 4096])).unwrap();
            // The call of the other rank may wait for this one. Only the background thread can advance it here.
            while !handle.is_done() {
                std::thread::yield_now();
            }
            assert_eq!(handle.wait().unwrap(), bytes(&[2; 4096]));
        }
        sum_ones(comm, CALL_COUNT);
    });
}

#[test]
fn communicators_are_closed_by_threads_with_and_without_the_bias() {
    world(2, |comm| {
        for turn in 0..3 {
            let part = comm.split(Some(0), 0).unwrap().unwrap();
            sum_ones(&part, CALL_COUNT);
            match turn {
                0 => drop(part),
                _ => scope(|scope| scope.spawn(move || drop(part)).join().unwrap()),
            }
            sum_ones(comm, CALL_COUNT);
        }
    });
}
