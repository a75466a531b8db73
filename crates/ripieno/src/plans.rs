//! Plans of the caller: checked for all ranks together before any rank runs its own.
//!
//! A set of plans has a fingerprint, which is part of the call that ranks compare. Ranks with different sets therefore
//! get an error.

use crate::communicator::Communicator;
use crate::communicator_state::{CommunicatorState, scratch};
use crate::elements::ElementType;
use crate::error::{Error, argument};
use crate::handle::Handle;
use crate::owned_buffers::{NO_MEMORY, OwnedBuffers};
use crate::runtime::Runtime;
use ripieno_plan::check::{CommonElements, check_common_elements, check_rendezvous_unless, check_unless};
pub use ripieno_plan::check::{RankTraffic, Report};
use ripieno_plan::{Algorithm, Group, Promise, promises};
pub use ripieno_plan::{Buffer, Constant, Operation, Plan, PlanFault, Span, table::table};
use ripieno_run::{BufferMemory, Call, CallKind, Element, Schedule};
pub use ripieno_sim::SimulationRequest;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Largest number of operations of the plans that [`catalogued`] returns, because all are in memory at once.
const CATALOGUED_OPERATIONS_MAX: usize = 1 << 21;

/// The plans of all ranks, which have passed the checker.
pub struct CheckedPlans {
    plans: Vec<Plan>,
    common: CommonElements,
    /// Hash of all plans, equal on ranks of the same build.
    fingerprint: u64,
    /// Whether the plans finish over unbuffered links.
    is_rendezvous: bool,
    /// Number of bytes of the first buffer and of the second, the largest of any rank.
    lengths_bytes: [usize; 2],
    /// Whether each rank has a result; all ranks if nothing is promised.
    has_result: Vec<bool>,
    report: Report,
}

