//! Call inquiries of the hub: collects the calls of the ranks that others wait for, and reports mismatches and
//! deadlocks.

use super::{ANSWER_WAIT, Hub, MemberStanding, name_last};
use crate::call::{CollectiveId, DescribedCall};
use crate::fabric::{Blocking, JobFailure};
use crate::membership::inquiry::{describe, describe_pair, is_one_collective};
use crate::membership::{CallHistory, MembershipMessage, MembershipOutput, rank_failed};
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum interval between two queries to a rank about one collective.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Maximum number of concurrent inquiries. A new one replaces the least recently used.
const INQUIRIES_MAX: usize = 32;

/// A rank's report that it is blocked: its call and the awaited peers.
pub(super) struct Stall {
    pub told: DescribedCall,
    pub peers: Vec<usize>,
    /// The condition that the rank needs to continue.
    pub blocking: Blocking,
}

/// Two ranks met on a link with headers that do not belong to the same collective.
pub(super) struct CallDifference {
    /// The reporting rank first, then its peer. The hub asks the peer to describe its call form.
    pair: [(usize, DescribedCall); 2],
    /// Time at which the mismatch is reported even without an answer.
    pub due: Duration,
}

impl Hub {
    pub(super) fn stalled(
        &mut self,
        now: Duration,
        from: usize,
        stall: &Stall,
        history: &CallHistory,
    ) -> Vec<MembershipOutput> {
        self.waits.note(now, from, stall.told.header, &stall.peers, stall.blocking);
        let mut outputs = match stall.told.header.call.concerns_all() {
            true => self.stalled_in_collective(now, from, stall, history),
            false => self.stalled_in_message(from, stall),
        };
        outputs.extend(self.tell_circle(from));
        outputs
    }

    /// Handle a stall in a point-to-point message. It is a failure if a needed peer has left. With [`Blocking::Any`],
    /// all awaited peers must have left.
    fn stalled_in_message(&mut self, from: usize, stall: &Stall) -> Vec<MembershipOutput> {
        let has_left = |&&peer: &&usize| {
            self.members.get(peer).is_some_and(|member| matches!(member.standing, MemberStanding::Left(_)))
        };
        let has_all_left = stall.peers.iter().all(|peer| has_left(&peer));
        let Some(&peer) = stall.peers.iter().find(has_left) else { return vec![] };
        if stall.blocking == Blocking::Any && !has_all_left {
            return vec![];
        }
        let cause = format!("left the job while rank {from} waited in a message to or from it");
        self.fail(rank_failed(peer, &self.hosts, cause))
    }

    fn stalled_in_collective(
        &mut self,
        now: Duration,
        from: usize,
        stall: &Stall,
        history: &CallHistory,
    ) -> Vec<MembershipOutput> {
        let (id, world_size) = (stall.told.header.collective_id(), self.hosts.len());
        let mut outputs = self.learn(now, from, stall.told.clone());
        for &peer in stall.peers.iter().filter(|&&peer| peer < world_size) {
            match &self.members[peer].standing {
                MemberStanding::Left(lasts) if lasts.lack(id) => {
                    let cause = format!("left the job before {id} ({})", name_last(lasts));
                    outputs.extend(self.fail(rank_failed(peer, &self.hosts, cause)));
                }
                MemberStanding::Left(lasts) => {
                    let last = lasts.at(id);
                    outputs.extend(last.map(|last| self.learn(now, peer, last)).unwrap_or_default());
                }
                MemberStanding::Present if peer != self.own => outputs.extend(self.ask(now, id, peer)),
                _ => {}
            }
        }
        outputs.extend(self.learn_own(now, id, history));
        outputs.extend(self.settle(id));
        outputs
    }

    fn learn_own(&mut self, now: Duration, id: CollectiveId, history: &CallHistory) -> Vec<MembershipOutput> {
        match history.at(id).or_else(|| history.last_of(id.communicator)) {
            Some(own) if own.sequence > id.sequence => vec![],
            Some(own) if own.sequence == id.sequence => self.learn(now, self.own, history.told(own)),
            _ => {
                self.note_absent(now, self.own, id);
                vec![]
            }
        }
    }

    /// Handle a report that two ranks met on a link with different headers. If both headers belong to the same
    /// collective, the hub asks all ranks for their calls. Otherwise it only asks the peer to describe its form.
    pub(super) fn differs(
        &mut self,
        now: Duration,
        pair: [(usize, DescribedCall); 2],
        history: &CallHistory,
    ) -> Vec<MembershipOutput> {
        if self.failure.is_some() || pair[1].0 >= self.hosts.len() {
            return vec![];
        }
        let id = pair[0].1.header.collective_id();
        if is_one_collective(&pair[0].1.header, &pair[1].1.header) {
            let mut outputs = self.learn_own(now, id, history);
            outputs.extend(pair.into_iter().flat_map(|(rank, told)| self.learn(now, rank, told)));
            outputs.extend(self.settle(id));
            return outputs;
        }
        if self.difference.is_some() {
            return vec![];
        }
        let (peer, form) = (pair[1].0, pair[1].1.header.call.form);
        let is_told = pair[1].1.is_whole();
        self.difference = Some(CallDifference { pair, due: now + ANSWER_WAIT });
        if peer == self.own {
            return self.form_told(peer, form, &history.form(form));
        }
        if is_told {
            self.tell_difference()
        } else {
            vec![MembershipOutput::Send { to: peer, message: MembershipMessage::AskForm(form) }]
        }
    }

