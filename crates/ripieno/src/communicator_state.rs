//! State of one communicator in a core: its group, call numbers and schedules.

use crate::call_cache::{BoundCall, CallCache, CallKey, ResolvedCall};
use crate::elements::{ElementShape, ElementType, signature, signature_text};
use crate::error::{Error, argument};
use crate::lock::lock;
use crate::owned_buffers::{NO_MEMORY, OwnedBuffers};
use crate::pool::{BufferPool, PooledBuffer};
use crate::preferred::{self, Preferred};
use crate::result_slot::ResultSlot;
use crate::runtime::Runtime;
use crate::schedules::Schedules;
use crate::statistics::Statistics;
use crate::task::{self, CollectiveTask, TaskExtent};
use ripieno_plan::{Buffer, Collective, Group, Order, Plan, Span};
use ripieno_run::{BlockingSection, BufferMemory, Call, Element, PreparedCall, Replicas, Schedule};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A world rank, and the mapping of world ranks to replicas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replica {
    pub replicas: Replicas,
    pub rank: usize,
}

pub(crate) struct CommunicatorState {
    /// Equal on every rank, and different from the id of any communicator that shares a rank.
    id: u32,
    group: Group,
    /// The world rank of every rank; with replicas, the world rank of the first replica.
    world_ranks: Arc<[usize]>,
    /// For logical ranks: this rank of the world, and the mapping of world ranks to replicas.
    replica: Option<Replica>,
    schedules: Schedules,
    preferred: Preferred,
    call_cache: CallCache,
    sequence: u64,
    /// Number of sparse reductions configured so far.
    configuration_count: u32,
    /// Number of messages so far, by sender and receiver.
    messages: BTreeMap<(usize, usize), u64>,
    statistics: Statistics,
    /// Statistics of runs that ended in the background thread.
    background: Arc<Mutex<Statistics>>,
}

impl CommunicatorState {
    pub fn new(id: u32, group: Group, world_ranks: Arc<[usize]>, replica: Option<Replica>) -> CommunicatorState {
        CommunicatorState {
            id,
            group,
            world_ranks,
            replica,
            schedules: Schedules::default(),
            preferred: Preferred::default(),
            call_cache: CallCache::default(),
            sequence: 0,
            configuration_count: 0,
            messages: BTreeMap::new(),
            statistics: Statistics::default(),
            background: Arc::default(),
        }
    }

    /// Set the number of the next collective.
    pub fn resume(&mut self, sequence: u64) {
        self.sequence = sequence;
    }

    /// Return the id of the communicator, equal on every rank.
    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn statistics(&self) -> Statistics {
        self.statistics + *lock(&self.background)
    }

    /// Look up a repeated call.
    #[inline]
    pub fn bind(&mut self, key: Option<&CallKey<'_>>) -> Option<BoundCall> {
        self.call_cache.find(key?)
    }

    /// Run a task to its end; `bound` is the call if it was looked up and found. `run_section` runs the part that may
    /// wait.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub fn run(
        &mut self,
        runtime: &mut Runtime<'_>,
        task: &CollectiveTask<'_>,
        elements: ElementType<'_>,
        algorithm: Option<&str>,
        memory: [BufferMemory<'_>; 2],
        bound: Option<BoundCall>,
        run_section: BlockingSection<'_>,
    ) -> Result<(), Error> {
        let Some(bound) = bound else { return self.run_unbound(runtime, task, elements, algorithm, memory) };
        let resolved = self.call_cache.get(bound);
        note_signature(runtime, task, &elements.shape, resolved);
        let sequence = sequence_of(task, &mut self.sequence, &mut self.messages);
        run_resolved(runtime, resolved, memory, sequence, &mut self.statistics, run_section)
    }

