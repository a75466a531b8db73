//! State machine of one rank for the survivor agreements.

use super::message::{AgreementMessage, Ballot, ExcludedRanks};
use super::round::{AgreementRound, Proposal};
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
    timeouts: AgreementTimeouts,
    /// Participants of the current epoch's agreement.
    members: Vec<usize>,
    /// Ranks excluded by each finished epoch.
    pub(super) decided: Vec<ExcludedRanks>,
    /// Addresses of the ranks that survived the last epoch.
    addresses: BTreeMap<usize, String>,
    is_excluded: bool,
    /// This process was suspended long enough that other ranks may have excluded it.
    was_paused: bool,
    has_withdrawn: bool,
    /// Ranks that will never take part again.
    ended: BTreeSet<usize>,
    /// Ranks that exceeded the silence timeout, or ended without an answer to repeated queries. If such a rank has
    /// ended, it may have continued in another partition before its end.
    suspected: BTreeSet<usize>,
    last_received: BTreeMap<usize, Duration>,
    /// Start of the answer timeout of each queried rank.
    queried_since: BTreeMap<usize, Duration>,
    round: AgreementRound,
    next_resend: Duration,
}

impl Agreement {
    /// Return the machine of `rank` in a world of `world_size` ranks. `is_one_node` states that all ranks run on one
    /// node, so no network separates them.
    pub fn new(rank: usize, world_size: usize, is_one_node: bool, timeouts: AgreementTimeouts) -> Agreement {
        Agreement {
            rank,
            is_one_node,
            timeouts,
            members: (0..world_size).collect(),
            decided: vec![],
            addresses: BTreeMap::new(),
            is_excluded: false,
            was_paused: false,
            has_withdrawn: false,
            ended: BTreeSet::new(),
            suspected: BTreeSet::new(),
            last_received: BTreeMap::new(),
            queried_since: BTreeMap::new(),
            round: AgreementRound::default(),
            next_resend: Duration::ZERO,
        }
    }

    /// Handle an event and return the resulting outputs.
    pub fn handle(&mut self, now: Duration, event: AgreementEvent) -> Vec<AgreementOutput> {
        let mut outputs = vec![];
        let is_resend_due = now >= self.next_resend;
        match event {
            AgreementEvent::Begin { .. } if self.is_excluded => outputs.push(AgreementOutput::Excluded),
            AgreementEvent::Begin { .. } if self.has_withdrawn => {
                outputs.push(AgreementOutput::GaveUp(WITHDRAWN.to_string()))
            }
            AgreementEvent::Begin { address } => self.begin(now, address, &mut outputs),
            AgreementEvent::Connected { peer } => self.send_first_message(peer, &mut outputs),
            AgreementEvent::Received { peer, message } => {
                self.last_received.insert(peer, now);
                self.suspected.remove(&peer);
                self.receive(now, peer, message, &mut outputs);
            }
            AgreementEvent::Ended { peer } => {
                if self.is_unanswered(peer, now) {
                    self.suspected.insert(peer);
                }
                self.ended.insert(peer);
            }
            AgreementEvent::Withdraw => self.withdraw(&mut outputs),
            AgreementEvent::Suspended => {
                self.was_paused = true;
                self.queried_since.values_mut().for_each(|queried_since| *queried_since = now);
            }
            AgreementEvent::Tick => {}
        }
        if is_resend_due {
            self.next_resend = now + self.timeouts.resend_interval();
        }
        self.advance(now, is_resend_due, &mut outputs);
        outputs
    }

    /// Return the time at which the machine needs its next tick.
    pub fn next_tick(&self) -> Duration {
        if self.round.begun_at.is_some() { self.next_resend } else { Duration::MAX }
    }

    /// Return the participants of the current epoch: the ranks that the last epoch did not exclude.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Return the number of stored entries, to bound memory use in tests.
    #[cfg(test)]
    pub(super) fn entry_count(&self) -> usize {
        let AgreementRound { addresses, begun_ranks, campaign, .. } = &self.round;
        let campaign = campaign.as_ref().map_or(0, |campaign| {
            campaign.promises.len() + campaign.proposal.as_ref().map_or(0, |proposal| proposal.accepted_by.len())
        });
        let ranks = self.ended.len()
            + self.suspected.len()
            + self.last_received.len()
            + self.queried_since.len()
            + self.addresses.len();
        ranks + self.decided.len() + addresses.len() + begun_ranks.len() + campaign
    }

