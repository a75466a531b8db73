//! Call inquiries of the hub: collects the calls of the ranks that others wait for, and reports mismatches and
//! deadlocks.

use super::{ANSWER_WAIT, Hub, MemberState, describe_last};
use crate::call::{CollectiveId, DescribedCall};
use crate::fabric::{Blocking, JobFailure};
use crate::membership::inquiry::{describe, describe_pair, is_same_collective};
use crate::membership::{CallHistory, MembershipMessage, MembershipOutput, rank_failed};
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum interval between two queries to a rank about one collective.
const QUERY_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of concurrent inquiries. A new one replaces the least recently used.
const INQUIRIES_MAX: usize = 32;

/// A rank's report that it is blocked: its call and the awaited peers.
pub(super) struct Stall {
    pub described: DescribedCall,
    pub peers: Vec<usize>,
    /// The condition that the rank needs to continue.
    pub blocking: Blocking,
}

/// Two ranks met on a link with headers that do not belong to the same collective.
pub(super) struct CallDifference {
    /// The reporting rank first, then its peer. The hub asks the peer to describe its call signature.
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
        self.waits.note(now, from, stall.described.header, &stall.peers, stall.blocking);
        let mut outputs = match stall.described.header.call.concerns_all() {
            true => self.stalled_in_collective(now, from, stall, history),
            false => self.stalled_in_message(from, stall),
        };
        outputs.extend(self.report_cycle(from));
        outputs
    }

    /// Handle a stall in a point-to-point message. It is a failure if a needed peer has left. With [`Blocking::Any`],
    /// all awaited peers must have left.
    fn stalled_in_message(&mut self, from: usize, stall: &Stall) -> Vec<MembershipOutput> {
        let has_left =
            |&&peer: &&usize| self.members.get(peer).is_some_and(|member| matches!(member.state, MemberState::Left(_)));
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
        let (id, world_size) = (stall.described.header.collective_id(), self.hosts.len());
        let mut outputs = self.record_call(now, from, stall.described.clone());
        for &peer in stall.peers.iter().filter(|&&peer| peer < world_size) {
            match &self.members[peer].state {
                MemberState::Left(last_calls) if last_calls.left_before(id) => {
                    let cause = format!("left the job before {id} ({})", describe_last(last_calls));
                    outputs.extend(self.fail(rank_failed(peer, &self.hosts, cause)));
                }
                MemberState::Left(last_calls) => {
                    let last = last_calls.at(id);
                    outputs.extend(last.map(|last| self.record_call(now, peer, last)).unwrap_or_default());
                }
                MemberState::Present if peer != self.own => outputs.extend(self.ask(now, id, peer)),
                _ => {}
            }
        }
        outputs.extend(self.record_own_call(now, id, history));
        outputs.extend(self.report_if_answered(id));
        outputs
    }

    fn record_own_call(&mut self, now: Duration, id: CollectiveId, history: &CallHistory) -> Vec<MembershipOutput> {
        match history.at(id).or_else(|| history.last_of(id.communicator)) {
            Some(own) if own.sequence > id.sequence => vec![],
            Some(own) if own.sequence == id.sequence => self.record_call(now, self.own, history.describe(own)),
            _ => {
                self.note_absent(now, self.own, id);
                vec![]
            }
        }
    }

    /// Handle a report that two ranks met on a link with different headers. If both headers belong to the same
    /// collective, the hub asks all ranks for their calls. Otherwise it only asks the peer to describe its signature.
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
        if is_same_collective(&pair[0].1.header, &pair[1].1.header) {
            let mut outputs = self.record_own_call(now, id, history);
            outputs.extend(pair.into_iter().flat_map(|(rank, described)| self.record_call(now, rank, described)));
            outputs.extend(self.report_if_answered(id));
            return outputs;
        }
        if self.difference.is_some() {
            return vec![];
        }
        let (peer, signature) = (pair[1].0, pair[1].1.header.call.signature);
        let is_described = pair[1].1.is_described();
        self.difference = Some(CallDifference { pair, due: now + ANSWER_WAIT });
        if peer == self.own {
            return self.receive_signature(peer, signature, &history.signature(signature));
        }
        if is_described {
            self.report_difference()
        } else {
            vec![MembershipOutput::Send { to: peer, message: MembershipMessage::AskSignature(signature) }]
        }
    }

    /// Handle the description of a call signature.
    pub(super) fn receive_signature(&mut self, rank: usize, signature: u32, text: &str) -> Vec<MembershipOutput> {
        match &mut self.difference {
            Some(CallDifference { pair: [_, (peer, theirs)], .. })
                if *peer == rank && theirs.header.call.signature == signature =>
            {
                theirs.signature = text.to_string();
                self.report_difference()
            }
            _ => vec![],
        }
    }

    pub(super) fn report_difference(&mut self) -> Vec<MembershipOutput> {
        let difference = self.difference.take();
        let failure =
            difference.map(|CallDifference { pair, .. }| JobFailure::Mismatch { description: describe_pair(pair) });
        failure.map(|failure| self.fail(failure)).unwrap_or_default()
    }

    fn ask(&mut self, now: Duration, id: CollectiveId, peer: usize) -> Option<MembershipOutput> {
        let inquiry = self.inquiries.entry(id).or_default();
        let queried_recently = inquiry.queried.get(&peer).is_some_and(|&queried| now < queried + QUERY_INTERVAL);
        if queried_recently || inquiry.calls.get(&peer).is_some_and(DescribedCall::is_described) {
            return None;
        }
        inquiry.queried.insert(peer, now);
        let CollectiveId { communicator, sequence } = id;
        Some(MembershipOutput::Send { to: peer, message: MembershipMessage::Ask { communicator, sequence } })
    }

    /// Record a call. At the first mismatch, query all ranks, so that the report can name all calls.
    fn record_call(&mut self, now: Duration, rank: usize, described: DescribedCall) -> Vec<MembershipOutput> {
        let id = described.header.collective_id();
        if !self.inquiries.contains_key(&id) && self.inquiries.len() == INQUIRIES_MAX {
            let least_recent = self.inquiries.iter().min_by_key(|(_, inquiry)| inquiry.last_used).map(|(&id, _)| id);
            least_recent.and_then(|id| self.inquiries.remove(&id));
        }
        let inquiry = self.inquiries.entry(id).or_default();
        inquiry.last_used = now;
        inquiry.record_call(rank, described);
        if !inquiry.differs() || inquiry.due.is_some() || self.failure.is_some() {
            return vec![];
        }
        inquiry.due = Some(now + ANSWER_WAIT);
        let present = self.others().filter(|&peer| self.members[peer].state == MemberState::Present);
        let present: Vec<usize> = present.collect();
        present.into_iter().filter_map(|peer| self.ask(now, id, peer)).collect()
    }

    pub(super) fn answer(
        &mut self,
        now: Duration,
        from: usize,
        id: CollectiveId,
        described: Option<DescribedCall>,
    ) -> Vec<MembershipOutput> {
        let mut outputs = match described {
            Some(described) if described.header.collective_id() == id => self.record_call(now, from, described),
            Some(described) if described.header.sequence > id.sequence => vec![],
            _ => {
                self.note_absent(now, from, id);
                vec![]
            }
        };
        if let Some(inquiry) = self.inquiries.get_mut(&id) {
            // After a mismatch, the hub does not wait for a rank that has not reached this collective.
            if inquiry.due.is_some() {
                inquiry.queried.remove(&from);
            }
        }
        outputs.extend(self.report_if_answered(id));
        outputs.extend(self.report_cycle(from));
        outputs
    }

    fn note_absent(&mut self, now: Duration, rank: usize, id: CollectiveId) {
        if let Some(inquiry) = self.inquiries.get_mut(&id) {
            inquiry.absent.insert(rank, now);
        }
    }

    /// Report the mismatch of a collective once all queried ranks have answered.
    fn report_if_answered(&mut self, id: CollectiveId) -> Vec<MembershipOutput> {
        let inquiry = self.inquiries.get(&id);
        let answered = inquiry.filter(|inquiry| inquiry.due.is_some() && inquiry.queried.is_empty());
        let calls = answered.map(|inquiry| inquiry.calls.clone());
        calls.map(|calls| self.report_mismatch(id, &calls)).unwrap_or_default()
    }

    pub(super) fn report_mismatch(
        &mut self,
        id: CollectiveId,
        calls: &BTreeMap<usize, DescribedCall>,
    ) -> Vec<MembershipOutput> {
        self.inquiries.remove(&id);
        self.fail(JobFailure::Mismatch { description: describe(id, calls) })
    }

    /// Report a deadlock cycle that contains `from`, if one exists.
    fn report_cycle(&mut self, from: usize) -> Vec<MembershipOutput> {
        let is_absent = |rank: usize, id: CollectiveId, since: Duration| {
            let absent = self.inquiries.get(&id).and_then(|inquiry| inquiry.absent.get(&rank));
            absent.is_some_and(|&at| at >= since)
        };
        let cycle = self.waits.cycle(from, is_absent);
        cycle.map(|description| self.fail(JobFailure::Mismatch { description })).unwrap_or_default()
    }
}
