//! Worlds with replicas: ranks die or become silent, rank 0 included. The other ranks continue and get the losses,
//! until a last replica dies.

use crate::common::process::{ChildOptions, RankProcess, expect_verdict};
use crate::common::{TIMEOUT, under_load};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const TWO_SECONDS: Duration = Duration::from_secs(2);

/// Send `signal` to the ranks of `order` one after the other. Check that the other ranks report each loss in time.
fn lose_in_order(ranks: &mut Vec<RankProcess>, order: &[usize], signal: Signal) -> Vec<RankProcess> {
    let mut lost = Vec::new();
    let mut known: Vec<usize> = Vec::new();
    for &rank in order {
        for other in ranks.iter_mut().filter(|other| other.rank != rank) {
            other.send_line(&format!("lose {}", known.len() + 1));
            other.expect("watching", TIMEOUT);
        }
        let at = ranks.iter().position(|other| other.rank == rank).unwrap();
        lost.push(ranks.remove(at));
        let since = Instant::now();
        lost.last().unwrap().signal(signal);
        known.push(rank);
        known.sort_unstable();
        let names = known.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        for other in ranks.iter_mut() {
            assert_eq!(other.expect("lost", TIMEOUT), names, "rank {}", other.rank);
            assert!(since.elapsed() < under_load(TWO_SECONDS), "rank {} took {:?}", other.rank, since.elapsed());
        }
    }
    lost
}

#[test]
fn killed_ranks_are_reported_until_the_last_replica_fails_the_job() {
    for links in ["\"auto\"", "\"tcp\""] {
        for (order, last) in [(vec![0, 1], 2), (vec![3, 2], 0), (vec![2], 0), (vec![1, 0], 3)] {
            let mut ranks = ChildOptions { replicas: 2, links, ..ChildOptions::new(4, "pipe") }.connect_all();
            lose_in_order(&mut ranks, &order, Signal::KILL);
            let at = ranks.iter().position(|other| other.rank == last).unwrap();
            let killed = ranks.remove(at);
            for rank in ranks.iter_mut() {
                rank.send_line("watch");
                rank.expect("watching", TIMEOUT);
            }
            let since = Instant::now();
            killed.signal(Signal::KILL);
            expect_verdict(&mut ranks, last, "before that its replica, rank", since, TWO_SECONDS);
        }
    }
}

#[test]
fn a_stopped_rank_is_detected_by_its_silence_also_after_rank_0() {
    let mut ranks = ChildOptions { replicas: 2, heartbeat_ms: 1000, ..ChildOptions::new(4, "pipe") }.connect_all();
    let stopped = lose_in_order(&mut ranks, &[0, 3], Signal::STOP);
    assert_eq!(stopped.len(), 2);
}

#[test]
fn live_ranks_leave_in_good_order() {
    for order in [vec![0], vec![2, 1]] {
        let mut ranks = ChildOptions { replicas: 2, ..ChildOptions::new(4, "pipe") }.connect_all();
        lose_in_order(&mut ranks, &order, Signal::KILL);
        ranks.iter_mut().for_each(|rank| rank.send_line("close"));
        for mut rank in ranks {
            rank.expect("closed", TWO_SECONDS);
        }
    }
}
