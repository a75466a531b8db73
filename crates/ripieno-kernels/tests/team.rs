//! Persistent threads: concurrent callers, phases separated by barriers, and panics.

use ripieno_kernels::{ThreadModel, Threads, hold, release};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// An amount of work that is worth all threads.
const MANY: usize = 1 << 30;

fn doubled(count: usize, threads: &Threads) -> Vec<usize> {
    let mut values: Vec<usize> = (0..count).collect();
    threads.for_each(values.iter_mut().collect(), MANY, || (), |(), value| *value *= 2);
    values
}

fn message(outcome: std::thread::Result<()>) -> String {
    *outcome.expect_err("it panics").downcast::<String>().expect("a panic with a formatted message")
}

#[test]
fn every_part_is_processed_once_also_with_more_threads_than_cores() {
    for thread_count in [1, 2, 3, 8, 33] {
        let expected: Vec<usize> = (0..100).map(|value| 2 * value).collect();
        assert_eq!(doubled(100, &Threads::new(thread_count)), expected);
    }
}

#[test]
fn concurrent_callers_have_separate_teams() {
    std::thread::scope(|scope| {
        for caller in 0..6 {
            scope.spawn(move || {
                for count in 0..50 {
                    let expected: Vec<usize> = (0..count).map(|value| 2 * value).collect();
                    assert_eq!(doubled(count, &Threads::new(1 + caller % 4)), expected);
                }
            });
        }
    });
}

#[test]
fn a_part_may_start_nested_parts() {
    let sums = Mutex::new(Vec::new());
    Threads::new(3).for_each(
        (0..6).collect(),
        MANY,
        || (),
        |(), part: usize| {
            let inner: usize = doubled(part, &Threads::new(2)).iter().sum();
            sums.lock().unwrap().push((part, inner));
        },
    );
    let mut sums = sums.into_inner().unwrap();
    sums.sort_unstable();
    assert_eq!(sums, (0..6_usize).map(|part| (part, part * part.saturating_sub(1))).collect::<Vec<_>>());
}

#[test]
fn a_held_team_serves_every_task_with_the_same_threads_until_it_is_released() {
    let threads_of = |count: usize| {
        let found = Mutex::new(Vec::new());
        Threads::new(count).run(|member| {
            found.lock().unwrap().push((member.index(), std::thread::current().id()));
            member.wait();
        });
        let mut found = found.into_inner().unwrap();
        found.sort_unstable_by_key(|(index, _)| *index);
        found
    };
    hold(3);
    hold(2);
    assert_eq!(Threads::new(3).model(), ThreadModel::Bsp);
    let all = threads_of(3);
    for count in [1, 2, 3, 3, 1] {
        assert_eq!(threads_of(count), all[..count]);
    }
    // A part runs on the held team, so its own parts need another one.
    assert_eq!(doubled(10, &Threads::new(5)), (0..10).map(|value| 2 * value).collect::<Vec<_>>());
    let outcome = catch_unwind(|| Threads::new(3).run(|member| assert!(member.index() != 1, "{}", "unlucky")));
    assert_eq!(message(outcome), "unlucky");
    assert_eq!(threads_of(3), all, "the team continues after a panic");
    release();
    assert_eq!(Threads::new(3).model(), ThreadModel::ForkJoin);
    assert_eq!(doubled(4, &Threads::new(3)), [0, 2, 4, 6]);
}

#[test]
fn a_held_team_sleeps_after_its_thread_has_ended() {
    let helpers = std::thread::spawn(|| {
        hold(3);
        let helpers = Mutex::new(Vec::new());
        Threads::new(3).run(|member| {
            if member.index() > 0 {
                // SAFETY: a plain system call.
                helpers.lock().unwrap().push(unsafe { libc::gettid() });
            }
        });
        helpers.into_inner().unwrap()
    });
    let sleeps = |thread: &i32| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("helpers stay");
        status.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
    };
    let (helpers, started) = (helpers.join().unwrap(), Instant::now());
    while !helpers.iter().all(sleeps) {
        assert!(started.elapsed() < Duration::from_secs(10), "a helper still spins");
        std::thread::yield_now();
    }
}

#[test]
fn a_panic_in_a_part_reaches_the_caller_and_the_team_continues() {
    let threads = Threads::new(4);
    for unlucky in 0..20 {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            threads.for_each(
                (0..20).collect(),
                MANY,
                || (),
                |(), part: usize| {
                    assert!(part != unlucky, "part {part} is unlucky");
                },
            );
        }));
        assert_eq!(message(outcome), format!("part {unlucky} is unlucky"));
        assert_eq!(doubled(4, &threads), [0, 2, 4, 6]);
    }
}

#[test]
fn phases_see_all_writes_of_the_previous_phase() {
    for count in [1, 2, 4, 8] {
        let written: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        Threads::new(count).run(|member| {
            assert_eq!(member.count(), count);
            for round in 1..=200 {
                written[member.index()].store(round, Ordering::Relaxed);
                member.wait();
                assert!(written.iter().all(|value| value.load(Ordering::Relaxed) == round));
                member.wait();
            }
        });
    }
}

#[test]
fn a_panic_releases_waiting_members_and_reaches_the_caller() {
    for count in [2, 5] {
        for unlucky in 0..count {
            let left = AtomicUsize::new(0);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                Threads::new(count).run(|member| {
                    member.wait();
                    assert!(member.index() != unlucky, "member {unlucky} is unlucky");
                    member.wait();
                    left.fetch_add(1, Ordering::Relaxed);
                });
            }));
            assert_eq!(message(outcome), format!("member {unlucky} is unlucky"));
            assert_eq!(left.into_inner(), 0, "no member passes the barrier");
        }
    }
}