    fn epoch(&self) -> u32 {
        self.decided.len() as u32
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, ended) = (self.rank, self.ended.clone());
        self.members.clone().into_iter().filter(move |&other| other != rank && !ended.contains(&other))
    }

    fn begin(&mut self, now: Duration, address: String, outputs: &mut Vec<AgreementOutput>) {
        self.queried_since.clear();
        self.round.begun_at = Some(now);
        self.round.last_quorum = Some(now);
        self.round.begun_ranks.insert(self.rank);
        self.round.addresses.insert(self.rank, address);
        self.round.leader = None;
        let ballot_leader = self.round.ballot.rank as usize;
        if self.round.ballot != Ballot::default() && ballot_leader != self.rank {
            outputs.push(AgreementOutput::Send { to: ballot_leader, message: self.present() });
        }
    }

    /// Withdraw from all agreements and notify the ranks that may wait for this one.
    fn withdraw(&mut self, outputs: &mut Vec<AgreementOutput>) {
        let ballot_leader = (self.round.ballot != Ballot::default()).then_some(self.round.ballot.rank as usize);
        let waiting: BTreeSet<usize> = self.round.begun_ranks.iter().copied().chain(ballot_leader).collect();
        self.has_withdrawn = true;
        self.round.begun_at = None;
        self.round.campaign = None;
        let others = waiting.into_iter().filter(|&peer| peer != self.rank && !self.ended.contains(&peer));
        outputs.extend(others.map(|to| AgreementOutput::Send { to, message: self.withdrawn(self.epoch()) }));
    }

    /// Send the first message over a new connection.
    fn send_first_message(&mut self, peer: usize, outputs: &mut Vec<AgreementOutput>) {
        if self.round.begun_at.is_none() || !self.members.contains(&peer) {
            return;
        }
        match &self.round.campaign {
            Some(campaign) if !campaign.promises.contains_key(&peer) => {
                outputs.push(self.prepare(peer, campaign.ballot))
            }
            Some(_) => self.propose_to(peer, outputs),
            None if self.round.leader == Some(peer) => outputs.push(self.query(peer)),
            None => {}
        }
    }

    fn receive(&mut self, now: Duration, peer: usize, message: AgreementMessage, outputs: &mut Vec<AgreementOutput>) {
        let epoch = self.decided.len();
        if message.epoch() < epoch {
            if message.is_query() {
                self.send_decision(message.epoch(), peer, outputs);
            }
            return;
        }
        if self.has_withdrawn && message.is_query() {
            outputs.push(AgreementOutput::Send { to: peer, message: self.withdrawn(message.epoch() as u32) });
            return;
        }
        if message.epoch() > epoch {
            // `peer` already knows the decision of the current epoch.
            if message.is_query() {
                outputs.push(self.query(peer));
            }
            return;
        }
        match message {
            AgreementMessage::Query { .. } => {
                self.round.begun_ranks.insert(peer);
                let unanswered_campaign =
                    self.round.campaign.as_ref().filter(|campaign| !campaign.promises.contains_key(&peer));
                outputs.push(match unanswered_campaign {
                    Some(campaign) => self.prepare(peer, campaign.ballot),
                    None => AgreementOutput::Send { to: peer, message: self.present() },
                });
            }
            AgreementMessage::Prepare { ballot, .. } => {
                self.round.begun_ranks.insert(peer);
                self.join_ballot(ballot);
                outputs.push(AgreementOutput::Send { to: peer, message: self.present() });
            }
            AgreementMessage::Present { ballot, address, accepted, .. } => {
                self.receive_presence(now, peer, ballot, address, accepted)
            }
            AgreementMessage::Withdrawn { accepted, .. } => {
                self.ended.insert(peer);
                self.round.adopt(accepted, self.rank);
            }
            AgreementMessage::Address { rank, address, .. } => {
                self.round.addresses.entry(rank as usize).or_insert(address);
            }
            AgreementMessage::Propose { ballot, excluded, .. } => {
                if self.round.begun_at.is_some() && self.join_ballot(ballot) {
                    self.round.accepted = Some((ballot, excluded));
                    outputs.push(AgreementOutput::Send {
                        to: peer,
                        message: AgreementMessage::Accept { epoch: self.epoch(), ballot },
                    });
                } else {
                    outputs.push(AgreementOutput::Send { to: peer, message: self.present() });
                }
            }
            AgreementMessage::Accept { ballot, .. } => {
                let campaign = self.round.campaign.as_mut().filter(|campaign| campaign.ballot == ballot);
                if let Some(proposal) = campaign.and_then(|campaign| campaign.proposal.as_mut()) {
                    proposal.accepted_by.insert(peer);
                }
            }
            AgreementMessage::Decide { excluded, .. } => self.decide(excluded, outputs),
        }
    }

    /// Reject all ballots below this one. Return whether no higher ballot is known.
    fn join_ballot(&mut self, ballot: Ballot) -> bool {
        if ballot > self.round.ballot {
            self.round.ballot = ballot;
            self.round.campaign = None;
        }
        ballot == self.round.ballot
    }

    fn receive_presence(
        &mut self,
        now: Duration,
        peer: usize,
        ballot: Ballot,
        address: Option<String>,
        accepted: Option<(Ballot, ExcludedRanks)>,
    ) {
        let has_begun = address.is_some();
        if let Some(address) = address {
            self.round.begun_ranks.insert(peer);
            self.round.addresses.insert(peer, address);
        } else {
            // The peer has not begun, or it gave up.
            self.round.begun_ranks.remove(&peer);
        }
        let Some(campaign) = &mut self.round.campaign else { return };
        if !has_begun && campaign.promises.contains_key(&peer) {
            self.round.campaign = None;
            return;
        }
        if ballot == campaign.ballot && has_begun && campaign.proposal.is_none() {
            campaign.promises.insert(peer, accepted);
        } else if ballot > campaign.ballot {
            self.join_ballot(ballot);
            if (ballot.rank as usize) < self.rank {
                self.round.no_campaign_until = now + self.timeouts.silence * 2;
            }
        }
    }

    /// Return whether no further message can be expected from `peer`.
    fn is_excludable(&self, peer: usize, now: Duration) -> bool {
        self.ended.contains(&peer) || self.is_silent(peer, now) || self.is_late(peer, now)
    }

    /// Return whether `peer` has left a repeated query without an answer.
    fn is_unanswered(&self, peer: usize, now: Duration) -> bool {
        let last_received = self.last_received.get(&peer).copied().unwrap_or_default();
        self.queried_since.get(&peer).is_some_and(|&queried_since| {
            last_received < queried_since && now.saturating_sub(queried_since) > self.timeouts.resend_interval()
        })
    }

    fn is_silent(&self, peer: usize, now: Duration) -> bool {
        let last_received = self.last_received.get(&peer).copied().unwrap_or_default();
        self.queried_since
            .get(&peer)
            .is_some_and(|&queried_since| now.saturating_sub(queried_since.max(last_received)) > self.timeouts.silence)
    }

    /// Return whether `peer` had time to begin and to answer a query, but has not begun.
    fn is_late(&self, peer: usize, now: Duration) -> bool {
        let (Some(begun_at), Some(&queried_since)) = (self.round.begun_at, self.queried_since.get(&peer)) else {
            return false;
        };
        let until = (begun_at + self.timeouts.late).max(queried_since + self.timeouts.silence);
        !self.round.begun_ranks.contains(&peer) && now > until
    }

    /// Take the next step of the agreement. If a resend is due, resend the unanswered messages.
    fn advance(&mut self, now: Duration, is_resend_due: bool, outputs: &mut Vec<AgreementOutput>) {
        let Some(begun_at) = self.round.begun_at else { return };
        if is_resend_due && self.could_agree(now) {
            self.round.last_quorum = Some(now);
        }
        let is_outvoted = self.round.last_quorum.is_some_and(|at| now.saturating_sub(at) > self.timeouts.silence);
        if is_outvoted || now.saturating_sub(begun_at) > self.timeouts.time_limit() {
            let cause = self.failure_reason(now);
            self.round.begun_at = None;
            self.round.campaign = None;
            self.round.addresses.remove(&self.rank);
            outputs.push(AgreementOutput::GaveUp(cause));
            return;
        }
        let own = self.rank;
        let silent =
            self.queried_since.keys().filter(|&&rank| !self.ended.contains(&rank) && self.is_silent(rank, now));
        self.suspected.extend(silent.copied().collect::<Vec<_>>());
        let leader = self.members.iter().copied().find(|&rank| rank == own || !self.is_excludable(rank, now));
        let leader = leader.expect("a rank that has begun is a member of its epoch");
        let is_new = self.round.leader.replace(leader) != Some(leader);
        if leader != own {
            self.round.campaign = None;
            if is_new || is_resend_due {
                self.queried_since.entry(leader).or_insert(now);
                outputs.push(self.query(leader));
                self.query_ahead(now, leader, outputs);
            }
        } else if now >= self.round.no_campaign_until {
            self.lead(now, is_resend_due, outputs);
        }
    }

    /// Query more ranks, as many as are known to be silent, because they may be silent as well. The detection time then
    /// grows with the logarithm of their number.
    fn query_ahead(&mut self, now: Duration, leader: usize, outputs: &mut Vec<AgreementOutput>) {
        let silent_count = self.members.iter().filter(|&&rank| self.is_silent(rank, now)).count();
        let next: Vec<usize> = self.others().filter(|&rank| rank > leader && !self.is_excludable(rank, now)).collect();
        for rank in next.into_iter().take(silent_count) {
            self.queried_since.entry(rank).or_insert(now);
            outputs.push(self.query(rank));
        }
    }

    /// Return whether the ranks that are not known to be silent or to have ended could agree.
    fn could_agree(&self, now: Duration) -> bool {
        let is_reachable =
            |rank: &&usize| **rank == self.rank || !(self.ended.contains(rank) || self.is_silent(**rank, now));
        self.is_quorum(&self.members.iter().filter(is_reachable).copied().collect())
    }

    fn lead(&mut self, now: Duration, is_resend_due: bool, outputs: &mut Vec<AgreementOutput>) {
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
                if is_new || is_resend_due {
                    for &other in &missing {
                        self.queried_since.entry(other).or_insert(now);
                        outputs.push(self.prepare(other, ballot));
                    }
                }
                if missing.iter().all(|&other| self.is_excludable(other, now)) {
                    self.propose(now, outputs);
                }
            }
            Some(proposal) => {
                let has_promised = |other: &usize| campaign.promises.contains_key(other);
                let missing = |other: &usize| !proposal.accepted_by.contains(other);
                let missing: Vec<usize> = self.others().filter(has_promised).filter(missing).collect();
                if missing.iter().any(|&other| !self.is_excludable(other, now)) {
                    if is_resend_due {
                        missing.iter().for_each(|&other| self.propose_to(other, outputs));
                    }
                } else if self.is_quorum(&proposal.accepted_by) {
                    self.decide(proposal.excluded.clone(), outputs);
                } else if is_resend_due {
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
        if !self.is_quorum(&present) {
            return;
        }
        let missing = || self.members.iter().filter(|rank| !present.contains(rank)).map(|&rank| rank as u32).collect();
        let excluded: ExcludedRanks = campaign.required_proposal().unwrap_or_else(missing);
        self.round.accepted = Some((campaign.ballot, excluded.clone()));
        let proposal = Proposal { excluded, accepted_by: BTreeSet::from([self.rank]) };
        self.round.campaign.as_mut().expect("this rank leads").proposal = Some(proposal);
        present.iter().filter(|&&rank| rank != self.rank).for_each(|&rank| self.propose_to(rank, outputs));
        // A rank without other participants decides at once.
        self.lead(now, false, outputs);
    }

    /// Return whether `ranks` may exclude all other participants of the epoch.
    fn is_quorum(&self, ranks: &BTreeSet<usize>) -> bool {
        let present = ranks.iter().filter(|rank| !self.ended.contains(rank)).count();
        let has_surely_ended = |rank: &&usize| self.ended.contains(rank) && !self.suspected.contains(rank);
        let has_suspect = self.members.iter().filter(|rank| !has_surely_ended(rank)).any(|rank| !ranks.contains(rank));
        let has_more_than_half = 2 * present > self.members.len();
        has_more_than_half || (!self.was_paused && (!has_suspect || self.is_one_node))
    }

    fn propose_to(&self, peer: usize, outputs: &mut Vec<AgreementOutput>) {
        let Some(campaign) = &self.round.campaign else { return };
        let Some(proposal) = &campaign.proposal else { return };
        self.send_addresses(&self.round.addresses, &proposal.excluded, peer, outputs);
        let message = AgreementMessage::Propose {
            epoch: self.epoch(),
            ballot: campaign.ballot,
            excluded: proposal.excluded.clone(),
        };
        outputs.push(AgreementOutput::Send { to: peer, message });
    }

    fn decide(&mut self, excluded: ExcludedRanks, outputs: &mut Vec<AgreementOutput>) {
        let epoch = self.decided.len();
        let round = std::mem::take(&mut self.round);
        let others: Vec<usize> = self.others().collect();
        let excludes = |rank: &usize| excluded.contains(&(*rank as u32));
        self.members.retain(|rank| !excludes(rank));
        self.addresses = round.addresses;
        self.addresses.retain(|rank, _| self.members.binary_search(rank).is_ok());
        self.is_excluded = excludes(&self.rank);
        self.was_paused = false;
        self.queried_since.clear();
        self.decided.push(excluded);
        if round.campaign.is_some() {
            others.iter().for_each(|&other| self.send_decision(epoch, other, outputs));
        }
        if self.is_excluded {
            outputs.push(AgreementOutput::Excluded);
        } else if round.begun_at.is_some() {
            let (members, addresses) = (self.members.clone(), self.addresses.clone());
            outputs.push(AgreementOutput::Decided(Decision { epoch: epoch as u32, members, addresses }));
        }
    }

    /// Send the decision of an epoch. For the last epoch, send the addresses of its members first.
    fn send_decision(&self, epoch: usize, peer: usize, outputs: &mut Vec<AgreementOutput>) {
        let excluded = self.decided[epoch].clone();
        if epoch + 1 == self.decided.len() && !excluded.contains(&(peer as u32)) {
            let addresses = self.addresses.iter().filter(|&(&rank, _)| rank != peer);
            outputs.extend(addresses.map(|(&rank, address)| {
                let message =
                    AgreementMessage::Address { epoch: epoch as u32, rank: rank as u32, address: address.clone() };
                AgreementOutput::Send { to: peer, message }
            }));
        }
        outputs.push(AgreementOutput::Send {
            to: peer,
            message: AgreementMessage::Decide { epoch: epoch as u32, excluded },
        });
    }

    fn send_addresses(
        &self,
        addresses: &BTreeMap<usize, String>,
        excluded: &ExcludedRanks,
        peer: usize,
        outputs: &mut Vec<AgreementOutput>,
    ) {
        let reported = addresses.iter().filter(|&(&rank, _)| rank != peer && !excluded.contains(&(rank as u32)));
        outputs.extend(reported.map(|(&rank, address)| {
            let message =
                AgreementMessage::Address { epoch: self.epoch(), rank: rank as u32, address: address.clone() };
            AgreementOutput::Send { to: peer, message }
        }));
    }

    fn query(&self, to: usize) -> AgreementOutput {
        AgreementOutput::Send { to, message: AgreementMessage::Query { epoch: self.epoch() } }
    }

    fn prepare(&self, to: usize, ballot: Ballot) -> AgreementOutput {
        AgreementOutput::Send { to, message: AgreementMessage::Prepare { epoch: self.epoch(), ballot } }
    }

    fn withdrawn(&self, epoch: u32) -> AgreementMessage {
        AgreementMessage::Withdrawn { epoch, accepted: self.round.accepted.clone() }
    }

    fn present(&self) -> AgreementMessage {
        AgreementMessage::Present {
            epoch: self.epoch(),
            ballot: self.round.ballot,
            address: self.round.begun_at.and_then(|_| self.round.addresses.get(&self.rank).cloned()),
            accepted: self.round.accepted.clone(),
        }
    }

    /// Return a readable reason why no agreement was reached.
    fn failure_reason(&self, now: Duration) -> String {
        let missing: Vec<usize> = self.members.iter().copied().filter(|&rank| rank != self.rank).collect();
        let silent: Vec<usize> = missing.into_iter().filter(|&rank| self.is_silent(rank, now)).collect();
        let waited = now.saturating_sub(self.round.begun_at.unwrap_or(now)).as_secs_f64();
        let reason = match (silent.is_empty(), self.was_paused) {
            (false, _) => format!("{} did not respond, and may be running elsewhere", name_ranks(&silent)),
            (true, true) => "this process was paused, and the others may have continued without it".to_string(),
            (true, false) => "the surviving ranks did not reach an agreement".to_string(),
        };
        let size = self.members.len();
        format!("not in a majority of the {size} ranks, after {waited:.1} s: {reason}")
    }
}
