//! Membership machine of a rank that monitors all other ranks. The first failure that it learns of becomes the job's
//! failure.

mod inquire;
mod lose;

use super::history::LastCalls;
use super::inquiry::Inquiry;
use super::waits::BlockedWaits;
use super::{
    CallHistory, HeartbeatTiming, LastContact, MembershipEvent, MembershipMessage, MembershipOutput, MembershipRequest,
    MembershipTiming, rank_failed,
};
use crate::call::{CollectiveId, DescribedCall};
use crate::fabric::JobFailure;
use crate::replicas::{Losses, Replicas};
use inquire::{CallDifference, Stall};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Time that a rank has to die or to report a cause after its link closed. Then the closed link itself is the cause.
pub(super) const GRACE: Duration = Duration::from_millis(1000);
/// Maximum delay of a mismatch report for the calls of ranks that have not answered.
pub(super) const ANSWER_WAIT: Duration = Duration::from_millis(200);

/// State of a member.
#[derive(Clone, Debug, PartialEq)]
enum MemberState {
    /// It has not joined yet.
    Awaited,
    /// It takes part.
    Present,
    /// It left in good order after these collectives.
    Left(LastCalls),
    /// It died, but a replica of it is alive.
    Lost,
}

#[derive(Clone, Debug)]
struct HubMember {
    state: MemberState,
    contact: LastContact,
}

/// Membership machine of a rank that monitors all other ranks.
pub struct Hub {
    own: usize,
    hosts: Arc<[String]>,
    replicas: Replicas,
    losses: Losses,
    members: Vec<HubMember>,
    present_count: usize,
    awaited_count: usize,
    join_deadline: Duration,
    join_timeout: Duration,
    heartbeats: HeartbeatTiming,
    suspects: BTreeMap<usize, (Duration, JobFailure)>,
    inquiries: BTreeMap<CollectiveId, Inquiry>,
    difference: Option<CallDifference>,
    waits: BlockedWaits,
    failure: Option<JobFailure>,
    /// The rank that caused the failure by its death before all ranks had joined.
    early_failure: Option<usize>,
}

impl Hub {
    /// Return the machine of rank `own` before any other rank has joined.
    pub fn new(own: usize, hosts: Arc<[String]>, replicas: Replicas, timing: MembershipTiming, now: Duration) -> Hub {
        let member = HubMember { state: MemberState::Awaited, contact: LastContact::new(now) };
        let mut members = vec![member; hosts.len()];
        members[own].state = MemberState::Present;
        Hub {
            awaited_count: members.len() - 1,
            present_count: 0,
            members,
            own,
            hosts,
            replicas,
            losses: Losses::new(replicas),
            join_deadline: now + timing.join_timeout,
            join_timeout: timing.join_timeout,
            heartbeats: HeartbeatTiming::new(now, timing),
            suspects: BTreeMap::new(),
            inquiries: BTreeMap::new(),
            difference: None,
            waits: BlockedWaits::default(),
            failure: None,
            early_failure: None,
        }
    }

    /// Return the time at which the machine needs its next tick.
    pub fn next_tick(&self) -> Duration {
        let suspects = self.suspects.values().map(|(due, _)| *due);
        let inquiries = self.inquiries.values().filter_map(|inquiry| inquiry.due);
        let difference = self.difference.as_ref().map(|difference| difference.due);
        suspects.chain(inquiries).chain(difference).fold(self.heartbeats.next_check, Duration::min)
    }

    /// Handle an event and return the resulting outputs.
    pub fn handle(&mut self, now: Duration, event: MembershipEvent, history: &CallHistory) -> Vec<MembershipOutput> {
        if self.heartbeats.was_suspended(now) {
            self.members.iter_mut().for_each(|member| member.contact = LastContact::new(now));
        }
        match event {
            MembershipEvent::Connected { peer } => self.admit(now, peer),
            MembershipEvent::Received { peer, .. } if self.members[peer].state == MemberState::Lost => vec![],
            MembershipEvent::Received { peer, message } => {
                self.members[peer].contact = LastContact::new(now);
                self.receive(now, peer, message, history)
            }
            MembershipEvent::Closed { peer, cause } => match &self.members[peer].state {
                MemberState::Present => self.lose(peer, rank_failed(peer, &self.hosts, cause)),
                MemberState::Awaited | MemberState::Left(_) | MemberState::Lost => vec![],
            },
            MembershipEvent::Reached { peer } => {
                self.members[peer].contact.last_reached = now;
                vec![]
            }
            MembershipEvent::Request(request) => self.request(now, request, history),
            MembershipEvent::Tick => self.tick(now),
        }
    }

