//! Waiting times: totals per peer and a list of the latest waits.

use super::OpenRecord;
use crate::fabric::LinkInterest;
use std::collections::VecDeque;
use std::time::Duration;

/// Minimum duration of a listed wait. Shorter waits only count in the totals.
pub const MIN_LISTED_WAIT: Duration = Duration::from_micros(20);

/// An interval without data movement of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallInterval {
    /// Number of the record.
    pub number: u64,
    /// The awaited peer, or the first of several.
    pub peer: u32,
    /// Number of awaited peers.
    pub peer_count: u32,
    /// Start of the wait, on the fabric's clock.
    pub since: Duration,
    /// End of the wait.
    pub until: Duration,
}

#[derive(Debug)]
pub(super) struct StallRecord {
    latest: VecDeque<StallInterval>,
    capacity: usize,
    by_peer: Vec<Duration>,
    /// Accounts of the collectives that have waited and not ended.
    accounts: Vec<Account>,
    spare: Vec<Account>,
}

/// Waiting times of one collective per peer.
#[derive(Debug, Default)]
struct Account {
    ticket: OpenRecord,
    /// Start of the current wait, if any.
    since: Option<Duration>,
    shares: Vec<WaitShare>,
}

#[derive(Debug)]
struct WaitShare {
    peer: usize,
    waited: Duration,
    /// Whether the collective currently waits for this peer.
    is_awaited: bool,
}

impl StallRecord {
    pub fn new(capacity: usize) -> StallRecord {
        StallRecord {
            latest: VecDeque::with_capacity(capacity),
            capacity,
            by_peer: Vec::new(),
            accounts: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Begin a wait of `ticket`, unless it already waits. Return the first awaited peer.
    pub fn begin(&mut self, ticket: OpenRecord, interests: &[LinkInterest], since: Duration) -> Option<usize> {
        let known = self.accounts.iter().position(|account| account.ticket == ticket).unwrap_or_else(|| {
            self.accounts.push(Account { ticket, ..self.spare.pop().unwrap_or_default() });
            self.accounts.len() - 1
        });
        self.accounts[known].begin(interests, since);
        self.accounts[known].awaited().next()
    }

    /// End the wait of `ticket`, if any. Return its start and the peer with the longest total so far. The callback
    /// receives each awaited peer, the start of the wait and the number of awaited peers.
    pub fn end(
        &mut self,
        ticket: OpenRecord,
        until: Duration,
        mut report: impl FnMut(usize, Duration, u32),
    ) -> Option<(Duration, Option<usize>)> {
        let account = self.accounts.iter_mut().find(|account| account.ticket == ticket)?;
        let since = account.since.take()?;
        let waited = until.saturating_sub(since);
        let peer_count = account.awaited().count() as u32;
        if let Some(first) = account.awaited().next()
            && waited >= MIN_LISTED_WAIT
        {
            if self.latest.len() == self.capacity {
                self.latest.pop_front();
            }
            self.latest.push_back(StallInterval { number: ticket.0, peer: first as u32, peer_count, since, until });
        }
        for share in account.shares.iter_mut().filter(|share| share.is_awaited) {
            if self.by_peer.len() <= share.peer {
                self.by_peer.resize(share.peer + 1, Duration::ZERO);
            }
            share.waited += waited / peer_count;
            share.is_awaited = false;
            self.by_peer[share.peer] += waited / peer_count;
            report(share.peer, since, peer_count);
        }
        Some((since, account.longest(Duration::ZERO)))
    }

    /// Return the first peer that `ticket` waits for, if any.
    pub fn awaited_by(&self, ticket: OpenRecord) -> Option<usize> {
        let account = self.accounts.iter().find(|account| account.ticket == ticket)?;
        account.since.and(account.awaited().next())
    }

    /// Return the call that has waited longest and still waits, its first peer and the start of the wait.
    pub fn longest(&self) -> Option<(OpenRecord, Option<usize>, Duration)> {
        let waiting = self.accounts.iter().filter_map(|account| Some((account, account.since?)));
        let (account, since) = waiting.min_by_key(|(account, since)| (*since, account.ticket.0))?;
        Some((account.ticket, account.awaited().next(), since))
    }

    /// Return the result of [`StallRecord::end`] for time `now` without ending the wait.
    pub fn so_far(&self, ticket: OpenRecord, now: Duration) -> Option<(Duration, Option<usize>)> {
        let account = self.accounts.iter().find(|account| account.ticket == ticket)?;
        let since = account.since?;
        let peer_count = account.awaited().count().max(1) as u32;
        Some((since, account.longest(now.saturating_sub(since) / peer_count)))
    }

    /// Return whether any unfinished collective has waited.
    #[inline]
    pub fn has_accounts(&self) -> bool {
        !self.accounts.is_empty()
    }

    /// Remove the account of `ticket`.
    pub fn remove(&mut self, ticket: OpenRecord) {
        let Some(known) = self.accounts.iter().position(|account| account.ticket == ticket) else { return };
        let mut account = self.accounts.swap_remove(known);
        account.since = None;
        account.shares.clear();
        self.spare.push(account);
    }

    pub fn latest(&self) -> impl Iterator<Item = &StallInterval> {
        self.latest.iter()
    }

    pub fn by_peer(&self) -> &[Duration] {
        &self.by_peer
    }
}

impl Account {
    fn begin(&mut self, interests: &[LinkInterest], since: Duration) {
        if self.since.is_some() {
            return;
        }
        self.since = Some(since);
        let is_receiving = interests.iter().any(|interest| interest.readable);
        for interest in interests.iter().filter(|interest| interest.readable || !is_receiving) {
            match self.shares.iter_mut().find(|share| share.peer == interest.link.peer) {
                Some(share) => share.is_awaited = true,
                None => {
                    self.shares.push(WaitShare { peer: interest.link.peer, waited: Duration::ZERO, is_awaited: true })
                }
            }
        }
    }

    fn awaited(&self) -> impl Iterator<Item = usize> {
        self.shares.iter().filter(|share| share.is_awaited).map(|share| share.peer)
    }

    /// Return the peer with the longest total, after adding `more` to all currently awaited peers.
    fn longest(&self, more: Duration) -> Option<usize> {
        let waited = |share: &WaitShare| share.waited + if share.is_awaited { more } else { Duration::ZERO };
        // On a tie, the first peer.
        let longest = self.shares.iter().rev().max_by_key(|share| waited(share));
        longest.map(|share| share.peer)
    }
}
