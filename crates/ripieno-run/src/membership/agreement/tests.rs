//! Step-by-step tests of the messages and decisions of each rank.

use super::*;

const TIMEOUTS: AgreementTimeouts = AgreementTimeouts { silence: Duration::from_secs(1), late: Duration::from_secs(5) };

struct AgreementRanks {
    machines: Vec<Agreement>,
    now: Duration,
    /// Messages to these ranks are lost.
    unreachable: Vec<usize>,
    decided: Vec<Option<Decision>>,
    excluded: Vec<bool>,
    gave_up: Vec<Option<String>>,
    message_count: usize,
}

impl AgreementRanks {
    fn new(size: usize, is_one_node: bool) -> AgreementRanks {
        AgreementRanks {
            machines: (0..size).map(|rank| Agreement::new(rank, size, is_one_node, TIMEOUTS)).collect(),
            now: Duration::from_secs(1),
            unreachable: vec![],
            decided: vec![None; size],
            excluded: vec![false; size],
            gave_up: vec![None; size],
            message_count: 0,
        }
    }

    fn event(&mut self, rank: usize, event: AgreementEvent) {
        for output in self.machines[rank].handle(self.now, event) {
            match output {
                AgreementOutput::Send { to, message } if !self.unreachable.contains(&to) => {
                    self.message_count += 1;
                    self.event(to, AgreementEvent::Received { peer: rank, message });
                }
                AgreementOutput::Send { .. } => {}
                AgreementOutput::Decided(decision) => self.decided[rank] = Some(decision),
                AgreementOutput::Excluded => self.excluded[rank] = true,
                AgreementOutput::GaveUp(cause) => self.gave_up[rank] = Some(cause),
            }
        }
    }

    fn end(&mut self, excluded: usize) {
        self.unreachable.push(excluded);
        self.live().for_each(|rank| self.event(rank, AgreementEvent::Ended { peer: excluded }));
    }

    fn live(&self) -> impl Iterator<Item = usize> + use<> {
        let unreachable = self.unreachable.clone();
        (0..self.machines.len()).filter(move |rank| !unreachable.contains(rank))
    }

    fn begin(&mut self, rank: usize) {
        self.event(rank, AgreementEvent::Begin { address: format!("address {rank}") });
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(50);
            self.live().for_each(|rank| self.event(rank, AgreementEvent::Tick));
        }
    }

    #[track_caller]
    fn assert_continue(&self, members: &[usize]) {
        let addresses: BTreeMap<usize, String> =
            members.iter().map(|&rank| (rank, format!("address {rank}"))).collect();
        for &rank in members {
            let decision = self.decided[rank].as_ref().unwrap_or_else(|| panic!("rank {rank} has no decision"));
            assert_eq!((&decision.members[..], &decision.addresses), (members, &addresses), "rank {rank}");
        }
    }
}

#[test]
fn live_ranks_continue_without_ended_ones() {
    for size in 2..=9 {
        for victim in 0..size {
            let mut ranks = AgreementRanks::new(size, false);
            ranks.end(victim);
            let live: Vec<usize> = ranks.live().collect();
            live.iter().for_each(|&rank| ranks.begin(rank));
            ranks.assert_continue(&live);
            assert!(ranks.message_count <= 8 * size * size, "{} messages", ranks.message_count);
        }
    }
}

#[test]
fn no_rank_is_left_out_while_all_are_present() {
    let mut ranks = AgreementRanks::new(4, false);
    (0..4).rev().for_each(|rank| ranks.begin(rank));
    ranks.assert_continue(&[0, 1, 2, 3]);
}

#[test]
fn ranks_wait_for_a_late_rank_and_then_exclude_it() {
    let mut ranks = AgreementRanks::new(3, false);
    [0, 2].into_iter().for_each(|rank| ranks.begin(rank));
    ranks.pass(TIMEOUTS.late - Duration::from_millis(500));
    assert_eq!(ranks.decided, [None, None, None]);

    ranks.pass(Duration::from_secs(1));

    ranks.assert_continue(&[0, 2]);
    assert!(ranks.excluded[1]);
    ranks.excluded[1] = false;
    ranks.begin(1);
    assert!(ranks.excluded[1], "a late rank is notified");
}

#[test]
fn ranks_continue_at_once_without_a_withdrawn_rank() {
    for victim in 0..3 {
        for is_early in [true, false] {
            let mut ranks = AgreementRanks::new(3, false);
            let others: Vec<usize> = (0..3).filter(|&rank| rank != victim).collect();
            if is_early {
                ranks.event(victim, AgreementEvent::Withdraw);
            }
            others.iter().for_each(|&rank| ranks.begin(rank));
            ranks.pass(TIMEOUTS.resend_interval());
            if !is_early {
                assert_eq!(ranks.decided, [None, None, None]);
                ranks.event(victim, AgreementEvent::Withdraw);
            }
            ranks.assert_continue(&others);

            ranks.begin(victim);
            assert!(ranks.excluded[victim] || ranks.gave_up[victim].is_some(), "a withdrawn rank does not return");
        }
    }
}

#[test]
fn a_withdrawn_rank_reports_the_decision_to_an_excluded_rank() {
    let mut ranks = AgreementRanks::new(3, false);
    ranks.unreachable.push(2);
    [0, 1].into_iter().for_each(|rank| ranks.begin(rank));
    ranks.pass(TIMEOUTS.silence * 4);
    ranks.assert_continue(&[0, 1]);
    ranks.event(0, AgreementEvent::Withdraw);
    ranks.event(1, AgreementEvent::Withdraw);

    ranks.unreachable.clear();
    ranks.begin(2);

    assert!(ranks.excluded[2]);
}

