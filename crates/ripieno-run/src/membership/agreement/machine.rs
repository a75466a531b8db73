//! State machine of one rank for the survivor agreements.

use super::round::{AgreementRound, Proposal};
use super::word::{AgreementMessage, Ballot, Gone};
use super::{AgreementEvent, AgreementOutput, AgreementTimeouts, Decision};
use crate::membership::name_ranks;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Reason reported by a rank that has withdrawn.
const WITHDRAWN: &str = "its program is over, and the other ranks were notified";

/// One rank's part in the consecutive survivor agreements of its world.
#[derive(Debug)]
pub struct Agreement {
    rank: usize,
    is_one_node: bool,
    patience: AgreementTimeouts,
    /// Participants of the current epoch's agreement.
    members: Vec<usize>,
    /// Ranks excluded by each finished epoch.
    pub(super) decided: Vec<Gone>,
    /// Addresses of the ranks that survived the last epoch.
    seats: BTreeMap<usize, String>,
    is_excluded: bool,
    /// This process was suspended long enough that other ranks may have excluded it.
    was_paused: bool,
    has_withdrawn: bool,
    /// Ranks that will never take part again.
    ended: BTreeSet<usize>,
    /// Ranks that exceeded the silence timeout. If such a rank has ended, it may have continued in another partition
    /// before.
    doubted: BTreeSet<usize>,
    heard: BTreeMap<usize, Duration>,
    /// Start of the answer timeout of each queried rank.
    asked: BTreeMap<usize, Duration>,
    round: AgreementRound,
    next_beat: Duration,
}

impl Agreement {
    /// Return the machine of `rank` in a world of `world_size` ranks. `is_one_node` states that all ranks run on one
    /// node, so no network separates them.
    pub fn new(rank: usize, world_size: usize, is_one_node: bool, patience: AgreementTimeouts) -> Agreement {
        Agreement {
            rank,
            is_one_node,
            patience,
            members: (0..world_size).collect(),
            decided: vec![],
            seats: BTreeMap::new(),
            is_excluded: false,
            was_paused: false,
            has_withdrawn: false,
            ended: BTreeSet::new(),
            doubted: BTreeSet::new(),
            heard: BTreeMap::new(),
            asked: BTreeMap::new(),
            round: AgreementRound::default(),
            next_beat: Duration::ZERO,
        }
    }

    /// Handle an event and return the resulting outputs.
    pub fn handle(&mut self, now: Duration, event: AgreementEvent) -> Vec<AgreementOutput> {
        let mut outputs = vec![];
        let is_beat = now >= self.next_beat;
        match event {
            AgreementEvent::Begin { .. } if self.is_excluded => outputs.push(AgreementOutput::Excluded),
            AgreementEvent::Begin { .. } if self.has_withdrawn => {
                outputs.push(AgreementOutput::GaveUp(WITHDRAWN.to_string()))
            }
            AgreementEvent::Begin { seat } => self.begin(now, seat, &mut outputs),
            AgreementEvent::Connected { peer } => self.greet(peer, &mut outputs),
            AgreementEvent::Heard { peer, word } => {
                self.heard.insert(peer, now);
                self.doubted.remove(&peer);
                self.hear(now, peer, word, &mut outputs);
            }
            AgreementEvent::Ended { peer } => {
                self.ended.insert(peer);
            }
            AgreementEvent::Withdraw => self.withdraw(&mut outputs),
            AgreementEvent::StoodStill => {
                self.was_paused = true;
                self.asked.values_mut().for_each(|asked| *asked = now);
            }
            AgreementEvent::Tick => {}
        }
        if is_beat {
            self.next_beat = now + self.patience.beat();
        }
        self.pursue(now, is_beat, &mut outputs);
        outputs
    }

    /// Return the time at which the machine needs its next tick.
    pub fn next_tick(&self) -> Duration {
        if self.round.begun.is_some() { self.next_beat } else { Duration::MAX }
    }

    /// Return the participants of the current epoch: the ranks that the last epoch did not exclude.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Return the number of stored entries, to bound memory use in tests.
    #[cfg(test)]
    pub(super) fn held_count(&self) -> usize {
        let AgreementRound { seats, come, campaign, .. } = &self.round;
        let campaign = campaign.as_ref().map_or(0, |campaign| {
            campaign.promises.len() + campaign.proposal.as_ref().map_or(0, |proposal| proposal.accepted_by.len())
        });
        let ranks = self.ended.len() + self.doubted.len() + self.heard.len() + self.asked.len() + self.seats.len();
        ranks + self.decided.len() + seats.len() + come.len() + campaign
    }

