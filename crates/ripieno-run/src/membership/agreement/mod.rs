//! Survivor agreement: decides which ranks of a failed world continue together.
//!
//! Every rank whose program calls `shrink` *begins*: it offers its address for the next world. The lowest rank
//! that answers is the leader. The leader requests all other ranks to join its ballot. It waits until each rank has
//! begun, has ended, is silent or is late. Then it proposes the set of excluded ranks. It decides once all remaining
//! ranks have accepted.
//!
//! If the leader ends, the next rank becomes the leader, with a higher ballot. It proposes again any set that may
//! already have been decided. Therefore all ranks that learn a decision learn the same decision. Agreements are
//! numbered by epoch. The participants of an epoch are the survivors of the previous one. Cost: 3 small messages per
//! rank, plus the address of every rank sent to every rank.
//!
//! An *ended* rank (its system closed or refused its connections) can always be excluded. A *withdrawn* rank can be
//! excluded as well: it runs, but its program is over, and it answers every query with this state. A silent or late
//! rank may still run, for example behind a network partition. Its exclusion requires the votes of more than half of
//! the ranks of the epoch, so at most one partition of a world continues. A rank gives up when it receives messages
//! from too few ranks for a timeout.
//!
//! The ranks of a single node cannot be partitioned. There a silent rank is suspended, and it learns the decision when
//! it resumes. A rank that was suspended for long enough to be excluded also needs the votes of more than half of the
//! ranks.
//!
//! Source: Lamport, "The part-time parliament", TOCS 1998, section 2.3 (ballots); Bland et al., "Post-failure recovery
//! of MPI communication capability: design and rationale", IJHPCA 2013 (shrink).

mod machine;
mod message;
mod round;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use machine::Agreement;
pub use message::{AgreementMessage, Ballot};

use std::collections::BTreeMap;
use std::time::Duration;

/// Longest interval between two messages to an awaited rank.
const RESEND_INTERVAL_MAX: Duration = Duration::from_millis(250);

/// Timeouts of an agreement.
#[derive(Clone, Copy, Debug)]
pub struct AgreementTimeouts {
    /// A queried rank that stays silent for this long is excluded. A rank gives up if it has received messages from too
    /// few ranks for this long.
    pub silence: Duration,
    /// All other ranks must begin within this time after this rank has begun.
    pub late: Duration,
}

impl AgreementTimeouts {
    /// Return the interval between two messages to an awaited rank.
    fn resend_interval(&self) -> Duration {
        (self.silence / 4).min(RESEND_INTERVAL_MAX)
    }

    /// Return the time limit of an agreement.
    fn time_limit(&self) -> Duration {
        self.late + self.silence * 6
    }
}

/// An input of the state machine.
#[derive(Clone, Debug, PartialEq)]
pub enum AgreementEvent {
    /// The program has called `shrink`, and the rank is reachable at `address`.
    Begin {
        /// Address of the rank in the next world.
        address: String,
    },
    /// A connection to `peer` is established.
    Connected {
        /// The rank at the other end.
        peer: usize,
    },
    /// A message from `peer` arrived.
    Received {
        /// The sender.
        peer: usize,
        /// The message.
        message: AgreementMessage,
    },
    /// `peer` has ended and will not send again.
    Ended {
        /// The ended rank.
        peer: usize,
    },
    /// The rank's program is over. The rank takes no further part and only reports past decisions.
    Withdraw,
    /// This process was suspended long enough that other ranks may consider it silent.
    Suspended,
    /// Time has passed.
    Tick,
}

/// An output of the state machine.
#[derive(Clone, Debug, PartialEq)]
pub enum AgreementOutput {
    /// Send `message` to `to`. Open a connection if none exists.
    Send {
        /// The receiver.
        to: usize,
        /// The message.
        message: AgreementMessage,
    },
    /// The agreement succeeded: the listed ranks continue, and this rank is one of them.
    Decided(Decision),
    /// The agreement succeeded without this rank.
    Excluded,
    /// No agreement was reached in time. Contains the reason.
    GaveUp(String),
}

/// The survivors of an epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Number of the agreement, starting at 0.
    pub epoch: u32,
    /// Survivors as ranks of the first world, in ascending order.
    pub members: Vec<usize>,
    /// Addresses of the survivors. The address of a rank that has ended meanwhile may be missing.
    pub addresses: BTreeMap<usize, String>,
}
