//! Repeated calls, which use a cache, and calls that differ slightly from earlier ones.

use crate::common::{bytes, world};
use ripieno::{BufferMemory, Collective, CollectiveTask, Communicator, Element, NO_MEMORY, Op, Overrides, WholeBuffer};
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of calls after which the core is biased to a thread.
const CALL_COUNT: usize = 50;

/// Return the algorithm of the last call.
fn last_algorithm(comm: &Communicator) -> &'static str {
    comm.flight(Some(1)).unwrap().records[0].1.algorithm()
}

fn allreduced(comm: &Communicator, op: Op) -> Vec<u8> {
    let mut vector = bytes(&[2 + comm.rank() as i64; 3]);
    comm.allreduce(&mut vector, Element::I64, op, None).unwrap();
    vector
}

#[test]
fn the_default_algorithm_may_change_between_equal_calls() {
    world(2, |comm| {
        let mut found = Vec::new();
        for overrides in ["", "allreduce=ring", "allreduce=tree", ""] {
            comm.set_overrides(Overrides::parse(overrides).unwrap()).unwrap();
            allreduced(comm, Op::Sum);
            assert_eq!(allreduced(comm, Op::Sum), bytes(&[5; 3]));
            found.push(last_algorithm(comm));
        }
        comm.prefer(Collective::Allreduce, &[(1 << 20, "one-round".to_string())]).unwrap();
        assert_eq!(allreduced(comm, Op::Sum), bytes(&[5; 3]));
        found.push(last_algorithm(comm));
        assert_eq!(found, ["bidirectional-exchange", "ring", "tree", "bidirectional-exchange", "one-round"]);
    });
}

#[test]
fn calls_that_differ_in_one_argument_are_not_confused() {
    world(2, |comm| {
        for _ in 0..40 {
            assert_eq!(allreduced(comm, Op::Sum), bytes(&[5; 3]));
            assert_eq!(allreduced(comm, Op::Prod), bytes(&[6; 3]));
            for root in 0..2 {
                let mut vector = bytes(&[comm.rank() as i64; 3]);
                comm.broadcast(BufferMemory::Write(&mut vector), Element::I64, root, None).unwrap();
                assert_eq!(vector, bytes(&[root as i64; 3]));
            }
            for counts in [[1, 2], [2, 1], [0, 3]] {
                let value = comm.rank() as i64;
                let mut vector = bytes(&[value; 3]);
                comm.allgather(&mut vector, Element::I64, &counts, None).unwrap();
                let expected: Vec<i64> = (0..2).flat_map(|rank| vec![rank as i64; counts[rank]]).collect();
                assert_eq!(vector, bytes(&expected));
            }
        }
    });
}

#[test]
fn a_mismatch_is_reported_after_any_number_of_equal_calls() {
    let reported = world(2, |comm| {
        (0..50).for_each(|_| drop(allreduced(comm, Op::Sum)));
        let op = if comm.rank() == 0 { Op::Sum } else { Op::Max };
        comm.allreduce(&mut bytes(&[1; 3]), Element::I64, op, None).unwrap_err().to_string()
    });
    for text in reported {
        assert!(text.contains("allreduce(int64 × 3, sum") && text.contains("allreduce(int64 × 3, max"), "{text}");
    }
}

#[test]
fn a_repeated_brief_call_runs_only_its_blocking_section_separately() {
    let task = CollectiveTask::Allreduce { op: Op::Sum, vector: WholeBuffer };
    // Rank 1 makes its call only after rank 0 has started to wait.
    let is_waited_for = AtomicBool::new(false);
    let last_algorithm = world(2, |comm| {
        let sections = |length: usize| {
            let (mut section_count, mut vector) = (0, bytes(&vec![comm.rank() as i64 + 2; length]));
            let mut section = |rest: &mut (dyn FnMut() + Send)| {
                section_count += 1;
                is_waited_for.store(true, Ordering::SeqCst);
                rest();
            };
            let memory = [BufferMemory::Write(&mut vector), NO_MEMORY];
            let done = comm.run_with_section(&task, Element::I64, None, memory, &mut section);
            done.map(|()| (vector == bytes(&vec![5; length]), section_count))
        };
        assert_eq!(sections(3).unwrap(), (true, 1), "no equal call was made before");
        (0..CALL_COUNT).for_each(|_| drop(allreduced(comm, Op::Sum)));
        if comm.rank() == 1 {
            is_waited_for.store(false, Ordering::SeqCst);
        }
        comm.barrier(None).unwrap();
        while comm.rank() == 1 && !is_waited_for.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let last_algorithm = sections(3).expect("the thread has made many calls");
        (0..2).for_each(|_| assert_eq!(sections(1 << 20).unwrap(), (true, 1), "too long to be brief"));
        comm.close();
        assert!(sections(3).is_err(), "closed");
        last_algorithm
    });
    assert_eq!(last_algorithm, [(true, 1), (true, 0)]);
}