impl CheckedPlans {
    /// Check the plans of all ranks: every send has its receive, no rank waits forever, no step reads undefined bytes,
    /// and the ranks end with the result of `request`, if there is one. Return `None` soon after `is_interrupted`
    /// holds.
    pub fn check(
        plans: Vec<Plan>,
        request: Option<&SimulationRequest>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<CheckedPlans>, PlanFault> {
        let p = plans.len();
        let promised = request.map(|request| promises(&(0..p).map(|rank| request.request(rank)).collect::<Vec<_>>()));
        let has_result = match &promised {
            Some(promises) => promises.iter().map(|promise| !promise.spans.is_empty()).collect(),
            None => vec![true; p],
        };
        let promises = promised.unwrap_or_else(|| vec![Promise::nothing(); p]);
        let common = check_common_elements(&plans)?;
        let Some(report) = check_unless(&plans, &promises, is_interrupted)? else { return Ok(None) };
        let unbuffered = check_rendezvous_unless(&plans, is_interrupted);
        if unbuffered == Ok(false) {
            return Ok(None);
        }
        let is_rendezvous = unbuffered.is_ok();
        let mut hasher = DefaultHasher::new();
        plans.hash(&mut hasher);
        let lengths_bytes = [Buffer::MAIN, Buffer::OUTPUT].map(|buffer| length_bytes(&plans, &promises, buffer));
        let fingerprint = hasher.finish();
        Ok(Some(CheckedPlans { plans, common, fingerprint, is_rendezvous, lengths_bytes, has_result, report }))
    }

    /// Return the plans, one per rank.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// Return the traffic and the rounds.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Return the operation and the element size of all plans.
    pub fn common(&self) -> CommonElements {
        self.common
    }

    /// Return the hash of all plans.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Return the sizes of the first buffer and of the second in bytes.
    pub fn lengths_bytes(&self) -> [usize; 2] {
        self.lengths_bytes
    }

    /// Return whether `rank` ends with a result.
    pub fn has_result(&self, rank: usize) -> bool {
        self.has_result[rank]
    }

    /// Return whether `rank` only reads its first buffer.
    pub fn only_reads(&self, rank: usize) -> bool {
        let writes = |operation: &Operation| operation.writes().is_some_and(|span| span.buffer == Buffer::MAIN);
        !self.plans.get(rank).is_some_and(|plan| plan.operations().iter().any(writes))
    }

    /// Check the number of ranks, the elements and the memory for a run. An element of the plans may consist of several
    /// elements of the memory, such as a complex number.
    fn check_run(&self, p: usize, element: Element, memory: &[BufferMemory<'_>; 2]) -> Result<(), Error> {
        if self.plans.len() != p {
            return Err(argument("plans", self.plans.len(), &format!("{p} plans, one per rank")));
        }
        if let Some(bytes) = self.common.element_bytes.filter(|bytes| !bytes.is_multiple_of(element.size_bytes())) {
            return Err(argument("elements", element.name(), &format!("elements of {bytes} bytes, as in the plans")));
        }
        for (name, (memory, length_bytes)) in
            ["first buffer", "second buffer"].into_iter().zip(memory.iter().zip(self.lengths_bytes))
        {
            if memory.len() != length_bytes {
                return Err(argument(name, format!("{} bytes", memory.len()), &format!("{length_bytes} bytes")));
            }
        }
        Ok(())
    }
}

/// Return the largest end of a span of `buffer` on any rank.
fn length_bytes(plans: &[Plan], promises: &[Promise], buffer: Buffer) -> usize {
    let used = plans.iter().flat_map(Plan::operations).flat_map(|operation| [operation.reads(), operation.writes()]);
    let promised = promises.iter().flat_map(|promise| &promise.spans);
    let promised = promised.flat_map(|part| part.sources.iter().map(|&(_, span)| span).chain([part.span]));
    let spans = used.flatten().chain(promised).filter(|span| span.buffer == buffer);
    spans.map(|span| span.end_bytes()).max().unwrap_or(0)
}

/// Return the plans of an algorithm of the catalogue for all of `p` ranks.
pub fn catalogued(request: &SimulationRequest, algorithm: &Algorithm, p: usize) -> Result<Vec<Plan>, Error> {
    let (mut plans, mut operation_count) = (Vec::with_capacity(p), 0);
    for rank in 0..p {
        let plan = algorithm.plan(&Group::new(rank, p), &request.request(rank));
        let plan = plan.map_err(|unsuitable| argument("algorithm", algorithm.name, unsuitable.needs.text()))?;
        operation_count += plan.operations().len();
        if operation_count > CATALOGUED_OPERATIONS_MAX {
            let expected = format!("plans with at most {CATALOGUED_OPERATIONS_MAX} operations");
            return Err(argument("ranks", p, &expected));
        }
        plans.push(plan);
    }
    Ok(plans)
}

impl Communicator {
    /// Run this rank's plan of a set as the next collective. All ranks must pass the same set.
    pub fn run_plan(
        &self,
        plans: &CheckedPlans,
        elements: ElementType<'_>,
        memory: [BufferMemory<'_>; 2],
    ) -> Result<(), Error> {
        plans.check_run(self.world_size(), elements.element, &memory)?;
        let mut held = self.hold()?;
        let (mut runtime, state) = held.communicator(self.number)?;
        let (call, schedule) = planned(&mut runtime, state, plans, elements);
        let mut scratch = scratch(runtime.scratch, schedule.scratch_bytes())?;
        let scratch = scratch.as_mut().map_or(NO_MEMORY, |scratch| BufferMemory::Write(scratch.bytes_mut()));
        let [main, output] = memory;
        state.run_uncatalogued(&mut runtime, call, schedule, [main, output, scratch])
    }

    /// Start this rank's plan of a set in the background, like [`Communicator::run_plan`], and return at once.
    pub fn start_plan<M: OwnedBuffers>(
        &self,
        plans: &CheckedPlans,
        elements: ElementType<'_>,
        mut memory: M,
    ) -> Result<Handle<M>, Error> {
        plans.check_run(self.world_size(), elements.element, &memory.buffers())?;
        let mut held = self.hold()?;
        held.ensure_background()?;
        let (mut runtime, state) = held.communicator(self.number)?;
        let (call, schedule) = planned(&mut runtime, state, plans, elements);
        let result_slot = state.start_uncatalogued(&mut runtime, call, schedule, memory)?;
        drop(held);
        Ok(Handle::new(result_slot, self.shared.clone()))
    }
}

/// Return the call and the schedule of this rank's plan of a set.
fn planned(
    runtime: &mut Runtime<'_>,
    state: &mut CommunicatorState,
    plans: &CheckedPlans,
    ElementType { element, shape }: ElementType<'_>,
) -> (Call, Arc<Schedule>) {
    let kind = CallKind::Plan { op: plans.common.op, fingerprint: plans.fingerprint };
    let (call, signature) = (Call { kind, element, signature: 0 }, shape.signature());
    let schedule = state.schedule_of_call(call, |rank| plans.plans[rank].clone(), plans.is_rendezvous);
    runtime.fabric.note_signature(signature, &|| shape.text());
    (Call { signature, ..call }, schedule)
}
