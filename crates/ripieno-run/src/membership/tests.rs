//! Tests of the protocol's guarantees. The test controls the messages and the clock of all machines.

mod replicas;

use super::inquiry::tests::{allreduce, barrier, message_to};
use super::*;
use crate::call::Call;
use crate::replicas::Replicas;
use std::collections::VecDeque;

struct MembershipWorld {
    now: Duration,
    ranks: Vec<(Membership, CallHistory)>,
    wire: VecDeque<(usize, usize, MembershipMessage)>,
    completed: Vec<bool>,
    finished: Vec<bool>,
    failures: Vec<Option<JobFailure>>,
    /// Ranks that neither run nor answer.
    frozen: Vec<usize>,
    replicas: Replicas,
    /// Dead ranks, as reported to each rank.
    losses: Vec<Vec<usize>>,
    /// A rank without a network, and the time from which on its connections deliver again.
    outage: Option<(usize, Duration)>,
    /// Whether new connections to and from that rank fail.
    is_cut: bool,
}

const TIMING: MembershipTiming =
    MembershipTiming { join_timeout: Duration::from_secs(5), heartbeat_timeout: Duration::from_secs(1) };

impl MembershipWorld {
    fn new(world_size: usize) -> MembershipWorld {
        MembershipWorld::with_replicas(world_size, 1)
    }

    fn with_replicas(world_size: usize, replicas: usize) -> MembershipWorld {
        let hosts: Vec<String> = (0..world_size).map(|rank| format!("host{rank}")).collect();
        let machine =
            |rank| (Membership::new(rank, hosts.clone(), replicas, TIMING, Duration::ZERO), CallHistory::default());
        MembershipWorld {
            now: Duration::ZERO,
            ranks: (0..world_size).map(machine).collect(),
            wire: VecDeque::new(),
            completed: vec![false; world_size],
            finished: vec![false; world_size],
            failures: vec![None; world_size],
            frozen: vec![],
            replicas: Replicas::new(world_size, replicas),
            losses: vec![vec![]; world_size],
            outage: None,
            is_cut: false,
        }
    }

    fn connected(world_size: usize) -> MembershipWorld {
        MembershipWorld::replicated(world_size, 1)
    }

    /// Return a connected world: every rank has connected to every hub, to rank 0 last.
    fn replicated(world_size: usize, replicas: usize) -> MembershipWorld {
        let mut world = MembershipWorld::with_replicas(world_size, replicas);
        let hubs: Vec<usize> = world.replicas.of(0).collect();
        for &hub in hubs.iter().rev() {
            (0..world_size)
                .filter(|&peer| peer != hub)
                .for_each(|peer| world.event(hub, MembershipEvent::Connected { peer }));
            world.deliver();
        }
        world
    }

    fn event(&mut self, rank: usize, event: MembershipEvent) {
        let (machine, history) = &mut self.ranks[rank];
        for output in machine.handle(self.now, event, history) {
            match output {
                MembershipOutput::Send { to, message } => self.wire.push_back((rank, to, message)),
                MembershipOutput::Probe { to } => self.probe(rank, to),
                MembershipOutput::Complete => self.completed[rank] = true,
                MembershipOutput::Finished => self.finished[rank] = true,
                MembershipOutput::Failed(failure) => {
                    assert_eq!(self.failures[rank], None, "a failure is reported once");
                    self.failures[rank] = Some(failure);
                }
                MembershipOutput::Lost(JobFailure::RankFailed { rank: lost, .. }) => {
                    assert!(!self.losses[rank].contains(&lost), "a loss is reported once");
                    self.losses[rank].push(lost);
                }
                MembershipOutput::Lost(other) => panic!("a loss is a rank's: {other}"),
            }
        }
    }

    fn probe(&mut self, rank: usize, to: usize) {
        let is_cut = self.is_cut && self.outage.is_some_and(|(cut, _)| cut == rank || cut == to);
        if !is_cut && !self.frozen.contains(&to) {
            self.event(rank, MembershipEvent::Reached { peer: to });
            self.event(to, MembershipEvent::Reached { peer: rank });
        }
    }