    fn admit(&mut self, now: Duration, peer: usize) -> Vec<MembershipOutput> {
        match self.members[peer].state {
            MemberState::Awaited => {}
            // Another hub has already admitted the rank.
            MemberState::Present => {
                self.members[peer].contact = LastContact::new(now);
                return self.failure_messages().map(|message| MembershipOutput::Send { to: peer, message }).collect();
            }
            MemberState::Left(_) | MemberState::Lost => return vec![],
        }
        self.members[peer] = HubMember { state: MemberState::Present, contact: LastContact::new(now) };
        self.present_count += 1;
        self.awaited_count -= 1;
        if let Some(failure) = self.failure.clone() {
            return vec![MembershipOutput::Send { to: peer, message: MembershipMessage::Failed(failure) }];
        }
        if self.awaited_count > 0 {
            return vec![];
        }
        let mut outputs = self.send_to_present(&MembershipMessage::Complete);
        outputs.push(MembershipOutput::Complete);
        outputs
    }

    fn receive(
        &mut self,
        now: Duration,
        from: usize,
        message: MembershipMessage,
        history: &CallHistory,
    ) -> Vec<MembershipOutput> {
        match message {
            MembershipMessage::Report(failure) => self.fail(failure),
            MembershipMessage::Suspect { peer, cause } => self.suspect(now, from, peer as usize, &cause),
            MembershipMessage::Stalled { call, peers, blocking } => {
                let peers = peers.iter().map(|&peer| peer as usize).collect();
                self.stalled(now, from, &Stall { described: call.into(), peers, blocking }, history)
            }
            MembershipMessage::Differs { call, peer, theirs } => {
                let theirs = DescribedCall::undescribed(theirs.0);
                self.differs(now, [(from, call.into()), (peer as usize, theirs)], history)
            }
            MembershipMessage::Signature { signature, text } => self.receive_signature(from, signature, &text),
            MembershipMessage::Answer { communicator, sequence, call } => {
                self.answer(now, from, CollectiveId { communicator, sequence }, call.map(DescribedCall::from))
            }
            MembershipMessage::Complete if self.replicas.logical(from) == 0 => self.all_admitted(now),
            MembershipMessage::Lost(failure) => self.note_loss(failure),
            MembershipMessage::Goodbye { last_calls, has_evicted, signature } => {
                let headers = last_calls.into_iter().map(|last| last.0).collect();
                self.receive_goodbye(from, LastCalls { headers, has_evicted, signature })
            }
            _ => vec![],
        }
    }

    fn request(&mut self, now: Duration, request: MembershipRequest, history: &CallHistory) -> Vec<MembershipOutput> {
        match request {
            MembershipRequest::Report(failure) => self.fail(failure),
            MembershipRequest::Suspect { peer, cause } => self.suspect(now, self.own, peer, &cause),
            MembershipRequest::Stalled { header, peers, blocking } => {
                self.stalled(now, self.own, &Stall { described: history.describe(header), peers, blocking }, history)
            }
            MembershipRequest::Differs { mine, peer, theirs } => self.differs(
                now,
                [(self.own, history.describe(mine)), (peer, DescribedCall::undescribed(theirs))],
                history,
            ),
            MembershipRequest::Leave => {
                self.members[self.own].state = MemberState::Left(history.last_calls());
                // Ranks that host other hubs stay connected after they have left, until the last rank has left.
                let stays = |rank: &usize| match self.members[*rank].state {
                    MemberState::Present => true,
                    MemberState::Left(_) => self.replicas.logical(*rank) == 0,
                    MemberState::Awaited | MemberState::Lost => false,
                };
                let goodbye = history.last_calls().goodbye();
                let described =
                    self.others().filter(stays).map(|to| MembershipOutput::Send { to, message: goodbye.clone() });
                described.chain(self.finished()).collect()
            }
        }
    }

    fn receive_goodbye(&mut self, peer: usize, last_calls: LastCalls) -> Vec<MembershipOutput> {
        if self.members[peer].state == MemberState::Present {
            self.members[peer].state = MemberState::Left(last_calls);
            self.present_count -= 1;
        }
        self.finished().into_iter().collect()
    }

