//! Messages that wait for each other: found when all ranks of a circle have been stalled at one moment.
//!
//! A rank that waits in a message does nothing else, so a circle of ranks, each waiting for the next in another message,
//! ends never. A rank reports about once a second that it still waits; its report says that it has waited for a second.

use super::{Hub, Standing};
use crate::call::Header;
use crate::fabric::Failure;
use crate::membership::{Output, rank_failed};
use std::time::Duration;

/// A rank that waits in a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    header: Header,
    peer: usize,
    first: Duration,
    last: Duration,
}

impl Hub {
    /// What a rank does that owes another a message is its own affair, unless it has left, or waits for the other too.
    pub(super) fn stalled_in_message(
        &mut self,
        now: Duration,
        from: usize,
        header: Header,
        peers: &[usize],
    ) -> Vec<Output> {
        let Some(&peer) = peers.first() else { return vec![] };
        if self.members.get(peer).is_some_and(|member| matches!(member.standing, Standing::Left(_))) {
            let cause = format!("left the job while rank {from} waited in a message to or from it");
            return self.fail(rank_failed(peer, &self.hosts, cause));
        }
        let first = self.waits.get(&from).filter(|wait| wait.header == header).map_or(now, |wait| wait.first);
        self.waits.insert(from, Wait { header, peer, first, last: now });
        let Some(circle) = self.circle(from) else { return vec![] };
        let calls: Vec<String> =
            circle.iter().map(|rank| format!("rank {rank} called {}", self.waits[rank].header)).collect();
        let description = format!("ranks wait for each other in messages: {}", calls.join("; "));
        self.fail(Failure::Mismatch { description })
    }

    /// The ranks that wait for each other, beginning with `from`, if there is such a circle.
    fn circle(&self, from: usize) -> Option<Vec<usize>> {
        let mut circle = vec![from];
        let mut next = self.waits.get(&from)?.peer;
        while next != from {
            if circle.contains(&next) {
                return None;
            }
            circle.push(next);
            next = self.waits.get(&next)?.peer;
        }
        let waits: Vec<Wait> = circle.iter().map(|rank| self.waits[rank]).collect();
        let began = waits.iter().map(|wait| wait.first).max()?;
        let lasted = waits.iter().map(|wait| wait.last).min()?;
        // Two ranks may be the ends of one message that is just slow: then both name the same receiver.
        let is_one_message = matches!(waits[..], [a, b] if a.header.call.root == b.header.call.root);
        (began <= lasted && !is_one_message).then_some(circle)
    }
}
