//! Ranks that wait for each other: found when all ranks of a circle have been stalled at one moment, each in a call
//! that the rank it waits for has not come to, or is in with it: of the circle one at least waits for another that has
//! not come.
//!
//! A rank that is blocked does nothing else, so a circle of such ranks ends never. A rank reports about once a second
//! that it still waits; its report says that it has waited for a second. Ranks that are in flight with several calls at
//! once are not judged: what they wait for may come in any order.

use crate::call::{CollectiveId, Header};
use std::collections::BTreeMap;
use std::time::Duration;

/// What blocked ranks wait for.
#[derive(Debug, Default)]
pub struct BlockedWaits {
    by_rank: BTreeMap<usize, BlockedWait>,
}

#[derive(Clone, Debug)]
struct BlockedWait {
    header: Header,
    peers: Vec<usize>,
    first: Duration,
    last: Duration,
}

impl BlockedWaits {
    /// Notes that `rank` has waited in `header` for `peers`, and does nothing else.
    pub fn note(&mut self, now: Duration, rank: usize, header: Header, peers: &[usize]) {
        let first = self.by_rank.get(&rank).filter(|wait| wait.header == header).map_or(now, |wait| wait.first);
        self.by_rank.insert(rank, BlockedWait { header, peers: peers.to_vec(), first, last: now });
    }

    /// Says who waits for whom, if `from` is one of a circle of ranks that wait for each other. `is_absent` tells
    /// whether a rank is known not to have come to a collective since the given time.
    pub fn circle(&self, from: usize, is_absent: impl Fn(usize, CollectiveId, Duration) -> bool) -> Option<String> {
        let mut circle = vec![from];
        let mut seen = vec![from];
        self.reaches(from, &mut circle, &mut seen, &is_absent).then(|| {
            let calls: Vec<String> =
                circle.iter().map(|rank| format!("rank {rank} called {}", self.by_rank[rank].header)).collect();
            format!("ranks wait for each other in calls that the others have not come to: {}", calls.join("; "))
        })
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