    fn finished(&self) -> Option<MembershipOutput> {
        let hub_left = matches!(self.members[self.own].state, MemberState::Left(_));
        let no_rank_works = self.present_count == 0 || self.failure.is_some();
        (hub_left && no_rank_works && self.awaited_count == 0).then_some(MembershipOutput::Finished)
    }

    fn suspect(&mut self, now: Duration, from: usize, peer: usize, cause: &str) -> Vec<MembershipOutput> {
        match self.members.get(peer).map(|member| &member.state) {
            Some(MemberState::Left(_) | MemberState::Lost) if self.has_present_replica(peer) => vec![],
            Some(MemberState::Left(last_calls)) => {
                let cause = format!("left the job while rank {from} still needed it ({})", describe_last(last_calls));
                self.fail(rank_failed(peer, &self.hosts, cause))
            }
            Some(_) => {
                let cause = format!("its link to rank {from} closed: {cause}");
                let failure = rank_failed(peer, &self.hosts, cause);
                self.suspects.entry(peer).or_insert((now + GRACE, failure));
                vec![]
            }
            None => vec![],
        }
    }

    fn tick(&mut self, now: Duration) -> Vec<MembershipOutput> {
        let mut outputs = Vec::new();
        let due = self.inquiries.iter().find(|(_, inquiry)| inquiry.due.is_some_and(|due| due <= now));
        if let Some((id, calls)) = due.map(|(&id, inquiry)| (id, inquiry.calls.clone())) {
            outputs.extend(self.report_mismatch(id, &calls));
        }
        if self.difference.as_ref().is_some_and(|difference| difference.due <= now) {
            outputs.extend(self.report_difference());
        }
        let due = self.suspects.iter().find(|(_, (due, _))| *due <= now).map(|(&peer, _)| peer);
        if let Some((peer, (_, failure))) = due.and_then(|peer| self.suspects.remove_entry(&peer)) {
            outputs.extend(self.lose(peer, failure));
        }
        if self.heartbeats.check_is_due(now) {
            outputs.extend(self.check(now));
        }
        if self.heartbeats.beat_is_due(now) {
            outputs.extend(self.send_to_present(&MembershipMessage::Heartbeat));
        }
        outputs
    }

    fn check(&mut self, now: Duration) -> Vec<MembershipOutput> {
        let late = self.awaited_count > 0 && now >= self.join_deadline;
        if late && self.failure.is_none() {
            let missing = self.members.iter().position(|member| member.state == MemberState::Awaited);
            let cause = format!("did not connect within {:.1} s", self.join_timeout.as_secs_f64());
            return missing.map(|rank| self.fail(rank_failed(rank, &self.hosts, cause))).unwrap_or_default();
        }
        let timing = self.heartbeats.timing;
        let present = |rank: &usize| self.members[*rank].state == MemberState::Present;
        let dead =
            self.others().filter(present).find_map(|rank| Some((rank, self.members[rank].contact.cause(now, timing)?)));
        if let Some((rank, cause)) = dead {
            return self.lose(rank, rank_failed(rank, &self.hosts, cause));
        }
        let is_overdue = |rank: &usize| self.members[*rank].contact.silence(now) > timing.probe_delay();
        self.others().filter(present).filter(is_overdue).map(|to| MembershipOutput::Probe { to }).collect()
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.own;
        (0..self.members.len()).filter(move |&rank| rank != own)
    }

    /// Record the job's first failure and send it to all ranks. Later failures are ignored.
    fn fail(&mut self, failure: JobFailure) -> Vec<MembershipOutput> {
        if self.failure.is_some() {
            return vec![];
        }
        self.failure = Some(failure.clone());
        self.suspects.clear();
        self.inquiries.clear();
        let mut outputs = self.send_to_present(&MembershipMessage::Failed(failure.clone()));
        outputs.push(MembershipOutput::Failed(failure));
        outputs.extend(self.finished());
        outputs
    }

    fn send_to_present(&self, message: &MembershipMessage) -> Vec<MembershipOutput> {
        let present = |rank: &usize| self.members[*rank].state == MemberState::Present;
        self.others().filter(present).map(|to| MembershipOutput::Send { to, message: message.clone() }).collect()
    }
}

fn describe_last(last_calls: &LastCalls) -> String {
    match last_calls.headers.first() {
        Some(last) => format!("its last was {}, {}", last.collective_id(), last.call),
        None => "it took part in none".to_string(),
    }
}
