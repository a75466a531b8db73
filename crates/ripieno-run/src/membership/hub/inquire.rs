//! How the hub finds out who called what: it asks the ranks that others wait for.

use super::{ANSWER_WAIT, HUB, Hub, Standing, name_last};
use crate::call::{Call, Header};
use crate::fabric::Failure;
use crate::membership::inquiry::describe;
use crate::membership::{History, Message, Output, rank_failed};
use std::collections::BTreeMap;
use std::time::Duration;

/// A rank is not asked about one collective again within this time.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How many collectives are inquired into at a time; the oldest is dropped for a new one.
const INQUIRIES_MAX: usize = 8;

impl Hub {
    pub(super) fn stalled(
        &mut self,
        now: Duration,
        from: usize,
        header: Header,
        peers: &[usize],
        history: &History,
    ) -> Vec<Output> {
        if !header.call.concerns_all() {
            return self.stalled_in_message(now, from, header, peers);
        }
        let sequence = header.sequence;
        let world_size = self.members.len();
        let mut outputs = self.learn(now, from, header);
        for &peer in peers.iter().filter(|&&peer| peer < world_size) {
            match self.members[peer].standing {
                Standing::Left(last) if last.is_none_or(|last| last.sequence < sequence) => {
                    let cause = format!("left the job before collective {sequence} ({})", name_last(last));
                    outputs.extend(self.fail(rank_failed(peer, &self.hosts, cause)));
                }
                Standing::Left(Some(last)) if last.sequence == sequence => outputs.extend(self.learn(now, peer, last)),
                Standing::Present if peer != HUB => outputs.extend(self.ask(now, sequence, peer)),
                _ => {}
            }
        }
        if let Some(own) = history.at(sequence) {
            outputs.extend(self.learn(now, HUB, own));
        }
        outputs.extend(self.settle(sequence));
        outputs
    }

    fn ask(&mut self, now: Duration, sequence: u64, peer: usize) -> Option<Output> {
        let inquiry = self.inquiries.entry(sequence).or_default();
        let asked_lately = inquiry.asked.get(&peer).is_some_and(|&asked| now < asked + ASK_AGAIN);
        if asked_lately || inquiry.calls.contains_key(&peer) {
            return None;
        }
        inquiry.asked.insert(peer, now);
        Some(Output::Send { to: peer, message: Message::Ask { sequence } })
    }

    /// Notes a call. When calls begin to differ, all ranks are asked, so that the sentence can name everybody.
    fn learn(&mut self, now: Duration, rank: usize, header: Header) -> Vec<Output> {
        let sequence = header.sequence;
        if !self.inquiries.contains_key(&sequence) && self.inquiries.len() == INQUIRIES_MAX {
            self.inquiries.pop_first();
        }
        let inquiry = self.inquiries.entry(sequence).or_default();
        inquiry.learn(rank, header.call);
        if !inquiry.differs() || inquiry.due.is_some() || self.failure.is_some() {
            return vec![];
        }
        inquiry.due = Some(now + ANSWER_WAIT);
        let present = (1..self.members.len()).filter(|&peer| self.members[peer].standing == Standing::Present);
        let present: Vec<usize> = present.collect();
        present.into_iter().filter_map(|peer| self.ask(now, sequence, peer)).collect()
    }

    pub(super) fn answer(&mut self, now: Duration, from: usize, sequence: u64, header: Option<Header>) -> Vec<Output> {
        let mut outputs = match header {
            Some(header) if header.sequence == sequence => self.learn(now, from, header),
            _ => vec![],
        };
        if let Some(inquiry) = self.inquiries.get_mut(&sequence) {
            // Once calls differ nobody waits for a rank that has not come so far.
            if inquiry.due.is_some() {
                inquiry.asked.remove(&from);
            }
        }
        outputs.extend(self.settle(sequence));
        outputs
    }

    /// Tells the mismatch, if there is one and everybody asked has answered.
    fn settle(&mut self, sequence: u64) -> Vec<Output> {
        let inquiry = self.inquiries.get(&sequence);
        let settled = inquiry.filter(|inquiry| inquiry.due.is_some() && inquiry.asked.is_empty());
        let calls = settled.map(|inquiry| inquiry.calls.clone());
        calls.map(|calls| self.tell_mismatch(sequence, &calls)).unwrap_or_default()
    }

    pub(super) fn tell_mismatch(&mut self, sequence: u64, calls: &BTreeMap<usize, Call>) -> Vec<Output> {
        self.inquiries.remove(&sequence);
        self.fail(Failure::Mismatch { description: describe(sequence, calls) })
    }
}