    fn request(&mut self, rank: usize, request: MembershipRequest) {
        self.event(rank, MembershipEvent::Request(request));
        self.deliver();
    }

    /// Encode and decode every message. Frozen ranks receive none. The connections of a rank without a network hold
    /// them back.
    fn deliver(&mut self) {
        let delays = |outage: Option<(usize, Duration)>, now, peer, to| {
            outage.is_some_and(|(cut, until)| now < until && (cut == peer || cut == to))
        };
        let (outage, now) = (self.outage, self.now);
        let is_due = |&(peer, to, _): &(usize, usize, MembershipMessage)| !delays(outage, now, peer, to);
        while let Some(at) = self.wire.iter().position(is_due) {
            let (peer, to, message) = self.wire.remove(at).expect("it is there");
            let mut inbox = MessageInbox::default();
            inbox.push(&message.encode());
            let message = inbox.pop().unwrap().unwrap();
            if !self.frozen.contains(&to) && !self.finished[to] {
                self.event(to, MembershipEvent::Received { peer, message });
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let running: Vec<usize> = (0..self.ranks.len()).filter(|rank| !self.frozen.contains(rank)).collect();
            let next = running.iter().map(|&rank| self.ranks[rank].0.next_tick()).min().unwrap();
            self.now = next.clamp(self.now + Duration::from_millis(1), end);
            running.iter().for_each(|&rank| self.event(rank, MembershipEvent::Tick));
            self.deliver();
        }
    }

    fn enter(&mut self, rank: usize, header: Header) {
        self.ranks[rank].1.enter(header);
    }

    fn kill(&mut self, rank: usize) {
        self.frozen.push(rank);
        let hubs: Vec<usize> = self.replicas.of(0).collect();
        for other in (0..self.ranks.len()).filter(|other| !self.frozen.contains(other)).collect::<Vec<_>>() {
            if hubs.contains(&rank) || hubs.contains(&other) {
                self.event(other, MembershipEvent::Closed { peer: rank, cause: "its process ended".into() });
            }
        }
        self.deliver();
    }

    fn survivors(&self) -> Vec<usize> {
        (0..self.ranks.len()).filter(|rank| !self.frozen.contains(rank)).collect()
    }

    #[track_caller]
    fn assert_all_report(&self, culprit: usize, text: &str) {
        for rank in (0..self.ranks.len()).filter(|rank| !self.frozen.contains(rank)) {
            let Some(JobFailure::RankFailed { rank: failed_rank, host, cause, .. }) = &self.failures[rank] else {
                panic!("rank {rank} has no failed rank but {:?}", self.failures[rank])
            };
            assert_eq!((*failed_rank, host.as_str()), (culprit, format!("host{culprit}").as_str()));
            assert!(cause.contains(text), "{cause}");
        }
    }
}

fn stalled(header: Header, peers: Vec<usize>) -> MembershipRequest {
    MembershipRequest::Stalled { header, peers, blocking: Blocking::All }
}

fn raised(rank: usize) -> JobFailure {
    rank_failed(rank, &["host0", "host1", "host2", "host3"].map(String::from), "ValueError: no")
}

#[test]
fn the_world_is_complete_when_the_last_rank_has_joined() {
    let mut world = MembershipWorld::new(3);
    world.event(0, MembershipEvent::Connected { peer: 2 });
    world.deliver();
    assert_eq!(world.completed, [false; 3]);

    world.event(0, MembershipEvent::Connected { peer: 1 });
    world.deliver();
    assert_eq!(world.completed, [true; 3]);
}

#[test]
fn a_rank_that_never_joins_fails_the_others() {
    let mut world = MembershipWorld::new(3);
    world.event(0, MembershipEvent::Connected { peer: 1 });
    world.frozen.push(2);
    world.pass(Duration::from_millis(5100));
    world.assert_all_report(2, "did not connect within 5.0 s");
}

#[test]
fn a_healthy_world_stays_healthy() {
    let mut world = MembershipWorld::connected(5);
    world.pass(Duration::from_secs(60));
    assert!(world.failures.iter().all(Option::is_none));
}

#[test]
fn the_death_of_any_rank_reaches_all_ranks() {
    for world_size in 2..=5 {
        for culprit in 0..world_size {
            let mut world = MembershipWorld::connected(world_size);
            world.kill(culprit);
            world.assert_all_report(culprit, "its process ended");
        }
    }
}

#[test]
fn a_silent_rank_is_detected_within_five_quarters_of_the_timeout() {
    for culprit in 0..3 {
        let mut world = MembershipWorld::connected(3);
        world.pass(Duration::from_secs(3));
        world.frozen.push(culprit);
        world.pass(Duration::from_millis(1250));
        world.assert_all_report(culprit, "no heartbeat for 1.");
    }
}

#[test]
fn an_outage_of_nine_tenths_of_the_timeout_is_survived() {
    for (cut, begin_ms) in [0, 1, 2].into_iter().flat_map(|cut| (0..125).step_by(5).map(move |begin| (cut, begin))) {
        let mut world = MembershipWorld::connected(3);
        world.pass(Duration::from_millis(1000 + begin_ms));
        // TCP retransmits after twice the time.
        (world.is_cut, world.outage) = (true, Some((cut, world.now + Duration::from_millis(1800))));
        world.pass(Duration::from_millis(900));
        world.is_cut = false;
        world.pass(Duration::from_millis(5000));
        assert!(world.failures.iter().all(Option::is_none), "{cut} after {begin_ms} ms: {:?}", world.failures);
    }
}

#[test]
fn an_outage_longer_than_the_timeout_is_detected_on_both_sides() {
    let mut world = MembershipWorld::connected(3);
    (world.is_cut, world.outage) = (true, Some((2, Duration::MAX)));
    world.pass(Duration::from_millis(1250));
    for (rank, failed_rank) in [(0, 2), (1, 2), (2, 0)] {
        assert!(matches!(&world.failures[rank], Some(JobFailure::RankFailed { rank, .. }) if *rank == failed_rank));
    }
}

#[test]
fn a_connection_that_never_delivers_again_is_broken() {
    let mut world = MembershipWorld::connected(3);
    world.outage = Some((1, Duration::MAX));
    world.pass(Duration::from_millis(2900));
    assert!(world.failures.iter().all(Option::is_none), "{:?}", world.failures);
    world.pass(Duration::from_millis(200));
    let Some(JobFailure::RankFailed { rank: 1, cause, .. }) = &world.failures[0] else { panic!("rank 1 is broken") };
    assert!(cause.contains("its connection delivers nothing for 3.0 s, but it accepts new ones"), "{cause}");
}

#[test]
fn a_hub_that_was_suspended_reports_no_rank() {
    let mut world = MembershipWorld::connected(3);
    world.pass(Duration::from_secs(1));
    world.now += Duration::from_secs(30);
    world.event(0, MembershipEvent::Tick);
    world.wire.clear();
    assert_eq!(world.failures[0], None);
}

#[test]
fn the_failure_of_a_rank_that_reports_and_dies_is_its_report() {
    let mut world = MembershipWorld::connected(3);
    world.request(1, MembershipRequest::Report(raised(1)));
    world.kill(1);
    world.kill(2);
    assert_eq!(world.failures[0], Some(raised(1)));
}

#[test]
fn a_report_without_a_host_gets_the_host_of_its_rank() {
    for rank in 0..3 {
        let mut world = MembershipWorld::connected(3);
        world.request(rank, MembershipRequest::Report(rank_failed(rank, &[], "ValueError: no")));
        assert!(world.failures.iter().all(|failure| *failure == Some(raised(rank))), "{:?}", world.failures);
    }
}

#[test]
fn the_first_failure_is_reported_on_all_ranks() {
    let mut world = MembershipWorld::connected(3);
    world.event(2, MembershipEvent::Request(MembershipRequest::Report(raised(2))));
    world.event(1, MembershipEvent::Request(MembershipRequest::Report(raised(1))));
    world.deliver();
    assert!(world.failures.iter().all(|failure| *failure == Some(raised(2))));
}

#[test]
fn a_closed_link_waits_for_the_report_of_the_failed_rank() {
    let mut world = MembershipWorld::connected(3);
    world.request(2, MembershipRequest::Suspect { peer: 1, cause: "reset".into() });
    assert!(world.failures.iter().all(Option::is_none));
    world.request(1, MembershipRequest::Report(raised(1)));
    assert!(world.failures.iter().all(|failure| *failure == Some(raised(1))));
}

#[test]
fn a_closed_link_alone_is_a_failure_after_the_grace_period() {
    let mut world = MembershipWorld::connected(3);
    world.request(2, MembershipRequest::Suspect { peer: 1, cause: "reset".into() });
    world.pass(hub::GRACE);
    world.assert_all_report(1, "its link to rank 2 closed: reset");
}

#[test]
fn a_mismatch_names_every_rank_that_has_called() {
    let mut world = MembershipWorld::connected(4);
    for rank in [0, 1, 3] {
        world.enter(rank, allreduce(7));
    }
    world.enter(2, barrier(7));
    world.request(1, stalled(allreduce(7), vec![2]));
    let called = format!("ranks 0-1, 3 called {}; rank 2 called {}", allreduce(7).call, barrier(7).call);
    let mismatch = JobFailure::Mismatch { description: format!("collective 7: {called}") };
    assert!(world.failures.iter().all(|failure| *failure == Some(mismatch.clone())), "{:?}", world.failures);
}

fn with_signature(header: Header, signature: u32) -> Header {
    Header { call: Call { signature, ..header.call }, ..header }
}

/// Let `rank` call `header`, with `text` as the description of its signature.
fn enter_call(world: &mut MembershipWorld, rank: usize, header: Header, text: &str) {
    world.ranks[rank].1.note_signature(header.call.signature, &|| text.to_string());
    if header.call.concerns_all() {
        world.enter(rank, header);
    }
}

#[test]
fn different_signatures_are_described_by_any_rank_that_detects_them() {
    for (finder, peer) in [(0, 2), (2, 0), (1, 2), (2, 1)] {
        let mut world = MembershipWorld::connected(4);
        let [wide, tall] = [1, 2].map(|signature| with_signature(allreduce(7), signature));
        (0..4).for_each(|rank| match rank {
            2 => enter_call(&mut world, rank, tall, "shape (3, 2)"),
            _ => enter_call(&mut world, rank, wide, "shape (2, 3)"),
        });
        let [mine, theirs] = if finder == 2 { [tall, wide] } else { [wide, tall] };
        world.request(finder, MembershipRequest::Differs { mine, peer, theirs });
        let Some(JobFailure::Mismatch { description }) = &world.failures[0] else { panic!("{:?}", world.failures) };
        assert!(description.contains("ranks 0-1, 3 called allreduce") && description.contains("shape (2, 3)"));
        assert!(description.contains("rank 2 called allreduce") && description.contains("shape (3, 2)"));
        assert!(world.failures.iter().all(|failure| *failure == world.failures[0]));
    }
}

#[test]
fn different_ends_of_a_message_are_described_by_any_rank_that_detects_them() {
    for (finder, peer) in [(0, 1), (1, 0), (1, 2)] {
        let mut world = MembershipWorld::connected(3);
        let [mine, theirs] = [1, 2].map(|signature| with_signature(message_to(finder as u32, 0), signature));
        enter_call(&mut world, finder, mine, "shape (2, 3)");
        enter_call(&mut world, peer, theirs, "shape (3, 2)");
        world.request(finder, MembershipRequest::Differs { mine, peer, theirs });
        let Some(JobFailure::Mismatch { description }) = &world.failures[2] else { panic!("{:?}", world.failures) };
        let parts: Vec<&str> = description.split("; ").collect();
        assert!(parts[0].starts_with(&format!("rank {finder} called")) && parts[0].contains("shape (2, 3)"));
        assert!(parts[1].starts_with(&format!("rank {peer} called")) && parts[1].contains("shape (3, 2)"));
    }
}

#[test]
fn a_difference_is_reported_without_waiting_for_silent_ranks() {
    for header in [allreduce(7), message_to(1, 0)] {
        let mut world = MembershipWorld::connected(3);
        enter_call(&mut world, 1, with_signature(header, 1), "shape (2, 3)");
        world.frozen.push(2);
        world.request(
            1,
            MembershipRequest::Differs { mine: with_signature(header, 1), peer: 2, theirs: with_signature(header, 2) },
        );
        assert_eq!(world.failures[0], None);
        world.pass(hub::ANSWER_WAIT);
        let Some(JobFailure::Mismatch { description }) = &world.failures[0] else { panic!("{:?}", world.failures) };
        assert!(description.contains("shape (2, 3)") && description.contains("signature #00000002"), "{description}");
    }
}

#[test]
fn a_mismatch_with_the_hub_is_found_from_either_side() {
    for reporter in 0..2 {
        let mut world = MembershipWorld::connected(2);
        world.enter(0, allreduce(0));
        world.enter(1, barrier(0));
        let header = world.ranks[reporter].1.at(allreduce(0).collective_id()).unwrap();
        world.request(reporter, stalled(header, vec![1 - reporter]));
        assert!(matches!(world.failures[reporter], Some(JobFailure::Mismatch { .. })));
    }
}

#[test]
fn a_mismatch_is_reported_without_waiting_for_silent_ranks() {
    let mut world = MembershipWorld::connected(4);
    world.enter(1, allreduce(7));
    world.enter(2, barrier(7));
    world.frozen.push(3);
    world.request(1, stalled(allreduce(7), vec![2]));
    assert_eq!(world.failures[0], None);
    world.pass(hub::ANSWER_WAIT);
    assert!(matches!(world.failures[0], Some(JobFailure::Mismatch { .. })));
}

#[test]
fn a_late_rank_is_no_failure() {
    let mut world = MembershipWorld::connected(3);
    world.enter(1, allreduce(7));
    world.enter(2, barrier(6));
    for _ in 0..10 {
        world.request(1, stalled(allreduce(7), vec![0, 2]));
        world.pass(Duration::from_secs(1));
    }
    world.enter(2, allreduce(7));
    world.request(1, stalled(allreduce(7), vec![0, 2]));
    assert!(world.failures.iter().all(Option::is_none));
}

#[test]
fn leaving_is_no_failure_until_a_rank_waits_for_a_later_call() {
    let mut world = MembershipWorld::connected(3);
    for rank in 0..3 {
        world.enter(rank, barrier(4));
    }
    world.request(1, MembershipRequest::Leave);
    assert!(world.finished[1]);
    world.frozen.push(1);
    world.event(0, MembershipEvent::Closed { peer: 1, cause: "closed".into() });
    world.pass(Duration::from_secs(5));
    // The link still holds the data that rank 1 sent for collective 4.
    world.request(2, stalled(barrier(4), vec![1]));
    assert!(world.failures.iter().all(Option::is_none));

    world.request(2, stalled(barrier(5), vec![1]));
    world.assert_all_report(1, "left the job before collective 5 (its last was collective 4, barrier)");
}

#[test]
fn a_wait_for_a_message_fails_only_if_the_sender_has_left() {
    let mut world = MembershipWorld::connected(3);
    world.enter(1, barrier(4));
    world.request(2, stalled(message_to(2, 4), vec![1]));
    world.pass(Duration::from_secs(2));
    assert!(world.failures.iter().all(Option::is_none));

    world.request(1, MembershipRequest::Leave);
    world.frozen.push(1);
    world.request(2, stalled(message_to(2, 4), vec![1]));
    world.assert_all_report(1, "left the job while rank 2 waited in a message to or from it");
}

fn assert_all_wait_in_a_cycle(world: &MembershipWorld, text: &str) {
    for failure in &world.failures {
        let Some(JobFailure::Mismatch { description }) = failure else { panic!("{failure:?}") };
        assert!(description.contains(text), "{description}");
    }
}

#[test]
fn two_ranks_that_send_to_each_other_are_reported() {
    let mut world = MembershipWorld::connected(3);
    world.request(1, stalled(message_to(2, 0), vec![2]));
    world.pass(Duration::from_secs(1));
    world.request(2, stalled(message_to(1, 0), vec![1]));
    assert!(world.failures.iter().all(Option::is_none), "rank 1 may have continued meanwhile");
    world.pass(Duration::from_secs(1));
    world.request(1, stalled(message_to(2, 0), vec![2]));
    let text = "ranks wait for each other in calls that the others have not reached: \
                rank 1 called send(float32 × 0, to rank 2) as its message 0";
    assert_all_wait_in_a_cycle(&world, text);
}

#[test]
fn three_ranks_that_each_wait_for_the_next_are_reported() {
    let mut world = MembershipWorld::connected(3);
    for _ in 0..2 {
        for rank in 0..3 {
            let next = (rank + 1) % 3;
            world.request(rank, stalled(message_to(rank as u32, 7), vec![next]));
        }
        world.pass(Duration::from_secs(1));
    }
    assert_all_wait_in_a_cycle(&world, "called recv(float32 × 0, from rank 2) as its message 7");
}

#[test]
fn the_two_ends_of_a_slow_message_are_no_deadlock() {
    let mut world = MembershipWorld::connected(3);
    for _ in 0..4 {
        world.request(1, stalled(message_to(2, 0), vec![2]));
        world.request(2, stalled(message_to(2, 0), vec![1]));
        world.pass(Duration::from_secs(1));
    }
    assert!(world.failures.iter().all(Option::is_none));
}

fn of(communicator: u32, header: Header) -> Header {
    Header { communicator, ..header }
}

/// `rank` waits for a message from any of `peers`.
fn waits_for_any(rank: usize, peers: Vec<usize>) -> MembershipRequest {
    MembershipRequest::Stalled { header: message_to(rank as u32, 0), peers, blocking: Blocking::Any }
}

#[test]
fn a_wait_for_any_of_several_ranks_is_reported_once_all_of_them_wait() {
    let mut world = MembershipWorld::connected(3);
    for rank in [1, 2] {
        world.enter(rank, barrier(0));
    }
    for round in 0..4 {
        world.request(0, waits_for_any(0, vec![1, 2]));
        world.request(1, stalled(barrier(0), vec![0]));
        if round > 1 {
            // It may have sent a message before.
            world.request(2, stalled(barrier(0), vec![1]));
        } else {
            assert!(world.failures.iter().all(Option::is_none), "rank 2 does something else");
        }
        world.pass(Duration::from_secs(1));
    }
    assert_all_wait_in_a_cycle(&world, "rank 0 waits for a message of any of ranks 1-2; rank 1 called barrier");
}

#[test]
fn waiting_for_any_rank_in_a_slow_collective_is_no_deadlock() {
    let mut world = MembershipWorld::connected(3);
    for _ in 0..4 {
        world.request(0, waits_for_any(0, vec![1, 2]));
        for (rank, peer) in [(1, 2), (2, 1)] {
            world.enter(rank, of(5, barrier(0)));
            world.request(rank, stalled(of(5, barrier(0)), vec![peer]));
        }
        world.pass(Duration::from_secs(1));
    }
    assert!(world.failures.iter().all(Option::is_none));
}

#[test]
fn one_of_several_awaited_ranks_may_leave_but_not_all() {
    let mut world = MembershipWorld::connected(3);
    world.request(2, MembershipRequest::Leave);
    world.request(0, waits_for_any(0, vec![1, 2]));
    assert!(world.failures.iter().all(Option::is_none));
    world.request(1, MembershipRequest::Leave);
    world.request(0, waits_for_any(0, vec![1, 2]));
    assert!(matches!(&world.failures[0], Some(JobFailure::RankFailed { rank: 1, .. })), "{:?}", world.failures);
}

#[test]
fn ranks_that_wait_for_each_other_in_different_communicators_are_reported() {
    for (first, second) in [(0, 1), (1, 2)] {
        let mut world = MembershipWorld::connected(3);
        world.enter(first, of(5, barrier(0)));
        world.enter(second, of(9, barrier(0)));
        for _ in 0..3 {
            world.request(first, stalled(of(5, barrier(0)), vec![second]));
            world.request(second, stalled(of(9, barrier(0)), vec![first]));
            world.pass(Duration::from_secs(1));
        }
        assert_all_wait_in_a_cycle(&world, "called barrier as its collective 0 of communicator 5");
        assert_all_wait_in_a_cycle(&world, "called barrier as its collective 0 of communicator 9");
    }
}

#[test]
fn a_message_and_a_collective_with_equal_numbers_are_distinct() {
    for (first, second) in [(0, 1), (1, 0), (1, 2)] {
        let mut world = MembershipWorld::connected(3);
        world.enter(first, of(5, barrier(0)));
        for _ in 0..3 {
            world.request(first, stalled(of(5, barrier(0)), vec![second]));
            world.request(second, stalled(of(5, message_to(second as u32, 0)), vec![first]));
            world.pass(Duration::from_secs(1));
        }
        assert_all_wait_in_a_cycle(&world, "called barrier as its collective 0 of communicator 5");
        assert_all_wait_in_a_cycle(&world, "as its message 0");
    }
}

#[test]
fn a_cycle_across_communicators_is_reported() {
    for odd in 0..3 {
        let (next, last) = ((odd + 1) % 3, (odd + 2) % 3);
        let mut world = MembershipWorld::connected(3);
        world.enter(odd, of(5, barrier(0)));
        [next, last].into_iter().for_each(|rank| world.enter(rank, of(9, barrier(0))));
        for _ in 0..4 {
            world.request(odd, stalled(of(5, barrier(0)), vec![next]));
            world.request(next, stalled(of(9, barrier(0)), vec![last]));
            world.request(last, stalled(of(9, barrier(0)), vec![odd]));
            world.pass(Duration::from_secs(1));
        }
        for rank in 0..3 {
            let communicator = if rank == odd { 5 } else { 9 };
            let text = format!("rank {rank} called barrier as its collective 0 of communicator {communicator}");
            assert_all_wait_in_a_cycle(&world, &text);
        }
    }
}

#[test]
fn ranks_in_a_slow_collective_are_no_deadlock() {
    let mut world = MembershipWorld::connected(3);
    (0..3).for_each(|rank| world.enter(rank, barrier(4)));
    for _ in 0..4 {
        (0..3).for_each(|rank| world.request(rank, stalled(barrier(4), vec![(rank + 1) % 3])));
        world.pass(Duration::from_secs(1));
    }
    assert!(world.failures.iter().all(Option::is_none));
}

#[test]
fn waiting_in_a_collective_that_the_peer_has_completed_is_no_deadlock() {
    let mut world = MembershipWorld::connected(3);
    for rank in [1, 2] {
        world.enter(rank, of(5, barrier(0)));
    }
    world.enter(2, of(9, barrier(0)));
    for _ in 0..3 {
        world.request(1, stalled(of(5, barrier(0)), vec![2]));
        world.request(2, stalled(of(9, barrier(0)), vec![1]));
        world.pass(Duration::from_secs(1));
    }
    assert!(world.failures.iter().all(Option::is_none));
}

#[test]
fn a_rank_with_other_calls_in_flight_is_in_no_cycle() {
    let mut world = MembershipWorld::connected(3);
    for _ in 0..3 {
        for (rank, peer) in [(1, 2), (2, 1)] {
            let header = message_to(peer as u32, 0);
            world.request(rank, MembershipRequest::Stalled { header, peers: vec![peer], blocking: Blocking::Nothing });
        }
        world.pass(Duration::from_secs(1));
    }
    assert!(world.failures.iter().all(Option::is_none));
}

#[test]
fn equal_numbers_of_different_communicators_are_not_compared() {
    let mut world = MembershipWorld::connected(4);
    world.enter(0, of(5, allreduce(0)));
    world.enter(1, of(5, allreduce(0)));
    world.enter(2, of(6, barrier(0)));
    world.enter(3, of(6, barrier(0)));
    for _ in 0..3 {
        for rank in 0..4 {
            let header = world.ranks[rank].1.last().unwrap();
            world.request(rank, stalled(header, vec![rank ^ 1]));
        }
        world.pass(Duration::from_secs(1));
    }
    assert!(world.failures.iter().all(Option::is_none));
    world.enter(3, of(6, allreduce(1)));
    world.enter(2, of(6, barrier(1)));
    world.request(3, stalled(of(6, allreduce(1)), vec![2]));
    let Some(JobFailure::Mismatch { description }) = &world.failures[0] else { panic!("{:?}", world.failures) };
    assert!(description.starts_with("collective 1 of communicator 6: rank 2 called barrier; rank 3"), "{description}");
}

#[test]
fn a_rank_that_left_never_takes_part_in_a_communicator_that_it_had_not_entered() {
    let mut world = MembershipWorld::connected(3);
    world.enter(1, of(5, barrier(7)));
    world.request(1, MembershipRequest::Leave);
    world.frozen.push(1);
    world.request(2, stalled(of(5, barrier(7)), vec![1]));
    assert!(world.failures.iter().all(Option::is_none));
    world.request(2, stalled(of(9, barrier(0)), vec![1]));
    world.assert_all_report(1, "left the job before collective 0 of communicator 9 (its last was collective 7");
}

#[test]
fn a_hub_that_left_monitors_until_the_last_rank_has_left() {
    let mut world = MembershipWorld::connected(3);
    world.request(0, MembershipRequest::Leave);
    assert!(!world.finished[0]);
    world.request(1, MembershipRequest::Leave);
    assert!(!world.finished[0]);
    world.request(2, MembershipRequest::Leave);
    assert_eq!(world.finished, [true; 3]);
    assert!(world.failures.iter().all(Option::is_none));
}

#[test]
fn a_hub_that_left_still_reports_deaths() {
    let mut world = MembershipWorld::connected(3);
    world.request(0, MembershipRequest::Leave);
    world.kill(1);
    world.assert_all_report(1, "its process ended");
    assert!(world.finished[0]);
}

#[test]
fn a_spoke_that_waits_for_a_hub_that_left_is_notified() {
    let mut world = MembershipWorld::connected(3);
    world.request(0, MembershipRequest::Leave);
    world.kill(0);
    world.request(1, stalled(allreduce(7), vec![2]));
    assert_eq!(world.failures[1], None);
    world.request(1, stalled(allreduce(7), vec![2, 0]));
    let Some(JobFailure::RankFailed { rank: 0, cause, .. }) = &world.failures[1] else {
        panic!("{:?}", world.failures)
    };
    assert_eq!(*cause, format!("left the job while rank 1 waited for it in {}", allreduce(7)));
}

#[test]
fn a_spoke_without_a_hub_continues() {
    let mut world = MembershipWorld::connected(3);
    world.request(0, MembershipRequest::Leave);
    world.kill(0);
    world.pass(Duration::from_secs(30));
    assert!(world.failures.iter().all(Option::is_none));
    world.request(1, MembershipRequest::Suspect { peer: 2, cause: "reset".into() });
    assert!(matches!(world.failures[1], Some(JobFailure::RankFailed { rank: 2, .. })));
}
