//! Agreement of survivors: which ranks of a world that has failed go on together.
//!
//! Every rank that wants to go on *begins*, with a seat: the address at which it will meet the others. The lowest rank
//! that answers leads. It calls all others, and waits until each has come, has ended, is silent or is late. Then it
//! proposes who is left out, and decides once all that are left have accepted. If it ends meanwhile the next one leads,
//! with a higher ballot, and proposes again what anybody may have decided. So all that hear of a decision hear of the
//! same. Agreements are numbered by epoch, each among those that the one before has left. Cost: 3 small messages per
//! rank, and a seat of every rank to every rank.
//!
//! A rank that has *ended* (its connections were closed by its system, or refused) can always be left out, and so can
//! one that lives, but has *withdrawn*, because its program is over: it says so to whoever asks. One that is
//! silent or late may be at work elsewhere, behind a cut cable, say. To leave it out takes more than half of the ranks
//! of the epoch, so that no two parts of a world go on. The ranks of a single node cannot be cut off from each other:
//! there a silent rank stands still, and is told when it goes on. A rank that stood still for long, so that others may
//! have left it out, needs more than half, too.
//!
//! Source: Lamport, "The part-time parliament", TOCS 1998, section 2.3 (ballots); Bland et al., "Post-failure recovery
//! of MPI communication capability: design and rationale", IJHPCA 2013 (shrink).

mod machine;
mod round;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod word;

pub use machine::Agreement;
pub use word::{AgreementMessage, Ballot};

use std::collections::BTreeMap;
use std::time::Duration;

/// The longest time between two words to a rank that is waited for.
const LONGEST_BEAT: Duration = Duration::from_millis(250);

/// The times of an agreement.
#[derive(Clone, Copy, Debug)]
pub struct AgreementTimeouts {
    /// A rank that was asked and is silent for this long is left out.
    pub silence: Duration,
    /// So long after this rank has begun the others must have begun, too.
    pub late: Duration,
}

impl AgreementTimeouts {
    /// Time between two words to a rank that is waited for.
    fn beat(&self) -> Duration {
        (self.silence / 4).min(LONGEST_BEAT)
    }

    /// When an agreement that does not come to an end is given up.
    fn give_up(&self) -> Duration {
        self.late + self.silence * 6
    }
}

/// What happens to a machine.
#[derive(Clone, Debug, PartialEq)]
pub enum AgreementEvent {
    /// The rank wants to go on with whoever is left, and can be met at `seat`.
    Begin {
        /// Its address for the next world.
        seat: String,
    },
    /// A connection to `peer` stands.
    Connected {
        /// The rank at the other end.
        peer: usize,
    },
    /// `peer` has said something.
    Heard {
        /// Who.
        peer: usize,
        /// What.
        word: AgreementMessage,
    },
    /// `peer` has ended, and will never say anything again.
    Ended {
        /// Who.
        peer: usize,
    },
    /// The rank's program is over: it takes no part any more, and only tells what was decided.
    Withdraw,
    /// This process did not run for so long that others may take it for silent.
    StoodStill,
    /// Time has passed.
    Tick,
}

/// What a machine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum AgreementOutput {
    /// Tell `word` to `to`; without a connection to it, open one.
    Tell {
        /// The receiver.
        to: usize,
        /// What to say.
        word: AgreementMessage,
    },
    /// It is agreed: these go on, and this rank is one of them.
    Decided(Decision),
    /// It is agreed that this rank does not go on.
    Excluded,
    /// There was no agreement in time; the reason.
    GaveUp(String),
}

/// Who goes on after an epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The number of the agreement, from 0 on.
    pub epoch: u32,
    /// Ranks of the first world, ascending.
    pub members: Vec<usize>,
    /// Where they are to be met; of one that has ended meanwhile it may be missing.
    pub seats: BTreeMap<usize, String>,
}
