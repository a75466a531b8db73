//! Tests of failures: rank processes die, become silent or leave. The other ranks learn the failed rank and the cause
//! in time.

use crate::common::TIMEOUT;
use crate::common::process::{ChildOptions, RankProcess, expect_verdict};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const TWO_SECONDS: Duration = Duration::from_secs(2);

fn watch(ranks: &mut [RankProcess], command: impl Fn(usize) -> String) {
    for rank in ranks.iter_mut() {
        rank.send_line(&command(rank.rank));
        rank.expect("watching", TIMEOUT);
    }
}

#[test]
fn a_killed_rank_is_named_to_all_idle_ranks() {
    for links in ["\"auto\"", "\"tcp\""] {
        for victim in 0..3 {
            let mut ranks = ChildOptions { links, ..ChildOptions::new(3, "pipe") }.connect_all();
            let killed = ranks.remove(victim);
            watch(&mut ranks, |_| "watch".to_string());
            let since = Instant::now();
            killed.signal(Signal::KILL);
            expect_verdict(&mut ranks, victim, "its process ended", since, TWO_SECONDS);
        }
    }
}

#[test]
fn a_killed_rank_is_named_to_a_rank_that_is_parked_for_its_bytes() {
    for links in ["\"auto\"", "\"tcp\""] {
        let mut ranks = ChildOptions { links, ..ChildOptions::new(3, "pipe") }.connect_all();
        let killed = ranks.pop().unwrap();
        // Rank 1 waits for the killed rank; rank 0 waits for rank 1 and is affected, too.
        watch(&mut ranks, |rank| format!("collect {}", rank + 1));
        let since = Instant::now();
        killed.signal(Signal::KILL);
        expect_verdict(&mut ranks, 2, "its process ended", since, TWO_SECONDS);
    }
}

#[test]
fn a_rank_that_exits_without_leaving_has_failed() {
    let mut ranks = ChildOptions::new(2, "pipe").connect_all();
    let mut ended = ranks.pop().unwrap();
    watch(&mut ranks, |_| "watch".to_string());
    ended.send_line("exit");
    expect_verdict(&mut ranks, 1, "its process ended", Instant::now(), TWO_SECONDS);
}

#[test]
fn a_stopped_rank_is_detected_by_its_silence() {
    for victim in [0, 2] {
        let mut ranks = ChildOptions { heartbeat_ms: 1000, ..ChildOptions::new(3, "pipe") }.connect_all();
        let stopped = ranks.remove(victim);
        watch(&mut ranks, |_| "watch".to_string());
        let since = Instant::now();
        stopped.signal(Signal::STOP);
        expect_verdict(&mut ranks, victim, "no heartbeat for 1.", since, TWO_SECONDS);
    }
}

#[test]
fn messages_sent_before_leaving_still_arrive() {
    for links in ["\"auto\"", "\"tcp\""] {
        let mut ranks = ChildOptions { links, ..ChildOptions::new(3, "pipe") }.connect_all();
        let mut leaving_rank = ranks.pop().unwrap();
        leaving_rank.send_line("deliver 1");
        leaving_rank.close();
        ranks[1].send_line("receive 2");
        ranks[1].expect("received", TIMEOUT);
        ranks.into_iter().rev().for_each(RankProcess::close);
    }
}

#[test]
fn remaining_ranks_are_monitored_after_rank_0_has_left() {
    let mut ranks = ChildOptions::new(3, "pipe").connect_all();
    ranks[0].send_line("close");
    let killed = ranks.pop().unwrap();
    let mut staying = ranks.pop().unwrap();
    watch(std::slice::from_mut(&mut staying), |_| "watch".to_string());
    let since = Instant::now();
    killed.signal(Signal::KILL);
    expect_verdict(std::slice::from_mut(&mut staying), 2, "its process ended", since, TWO_SECONDS);
    ranks[0].expect("closed", TWO_SECONDS);
}

#[test]
fn a_waiting_rank_learns_of_a_killed_rank_after_all_hubs_left() {
    let mut ranks = ChildOptions { linger_ms: 10, ..ChildOptions::new(3, "pipe") }.connect_all();
    ranks.remove(0).close();
    watch(&mut ranks[..1], |_| "collect 2".to_string());
    let killed = ranks.pop().unwrap();
    let since = Instant::now();
    killed.signal(Signal::KILL);
    expect_verdict(&mut ranks, 2, "its process ended", since, TWO_SECONDS);
}
