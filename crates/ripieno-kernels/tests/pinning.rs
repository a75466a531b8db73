//! Pinning of threads to cores, and the times of threads. Both are global to the process, so they have their own test
//! program.

use ripieno_kernels::{NotAllowed, Threads, pin_threads, pinned_cores, thread_times};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

/// An amount of work that is worth all threads.
const MANY: usize = 1 << 30;

/// Serializes the tests of this file.
static TURN: Mutex<()> = Mutex::new(());

fn allowed() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

fn cores_of_members(count: usize) -> Vec<Vec<usize>> {
    let found = Mutex::new(vec![Vec::new(); count]);
    Threads::new(count).run(|member| found.lock().unwrap()[member.index()] = allowed());
    found.into_inner().unwrap()
}

#[test]
fn every_member_computes_on_its_core_and_the_caller_returns() {
    let _turn = TURN.lock().unwrap();
    let all = allowed();
    let reversed: Vec<usize> = all.iter().rev().copied().collect();
    // Existing helpers move, too.
    assert_eq!(cores_of_members(3), vec![all.clone(); 3]);
    pin_threads(&reversed).unwrap();
    let expected: Vec<Vec<usize>> = (0..3).map(|index| vec![reversed[index % reversed.len()]]).collect();
    assert_eq!(cores_of_members(3), expected);
    assert_eq!((allowed(), pinned_cores()), (all.clone(), reversed));
    pin_threads(&[]).unwrap();
    assert_eq!(cores_of_members(3), vec![all; 3]);
}

#[test]
fn a_forbidden_core_is_an_error_and_changes_nothing() {
    let _turn = TURN.lock().unwrap();
    let beyond = allowed().last().unwrap() + 1;
    for core in [beyond, usize::MAX] {
        assert_eq!(pin_threads(&[core]), Err(NotAllowed { core }));
    }
    assert_eq!(pinned_cores(), [0; 0]);
}

#[test]
fn parts_go_to_no_more_threads_than_can_compute_at_once() {
    let _turn = TURN.lock().unwrap();
    let workers_of = || {
        let found = Mutex::new(BTreeSet::new());
        let work = |(): &mut (), _part: usize| {
            std::thread::sleep(Duration::from_millis(1));
            found.lock().unwrap().insert(rustix::thread::gettid().as_raw_nonzero());
        };
        Threads::new(33).for_each((0..100).collect(), MANY, || (), work);
        found.into_inner().unwrap().len()
    };
    assert!(workers_of() <= std::thread::available_parallelism().unwrap().get());
    pin_threads(&allowed()[..1]).unwrap();
    assert_eq!(workers_of(), 1);
    pin_threads(&[]).unwrap();
}

#[test]
fn time_of_a_member_is_computing_or_waiting() {
    let _turn = TURN.lock().unwrap();
    let (short, long) = (Duration::from_millis(2), Duration::from_millis(30));
    // A count that no other test uses, so that the last member is new.
    let last = 4;
    let before = thread_times().iter().filter(|member| member.index == last).count();
    assert_eq!(before, 0, "no other test uses so many threads");
    Threads::new(last + 1).run(|member| {
        std::thread::sleep(if member.index() == last { long } else { short });
        member.wait();
    });
    let times = thread_times();
    let slow = times.iter().find(|member| member.index == last).unwrap();
    assert_eq!(slow.task_count, 1);
    assert!(slow.computing >= long && slow.tid > 0, "{slow:?}");
    let third = times.iter().filter(|member| member.index == 3).map(|member| member.waiting).max().unwrap();
    assert!(third >= (long - short) / 2, "it waits for the slow one: {times:?}");
}
