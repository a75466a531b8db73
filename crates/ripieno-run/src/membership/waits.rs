//! Deadlock detection: finds cycles of ranks that wait for each other.
//!
//! All ranks of a cycle must have been stalled at the same time. Each rank waits in a call that the next rank has not
//! reached, or in a common call. At least one rank of the cycle must wait for a rank that has not reached its call. A
//! rank that waits for a message from any of several ranks is stuck once all of them are stuck.
//!
//! A blocked rank does nothing else, so such a cycle never resolves. A blocked rank reports about once a second; the
//! report states that it has waited for one second. Ranks with several calls in flight are excluded, because the
//! awaited data may arrive in any order.

use super::inquiry::name_ranks;
use crate::call::{CollectiveId, Header};
use crate::fabric::Blocking;
use std::collections::BTreeMap;
use std::time::Duration;

/// A rank that sends no report for this long has continued. Blocked ranks report about once a second.
const REPORT_LIFETIME: Duration = Duration::from_secs(3);

/// The waits of blocked ranks.
#[derive(Debug, Default)]
pub struct BlockedWaits {
    by_rank: BTreeMap<usize, BlockedWait>,
}

#[derive(Clone, Debug)]
struct BlockedWait {
    header: Header,
    peers: Vec<usize>,
    /// Whether any one of the peers suffices. Otherwise all of them are needed.
    is_for_any: bool,
    first: Duration,
    last: Duration,
}

impl BlockedWaits {
    /// Record that `rank` waits in `header` for `peers`, and the condition under which it continues.
    pub fn note(&mut self, now: Duration, rank: usize, header: Header, peers: &[usize], blocking: Blocking) {
        if blocking == Blocking::Nothing {
            return;
        }
        let first = self.by_rank.get(&rank).filter(|wait| wait.header == header).map_or(now, |wait| wait.first);
        let is_for_any = blocking == Blocking::Any;
        self.by_rank.insert(rank, BlockedWait { header, peers: peers.to_vec(), is_for_any, first, last: now });
    }

    /// Return a description of a deadlock cycle that contains `from`, if one exists. `is_absent` returns whether a rank
    /// is known not to have reached a collective since the given time.
    pub fn cycle(&self, from: usize, is_absent: impl Fn(usize, CollectiveId, Duration) -> bool) -> Option<String> {
        let mut cycle = vec![from];
        let mut seen = vec![from];
        if !self.closes_cycle(from, &mut cycle, &mut seen, &is_absent) {
            cycle = self.stuck_ranks(from, &is_absent)?;
        }
        let calls: Vec<String> = cycle.iter().map(|rank| self.describe(*rank)).collect();
        Some(format!("ranks wait for each other in calls that the others have not reached: {}", calls.join("; ")))
    }

    fn describe(&self, rank: usize) -> String {
        let wait = &self.by_rank[&rank];
        match wait.is_for_any {
            true => format!("rank {rank} waits for a message of any of {}", name_ranks(&wait.peers)),
            false => format!("rank {rank} called {}", wait.header.at(rank, &wait.peers)),
        }
    }

