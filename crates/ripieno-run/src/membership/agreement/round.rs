//! What a rank holds of the agreement of one epoch.

use super::word::{Ballot, Gone};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The agreement of one epoch.
#[derive(Debug, Default)]
pub(super) struct AgreementRound {
    /// When this rank has begun.
    pub begun: Option<Duration>,
    /// The highest ballot that this rank has heard of.
    pub ballot: Ballot,
    pub accepted: Option<(Ballot, Gone)>,
    /// Where ranks can be met.
    pub seats: BTreeMap<usize, String>,
    /// Who has begun.
    pub come: BTreeSet<usize>,
    /// Whom this rank takes for the leader.
    pub leader: Option<usize>,
    pub campaign: Option<Campaign>,
    /// A lower rank leads a higher ballot: this one does not try until then.
    pub stands_back_until: Duration,
}

/// This rank's own try.
#[derive(Debug)]
pub(super) struct Campaign {
    pub ballot: Ballot,
    /// Who is with it, and what each has accepted before.
    pub promises: BTreeMap<usize, Option<(Ballot, Gone)>>,
    pub proposal: Option<Proposal>,
}

/// What is proposed.
#[derive(Debug)]
pub(super) struct Proposal {
    pub gone: Gone,
    pub accepted_by: BTreeSet<usize>,
}

impl AgreementRound {
    /// Takes over what another rank has accepted that takes no more part, if it is later than its own.
    pub fn inherit(&mut self, accepted: Option<(Ballot, Gone)>, rank: usize) {
        let ballot = |accepted: &Option<(Ballot, Gone)>| accepted.as_ref().map(|(ballot, _)| *ballot);
        if ballot(&accepted) > ballot(&self.accepted) {
            self.accepted = accepted;
            if let Some(campaign) = &mut self.campaign {
                campaign.promises.insert(rank, self.accepted.clone());
            }
        }
    }

    /// This rank's next try.
    pub fn campaign(&mut self, rank: usize) -> &mut Campaign {
        self.ballot = Ballot { round: self.ballot.round + 1, rank: rank as u32 };
        let promises = BTreeMap::from([(rank, self.accepted.clone())]);
        self.campaign.insert(Campaign { ballot: self.ballot, promises, proposal: None })
    }
}

impl Campaign {
    /// What may have been decided already, which is the only thing to propose then.
    pub fn bound(&self) -> Option<Gone> {
        self.promises.values().flatten().max_by_key(|(ballot, _)| *ballot).map(|(_, gone)| gone.clone())
    }
}
