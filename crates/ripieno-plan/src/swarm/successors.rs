//! Successors of a silent tracker: a member probes them while it waits for the answer of the tracker.
//!
//! A rank of an isolated host hears neither the tracker nor the ranks that could replace it. If it waited for one after
//! the other, it would report its isolation after as many answer timeouts as there are ranks. So it waits for all of
//! them at the same time.

use super::member::send;
use super::{Action, SwarmMessage, SwarmNode};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

/// Number of successors that a member probes. If it has lost as many ranks, it probes all others.
const PROBED_SUCCESSOR_COUNT: usize = 16;

/// Probe of ranks that could replace the tracker.
pub(super) struct SuccessorProbe {
    since: Duration,
    /// Ranks that have sent nothing since then.
    silent: BTreeSet<usize>,
}

impl SwarmNode {
    /// Return when the member probes the successors of its tracker, unless the tracker answers.
    pub(super) fn successor_probe_time(&self) -> Option<Duration> {
        self.member.tracker_suspicion().filter(|_| self.successor_probe.is_none() && self.tracker.is_none())
    }

    /// Probe the successors of a silent tracker, once they are due.
    pub(super) fn probe_successors(&mut self, now: Duration, out: &mut Vec<Action>) {
        if self.successor_probe_time().is_none_or(|due| now < due) {
            return;
        }
        let count = if self.lost.len() < PROBED_SUCCESSOR_COUNT { PROBED_SUCCESSOR_COUNT } else { self.size };
        let is_successor = |rank: &usize| ![self.rank, self.member.tracker].contains(rank) && !self.lost.contains(rank);
        let silent: BTreeSet<usize> = (0..self.size).filter(is_successor).take(count).collect();
        silent.iter().for_each(|&rank| send(out, rank, SwarmMessage::Probe));
        self.successor_probe = Some(SuccessorProbe { since: now, silent });
    }

    /// Record a sign of life of a rank. A live tracker needs no successor.
    pub(super) fn note_live_successor(&mut self, rank: usize) {
        if rank == self.member.tracker {
            self.successor_probe = None;
        } else if let Some(probe) = &mut self.successor_probe {
            probe.silent.remove(&rank);
        }
    }

    /// Handle a tracker without an answer. Successors that have not answered either are lost.
    pub(super) fn handle_silent_tracker(&mut self, now: Duration, out: &mut Vec<Action>) {
        let probe = self.successor_probe.take();
        let is_overdue = |probe: &SuccessorProbe| now >= probe.since + self.timing.answer_timeout / 2;
        let silent = probe.filter(is_overdue).map_or(BTreeSet::new(), |probe| probe.silent);
        self.lost.extend(&silent);
        self.handle_loss(now, self.member.tracker, out);
        silent.into_iter().for_each(|rank| self.handle_loss(now, rank, out));
    }
}
