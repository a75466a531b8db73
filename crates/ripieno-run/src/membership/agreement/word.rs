//! What ranks say to each other while they agree.

use serde::{Deserialize, Serialize};

/// A try to lead an agreement: a higher one overrules a lower one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ballot {
    /// Counts the tries that the leader knows of.
    pub round: u32,
    /// Who leads.
    pub rank: u32,
}

/// Which ranks an epoch leaves out.
pub(super) type Gone = Vec<u32>;

/// A word of the agreement of one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AgreementMessage {
    /// I have begun and take you for the leader: are you there?
    Ask {
        /// The epoch.
        epoch: u32,
    },
    /// I lead this ballot: are you with me?
    Call {
        /// The epoch.
        epoch: u32,
        /// Mine.
        ballot: Ballot,
    },
    /// I am here, and take no part in ballots below this one.
    Here {
        /// The epoch.
        epoch: u32,
        /// The highest that I have heard of.
        ballot: Ballot,
        /// Where I can be met; nothing until I have begun.
        seat: Option<String>,
        /// The latest proposal that I have accepted.
        accepted: Option<(Ballot, Vec<u32>)>,
    },
    /// I take no part in this or any later agreement.
    Away {
        /// The epoch.
        epoch: u32,
        /// The latest proposal that I have accepted, which may have been decided.
        accepted: Option<(Ballot, Vec<u32>)>,
    },
    /// Where `rank` can be met.
    Seat {
        /// The epoch.
        epoch: u32,
        /// Whose.
        rank: u32,
        /// Its address.
        seat: String,
    },
    /// I propose to go on without these.
    Propose {
        /// The epoch.
        epoch: u32,
        /// Mine.
        ballot: Ballot,
        /// Who is left out.
        gone: Vec<u32>,
    },
    /// I accept that.
    Accept {
        /// The epoch.
        epoch: u32,
        /// Whose proposal.
        ballot: Ballot,
    },
    /// It is agreed to go on without these.
    Decide {
        /// The epoch.
        epoch: u32,
        /// Who is left out.
        gone: Vec<u32>,
    },
}

impl AgreementMessage {
    /// The epoch that it is about.
    pub(super) fn epoch(&self) -> usize {
        let (AgreementMessage::Ask { epoch }
        | AgreementMessage::Call { epoch, .. }
        | AgreementMessage::Here { epoch, .. }
        | AgreementMessage::Away { epoch, .. }
        | AgreementMessage::Seat { epoch, .. }
        | AgreementMessage::Propose { epoch, .. }
        | AgreementMessage::Accept { epoch, .. }
        | AgreementMessage::Decide { epoch, .. }) = self;
        *epoch as usize
    }

    /// Whether who says it waits for an answer.
    pub(super) fn asks(&self) -> bool {
        matches!(self, AgreementMessage::Ask { .. } | AgreementMessage::Call { .. } | AgreementMessage::Propose { .. })
    }
}
