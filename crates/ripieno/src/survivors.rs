//! The communicator of those who are left of a world that has failed.

use crate::communicator::Communicator;
use crate::error::{Error, argument};
use ripieno_run::{JobFailure, Shrunk};

/// What [`Communicator::shrink`] gives.
pub struct Survivors {
    /// Of all who are left, in the order of their former ranks.
    pub communicator: Communicator,
    /// The former rank of each.
    pub former_ranks: Vec<usize>,
    /// The name of the new world.
    pub job: String,
    /// How the former one has failed.
    pub failure: JobFailure,
}

impl Communicator {
    /// Agrees with all others who are left of a world that has failed, and meets them in a new one. Each of them calls
    /// it. All who come back have the same ranks beside them. This communicator is closed, with all that was split
    /// from it, and what was in flight has ended with the failure. What dies meanwhile is left out, too, or found by
    /// the next call, after which it is called again.
    pub fn shrink(&self) -> Result<Survivors, Error> {
        if !self.is_world() {
            return Err(argument("shrink", "a part of the world", "a call on the communicator of the whole world"));
        }
        let mut held = self.hold()?;
        let core = held.core();
        let failure = core.fabric.failure().ok_or(Error::NothingFailed)?;
        // Whose run fails is told by its handle.
        let _ = core.executor.drive(&mut *core.fabric, false, &|| false);
        let interrupt = &mut core.executor.interrupt;
        let mut is_interrupted = || interrupt.as_mut().is_some_and(|interrupt| interrupt());
        let Shrunk { fabric, survivors, job } = core.fabric.shrink(&mut is_interrupted)?;
        let overrides = core.overrides;
        drop(held);
        self.shared.close();
        let communicator = Communicator::new(fabric);
        communicator.set_overrides(overrides)?;
        Ok(Survivors { communicator, former_ranks: survivors, job, failure })
    }
}
