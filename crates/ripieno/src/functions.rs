//! Reductions of rows by a user-defined function.
//!
//! The function need not be commutative: the algorithm combines operands in rank order. Each call creates a new
//! schedule, because the schedule holds the function.

use crate::choice::in_rank_order;
use crate::communicator::Communicator;
use crate::communicator_state::{in_world, scratch};
use crate::elements::{ElementType, signature, signature_text};
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
    /// The error message.
    pub cause: String,
    /// Traceback; may be empty.
    pub traceback: String,
}

impl Communicator {
    /// Create a function for reductions on this communicator.
    ///
    /// `combine` receives two slices of whole rows, and combines the rows of the second into the rows of the first. The
    /// first slice is from lower ranks. If `combine` fails, the job fails, and this rank is the cause.
    pub fn function(
        &self,
        row_bytes: usize,
        combine: impl Fn(&mut [u8], &[u8]) -> Result<(), FunctionError> + Send + Sync + 'static,
    ) -> Result<Function, Error> {
        if row_bytes == 0 {
            return Err(argument("row_bytes", row_bytes, "at least 1"));
        }
        let (remote, rank) = (self.shared.shared_remote(), self.shared.rank());
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

    /// Run a reduction of `vector` by `function`; the task has the operation [`Op::Function`](crate::Op). Counts are in
    /// rows. `elements` describes the element type, the shape and the function, which must be equal on all ranks.
    pub fn run_by(
        &self,
        task: &CollectiveTask<'_>,
        elements: ElementType<'_>,
        function: &Function,
        algorithm: Option<&str>,
        vector: &mut [u8],
    ) -> Result<(), Error> {
        let PreparedReduction { call, schedule } =
            self.prepare_by(task, elements, function, algorithm, vector.len())?;
        let mut held = self.hold()?;
        let (mut runtime, state) = held.communicator(self.number)?;
        let mut scratch = scratch(runtime.scratch, schedule.scratch_bytes())?;
        let scratch =
            scratch.as_mut().map_or(BufferMemory::Read(&[]), |memory| BufferMemory::Write(memory.bytes_mut()));
        let buffers = [BufferMemory::Write(vector), BufferMemory::Read(&[]), scratch];
        state.run_uncatalogued(&mut runtime, call, Arc::new(schedule), buffers)
    }

    /// Start a reduction by `function` in the background, like [`Communicator::run_by`], and return at once.
    pub fn start_by<M: OwnedBuffers>(
        &self,
        task: &CollectiveTask<'_>,
        elements: ElementType<'_>,
        function: &Function,
        algorithm: Option<&str>,
        mut memory: M,
    ) -> Result<Handle<M>, Error> {
        let length_bytes = memory.buffers()[0].len();
        let PreparedReduction { call, schedule } =
            self.prepare_by(task, elements, function, algorithm, length_bytes)?;
        let mut held = self.hold()?;
        held.ensure_background()?;
        let (mut runtime, state) = held.communicator(self.number)?;
        let result_slot = state.start_uncatalogued(&mut runtime, call, Arc::new(schedule), memory)?;
        drop(held);
        Ok(Handle::new(result_slot, self.shared.clone()))
    }

    fn prepare_by(
        &self,
        task: &CollectiveTask<'_>,
        ElementType { element, shape }: ElementType<'_>,
        function: &Function,
        algorithm: Option<&str>,
        length_bytes: usize,
    ) -> Result<PreparedReduction, Error> {
        let row_bytes = function.row_bytes;
        if !length_bytes.is_multiple_of(row_bytes) {
            return Err(argument("length in bytes", length_bytes, &format!("whole rows of {row_bytes} bytes")));
        }
        let vector = Span::whole(Buffer::MAIN, length_bytes / row_bytes, row_bytes);
        let no_output = Span::whole(Buffer::OUTPUT, 0, 1);
        let (extents, group) = (TaskExtent::all_of(task), self.group_of_all());
        task::check(task, &extents, &group, [vector, no_output])?;
        let choice = in_rank_order(task.collective(), algorithm)?;
        let plan = task::plan(task, choice.algorithm, &group, vector, no_output).map_err(|unsuitable| {
            argument("algorithm", choice.algorithm.name, &format!("another one: {unsuitable}"))
        })?;
        let schedule = in_world(plan, &self.world_ranks, self.replica).with_function(function.clone());
        let schedule = if choice.algorithm.rendezvous { schedule.with_zero_copy() } else { schedule };
        let element_count = length_bytes / element.size_bytes();
        let mut call = task::call(task, element, element_count, &choice, group.size());
        let counts = task::common_counts(&extents);
        call.signature = signature(&shape, counts, &choice);
        self.hold()?.core().fabric.note_signature(call.signature, &|| signature_text(&shape, counts, &choice));
        Ok(PreparedReduction { call, schedule })
    }
}

/// A call and its schedule, ready to run.
struct PreparedReduction {
    call: Call,
    schedule: Schedule,
}

fn report(remote: &dyn Remote, rank: usize, FunctionError { cause, traceback }: FunctionError) {
    remote.report(JobFailure::RankFailed { rank, host: String::new(), cause, traceback });
}