    /// Handle the description of a call form.
    pub(super) fn form_told(&mut self, rank: usize, form: u32, words: &str) -> Vec<MembershipOutput> {
        match &mut self.difference {
            Some(CallDifference { pair: [_, (peer, theirs)], .. })
                if *peer == rank && theirs.header.call.form == form =>
            {
                theirs.form = words.to_string();
                self.tell_difference()
            }
            _ => vec![],
        }
    }

    pub(super) fn tell_difference(&mut self) -> Vec<MembershipOutput> {
        let difference = self.difference.take();
        let failure =
            difference.map(|CallDifference { pair, .. }| JobFailure::Mismatch { description: describe_pair(pair) });
        failure.map(|failure| self.fail(failure)).unwrap_or_default()
    }

    fn ask(&mut self, now: Duration, id: CollectiveId, peer: usize) -> Option<MembershipOutput> {
        let inquiry = self.inquiries.entry(id).or_default();
        let asked_lately = inquiry.asked.get(&peer).is_some_and(|&asked| now < asked + ASK_AGAIN);
        if asked_lately || inquiry.calls.get(&peer).is_some_and(DescribedCall::is_whole) {
            return None;
        }
        inquiry.asked.insert(peer, now);
        let CollectiveId { communicator, sequence } = id;
        Some(MembershipOutput::Send { to: peer, message: MembershipMessage::Ask { communicator, sequence } })
    }

    /// Record a call. At the first mismatch, query all ranks, so that the report can name all calls.
    fn learn(&mut self, now: Duration, rank: usize, told: DescribedCall) -> Vec<MembershipOutput> {
        let id = told.header.collective_id();
        if !self.inquiries.contains_key(&id) && self.inquiries.len() == INQUIRIES_MAX {
            let resting = self.inquiries.iter().min_by_key(|(_, inquiry)| inquiry.touched).map(|(&id, _)| id);
            resting.and_then(|id| self.inquiries.remove(&id));
        }
        let inquiry = self.inquiries.entry(id).or_default();
        inquiry.touched = now;
        inquiry.learn(rank, told);
        if !inquiry.differs() || inquiry.due.is_some() || self.failure.is_some() {
            return vec![];
        }
        inquiry.due = Some(now + ANSWER_WAIT);
        let present = self.others().filter(|&peer| self.members[peer].standing == MemberStanding::Present);
        let present: Vec<usize> = present.collect();
        present.into_iter().filter_map(|peer| self.ask(now, id, peer)).collect()
    }

    pub(super) fn answer(
        &mut self,
        now: Duration,
        from: usize,
        id: CollectiveId,
        told: Option<DescribedCall>,
    ) -> Vec<MembershipOutput> {
        let mut outputs = match told {
            Some(told) if told.header.collective_id() == id => self.learn(now, from, told),
            Some(told) if told.header.sequence > id.sequence => vec![],
            _ => {
                self.note_absent(now, from, id);
                vec![]
            }
        };
        if let Some(inquiry) = self.inquiries.get_mut(&id) {
            // After a mismatch, the hub does not wait for a rank that has not reached this collective.
            if inquiry.due.is_some() {
                inquiry.asked.remove(&from);
            }
        }
        outputs.extend(self.settle(id));
        outputs.extend(self.tell_circle(from));
        outputs
    }

    fn note_absent(&mut self, now: Duration, rank: usize, id: CollectiveId) {
        if let Some(inquiry) = self.inquiries.get_mut(&id) {
            inquiry.absent.insert(rank, now);
        }
    }

    /// Report the mismatch of a collective once all queried ranks have answered.
    fn settle(&mut self, id: CollectiveId) -> Vec<MembershipOutput> {
        let inquiry = self.inquiries.get(&id);
        let settled = inquiry.filter(|inquiry| inquiry.due.is_some() && inquiry.asked.is_empty());
        let calls = settled.map(|inquiry| inquiry.calls.clone());
        calls.map(|calls| self.tell_mismatch(id, &calls)).unwrap_or_default()
    }

    pub(super) fn tell_mismatch(
        &mut self,
        id: CollectiveId,
        calls: &BTreeMap<usize, DescribedCall>,
    ) -> Vec<MembershipOutput> {
        self.inquiries.remove(&id);
        self.fail(JobFailure::Mismatch { description: describe(id, calls) })
    }

    /// Report a deadlock cycle that contains `from`, if one exists.
    fn tell_circle(&mut self, from: usize) -> Vec<MembershipOutput> {
        let is_absent = |rank: usize, id: CollectiveId, since: Duration| {
            let absent = self.inquiries.get(&id).and_then(|inquiry| inquiry.absent.get(&rank));
            absent.is_some_and(|&at| at >= since)
        };
        let circle = self.waits.circle(from, is_absent);
        circle.map(|description| self.fail(JobFailure::Mismatch { description })).unwrap_or_default()
    }
}
