//! Shrinking: a communicator of the surviving ranks after a failure.

use crate::communicator::Communicator;
use crate::error::{Error, argument};
use ripieno_run::{JobFailure, ShrunkWorld};

/// Result of [`Communicator::shrink`].
pub struct Survivors {
    /// Communicator of all survivors, in the order of their former ranks.
    pub communicator: Communicator,
    /// The former rank of each survivor.
    pub former_ranks: Vec<usize>,
    /// The name of the new world.
    pub job: String,
    /// The failure of the former world.
    pub failure: JobFailure,
}

impl Communicator {
    /// Agree on the surviving ranks of a failed world and connect them in a new world.
    ///
    /// Every survivor must call this method. All ranks on which the call succeeds have the same members. The call
    /// closes this communicator and all communicators split from it; runs in flight have already ended with the
    /// failure. If a rank dies during the call, it is excluded, or the next collective fails; then call `shrink` again.
    pub fn shrink(&self) -> Result<Survivors, Error> {
        if !self.is_world() {
            return Err(argument("shrink", "a part of the world", "a call on the communicator of the world"));
        }
        let mut held = self.hold()?;
        let core = held.core();
        let failure = core.fabric.failure().ok_or(Error::NothingFailed)?;
        // A failed run reports its error through its handle.
        let _ = core.executor.drive(&mut *core.fabric, false, &|| false);
        let interrupt = &mut core.executor.interrupt;
        let mut is_interrupted = || interrupt.as_mut().is_some_and(|interrupt| interrupt());
        let ShrunkWorld { fabric, survivors, job } = core.fabric.shrink(&mut is_interrupted)?;
        let overrides = core.overrides;
        drop(held);
        self.shared.close();
        let communicator = Communicator::new(fabric);
        communicator.set_overrides(overrides)?;
        Ok(Survivors { communicator, former_ranks: survivors, job, failure })
    }
}
