//! Messages of the survivor agreement.

use serde::{Deserialize, Serialize};

/// Identifies one attempt to lead an agreement. A higher ballot overrules a lower one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ballot {
    /// Number of the attempt, one above the highest that the leader knows.
    pub round: u32,
    /// The leader.
    pub rank: u32,
}

/// Ranks that an epoch excludes.
pub(super) type ExcludedRanks = Vec<u32>;

/// A message of the agreement of one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AgreementMessage {
    /// The sender has begun and considers the receiver the leader. Requests an answer.
    Query {
        /// The epoch.
        epoch: u32,
    },
    /// The sender leads this ballot and asks the receiver to join it.
    Prepare {
        /// The epoch.
        epoch: u32,
        /// The sender's ballot.
        ballot: Ballot,
    },
    /// The sender is present and ignores ballots below this one.
    Present {
        /// The epoch.
        epoch: u32,
        /// Highest ballot that the sender knows.
        ballot: Ballot,
        /// Address of the sender, or `None` if it has not begun.
        address: Option<String>,
        /// Latest proposal that the sender accepted.
        accepted: Option<(Ballot, Vec<u32>)>,
    },
    /// The sender takes no part in this or any later agreement.
    Withdrawn {
        /// The epoch.
        epoch: u32,
        /// Latest proposal that the sender accepted. It may have been decided.
        accepted: Option<(Ballot, Vec<u32>)>,
    },
    /// The address of `rank`.
    Address {
        /// The epoch.
        epoch: u32,
        /// The rank with this address.
        rank: u32,
        /// The address.
        address: String,
    },
    /// The sender proposes to continue without these ranks.
    Propose {
        /// The epoch.
        epoch: u32,
        /// The sender's ballot.
        ballot: Ballot,
        /// The excluded ranks.
        excluded: Vec<u32>,
    },
    /// The sender accepts the proposal.
    Accept {
        /// The epoch.
        epoch: u32,
        /// Ballot of the accepted proposal.
        ballot: Ballot,
    },
    /// The ranks agreed to continue without these ranks.
    Decide {
        /// The epoch.
        epoch: u32,
        /// The excluded ranks.
        excluded: Vec<u32>,
    },
}

impl AgreementMessage {
    /// Return the epoch of this message.
    pub(super) fn epoch(&self) -> usize {
        let (AgreementMessage::Query { epoch }
        | AgreementMessage::Prepare { epoch, .. }
        | AgreementMessage::Present { epoch, .. }
        | AgreementMessage::Withdrawn { epoch, .. }
        | AgreementMessage::Address { epoch, .. }
        | AgreementMessage::Propose { epoch, .. }
        | AgreementMessage::Accept { epoch, .. }
        | AgreementMessage::Decide { epoch, .. }) = self;
        *epoch as usize
    }

    /// Return whether the sender waits for an answer.
    pub(super) fn is_query(&self) -> bool {
        matches!(
            self,
            AgreementMessage::Query { .. } | AgreementMessage::Prepare { .. } | AgreementMessage::Propose { .. }
        )
    }
}