#[test]
fn an_accepted_proposal_counts_after_its_rank_withdrew() {
    let mut ranks = AgreementRanks::new(4, false);
    ranks.end(3);
    // Rank 1 has accepted to continue with rank 0 and without rank 2.
    ranks.unreachable.push(0);
    ranks.begin(1);
    let message = AgreementMessage::Propose { epoch: 0, ballot: Ballot { round: 1, rank: 0 }, excluded: vec![2, 3] };
    ranks.event(1, AgreementEvent::Received { peer: 0, message });
    ranks.event(1, AgreementEvent::Withdraw);
    ranks.begin(2);
    assert!(!ranks.excluded[2]);
    ranks.end(0);

    assert!(ranks.excluded[2]);
}

#[test]
fn a_silent_rank_is_excluded_by_a_majority_and_notified_when_it_returns() {
    for victim in 0..3 {
        let mut ranks = AgreementRanks::new(3, false);
        ranks.unreachable.push(victim);
        let live: Vec<usize> = ranks.live().collect();
        live.iter().for_each(|&rank| ranks.begin(rank));
        ranks.pass(TIMEOUTS.silence * 4);
        ranks.assert_continue(&live);

        ranks.unreachable.clear();
        ranks.event(victim, AgreementEvent::Suspended);
        ranks.begin(victim);
        ranks.pass(TIMEOUTS.silence);
        assert!(ranks.excluded[victim]);
    }
}

#[test]
fn half_of_the_ranks_do_not_continue_without_a_possibly_live_half() {
    let mut ranks = AgreementRanks::new(4, false);
    ranks.unreachable = vec![0, 3];
    [1, 2].into_iter().for_each(|rank| ranks.begin(rank));
    ranks.pass(TIMEOUTS.silence * 4);
    assert_eq!(ranks.decided, [None, None, None, None]);
    let reported = ranks.gave_up[1].clone().unwrap();
    assert!(reported.contains("a majority of the 4 ranks") && reported.contains("ranks 0, 3"), "{reported}");
}

#[test]
fn an_isolated_rank_gives_up_within_a_few_timeouts() {
    for size in [2, 3, 9, 33] {
        let mut ranks = AgreementRanks::new(size, false);
        ranks.unreachable = (0..size - 1).collect();
        ranks.begin(size - 1);
        ranks.pass(TIMEOUTS.silence * (3 + size.ilog2()));
        let reported = ranks.gave_up[size - 1].clone().unwrap();
        assert!(reported.contains(&format!("a majority of the {size} ranks")), "{reported}");
    }
}

#[test]
fn a_rank_does_not_continue_alone_after_ranks_that_did_not_answer_end() {
    for (queried_for, continues) in [(Duration::from_millis(100), true), (Duration::from_millis(600), false)] {
        let mut ranks = AgreementRanks::new(3, false);
        // Ranks 1 and 2 continue without rank 0, which does not reach them, and end soon after it has begun.
        ranks.unreachable = vec![1, 2];
        ranks.begin(0);
        ranks.pass(queried_for);
        [1, 2].into_iter().for_each(|peer| ranks.event(0, AgreementEvent::Ended { peer }));
        ranks.pass(Duration::from_secs(3));
        assert_eq!(ranks.decided[0].is_some(), continues, "after {queried_for:?}");
        assert_eq!(ranks.gave_up[0].is_some(), !continues, "after {queried_for:?}");
    }
}

#[test]
fn on_one_node_a_single_rank_continues_without_suspended_ranks() {
    let mut ranks = AgreementRanks::new(4, true);
    ranks.unreachable = vec![0, 1, 3];
    ranks.begin(2);
    ranks.pass(TIMEOUTS.silence * 5);
    ranks.assert_continue(&[2]);
}

#[test]
fn a_suspended_rank_does_not_continue_alone() {
    let mut ranks = AgreementRanks::new(2, true);
    ranks.event(0, AgreementEvent::Suspended);
    ranks.unreachable.push(1);
    ranks.event(0, AgreementEvent::Ended { peer: 1 });
    ranks.begin(0);
    ranks.pass(TIMEOUTS.time_limit() + Duration::from_secs(1));
    assert!(ranks.gave_up[0].as_ref().unwrap().contains("was paused"));
}

#[test]
fn the_next_leader_decides_the_proposal_that_an_ended_leader_may_have_decided() {
    let mut ranks = AgreementRanks::new(4, false);
    ranks.end(3);
    // Rank 1 accepted the proposal of rank 0 to continue without ranks 2 and 3, so rank 0 may have decided.
    let (ballot, excluded) = (Ballot { round: 1, rank: 0 }, vec![2, 3]);
    ranks.unreachable.push(0);
    ranks.begin(1);
    ranks.event(
        1,
        AgreementEvent::Received { peer: 0, message: AgreementMessage::Propose { epoch: 0, ballot, excluded } },
    );
    ranks.begin(2);
    ranks.end(0);

    assert!(ranks.excluded[2]);
    assert_eq!(ranks.decided[1].as_ref().unwrap().members, [0, 1]);
    // Rank 0 does not connect to the new world, so another agreement follows.
    ranks.begin(1);
    let last = ranks.decided[1].clone().unwrap();
    assert_eq!((last.epoch, last.members), (1, vec![1]));
}

#[test]
fn a_rank_that_missed_a_decision_learns_it_from_another_rank() {
    let mut ranks = AgreementRanks::new(3, false);
    ranks.end(2);
    ranks.begin(0);
    ranks.begin(1);
    let Some(first) = ranks.decided[1].take() else { panic!() };
    ranks.machines[1] = Agreement::new(1, 3, false, TIMEOUTS);
    ranks.begin(1);
    assert_eq!(ranks.decided[1], Some(first));
}
