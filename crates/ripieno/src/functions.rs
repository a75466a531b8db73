//! Reductions by a user-defined function, on rows that only the caller interprets.
//!
//! The function need not be commutative: the algorithm keeps the operands of each combination in rank order. Each call
//! makes a new schedule, because the schedule holds the function.

use crate::choice::in_rank_order;
use crate::communicator::Communicator;
use crate::communicator_state::{in_world, scratch};
use crate::elements::{ElementType, form, words};
use crate::error::{Error, argument};
use crate::handle::Handle;
use crate::owned_buffers::OwnedBuffers;
use crate::task::{self, CollectiveTask, TaskExtent};
use ripieno_plan::{Buffer, Span};
use ripieno_run::reduction::Function;
use ripieno_run::{BufferMemory, Call, JobFailure, Remote, Schedule};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Error of a user-defined function, with its traceback if there is one.
pub struct FunctionError {
    /// The error in one sentence.
    pub cause: String,
    /// Traceback; may be empty.
    pub traceback: String,
}

impl Communicator {
    /// Create a function for reductions on this communicator. `combine` receives whole rows, and combines the rows of
    /// the second slice into the rows of the first. The first slice is from lower ranks. If it fails, the job fails by
    /// this rank.
    pub fn function(
        &self,
        row_bytes: usize,
        combine: impl Fn(&mut [u8], &[u8]) -> Result<(), FunctionError> + Send + Sync + 'static,
    ) -> Result<Function, Error> {
        if row_bytes == 0 {
            return Err(argument("row_bytes", row_bytes, "at least 1"));
        }
        let (remote, rank) = (self.shared.remote_of_all(), self.shared.rank());
        let has_failed = AtomicBool::new(false);
        Ok(Function::new(row_bytes, move |into, from| {
            if has_failed.load(Ordering::Relaxed) {
                return false;
            }
            let combined = combine(into, from);
            if let Err(error) = combined {
                has_failed.store(true, Ordering::Relaxed);
                report(&*remote, rank, error);
                return false;
            }
            true
        }))
    }

    /// Run a reduction with operation [`Op::Function`](crate::Op) by `function` on all of `vector` to its end. Counts
    /// are in rows. `elements` describes the data besides rows that must be equal on all ranks, including the identity
    /// of the function.
    pub fn run_by(
        &self,
        task: &CollectiveTask<'_>,
        elements: ElementType<'_>,
        function: &Function,
        algorithm: Option<&str>,
        vector: &mut [u8],
    ) -> Result<(), Error> {
        let Ready { call, schedule } = self.ready_by(task, elements, function, algorithm, vector.len())?;
        let mut held = self.hold()?;
        let (mut runtime, state) = held.communicator(self.number)?;
        let mut scratch = scratch(runtime.scratch, schedule.scratch_bytes())?;
        let scratch =
            scratch.as_mut().map_or(BufferMemory::Read(&[]), |memory| BufferMemory::Write(memory.bytes_mut()));
        let buffers = [BufferMemory::Write(vector), BufferMemory::Read(&[]), scratch];
        state.run_uncatalogued(&mut runtime, call, Arc::new(schedule), buffers)
    }

    /// Like [`Communicator::run_by`], but asynchronous: it returns at once.
    pub fn start_by<M: OwnedBuffers>(
        &self,
        task: &CollectiveTask<'_>,
        elements: ElementType<'_>,
        function: &Function,
        algorithm: Option<&str>,
        mut memory: M,
    ) -> Result<Handle<M>, Error> {
        let length_bytes = memory.buffers()[0].len();
        let Ready { call, schedule } = self.ready_by(task, elements, function, algorithm, length_bytes)?;
        let mut held = self.hold()?;
        held.ensure_background()?;
        let (mut runtime, state) = held.communicator(self.number)?;
        let ticket = state.start_uncatalogued(&mut runtime, call, Arc::new(schedule), memory)?;
        drop(held);
        Ok(Handle::new(ticket, self.shared.clone()))
    }

    fn ready_by(
        &self,
        task: &CollectiveTask<'_>,
        ElementType { element, shape }: ElementType<'_>,
        function: &Function,
        algorithm: Option<&str>,
        length_bytes: usize,
    ) -> Result<Ready, Error> {
        let row_bytes = function.row_bytes;
        if !length_bytes.is_multiple_of(row_bytes) {
            return Err(argument("length in bytes", length_bytes, &format!("whole rows of {row_bytes} bytes")));
        }
        let vector = Span::whole(Buffer::MAIN, length_bytes / row_bytes, row_bytes);
        let nothing = Span::whole(Buffer::OUTPUT, 0, 1);
        let (extents, group) = (TaskExtent::all_of(task), self.group_of_all());
        task::check(task, &extents, &group, [vector, nothing])?;
        let choice = in_rank_order(task.collective(), algorithm)?;
        let plan = task::plan(task, choice.algorithm, &group, vector, nothing).map_err(|unsuitable| {
            argument("algorithm", choice.algorithm.name, &format!("another one: {unsuitable}"))
        })?;
        let schedule = in_world(plan, &self.world_ranks, self.replica).with_function(function.clone());
        let schedule = if choice.algorithm.rendezvous { schedule.with_zero_copy() } else { schedule };
        let element_count = length_bytes / element.size_bytes();
        let mut call = task::call(task, element, element_count, &choice, group.size());
        let counts = task::common_counts(&extents);
        call.form = form(&shape, counts, &choice);
        self.hold()?.core().fabric.note_form(call.form, &|| words(&shape, counts, &choice));
        Ok(Ready { call, schedule })
    }
}

/// A resolved reduction, ready to run.
struct Ready {
    call: Call,
    schedule: Schedule,
}

fn report(remote: &dyn Remote, rank: usize, FunctionError { cause, traceback }: FunctionError) {
    remote.report(JobFailure::RankFailed { rank, host: String::new(), cause, traceback });
}