    /// Return the ranks that can never continue, if `from` is one of them and one of them waits for any of several
    /// peers. Ranks that a rank outside the set may unblock are removed repeatedly; the remaining ranks are stuck.
    fn stuck_ranks(
        &self,
        from: usize,
        is_absent: &impl Fn(usize, CollectiveId, Duration) -> bool,
    ) -> Option<Vec<usize>> {
        let now = self.by_rank.get(&from)?.last;
        let recent = self.by_rank.iter().filter(|(_, wait)| now.saturating_sub(wait.last) < REPORT_LIFETIME);
        let mut stuck: Vec<usize> = recent.map(|(&rank, _)| rank).collect();
        loop {
            let is_blocked_by =
                |rank: usize, peer: usize| stuck.contains(&peer) && self.is_blocked_by(rank, peer, is_absent);
            let is_blocked_by_any =
                |rank: usize| self.by_rank[&rank].peers.iter().any(|&peer| is_blocked_by(rank, peer));
            let is_stuck = |rank: usize| match self.by_rank[&rank].is_for_any {
                true => self.by_rank[&rank].peers.iter().all(|&peer| is_blocked_by(rank, peer)),
                // A collective does not end before all its ranks can continue.
                false => {
                    let others = stuck.iter().filter(|&&other| other != rank && self.share_collective(rank, other));
                    is_blocked_by_any(rank) || others.copied().any(is_blocked_by_any)
                }
            };
            let left: Vec<usize> = stuck.iter().copied().filter(|&rank| is_stuck(rank)).collect();
            if left.len() == stuck.len() {
                break;
            }
            stuck = left;
        }
        let has_any = stuck.iter().any(|rank| self.by_rank[rank].is_for_any);
        (stuck.contains(&from) && has_any && self.overlap_in_time(&stuck)).then_some(stuck)
    }

    /// Return whether the last rank of `cycle` waits, possibly through other ranks, for the first one.
    fn closes_cycle(
        &self,
        rank: usize,
        cycle: &mut Vec<usize>,
        seen: &mut Vec<usize>,
        is_absent: &impl Fn(usize, CollectiveId, Duration) -> bool,
    ) -> bool {
        let Some(wait) = self.by_rank.get(&rank) else { return false };
        if wait.is_for_any && wait.peers.len() > 1 {
            return false;
        }
        for &peer in &wait.peers {
            let closes = peer == cycle[0] && cycle.len() > 1;
            // The first rank waits for a rank that has not reached its call, so this is more than a slow collective.
            let wait_together = |peer| cycle.len() > 1 && self.share_collective(rank, peer);
            if (!closes && seen.contains(&peer)) || !(wait_together(peer) || self.is_blocked_by(rank, peer, is_absent))
            {
                continue;
            }
            if closes {
                if self.overlap_in_time(cycle) {
                    return true;
                }
                continue;
            }
            seen.push(peer);
            cycle.push(peer);
            if self.closes_cycle(peer, cycle, seen, is_absent) {
                return true;
            }
            cycle.pop();
        }
        false
    }

    /// Return whether both ranks wait in the same collective, where each can delay the other.
    fn share_collective(&self, rank: usize, peer: usize) -> bool {
        let wait = |rank| self.by_rank.get(&rank).map(|wait| wait.header);
        let (Some(mine), Some(theirs)) = (wait(rank), wait(peer)) else { return false };
        mine.call.concerns_all() && theirs.call.concerns_all() && mine.collective_id() == theirs.collective_id()
    }

    /// Return whether `peer` waits elsewhere and has not reached the call of `rank`.
    fn is_blocked_by(
        &self,
        rank: usize,
        peer: usize,
        is_absent: &impl Fn(usize, CollectiveId, Duration) -> bool,
    ) -> bool {
        let (Some(mine), Some(theirs)) = (self.by_rank.get(&rank), self.by_rank.get(&peer)) else { return false };
        let (call, other) = (mine.header.call, theirs.header.call);
        if call.concerns_all() {
            // Messages have separate sequence numbers.
            let is_there = other.concerns_all() && theirs.header.collective_id() == mine.header.collective_id();
            return !is_there && is_absent(peer, mine.header.collective_id(), theirs.first);
        }
        // The two may be the ends of one slow message. Then both name the same receiver.
        let is_one_message = !other.concerns_all()
            && mine.header.communicator == theirs.header.communicator
            && call.receiver() == other.receiver()
            && theirs.peers.contains(&rank);
        !is_one_message
    }

    fn overlap_in_time(&self, cycle: &[usize]) -> bool {
        let began = cycle.iter().map(|rank| self.by_rank[rank].first).max();
        let lasted = cycle.iter().map(|rank| self.by_rank[rank].last).min();
        began <= lasted
    }
}
