//! State of one rank in the agreement of one epoch: ballots, promises and proposals, as in Paxos.

use super::message::{Ballot, ExcludedRanks};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One rank's state in the agreement of an epoch.
#[derive(Debug, Default)]
pub(super) struct AgreementRound {
    /// Time at which this rank began.
    pub begun_at: Option<Duration>,
    /// Time at which this rank last had contact with enough ranks for an agreement.
    pub last_quorum: Option<Duration>,
    /// Highest ballot that this rank knows.
    pub ballot: Ballot,
    /// The proposal that this rank accepted last, with its ballot.
    pub accepted: Option<(Ballot, ExcludedRanks)>,
    /// Address of each rank in the next world.
    pub addresses: BTreeMap<usize, String>,
    /// Ranks that have begun this agreement.
    pub begun_ranks: BTreeSet<usize>,
    /// The rank that this rank considers the leader.
    pub leader: Option<usize>,
    /// This rank's current attempt to lead.
    pub campaign: Option<Campaign>,
    /// Time until which this rank starts no campaign, because a lower rank leads a higher ballot.
    pub no_campaign_until: Duration,
}

/// This rank's own attempt to lead.
#[derive(Debug)]
pub(super) struct Campaign {
    pub ballot: Ballot,
    /// Ranks that joined the ballot, each with the proposal that it accepted before.
    pub promises: BTreeMap<usize, Option<(Ballot, ExcludedRanks)>>,
    pub proposal: Option<Proposal>,
}

/// The leader's proposal.
#[derive(Debug)]
pub(super) struct Proposal {
    pub excluded: ExcludedRanks,
    pub accepted_by: BTreeSet<usize>,
}

impl AgreementRound {
    /// Adopt the accepted proposal of a rank that leaves the agreement, if its ballot is higher than this rank's.
    pub fn adopt(&mut self, accepted: Option<(Ballot, ExcludedRanks)>, rank: usize) {
        let ballot = |accepted: &Option<(Ballot, ExcludedRanks)>| accepted.as_ref().map(|(ballot, _)| *ballot);
        if ballot(&accepted) > ballot(&self.accepted) {
            self.accepted = accepted;
            if let Some(campaign) = &mut self.campaign {
                campaign.promises.insert(rank, self.accepted.clone());
            }
        }
    }

    /// Start this rank's next attempt to lead.
    pub fn campaign(&mut self, rank: usize) -> &mut Campaign {
        self.ballot = Ballot { round: self.ballot.round + 1, rank: rank as u32 };
        let promises = BTreeMap::from([(rank, self.accepted.clone())]);
        self.campaign.insert(Campaign { ballot: self.ballot, promises, proposal: None })
    }
}

impl Campaign {
    /// Return the set that may already have been decided, which the leader must propose again.
    pub fn required_proposal(&self) -> Option<ExcludedRanks> {
        self.promises.values().flatten().max_by_key(|(ballot, _)| *ballot).map(|(_, excluded)| excluded.clone())
    }
}
