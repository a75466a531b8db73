//! Runs of plans that no algorithm of the catalogue has made.

use crate::communicator::Communicator;
use crate::error::Error;
use crate::handle::Handle;
use crate::owned_buffers::OwnedBuffers;
use crate::pool::PooledBuffer;
use ripieno_plan::Plan;
use ripieno_run::{BufferMemory, Call};

impl Communicator {
    /// Runs `plan`, which names ranks of this communicator, to its end, as the next collective of all ranks: their
    /// calls are equal.
    pub(crate) fn run_uncatalogued(&self, call: Call, plan: Plan, buffers: [BufferMemory<'_>; 3]) -> Result<(), Error> {
        let mut held = self.hold()?;
        let (mut runtime, state) = held.communicator(self.number)?;
        let schedule = state.schedule(plan);
        state.run_uncatalogued(&mut runtime, call, schedule, buffers)
    }

    /// As [`Communicator::run_uncatalogued`], but returns at once; the run goes on without the caller. The plan has no
    /// scratch.
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
        let ticket = state.start_uncatalogued(&mut runtime, call, schedule, memory)?;
        drop(held);
        Ok(Handle::new(ticket, self.shared.clone()))
    }

    /// Memory for one run, of any content.
    pub(crate) fn scratch(&self, length_bytes: usize) -> Result<PooledBuffer, Error> {
        let pool = self.hold()?.core().scratch.clone();
        pool.take(length_bytes).map_err(|error| Error::Memory { length_bytes, cause: error.to_string() })
    }
}