    /// Run a task for which no stored call was found, and store its call.
    pub fn run_unbound(
        &mut self,
        runtime: &mut Runtime<'_>,
        task: &CollectiveTask<'_>,
        elements: ElementType<'_>,
        algorithm: Option<&str>,
        memory: [BufferMemory<'_>; 2],
    ) -> Result<(), Error> {
        let key = CallKey::of(task, &elements, algorithm, &memory);
        let resolved = self.resolve(runtime, task, elements, algorithm, &memory)?;
        let ended = self.run_new(runtime, task, &resolved, memory);
        if let Some(key) = key
            && let Some(slot) = self.call_cache.free_slot(&key)
        {
            self.call_cache.insert(slot, &key, resolved);
        }
        ended
    }

    /// Return the preferred algorithms for calls that name none.
    pub fn preferred(&self) -> &Preferred {
        &self.preferred
    }

    /// Set the preferred algorithms.
    pub fn prefer(&mut self, collective: Collective, rows: &[preferred::PreferredRow]) -> Result<(), Error> {
        self.clear_cache();
        self.preferred.set(collective, &self.group, rows)
    }

    /// Return the group of all ranks.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Plan all later calls for `group`, which has the same ranks and other racks.
    pub fn adopt(&mut self, group: Group) {
        self.clear_cache();
        (self.schedules, self.preferred, self.group) = (Schedules::default(), Preferred::default(), group);
    }

    /// Clear the cache of resolved calls.
    pub fn clear_cache(&mut self) {
        self.call_cache.clear();
    }

    fn run_new(
        &mut self,
        runtime: &mut Runtime<'_>,
        task: &CollectiveTask<'_>,
        resolved: &ResolvedCall,
        memory: [BufferMemory<'_>; 2],
    ) -> Result<(), Error> {
        let sequence = sequence_of(task, &mut self.sequence, &mut self.messages);
        run_resolved(runtime, resolved, memory, sequence, &mut self.statistics, &mut |rest| rest())
    }

    /// Run a task with sizes that do not repeat to its end, without caching its schedule.
    pub fn run_once(
        &mut self,
        runtime: &mut Runtime<'_>,
        task: &CollectiveTask<'_>,
        element: Element,
        memory: [BufferMemory<'_>; 2],
    ) -> Result<(), Error> {
        let cached = std::mem::take(&mut self.schedules);
        let resolved = self.resolve(runtime, task, element.into(), None, &memory);
        self.schedules = cached;
        self.run_new(runtime, task, &resolved?, memory)
    }

    /// Return the number of the next sparse reduction, from 1 on. It is equal on every rank.
    pub fn next_configuration(&mut self) -> u32 {
        self.configuration_count += 1;
        self.configuration_count
    }

    /// Convert `plan`, in ranks of this communicator, to a schedule that is ready to run.
    pub fn schedule(&self, plan: Plan) -> Arc<Schedule> {
        Arc::new(in_world(plan, &self.world_ranks, self.replica))
    }

    /// Return the schedule of a plan in ranks of this communicator, which `plan` returns for a rank. A repeated `call`
    /// reuses it.
    pub fn schedule_of_call(&mut self, call: Call, plan: impl Fn(usize) -> Plan, is_rendezvous: bool) -> Arc<Schedule> {
        let (rank, world_ranks, replica) = (self.group.rank(), &*self.world_ranks, self.replica);
        let made = self.schedules.get(call, Order::default(), [TaskExtent::Whole, TaskExtent::Whole], || {
            let schedule = in_world(plan(rank), world_ranks, replica);
            Ok::<_, Infallible>(if is_rendezvous { schedule.with_zero_copy() } else { schedule })
        });
        made.unwrap_or_else(|never| match never {})
    }

    /// Run a schedule from outside the catalogue as the next collective. All ranks must make equal calls.
    ///
    /// The caller must have registered the signature of the call. The third buffer is the scratch memory of the plan.
    pub fn run_uncatalogued(
        &mut self,
        runtime: &mut Runtime<'_>,
        call: Call,
        schedule: Arc<Schedule>,
        buffers: [BufferMemory<'_>; 3],
    ) -> Result<(), Error> {
        let prepared = PreparedCall::new(self.id, call, schedule)?;
        execute(runtime, &prepared, buffers, &mut self.sequence, &mut self.statistics, &mut |rest| rest())
    }

    /// Start a task that runs asynchronously and owns `memory` until it has ended.
    pub fn start<M: OwnedBuffers>(
        &mut self,
        runtime: &mut Runtime<'_>,
        task: &CollectiveTask<'_>,
        elements: ElementType<'_>,
        algorithm: Option<&str>,
        memory: M,
    ) -> Result<Arc<ResultSlot<M>>, Error> {
        let mut memory = Box::new(memory);
        let resolved = self.resolve(runtime, task, elements, algorithm, &memory.buffers())?;
        let sequence = *sequence_of(task, &mut self.sequence, &mut self.messages);
        let result_slot = self.submit(runtime, sequence, resolved.prepared, memory)?;
        *sequence_of(task, &mut self.sequence, &mut self.messages) += 1;
        Ok(result_slot)
    }

    /// Start a schedule from outside the catalogue, like [`CommunicatorState::run_uncatalogued`]. The run owns `memory`
    /// until it has ended.
    pub fn start_uncatalogued<M: OwnedBuffers>(
        &mut self,
        runtime: &mut Runtime<'_>,
        call: Call,
        schedule: Arc<Schedule>,
        memory: M,
    ) -> Result<Arc<ResultSlot<M>>, Error> {
        let prepared = PreparedCall::new(self.id, call, schedule)?;
        let result_slot = self.submit(runtime, self.sequence, prepared, Box::new(memory))?;
        self.sequence += 1;
        Ok(result_slot)
    }

    fn submit<M: OwnedBuffers>(
        &mut self,
        runtime: &mut Runtime<'_>,
        sequence: u64,
        prepared: PreparedCall,
        mut memory: Box<M>,
    ) -> Result<Arc<ResultSlot<M>>, Error> {
        let [mut main, mut output] = memory.buffers();
        // SAFETY: the end of the run owns the memory and outlives the run's buffers. `OwnedBuffers` guarantees that the
        // memory stays in place, and that no other code uses it while its owner lives.
        let (main, output) = unsafe { (main.extend_lifetime(), output.extend_lifetime()) };
        let mut scratch = scratch(runtime.scratch, prepared.schedule().scratch_bytes())?;
        let mut scratch_buffer = scratch.as_mut().map_or(NO_MEMORY, |scratch| BufferMemory::Write(scratch.bytes_mut()));
        // SAFETY: as above; moving a pooled buffer does not move its bytes.
        let scratch_buffer = unsafe { scratch_buffer.extend_lifetime() };
        let result_slot = Arc::new(ResultSlot::default());
        let (completion, background) = (ResultSlot::completion(&result_slot, runtime.waiters), self.background.clone());
        let end = Box::new(move |result: Result<_, _>| {
            drop(scratch);
            if let Ok(traffic) = result {
                lock(&background).count(traffic);
            }
            completion.complete(result.map(|_| *memory).map_err(Error::from));
        });
        runtime.executor.submit(runtime.fabric, sequence, prepared, vec![main, output, scratch_buffer], end)?;
        runtime.executor.advance(runtime.fabric);
        Ok(result_slot)
    }

    /// Check a task, determine its algorithm and schedule, and register the signature that ranks compare.
    fn resolve(
        &mut self,
        runtime: &mut Runtime<'_>,
        task: &CollectiveTask<'_>,
        ElementType { element, shape }: ElementType<'_>,
        algorithm: Option<&str>,
        [main, output]: &[BufferMemory<'_>; 2],
    ) -> Result<ResolvedCall, Error> {
        let rank = self.group.rank();
        let main_span = buffer_span(Buffer::MAIN, main, element)?;
        if !task::only_reads(task, rank, main_span) {
            check_write("first buffer", main, task)?;
        }
        if task.has_output() {
            check_write("second buffer", output, task)?;
        }
        let (main, part) = match task::layout_of_part(task, rank, main_span) {
            Some((layout, part)) => (layout, Some(part)),
            None => (main_span, None),
        };
        let output = buffer_span(Buffer::OUTPUT, output, element)?;
        let extents = TaskExtent::all_of(task);
        task::check(task, &extents, &self.group, [main, output])?;
        let (collective, bytes) = (task.collective(), main.length_bytes);
        let choice = runtime.overrides.choice(collective, algorithm, &self.group, &self.preferred, bytes)?;
        let mut call = task::call(task, element, main.element_count(), &choice, self.group.size());
        let (group, world_ranks, replica) = (&self.group, &*self.world_ranks, self.replica);
        let plan_extents = task::plan_extents(task, extents, [main, output], part);
        let schedule = self.schedules.get(call, choice.order, plan_extents, || {
            let plan = task::plan(task, choice.algorithm, &group.in_order(choice.order), main, output);
            let mut plan = plan.map_err(|unsuitable| {
                argument("algorithm", choice.algorithm.name, &format!("another one, because {unsuitable}"))
            })?;
            if let Some(part) = part {
                plan = plan.on_part(part);
            }
            let schedule = in_world(plan, world_ranks, replica);
            Ok::<_, Error>(match task.collective() {
                Collective::PointToPoint => schedule.for_message(),
                _ if choice.algorithm.rendezvous => schedule.with_zero_copy(),
                _ => schedule,
            })
        })?;
        // Plans do not depend on the signature.
        call.signature = signature(&shape, task::common_counts(&extents), &choice);
        let resolved = ResolvedCall { prepared: PreparedCall::new(self.id, call, schedule)?, choice };
        note_signature(runtime, task, &shape, &resolved);
        Ok(resolved)
    }
}

/// Return the counter for calls like `task`: of messages between two ranks, or of collectives.
#[inline]
fn sequence_of<'a>(
    task: &CollectiveTask<'_>,
    collectives: &'a mut u64,
    messages: &'a mut BTreeMap<(usize, usize), u64>,
) -> &'a mut u64 {
    match *task {
        CollectiveTask::PointToPoint { from, to, .. } => messages.entry((from, to)).or_default(),
        _ => collectives,
    }
}

/// Register the description of a call's signature, if it has one.
#[inline]
fn note_signature(
    runtime: &mut Runtime<'_>,
    task: &CollectiveTask<'_>,
    shape: &ElementShape<'_>,
    resolved: &ResolvedCall,
) {
    let signature = resolved.prepared.call().signature;
    if signature != 0 {
        let counts = || task::common_counts(&TaskExtent::all_of(task));
        runtime.fabric.note_signature(signature, &|| signature_text(shape, counts(), &resolved.choice));
    }
}

/// Run a resolved call as number `sequence`, and count it.
#[inline(always)]
fn run_resolved(
    runtime: &mut Runtime<'_>,
    ResolvedCall { prepared, .. }: &ResolvedCall,
    [main, output]: [BufferMemory<'_>; 2],
    sequence: &mut u64,
    statistics: &mut Statistics,
    run_section: BlockingSection<'_>,
) -> Result<(), Error> {
    match prepared.schedule().scratch_bytes() {
        0 => execute(runtime, prepared, [main, output, NO_MEMORY], sequence, statistics, run_section),
        length_bytes => {
            let mut scratch = take_scratch(runtime.scratch, length_bytes)?;
            let buffers = [main, output, BufferMemory::Write(scratch.bytes_mut())];
            execute(runtime, prepared, buffers, sequence, statistics, run_section)
        }
    }
}

#[inline(always)]
fn execute(
    runtime: &mut Runtime<'_>,
    prepared: &PreparedCall,
    mut buffers: [BufferMemory<'_>; 3],
    sequence: &mut u64,
    statistics: &mut Statistics,
    run_section: BlockingSection<'_>,
) -> Result<(), Error> {
    let traffic = runtime.executor.run_with_section(runtime.fabric, *sequence, prepared, &mut buffers, run_section)?;
    *sequence += 1;
    statistics.count(traffic);
    statistics.communicating += Duration::from_nanos(traffic.elapsed_ns);
    Ok(())
}

/// Return the schedule of a plan in communicator ranks, translated to world ranks by `world_ranks` and `replica`.
pub(crate) fn in_world(plan: Plan, world_ranks: &[usize], replica: Option<Replica>) -> Schedule {
    let plan = plan.with_peers(|rank| world_ranks[rank]);
    match replica {
        None => Schedule::new(&plan),
        Some(Replica { replicas, rank }) => Schedule::replicated(&plan, replicas, rank),
    }
}

/// Check that `memory` is writable, unless it is empty.
#[inline]
fn check_write(name: &'static str, memory: &BufferMemory<'_>, task: &CollectiveTask<'_>) -> Result<(), Error> {
    match memory {
        BufferMemory::Read(bytes) if !bytes.is_empty() => {
            Err(argument(name, "memory to read", &format!("memory that {} may change", task.collective().name())))
        }
        _ => Ok(()),
    }
}

/// Return the span of all of `memory`, in whole elements.
#[inline]
fn buffer_span(buffer: Buffer, memory: &BufferMemory<'_>, element: Element) -> Result<Span, Error> {
    let element_bytes = element.size_bytes();
    // Element sizes are powers of two: a division would take longer than the rest of this function.
    if memory.len() & (element_bytes - 1) != 0 {
        let expected = format!("a multiple of {element_bytes}, the size of {}", element.name());
        return Err(argument("length in bytes", memory.len(), &expected));
    }
    Ok(Span { buffer, start_bytes: 0, length_bytes: memory.len(), element_bytes })
}

/// Take `length_bytes` of scratch memory from the pool; `None` for 0.
#[inline]
pub(crate) fn scratch(pool: &BufferPool, length_bytes: usize) -> Result<Option<PooledBuffer>, Error> {
    (length_bytes > 0).then(|| take_scratch(pool, length_bytes)).transpose()
}

fn take_scratch(pool: &BufferPool, length_bytes: usize) -> Result<PooledBuffer, Error> {
    pool.take(length_bytes).map_err(|error| Error::Memory { length_bytes, cause: error.to_string() })
}