    fn epoch(&self) -> u32 {
        self.decided.len() as u32
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, ended) = (self.rank, self.ended.clone());
        self.members.clone().into_iter().filter(move |&other| other != rank && !ended.contains(&other))
    }

    fn begin(&mut self, now: Duration, seat: String, outputs: &mut Vec<AgreementOutput>) {
        self.asked.clear();
        self.round.begun = Some(now);
        self.round.sufficed = Some(now);
        self.round.come.insert(self.rank);
        self.round.seats.insert(self.rank, seat);
        self.round.leader = None;
        let caller = self.round.ballot.rank as usize;
        if self.round.ballot != Ballot::default() && caller != self.rank {
            outputs.push(AgreementOutput::Tell { to: caller, word: self.here() });
        }
    }

    /// Withdraw from all agreements and notify the ranks that may wait for this one.
    fn withdraw(&mut self, outputs: &mut Vec<AgreementOutput>) {
        let caller = (self.round.ballot != Ballot::default()).then_some(self.round.ballot.rank as usize);
        let waiting: BTreeSet<usize> = self.round.come.iter().copied().chain(caller).collect();
        self.has_withdrawn = true;
        self.round.begun = None;
        self.round.campaign = None;
        let others = waiting.into_iter().filter(|&peer| peer != self.rank && !self.ended.contains(&peer));
        outputs.extend(others.map(|to| AgreementOutput::Tell { to, word: self.away(self.epoch()) }));
    }

    /// Send the first message over a new connection.
    fn greet(&mut self, peer: usize, outputs: &mut Vec<AgreementOutput>) {
        if self.round.begun.is_none() || !self.members.contains(&peer) {
            return;
        }
        match &self.round.campaign {
            Some(campaign) if !campaign.promises.contains_key(&peer) => outputs.push(self.call(peer, campaign.ballot)),
            Some(_) => self.propose_to(peer, outputs),
            None if self.round.leader == Some(peer) => outputs.push(self.ask(peer)),
            None => {}
        }
    }

    fn hear(&mut self, now: Duration, peer: usize, word: AgreementMessage, outputs: &mut Vec<AgreementOutput>) {
        let epoch = self.decided.len();
        if word.epoch() < epoch {
            if word.asks() {
                self.tell_decision(word.epoch(), peer, outputs);
            }
            return;
        }
        if self.has_withdrawn && word.asks() {
            outputs.push(AgreementOutput::Tell { to: peer, word: self.away(word.epoch() as u32) });
            return;
        }
        if word.epoch() > epoch {
            // `peer` already knows the decision of the current epoch.
            if word.asks() {
                outputs.push(self.ask(peer));
            }
            return;
        }
        match word {
            AgreementMessage::Ask { .. } => {
                self.round.come.insert(peer);
                let lacking = self.round.campaign.as_ref().filter(|campaign| !campaign.promises.contains_key(&peer));
                outputs.push(match lacking {
                    Some(campaign) => self.call(peer, campaign.ballot),
                    None => AgreementOutput::Tell { to: peer, word: self.here() },
                });
            }
            AgreementMessage::Call { ballot, .. } => {
                self.round.come.insert(peer);
                self.respect(ballot);
                outputs.push(AgreementOutput::Tell { to: peer, word: self.here() });
            }
            AgreementMessage::Here { ballot, seat, accepted, .. } => self.hear_here(now, peer, ballot, seat, accepted),
            AgreementMessage::Away { accepted, .. } => {
                self.ended.insert(peer);
                self.round.inherit(accepted, self.rank);
            }
            AgreementMessage::Seat { rank, seat, .. } => {
                self.round.seats.entry(rank as usize).or_insert(seat);
            }
            AgreementMessage::Propose { ballot, gone, .. } => {
                if self.round.begun.is_some() && self.respect(ballot) {
                    self.round.accepted = Some((ballot, gone));
                    outputs.push(AgreementOutput::Tell {
                        to: peer,
                        word: AgreementMessage::Accept { epoch: self.epoch(), ballot },
                    });
                } else {
                    outputs.push(AgreementOutput::Tell { to: peer, word: self.here() });
                }
            }
            AgreementMessage::Accept { ballot, .. } => {
                let campaign = self.round.campaign.as_mut().filter(|campaign| campaign.ballot == ballot);
                if let Some(proposal) = campaign.and_then(|campaign| campaign.proposal.as_mut()) {
                    proposal.accepted_by.insert(peer);
                }
            }
            AgreementMessage::Decide { gone, .. } => self.decide(gone, outputs),
        }
    }

    /// Reject all ballots below this one. Return whether no higher ballot is known.
    fn respect(&mut self, ballot: Ballot) -> bool {
        if ballot > self.round.ballot {
            self.round.ballot = ballot;
            self.round.campaign = None;
        }
        ballot == self.round.ballot
    }

    fn hear_here(
        &mut self,
        now: Duration,
        peer: usize,
        ballot: Ballot,
        seat: Option<String>,
        accepted: Option<(Ballot, Gone)>,
    ) {
        let has_come = seat.is_some();
        if let Some(seat) = seat {
            self.round.come.insert(peer);
            self.round.seats.insert(peer, seat);
        } else {
            // The peer has not begun, or it gave up.
            self.round.come.remove(&peer);
        }
        let Some(campaign) = &mut self.round.campaign else { return };
        if !has_come && campaign.promises.contains_key(&peer) {
            self.round.campaign = None;
            return;
        }
        if ballot == campaign.ballot && has_come && campaign.proposal.is_none() {
            campaign.promises.insert(peer, accepted);
        } else if ballot > campaign.ballot {
            self.respect(ballot);
            if (ballot.rank as usize) < self.rank {
                self.round.stands_back_until = now + self.patience.silence * 2;
            }
        }
    }

    /// Return whether no message can be expected from `peer` any more.
    fn is_out(&self, peer: usize, now: Duration) -> bool {
        self.ended.contains(&peer) || self.is_silent(peer, now) || self.is_late(peer, now)
    }

    fn is_silent(&self, peer: usize, now: Duration) -> bool {
        let heard = self.heard.get(&peer).copied().unwrap_or_default();
        self.asked.get(&peer).is_some_and(|&asked| now.saturating_sub(asked.max(heard)) > self.patience.silence)
    }

    /// Return whether `peer` had time to begin and to answer a query, but has not begun.
    fn is_late(&self, peer: usize, now: Duration) -> bool {
        let (Some(begun), Some(&asked)) = (self.round.begun, self.asked.get(&peer)) else { return false };
        let until = (begun + self.patience.late).max(asked + self.patience.silence);
        !self.round.come.contains(&peer) && now > until
    }

    /// Take the next step of the agreement. On a beat, resend the unanswered messages.
    fn pursue(&mut self, now: Duration, is_beat: bool, outputs: &mut Vec<AgreementOutput>) {
        let Some(begun) = self.round.begun else { return };
        if is_beat && self.could_suffice(now) {
            self.round.sufficed = Some(now);
        }
        let is_outvoted = self.round.sufficed.is_some_and(|at| now.saturating_sub(at) > self.patience.silence);
        if is_outvoted || now.saturating_sub(begun) > self.patience.give_up() {
            let cause = self.why_none(now);
            self.round.begun = None;
            self.round.campaign = None;
            self.round.seats.remove(&self.rank);
            outputs.push(AgreementOutput::GaveUp(cause));
            return;
        }
        let own = self.rank;
        let silent = self.asked.keys().filter(|&&rank| !self.ended.contains(&rank) && self.is_silent(rank, now));
        self.doubted.extend(silent.copied().collect::<Vec<_>>());
        let leader = self.members.iter().copied().find(|&rank| rank == own || !self.is_out(rank, now));
        let leader = leader.expect("a rank that has begun is a member of its epoch");
        let is_new = self.round.leader.replace(leader) != Some(leader);
        if leader != own {
            self.round.campaign = None;
            if is_new || is_beat {
                self.asked.entry(leader).or_insert(now);
                outputs.push(self.ask(leader));
                self.ask_ahead(now, leader, outputs);
            }
        } else if now >= self.round.stands_back_until {
            self.lead(now, is_beat, outputs);
        }
    }

    /// Query as many further ranks as are silent, because they may be silent as well. So the time to find out grows
    /// with the logarithm of their number.
    fn ask_ahead(&mut self, now: Duration, leader: usize, outputs: &mut Vec<AgreementOutput>) {
        let silent_count = self.members.iter().filter(|&&rank| self.is_silent(rank, now)).count();
        let next: Vec<usize> = self.others().filter(|&rank| rank > leader && !self.is_out(rank, now)).collect();
        for rank in next.into_iter().take(silent_count) {
            self.asked.entry(rank).or_insert(now);
            outputs.push(self.ask(rank));
        }
    }

    /// Return whether the ranks that are not known to be silent or to have ended could agree.
    fn could_suffice(&self, now: Duration) -> bool {
        let audible =
            |rank: &&usize| **rank == self.rank || !(self.ended.contains(rank) || self.is_silent(**rank, now));
        self.suffices(&self.members.iter().filter(audible).copied().collect())
    }

    fn lead(&mut self, now: Duration, is_beat: bool, outputs: &mut Vec<AgreementOutput>) {
        let is_new = self.round.campaign.is_none();
        if is_new {
            self.round.campaign(self.rank);
        }
        let Some(campaign) = &self.round.campaign else { return };
        let ballot = campaign.ballot;
        match &campaign.proposal {
            None => {
                let missing: Vec<usize> =
                    self.others().filter(|other| !campaign.promises.contains_key(other)).collect();
                if is_new || is_beat {
                    for &other in &missing {
                        self.asked.entry(other).or_insert(now);
                        outputs.push(self.call(other, ballot));
                    }
                }
                if missing.iter().all(|&other| self.is_out(other, now)) {
                    self.propose(now, outputs);
                }
            }
            Some(proposal) => {
                let is_with = |other: &usize| campaign.promises.contains_key(other);
                let missing = |other: &usize| !proposal.accepted_by.contains(other);
                let missing: Vec<usize> = self.others().filter(is_with).filter(missing).collect();
                if missing.iter().any(|&other| !self.is_out(other, now)) {
                    if is_beat {
                        missing.iter().for_each(|&other| self.propose_to(other, outputs));
                    }
                } else if self.suffices(&proposal.accepted_by) {
                    self.decide(proposal.gone.clone(), outputs);
                } else if is_beat {
                    // A silent rank was needed for a majority. Start again with the ranks that are present then.
                    self.round.campaign = None;
                }
            }
        }
    }

    fn propose(&mut self, now: Duration, outputs: &mut Vec<AgreementOutput>) {
        let Some(campaign) = &self.round.campaign else { return };
        let present: BTreeSet<usize> =
            campaign.promises.keys().copied().filter(|rank| !self.ended.contains(rank)).collect();
        if !self.suffices(&present) {
            return;
        }
        let missing = || self.members.iter().filter(|rank| !present.contains(rank)).map(|&rank| rank as u32).collect();
        let gone: Gone = campaign.bound().unwrap_or_else(missing);
        self.round.accepted = Some((campaign.ballot, gone.clone()));
        let proposal = Proposal { gone, accepted_by: BTreeSet::from([self.rank]) };
        self.round.campaign.as_mut().expect("this rank leads").proposal = Some(proposal);
        present.iter().filter(|&&rank| rank != self.rank).for_each(|&rank| self.propose_to(rank, outputs));
        // A rank without other participants decides at once.
        self.lead(now, false, outputs);
    }

    /// Return whether `ranks` may exclude all other participants of the epoch.
    fn suffices(&self, ranks: &BTreeSet<usize>) -> bool {
        let present = ranks.iter().filter(|rank| !self.ended.contains(rank)).count();
        let is_sure = |rank: &&usize| self.ended.contains(rank) && !self.doubted.contains(rank);
        let has_doubt = self.members.iter().filter(|rank| !is_sure(rank)).any(|rank| !ranks.contains(rank));
        let has_more_than_half = 2 * present > self.members.len();
        has_more_than_half || (!self.was_paused && (!has_doubt || self.is_one_node))
    }

    fn propose_to(&self, peer: usize, outputs: &mut Vec<AgreementOutput>) {
        let Some(campaign) = &self.round.campaign else { return };
        let Some(proposal) = &campaign.proposal else { return };
        self.tell_seats(&self.round.seats, &proposal.gone, peer, outputs);
        let word =
            AgreementMessage::Propose { epoch: self.epoch(), ballot: campaign.ballot, gone: proposal.gone.clone() };
        outputs.push(AgreementOutput::Tell { to: peer, word });
    }

    fn decide(&mut self, gone: Gone, outputs: &mut Vec<AgreementOutput>) {
        let epoch = self.decided.len();
        let round = std::mem::take(&mut self.round);
        let others: Vec<usize> = self.others().collect();
        let is_gone = |rank: &usize| gone.contains(&(*rank as u32));
        self.members.retain(|rank| !is_gone(rank));
        self.seats = round.seats;
        self.seats.retain(|rank, _| self.members.binary_search(rank).is_ok());
        self.is_excluded = is_gone(&self.rank);
        self.was_paused = false;
        self.asked.clear();
        self.decided.push(gone);
        if round.campaign.is_some() {
            others.iter().for_each(|&other| self.tell_decision(epoch, other, outputs));
        }
        if self.is_excluded {
            outputs.push(AgreementOutput::Excluded);
        } else if round.begun.is_some() {
            let (members, seats) = (self.members.clone(), self.seats.clone());
            outputs.push(AgreementOutput::Decided(Decision { epoch: epoch as u32, members, seats }));
        }
    }

    /// Send the decision of an epoch. For the last epoch, send the addresses of its members first.
    fn tell_decision(&self, epoch: usize, peer: usize, outputs: &mut Vec<AgreementOutput>) {
        let gone = self.decided[epoch].clone();
        if epoch + 1 == self.decided.len() && !gone.contains(&(peer as u32)) {
            let seats = self.seats.iter().filter(|&(&rank, _)| rank != peer);
            outputs.extend(seats.map(|(&rank, seat)| {
                let word = AgreementMessage::Seat { epoch: epoch as u32, rank: rank as u32, seat: seat.clone() };
                AgreementOutput::Tell { to: peer, word }
            }));
        }
        outputs.push(AgreementOutput::Tell { to: peer, word: AgreementMessage::Decide { epoch: epoch as u32, gone } });
    }

    fn tell_seats(
        &self,
        seats: &BTreeMap<usize, String>,
        gone: &Gone,
        peer: usize,
        outputs: &mut Vec<AgreementOutput>,
    ) {
        let reported = seats.iter().filter(|&(&rank, _)| rank != peer && !gone.contains(&(rank as u32)));
        outputs.extend(reported.map(|(&rank, seat)| {
            let word = AgreementMessage::Seat { epoch: self.epoch(), rank: rank as u32, seat: seat.clone() };
            AgreementOutput::Tell { to: peer, word }
        }));
    }

    fn ask(&self, to: usize) -> AgreementOutput {
        AgreementOutput::Tell { to, word: AgreementMessage::Ask { epoch: self.epoch() } }
    }

    fn call(&self, to: usize, ballot: Ballot) -> AgreementOutput {
        AgreementOutput::Tell { to, word: AgreementMessage::Call { epoch: self.epoch(), ballot } }
    }

    fn away(&self, epoch: u32) -> AgreementMessage {
        AgreementMessage::Away { epoch, accepted: self.round.accepted.clone() }
    }

    fn here(&self) -> AgreementMessage {
        AgreementMessage::Here {
            epoch: self.epoch(),
            ballot: self.round.ballot,
            seat: self.round.begun.and_then(|_| self.round.seats.get(&self.rank).cloned()),
            accepted: self.round.accepted.clone(),
        }
    }

    /// Return a readable reason why no agreement was reached.
    fn why_none(&self, now: Duration) -> String {
        let missing: Vec<usize> = self.members.iter().copied().filter(|&rank| rank != self.rank).collect();
        let silent: Vec<usize> = missing.into_iter().filter(|&rank| self.is_silent(rank, now)).collect();
        let waited = now.saturating_sub(self.round.begun.unwrap_or(now)).as_secs_f64();
        let what = match (silent.is_empty(), self.was_paused) {
            (false, _) => format!("{} did not respond, and may be running elsewhere", name_ranks(&silent)),
            (true, true) => "this process was paused, and the others may have continued without it".to_string(),
            (true, false) => "the surviving ranks did not reach an agreement".to_string(),
        };
        let size = self.members.len();
        format!("not in a majority of the {size} ranks, after {waited:.1} s: {what}")
    }
}
