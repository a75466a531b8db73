//! Runs of plans from outside the catalogue of algorithms.

use crate::communicator::Communicator;
use crate::error::Error;
use crate::handle::Handle;
use crate::owned_buffers::OwnedBuffers;
use crate::pool::PooledBuffer;
use ripieno_plan::Plan;
use ripieno_run::{BufferMemory, Call};

impl Communicator {
    /// Run `plan`, in ranks of this communicator, as the next collective. All ranks must make equal calls.
    pub(crate) fn run_uncatalogued(&self, call: Call, plan: Plan, buffers: [BufferMemory<'_>; 3]) -> Result<(), Error> {
        let mut held = self.hold()?;
        let (mut runtime, state) = held.communicator(self.number)?;
        let schedule = state.schedule(plan);
        state.run_uncatalogued(&mut runtime, call, schedule, buffers)
    }

    /// Start `plan` in the background, like [`Communicator::run_uncatalogued`], and return at once. The plan must not
    /// need scratch memory.
    pub(crate) fn start_uncatalogued<M: OwnedBuffers>(
        &self,
        call: Call,
        plan: Plan,
        memory: M,
    ) -> Result<Handle<M>, Error> {
        let mut held = self.hold()?;
        held.ensure_background()?;
        let (mut runtime, state) = held.communicator(self.number)?;
        let schedule = state.schedule(plan);
        let result_slot = state.start_uncatalogued(&mut runtime, call, schedule, memory)?;
        drop(held);
        Ok(Handle::new(result_slot, self.shared.clone()))
    }

    /// Take memory with unspecified content for one run.
    pub(crate) fn scratch(&self, length_bytes: usize) -> Result<PooledBuffer, Error> {
        let pool = self.hold()?.core().scratch.clone();
        pool.take(length_bytes).map_err(|error| Error::Memory { length_bytes, cause: error.to_string() })
    }
}
