//! The communicator: collectives over bytes of typed elements.
//!
//! Every rank of the communicator must call the same methods in the same order. If ranks differ, all of them get an
//! error that lists the call of each rank. All collectives work in place on the caller's vectors. `algorithm` names an
//! algorithm of the catalogue, an [order](ripieno_plan::Order) of its ranks, or both (`chain@random:7`). With `None`,
//! the [`Overrides`] and then [`choose`](ripieno_plan::choose) determine the algorithm.

use crate::call_cache::CallKey;
use crate::choice::Overrides;
use crate::communicator_state::{CommunicatorState, Replica};
use crate::core::{CoreGuard, CoreShared, RankCore};
use crate::elements::{ElementShape, ElementType};
use crate::error::{Error, argument};
use crate::flight::{self, FlightRecorder};
use crate::handle::Handle;
use crate::lock::lock;
use crate::owned_buffers::{NO_MEMORY, OwnedBuffers};
use crate::pool::BufferPool;
use crate::preferred;
use crate::statistics::Statistics;
use crate::task::{self, CollectiveTask, WholeBuffer};
use ripieno_plan::sparse::design::PacketCurve;
use ripieno_plan::{Algorithm, Buffer, Collective, Group, Op, Span, Topology};
use ripieno_run::recorder::{CollectiveRecord, Reading};
use ripieno_run::{
    BlockingSection, BufferMemory, Call, CallKind, Element, Executor, Fabric, Header, JobFailure, PairCosts,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One rank's handle to a group of ranks: the world, or a part of it that [`Communicator::split`] created.
pub struct Communicator {
    pub(crate) shared: Arc<CoreShared>,
    /// Index among this rank's communicators; the world has 0.
    pub(crate) number: usize,
    /// Whether this part of the world is closed; unused for the world.
    pub(crate) is_closed: AtomicBool,
    rank: usize,
    world_size: usize,
    /// Copy of the group in the state. It can be read while a call holds the core.
    group: Mutex<Group>,
    pub(crate) world_ranks: Arc<[usize]>,
    /// For logical ranks: the replica that this process runs.
    pub(crate) replica: Option<Replica>,
    /// Measured packet costs, for the design of sparse reductions.
    pub(crate) packets: Mutex<Option<PacketCurve>>,
}

impl Communicator {
    /// Create the communicator of the world `fabric`.
    pub fn new(fabric: Box<dyn Fabric>) -> Communicator {
        let group = Group::with_topology(fabric.rank(), fabric.topology());
        let world_ranks: Arc<[usize]> = group.ranks().collect();
        let state = CommunicatorState::new(0, group.clone(), world_ranks.clone(), None);
        let shared = CoreShared::new(RankCore {
            fabric,
            executor: Executor::default(),
            scratch: BufferPool::default(),
            overrides: Overrides::default(),
            communicators: vec![Some(Box::new(state))],
            split_count: 0,
            replicated_count: 0,
            group_counts: BTreeMap::new(),
        });
        Communicator::numbered(shared, 0, group, world_ranks, None)
    }

    /// Create another communicator of the rank that owns `core`. `id` must be equal on all members.
    pub(crate) fn in_core(
        shared: &Arc<CoreShared>,
        core: &mut RankCore,
        id: u32,
        group: Group,
        world_ranks: Arc<[usize]>,
        replica: Option<Replica>,
    ) -> Communicator {
        let number = core.communicators.len();
        let state = CommunicatorState::new(id, group.clone(), world_ranks.clone(), replica);
        core.communicators.push(Some(Box::new(state)));
        Communicator::numbered(shared.clone(), number, group, world_ranks, replica)
    }

    fn numbered(
        shared: Arc<CoreShared>,
        number: usize,
        group: Group,
        world_ranks: Arc<[usize]>,
        replica: Option<Replica>,
    ) -> Communicator {
        let (is_closed, packets) = (AtomicBool::new(false), Mutex::default());
        let (rank, world_size, group) = (group.rank(), group.size(), Mutex::new(group));
        Communicator { shared, number, is_closed, rank, world_size, group, world_ranks, replica, packets }
    }

    /// Set the function that decides whether a wait is interrupted, for all communicators of the rank. It is called
    /// each time that a caller has slept.
    pub fn set_interrupt(&self, interrupt: impl Fn() -> bool + Send + Sync + 'static) -> Result<(), Error> {
        self.shared.set_interrupt(Arc::new(interrupt))
    }

    /// Return the rank of this process.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Return the number of ranks.
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// Return whether this is the communicator of the world, and not a part of it.
    pub fn is_world(&self) -> bool {
        self.number == 0
    }

    /// Return the world rank of every rank; with replicas, the world rank of the first replica.
    pub fn world_ranks(&self) -> &[usize] {
        &self.world_ranks
    }

    /// Return the group of all ranks of this communicator.
    pub(crate) fn group_of_all(&self) -> Group {
        lock(&self.group).clone()
    }

    /// Return the placement of ranks on nodes, and of nodes in racks.
    pub fn topology(&self) -> Arc<Topology> {
        lock(&self.group).topology().clone()
    }

    /// Plan all later calls for these racks; `racks[i]` is the rack of rank `i`. Clears the preferred algorithms.
    /// All ranks must call this with equal racks, between the same collectives. Existing groups keep their racks.
    pub fn adopt_racks(&self, racks: &[usize]) -> Result<(), Error> {
        let mut held = self.hold()?;
        let (_, state) = held.communicator(self.number)?;
        let group = state.group();
        let topology = Arc::new(Topology::new(group.topology().nodes(), racks.to_vec()));
        let group = Group::with_topology(group.rank(), topology).in_order(group.order());
        state.adopt(group.clone());
        *lock(&self.group) = group;
        Ok(())
    }

    /// Return the cost of packets between the ranks: the curve that [`Communicator::keep_packets`] has set, or a
    /// default for the memory of one node or for links between nodes.
    pub fn packets(&self) -> PacketCurve {
        let measured = lock(&self.packets).clone();
        measured.unwrap_or_else(|| match self.topology().node_count() {
            0 | 1 => PacketCurve::memory(),
            _ => PacketCurve::network(),
        })
    }

    /// Set the [measured](crate::packets::measure) packet costs for later designs of sparse reductions. All ranks must
    /// set the same curve.
    pub fn keep_packets(&self, packets: PacketCurve) {
        *lock(&self.packets) = Some(packets);
    }

    /// Return whether a task only reads the first buffer if it has `element_count` elements.
    pub fn only_reads(&self, task: &CollectiveTask<'_>, element_count: usize) -> bool {
        task::only_reads(task, self.rank, Span::whole(Buffer::MAIN, element_count, 1))
    }

    /// Return the algorithm for calls of `collective` that name none, for a vector (all chunks together) of
    /// `size_bytes`.
    pub fn choice(&self, collective: Collective, size_bytes: usize) -> Result<&'static Algorithm, Error> {
        let mut held = self.hold()?;
        let (runtime, state) = held.communicator(self.number)?;
        Ok(runtime.overrides.default_choice(collective, state.group(), state.preferred(), size_bytes).algorithm)
    }

    /// Return the algorithms of `collective` that may be preferred, grouped by equal plans.
    ///
    /// `bytes` is the size of the vector. For allgather, gather and scatter, it is the size of a rank's block; for
    /// alltoall, the number of bytes that a rank sends.
    pub fn distinct_algorithms(&self, collective: Collective, bytes: usize) -> Vec<Vec<&'static str>> {
        preferred::distinct(collective, &self.group_of_all(), bytes)
    }

    /// Set the algorithms for calls that name none and have no override.
    ///
    /// Each row applies to sizes up to its total bytes, which must ascend. The last row also applies to larger sizes.
    /// An empty list restores the default. All ranks must set the same rows.
    pub fn prefer(&self, collective: Collective, rows: &[preferred::PreferredRow]) -> Result<(), Error> {
        let mut held = self.hold()?;
        held.communicator(self.number)?.1.prefer(collective, rows)
    }

    /// Set the algorithms for calls that name none, for all communicators of the rank. All ranks must set the same
    /// ones.
    pub fn set_overrides(&self, overrides: Overrides) -> Result<(), Error> {
        let mut held = self.shared.hold()?;
        let core = held.core();
        core.overrides = overrides;
        core.communicators.iter_mut().flatten().for_each(|state| state.clear_cache());
        Ok(())
    }

    /// Return the latest `count` collectives of this rank on all communicators; by default all recorded ones.
    pub fn flight(&self, count: Option<usize>) -> Result<FlightRecorder, Error> {
        let mut held = self.shared.hold()?;
        let core = held.core();
        Ok(FlightRecorder::of(&core.executor.recorder, count, core.fabric.now()))
    }

    /// Return the communication counters of this rank over all communicators, since the first call of this method.
    /// `now` is a time on the host's monotonic clock. The counters include a call in progress, and the method does not
    /// wait for it.
    pub fn traffic(&self, now: Duration) -> Reading {
        self.shared.gauge.read(now)
    }

    /// Return the collective for which the program waits at `now`, with its waiting time. The method does not wait for
    /// it.
    pub fn stalled(&self, now: Duration) -> Option<CollectiveRecord> {
        self.shared.gauge.stalled(now)
    }

    /// Keep records of the last `count` collectives from now on, each with its times. Reads the clock twice per
    /// collective.
    pub fn keep_records(&self, count: usize) -> Result<(), Error> {
        flight::keep(&mut self.shared.hold()?.core().executor, count);
        Ok(())
    }

    /// Return the fallback links in use, by world rank: the kind of the link, and the reason for the fallback.
    pub fn fallback_links(&self) -> Result<Vec<(usize, String)>, Error> {
        Ok(self.shared.hold()?.core().fabric.fallback_links())
    }

    /// Return the measured costs of the open links to ranks of this host, by world rank.
    pub fn pair_costs(&self) -> Result<Vec<(usize, PairCosts)>, Error> {
        Ok(self.shared.hold()?.core().fabric.pair_costs())
    }

    /// Return the counters of all calls so far.
    pub fn statistics(&self) -> Result<Statistics, Error> {
        Ok(self.hold()?.communicator(self.number)?.1.statistics())
    }

    /// Run a task to its end, on its first buffer and its second, if it has one.
    pub fn run<'a>(
        &self,
        task: &CollectiveTask<'_>,
        elements: impl Into<ElementType<'a>>,
        algorithm: Option<&str>,
        memory: [BufferMemory<'_>; 2],
    ) -> Result<(), Error> {
        self.run_with_section(task, elements, algorithm, memory, &mut |section| section())
    }

    /// Run a task like [`Communicator::run`], with the part that may wait inside `run_section`. For a repeated task of
    /// a few short messages, this part is the wait for messages if the thread makes most calls. For any other task it
    /// is the whole run.
    pub fn run_with_section<'a>(
        &self,
        task: &CollectiveTask<'_>,
        elements: impl Into<ElementType<'a>>,
        algorithm: Option<&str>,
        mut memory: [BufferMemory<'_>; 2],
        run_section: BlockingSection<'_>,
    ) -> Result<(), Error> {
        let elements = elements.into();
        let mut held = if self.is_closed.load(Ordering::Acquire) { None } else { self.shared.enter() };
        let key = CallKey::of(task, &elements, algorithm, &memory);
        let mut bound = None;
        if let Some(held) = &mut held {
            let (mut runtime, state) = held.communicator(self.number)?;
            bound = state.bind(key.as_ref());
            if bound.is_some_and(|bound| bound.is_brief) {
                return state.run(&mut runtime, task, elements, algorithm, memory, bound, run_section);
            }
        }
        let mut run = || {
            let was_held = held.is_some();
            let mut held = held.take().map_or_else(|| self.hold(), Ok)?;
            let (mut runtime, state) = held.communicator(self.number)?;
            let memory = memory.each_mut().map(BufferMemory::reborrow);
            let bound =
                if was_held { bound } else { state.bind(CallKey::of(task, &elements, algorithm, &memory).as_ref()) };
            state.run(&mut runtime, task, elements, algorithm, memory, bound, &mut |section| section())
        };
        let mut ended = Ok(());
        run_section(&mut || ended = run());
        ended
    }

    /// Like [`Communicator::run`], for a task with sizes that do not repeat: its schedule is not cached.
    pub(crate) fn run_once(
        &self,
        task: &CollectiveTask<'_>,
        element: Element,
        memory: [BufferMemory<'_>; 2],
    ) -> Result<(), Error> {
        let mut held = self.hold()?;
        let (mut runtime, state) = held.communicator(self.number)?;
        state.run_once(&mut runtime, task, element, memory)
    }

    /// Return the core, and the index of this communicator in it.
    pub(crate) fn core_and_number(&self) -> (&Arc<CoreShared>, usize) {
        (&self.shared, self.number)
    }

    /// Start a task and return at once. The task makes progress in the background.
    ///
    /// Several tasks may be in flight. They are numbered in the order of their start, together with blocking calls.
    /// While a rank has several calls in flight, deadlocks between ranks are not reported.
    pub fn start<'a, M: OwnedBuffers>(
        &self,
        task: &CollectiveTask<'_>,
        elements: impl Into<ElementType<'a>>,
        algorithm: Option<&str>,
        memory: M,
    ) -> Result<Handle<M>, Error> {
        let mut held = self.hold()?;
        held.ensure_background()?;
        let (mut runtime, state) = held.communicator(self.number)?;
        let result_slot = state.start(&mut runtime, task, elements.into(), algorithm, memory)?;
        drop(held);
        Ok(Handle::new(result_slot, self.shared.clone()))
    }

    /// Copy the root's `vector` to every rank. The root's vector is only read.
    pub fn broadcast(
        &self,
        vector: BufferMemory<'_>,
        element: Element,
        root: usize,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.run(&CollectiveTask::Broadcast { root, vector: WholeBuffer }, element, algorithm, [vector, NO_MEMORY])
    }

    /// Combine the vectors of all ranks into the root's `vector`. The other vectors are used as scratch memory.
    pub fn reduce(
        &self,
        vector: &mut [u8],
        element: Element,
        op: Op,
        root: usize,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Reduce { op, root, vector: WholeBuffer }, vector, element, algorithm)
    }

    /// Combine the vectors of all ranks into every rank's `vector`. The result is bitwise identical on every rank and
    /// in every run.
    pub fn allreduce(&self, vector: &mut [u8], element: Element, op: Op, algorithm: Option<&str>) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Allreduce { op, vector: WholeBuffer }, vector, element, algorithm)
    }

    /// Replace each rank's `vector` by the combination of the vectors of ranks 0 to this one.
    pub fn scan(&self, vector: &mut [u8], element: Element, op: Op, algorithm: Option<&str>) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Scan { op, vector: WholeBuffer }, vector, element, algorithm)
    }

    /// Replace each rank's `vector` by the combination of the vectors of all lower ranks. Rank 0 keeps its own.
    pub fn exscan(&self, vector: &mut [u8], element: Element, op: Op, algorithm: Option<&str>) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Exscan { op, vector: WholeBuffer }, vector, element, algorithm)
    }

    /// Gather the chunks of all ranks on every rank. `vector` holds `counts[rank]` elements per rank.
    pub fn allgather(
        &self,
        vector: &mut [u8],
        element: Element,
        counts: &[usize],
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Allgather { chunks: counts }, vector, element, algorithm)
    }

    /// Combine the vectors of all ranks, and leave each rank its chunk of the result. `vector` holds `counts[rank]`
    /// elements per rank; the other chunks are used as scratch memory.
    pub fn reduce_scatter(
        &self,
        vector: &mut [u8],
        element: Element,
        counts: &[usize],
        op: Op,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.in_place(&CollectiveTask::ReduceScatter { chunks: counts, op }, vector, element, algorithm)
    }

    /// Gather the chunks of all ranks on the root. `vector` holds `counts[rank]` elements per rank. Other ranks may
    /// pass their own chunk alone; in a longer vector, the other chunks are used as scratch memory.
    pub fn gather(
        &self,
        vector: &mut [u8],
        element: Element,
        counts: &[usize],
        root: usize,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Gather { chunks: counts, root }, vector, element, algorithm)
    }

    /// Send each rank its chunk from the root. `vector` holds `counts[rank]` elements per rank. Other ranks may pass
    /// memory for their own chunk alone; in a longer vector, the other chunks are used as scratch memory. The root's
    /// vector is only read.
    pub fn scatter(
        &self,
        vector: BufferMemory<'_>,
        element: Element,
        counts: &[usize],
        root: usize,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.run(&CollectiveTask::Scatter { chunks: counts, root }, element, algorithm, [vector, NO_MEMORY])
    }

    /// Send one chunk of `out` to each rank, and receive one chunk of `into` from each rank. The length that one rank
    /// sends to another must equal the length that the receiver expects.
    pub fn alltoall(
        &self,
        out: &[u8],
        out_counts: &[usize],
        into: &mut [u8],
        in_counts: &[usize],
        element: Element,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        let task = CollectiveTask::Alltoall { out_chunks: out_counts, in_chunks: in_counts };
        self.run(&task, element, algorithm, [BufferMemory::Read(out), BufferMemory::Write(into)])
    }

    /// Send `out` to rank `rank + distance` (mod p), and receive from rank `rank - distance` into `into`. The two ranks
    /// of a transfer must agree on its length. Lengths may differ between transfers.
    pub fn rotate(
        &self,
        out: &[u8],
        into: &mut [u8],
        element: Element,
        distance: usize,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.run(
            &CollectiveTask::Rotate { distance, out: WholeBuffer, into: WholeBuffer },
            element,
            algorithm,
            [BufferMemory::Read(out), BufferMemory::Write(into)],
        )
    }

    /// Exchange chunks with neighbors. `out` and `into` hold a chunk of `count` elements for each `(peer, count)`, one
    /// after the other. The length that one rank sends must equal the length that the receiver expects. Ranks that are
    /// not neighbors exchange nothing.
    pub fn neighbour_exchange(
        &self,
        out: &[u8],
        out_peers: &[(usize, usize)],
        into: &mut [u8],
        in_peers: &[(usize, usize)],
        element: Element,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        let task = CollectiveTask::NeighbourExchange { out: out_peers, into: in_peers };
        self.run(&task, element, algorithm, [BufferMemory::Read(out), BufferMemory::Write(into)])
    }

    /// Return after every rank has entered the barrier.
    pub fn barrier(&self, algorithm: Option<&str>) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Barrier { token: WholeBuffer }, &mut [0], Element::U8, algorithm)
    }

    /// Send `vector` to rank `to`, which calls [`Communicator::receive`] with equally many elements.
    ///
    /// Messages from one rank to another keep their order. Collectives may overtake them.
    pub fn send(&self, vector: &[u8], element: Element, to: usize) -> Result<(), Error> {
        let task = CollectiveTask::PointToPoint { from: self.rank(), to, vector: WholeBuffer };
        self.run(&task, element, None, [BufferMemory::Read(vector), NO_MEMORY])
    }

    /// Receive a vector that rank `from` sends with [`Communicator::send`].
    pub fn receive(&self, vector: &mut [u8], element: Element, from: usize) -> Result<(), Error> {
        self.in_place(
            &CollectiveTask::PointToPoint { from, to: self.rank(), vector: WholeBuffer },
            vector,
            element,
            None,
        )
    }

    /// Wait until one of `sources` has sent a message for [`Communicator::receive`], and return its rank; `None` after
    /// `timeout`. If `signature` is given, the message must have the signature that this text describes. If the next
    /// message of a source has another signature, the source is skipped, unless that holds for all sources.
    pub fn await_message(
        &self,
        sources: &[usize],
        signature: Option<&str>,
        timeout: Option<Duration>,
    ) -> Result<Option<usize>, Error> {
        for &source in sources {
            if source >= self.world_size() || source == self.rank() {
                return Err(argument("source", source, &format!("another rank of 0 to {}", self.world_size() - 1)));
            }
        }
        let peers: Vec<usize> = sources.iter().map(|&source| self.world_ranks[source]).collect();
        let signature = signature.map(|text| ElementShape::Described(text).signature());
        let mut held = self.hold()?;
        let (runtime, state) = held.communicator(self.number)?;
        let until = timeout.map(|timeout| runtime.fabric.now() + timeout);
        let is_late = until.map(|until| move |now| now >= until);
        let is_late = is_late.as_ref().map(|is_late| is_late as &dyn Fn(Duration) -> bool);
        let kind = CallKind::Message { algorithm: 0, to: self.rank() as u32, element_count: 0 };
        let call = Call { kind, element: Element::U8, signature: signature.unwrap_or_default() };
        let header = Header { communicator: state.id(), sequence: 0, call };
        let found = runtime.executor.await_message(runtime.fabric, header, signature, &peers, is_late)?;
        Ok(found.and_then(|peer| self.world_ranks.iter().position(|&rank| rank == peer)))
    }

    /// Report a failure of this rank, with its cause, to every rank. All ranks get the first failure of a job. The
    /// method works while another thread is in a call.
    pub fn abort(&self, cause: &str, traceback: &str) {
        self.shared.remote().report(JobFailure::RankFailed {
            rank: self.shared.rank(),
            host: String::new(),
            cause: cause.to_string(),
            traceback: traceback.to_string(),
        });
    }

    /// Report to the survivors of a failure that this rank's program has ended. [`Communicator::shrink`] then does not
    /// wait for this rank.
    pub fn withdraw(&self) {
        self.shared.remote().withdraw();
    }

    /// Close the communicator. Every later call on it returns [`Error::Closed`].
    ///
    /// Closing the world completes the runs in flight, closes all communicators split from it, and leaves the job.
    /// Closing a part of the world does not wait; its runs in flight continue.
    pub fn close(&self) {
        match self.number {
            0 => self.shared.close(),
            number if !self.is_closed.swap(true, Ordering::AcqRel) => self.shared.retire(number),
            _ => {}
        }
    }

    /// Lock the core; fails if this communicator is closed.
    pub(crate) fn hold(&self) -> Result<CoreGuard<'_>, Error> {
        match self.is_closed.load(Ordering::Acquire) {
            true => Err(Error::Closed),
            false => self.shared.hold(),
        }
    }

    fn in_place(
        &self,
        task: &CollectiveTask<'_>,
        vector: &mut [u8],
        element: Element,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.run(task, element, algorithm, [BufferMemory::Write(vector), NO_MEMORY])
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.close();
    }
}
