//! Silent sources of streams: which of them the tracker replaces, and when.
//!
//! All members below a silent member report their sources. Only the topmost report matters: the other sources are
//! silent because they receive nothing themselves, and they have reported it. The tracker probes the source of the
//! topmost report. A source without an answer is bypassed long before it counts as lost. In a chain it moves to the
//! end, so that it costs no other member a share of a link if it resumes.

use super::{SilentSource, Tracker, send};
use crate::swarm::{Action, SwarmMessage};
use alloc::vec::Vec;
use core::time::Duration;

/// Number of members above a silent source that the tracker probes together with the source. All hosts of a rack may
/// fail at once.
const PROBED_ANCESTOR_COUNT: usize = 16;

impl Tracker {
    /// Handle a silent source of a streamed member.
    pub(super) fn handle_silence(&mut self, now: Duration, from: usize, source: SilentSource, out: &mut Vec<Action>) {
        let SilentSource { rank, silence } = source;
        let Some(trees) = &self.trees else { return };
        let stripes: Vec<usize> = trees.stripes_from(rank, from).collect();
        let Some(&stripe) = stripes.iter().find(|&&stripe| !self.is_explained(now, stripe, rank)) else { return };
        self.probe(now, rank, out);
        self.probe_above(now, stripe, rank, out);
        let unanswered = self.members.iter().filter(|(_, record)| {
            record.probed.is_some_and(|probed| now >= probed + self.timing.suspicion_timeout() / 2) && !record.is_lost
        });
        self.suspects.extend(unanswered.map(|(&rank, _)| rank));
        if self.suspects.contains(&rank) {
            self.bypass(rank, out);
        } else if silence >= 2 * self.timing.stall_timeout {
            // The source is alive, so only the connection between the two is broken.
            stripes.into_iter().for_each(|stripe| self.assign_other_source(from, stripe, rank, out));
        }
    }

    /// Whether a source is silent because it waits for a source of its own.
    fn is_explained(&self, now: Duration, stripe: usize, rank: usize) -> bool {
        let above = self.trees.as_ref().and_then(|trees| trees.source(stripe, rank));
        let reported = above.and_then(|above| self.members.get(&rank)?.silent_sources.get(&above));
        reported.is_some_and(|&reported| now < reported + 2 * self.timing.stall_timeout)
    }

    /// Probe the members above `rank`, up to one that has sent a message recently.
    fn probe_above(&mut self, now: Duration, stripe: usize, rank: usize, out: &mut Vec<Action>) {
        let Some(trees) = &self.trees else { return };
        let above = core::iter::successors(trees.source(stripe, rank), |&rank| trees.source(stripe, rank));
        let is_quiet = |rank: &usize| {
            let record = self.members.get(rank);
            record.is_some_and(|record| now >= record.last_received + self.timing.suspicion_timeout())
        };
        let quiet: Vec<usize> = above.take(PROBED_ANCESTOR_COUNT).take_while(is_quiet).collect();
        quiet.into_iter().for_each(|rank| self.probe(now, rank, out));
    }

    /// Link the children of a silent member to other sources.
    fn bypass(&mut self, rank: usize, out: &mut Vec<Action>) {
        let children = self.trees.as_mut().map_or(Vec::new(), |trees| trees.bypass(rank));
        let is_receiving =
            |member: &usize| self.members.get(member).is_some_and(|record| !record.is_lost && !record.is_done);
        let children: Vec<(usize, usize)> = children.into_iter().filter(|(_, child)| is_receiving(child)).collect();
        let is_rank_receiving = is_receiving(&rank);
        children.into_iter().for_each(|(stripe, child)| self.assign_other_source(child, stripe, rank, out));
        let Some(trees) = self.trees.as_mut().filter(|trees| trees.is_chain() && is_rank_receiving) else { return };
        let source = trees.replace(0, rank, &self.suspects);
        send(out, rank, SwarmMessage::Source { stripe: 0, source });
    }
}
