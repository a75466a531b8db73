//! How the hub finds out who called what, and who waits for whom: it asks the ranks that others wait for.

use super::{ANSWER_WAIT, Hub, Standing, name_last};
use crate::call::{Call, Header, Turn};
use crate::fabric::Failure;
use crate::membership::inquiry::describe;
use crate::membership::{History, Message, Output, rank_failed};
use std::collections::BTreeMap;
use std::time::Duration;

/// A rank is not asked about one collective again within this time.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How many collectives are inquired into at a time; the one longest at rest is dropped for a new one.
const INQUIRIES_MAX: usize = 32;

/// What a rank says that it waits for.
pub(super) struct Stall {
    pub header: Header,
    pub peers: Vec<usize>,
    /// The rank does nothing else until then.
    pub is_blocked: bool,
}

impl Hub {
    pub(super) fn stalled(&mut self, now: Duration, from: usize, stall: &Stall, history: &History) -> Vec<Output> {
        if stall.is_blocked {
            self.waits.note(now, from, stall.header, &stall.peers);
        }
        let mut outputs = match stall.header.call.concerns_all() {
            true => self.stalled_in_collective(now, from, stall, history),
            false => self.stalled_in_message(from, stall),
        };
        outputs.extend(self.tell_circle(from));
        outputs
    }

    /// What a rank does that owes another a message is its own affair, unless it has left.
    fn stalled_in_message(&mut self, from: usize, stall: &Stall) -> Vec<Output> {
        let has_left =
            |&&peer: &&usize| self.members.get(peer).is_some_and(|member| matches!(member.standing, Standing::Left(_)));
        let Some(&peer) = stall.peers.iter().find(has_left) else { return vec![] };
        let cause = format!("left the job while rank {from} waited in a message to or from it");
        self.fail(rank_failed(peer, &self.hosts, cause))
    }

    fn stalled_in_collective(&mut self, now: Duration, from: usize, stall: &Stall, history: &History) -> Vec<Output> {
        let (turn, world_size) = (stall.header.turn(), self.hosts.len());
        let mut outputs = self.learn(now, from, stall.header);
        for &peer in stall.peers.iter().filter(|&&peer| peer < world_size) {
            match &self.members[peer].standing {
                Standing::Left(lasts) if lasts.lack(turn) => {
                    let cause = format!("left the job before {turn} ({})", name_last(lasts));
                    outputs.extend(self.fail(rank_failed(peer, &self.hosts, cause)));
                }
                Standing::Left(lasts) => {
                    let last = lasts.at(turn);
                    outputs.extend(last.map(|last| self.learn(now, peer, last)).unwrap_or_default());
                }
                Standing::Present if peer != self.own => outputs.extend(self.ask(now, turn, peer)),
                _ => {}
            }
        }
        match history.at(turn).or_else(|| history.last_of(turn.communicator)) {
            Some(own) if own.sequence > turn.sequence => {}
            Some(own) if own.sequence == turn.sequence => outputs.extend(self.learn(now, self.own, own)),
            _ => self.note_absent(now, self.own, turn),
        }
        outputs.extend(self.settle(turn));
        outputs
    }

    fn ask(&mut self, now: Duration, turn: Turn, peer: usize) -> Option<Output> {
        let inquiry = self.inquiries.entry(turn).or_default();
        let asked_lately = inquiry.asked.get(&peer).is_some_and(|&asked| now < asked + ASK_AGAIN);
        if asked_lately || inquiry.calls.contains_key(&peer) {
            return None;
        }
        inquiry.asked.insert(peer, now);
        let Turn { communicator, sequence } = turn;
        Some(Output::Send { to: peer, message: Message::Ask { communicator, sequence } })
    }

    /// Notes a call. When calls begin to differ, all ranks are asked, so that the sentence can name everybody.
    fn learn(&mut self, now: Duration, rank: usize, header: Header) -> Vec<Output> {
        let turn = header.turn();
        if !self.inquiries.contains_key(&turn) && self.inquiries.len() == INQUIRIES_MAX {
            let resting = self.inquiries.iter().min_by_key(|(_, inquiry)| inquiry.touched).map(|(&turn, _)| turn);
            resting.and_then(|turn| self.inquiries.remove(&turn));
        }
        let inquiry = self.inquiries.entry(turn).or_default();
        inquiry.touched = now;
        inquiry.learn(rank, header.call);
        if !inquiry.differs() || inquiry.due.is_some() || self.failure.is_some() {
            return vec![];
        }
        inquiry.due = Some(now + ANSWER_WAIT);
        let present = self.others().filter(|&peer| self.members[peer].standing == Standing::Present);
        let present: Vec<usize> = present.collect();
        present.into_iter().filter_map(|peer| self.ask(now, turn, peer)).collect()
    }

    pub(super) fn answer(&mut self, now: Duration, from: usize, turn: Turn, header: Option<Header>) -> Vec<Output> {
        let mut outputs = match header {
            Some(header) if header.turn() == turn => self.learn(now, from, header),
            Some(header) if header.sequence > turn.sequence => vec![],
            _ => {
                self.note_absent(now, from, turn);
                vec![]
            }
        };
        if let Some(inquiry) = self.inquiries.get_mut(&turn) {
            // Once calls differ nobody waits for a rank that has not come so far.
            if inquiry.due.is_some() {
                inquiry.asked.remove(&from);
            }
        }
        outputs.extend(self.settle(turn));
        outputs.extend(self.tell_circle(from));
        outputs
    }

    fn note_absent(&mut self, now: Duration, rank: usize, turn: Turn) {
        if let Some(inquiry) = self.inquiries.get_mut(&turn) {
            inquiry.absent.insert(rank, now);
        }
    }

    /// Tells the mismatch, if there is one and everybody asked has answered.
    fn settle(&mut self, turn: Turn) -> Vec<Output> {
        let inquiry = self.inquiries.get(&turn);
        let settled = inquiry.filter(|inquiry| inquiry.due.is_some() && inquiry.asked.is_empty());
        let calls = settled.map(|inquiry| inquiry.calls.clone());
        calls.map(|calls| self.tell_mismatch(turn, &calls)).unwrap_or_default()
    }

    pub(super) fn tell_mismatch(&mut self, turn: Turn, calls: &BTreeMap<usize, Call>) -> Vec<Output> {
        self.inquiries.remove(&turn);
        self.fail(Failure::Mismatch { description: describe(turn, calls) })
    }

    /// Tells the ranks that wait for each other, if `from` is one of them.
    fn tell_circle(&mut self, from: usize) -> Vec<Output> {
        let is_absent = |rank: usize, turn: Turn, since: Duration| {
            let absent = self.inquiries.get(&turn).and_then(|inquiry| inquiry.absent.get(&rank));
            absent.is_some_and(|&at| at >= since)
        };
        let circle = self.waits.circle(from, is_absent);
        circle.map(|description| self.fail(Failure::Mismatch { description })).unwrap_or_default()
    }
}
