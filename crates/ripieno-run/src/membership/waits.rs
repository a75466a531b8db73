//! Ranks that wait for each other: found when all ranks of a circle have been stalled at one moment, each in a call
//! that the rank it waits for has not come to, or is in with it: of the circle one at least waits for another that has
//! not come.
//!
//! A rank that waits for a message of any of several ranks is stuck once all of these are.
//!
//! A rank that is blocked does nothing else, so a circle of such ranks ends never. A rank reports about once a second
//! that it still waits; its report says that it has waited for a second. Ranks that are in flight with several calls at
//! once are not judged: what they wait for may come in any order.

use super::inquiry::name_ranks;
use crate::call::{CollectiveId, Header};
use crate::fabric::Blocking;
use std::collections::BTreeMap;
use std::time::Duration;

/// A rank that has not said for so long that it waits has continued: it says so about once a second.
const FORGOTTEN: Duration = Duration::from_secs(3);

/// What blocked ranks wait for.
#[derive(Debug, Default)]
pub struct BlockedWaits {
    by_rank: BTreeMap<usize, BlockedWait>,
}

#[derive(Clone, Debug)]
struct BlockedWait {
    header: Header,
    peers: Vec<usize>,
    /// Each of the peers is needed, or one of them.
    is_for_any: bool,
    first: Duration,
    last: Duration,
}

impl BlockedWaits {
    /// Notes that `rank` has waited in `header` for `peers`, and what it needs to continue.
    pub fn note(&mut self, now: Duration, rank: usize, header: Header, peers: &[usize], blocking: Blocking) {
        if blocking == Blocking::Nothing {
            return;
        }
        let first = self.by_rank.get(&rank).filter(|wait| wait.header == header).map_or(now, |wait| wait.first);
        let is_for_any = blocking == Blocking::Any;
        self.by_rank.insert(rank, BlockedWait { header, peers: peers.to_vec(), is_for_any, first, last: now });
    }

    /// Says who waits for whom, if `from` is one of a circle of ranks that wait for each other. `is_absent` tells
    /// whether a rank is known not to have come to a collective since the given time.
    pub fn circle(&self, from: usize, is_absent: impl Fn(usize, CollectiveId, Duration) -> bool) -> Option<String> {
        let mut circle = vec![from];
        let mut seen = vec![from];
        if !self.reaches(from, &mut circle, &mut seen, &is_absent) {
            circle = self.stuck_with(from, &is_absent)?;
        }
        let calls: Vec<String> = circle.iter().map(|rank| self.described(*rank)).collect();
        Some(format!("ranks wait for each other in calls that the others have not come to: {}", calls.join("; ")))
    }

    fn described(&self, rank: usize) -> String {
        let wait = &self.by_rank[&rank];
        match wait.is_for_any {
            true => format!("rank {rank} waits for a message of any of {}", name_ranks(&wait.peers)),
            false => format!("rank {rank} called {}", wait.header),
        }
    }

    /// The ranks that can never continue, if `from` is one of them and one waits for a message of any of several: those
    /// that are left when all are taken out for which a rank that is not stuck may do something.
    fn stuck_with(
        &self,
        from: usize,
        is_absent: &impl Fn(usize, CollectiveId, Duration) -> bool,
    ) -> Option<Vec<usize>> {
        let now = self.by_rank.get(&from)?.last;
        let recent = self.by_rank.iter().filter(|(_, wait)| now.saturating_sub(wait.last) < FORGOTTEN);
        let mut stuck: Vec<usize> = recent.map(|(&rank, _)| rank).collect();
        loop {
            let is_owed = |rank: usize, peer: usize| stuck.contains(&peer) && self.is_owed(rank, peer, is_absent);
            let is_owed_by_one = |rank: usize| self.by_rank[&rank].peers.iter().any(|&peer| is_owed(rank, peer));
            let is_stuck = |rank: usize| match self.by_rank[&rank].is_for_any {
                true => self.by_rank[&rank].peers.iter().all(|&peer| is_owed(rank, peer)),
                // A collective does not end before all its ranks can continue.
                false => {
                    let others = stuck.iter().filter(|&&other| other != rank && self.are_together(rank, other));
                    is_owed_by_one(rank) || others.copied().any(is_owed_by_one)
                }
            };
            let left: Vec<usize> = stuck.iter().copied().filter(|&rank| is_stuck(rank)).collect();
            if left.len() == stuck.len() {
                break;
            }
            stuck = left;
        }
        let has_any = stuck.iter().any(|rank| self.by_rank[rank].is_for_any);
        (stuck.contains(&from) && has_any && self.is_at_one_moment(&stuck)).then_some(stuck)
    }

    /// Whether the last rank of `circle` waits, over any others, for the first.
    fn reaches(
        &self,
        rank: usize,
        circle: &mut Vec<usize>,
        seen: &mut Vec<usize>,
        is_absent: &impl Fn(usize, CollectiveId, Duration) -> bool,
    ) -> bool {
        let Some(wait) = self.by_rank.get(&rank) else { return false };
        if wait.is_for_any && wait.peers.len() > 1 {
            return false;
        }
        for &peer in &wait.peers {
            let closes = peer == circle[0] && circle.len() > 1;
            // The first waits for one that has not come to where it is, so this is more than a slow collective.
            let is_held = |peer| circle.len() > 1 && self.are_together(rank, peer);
            if (!closes && seen.contains(&peer)) || !(is_held(peer) || self.is_owed(rank, peer, is_absent)) {
                continue;
            }
            if closes {
                if self.is_at_one_moment(circle) {
                    return true;
                }
                continue;
            }
            seen.push(peer);
            circle.push(peer);
            if self.reaches(peer, circle, seen, is_absent) {
                return true;
            }
            circle.pop();
        }
        false
    }

    /// Whether both wait in one collective, in which the one holds up the other.
    fn are_together(&self, rank: usize, peer: usize) -> bool {
        let wait = |rank| self.by_rank.get(&rank).map(|wait| wait.header);
        let (Some(mine), Some(theirs)) = (wait(rank), wait(peer)) else { return false };
        mine.call.concerns_all() && theirs.call.concerns_all() && mine.collective_id() == theirs.collective_id()
    }

    /// Whether `peer`, which waits elsewhere, has not come to what `rank` waits in.
    fn is_owed(&self, rank: usize, peer: usize, is_absent: &impl Fn(usize, CollectiveId, Duration) -> bool) -> bool {
        let (Some(mine), Some(theirs)) = (self.by_rank.get(&rank), self.by_rank.get(&peer)) else { return false };
        let (call, other) = (mine.header.call, theirs.header.call);
        if call.concerns_all() {
            // Messages have numbers of their own.
            let is_there = other.concerns_all() && theirs.header.collective_id() == mine.header.collective_id();
            return !is_there && is_absent(peer, mine.header.collective_id(), theirs.first);
        }
        // The two may be the ends of one message that is just slow: then both name the same receiver.
        let is_one_message = !other.concerns_all()
            && mine.header.communicator == theirs.header.communicator
            && call.receiver() == other.receiver()
            && theirs.peers.contains(&rank);
        !is_one_message
    }

    fn is_at_one_moment(&self, circle: &[usize]) -> bool {
        let began = circle.iter().map(|rank| self.by_rank[rank].first).max();
        let lasted = circle.iter().map(|rank| self.by_rank[rank].last).min();
        began <= lasted
    }
}
