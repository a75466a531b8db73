//! The communicator: collectives over bytes of typed elements.
//!
//! Every method is called by every rank of the communicator, in the same order; ranks that disagree all get an error
//! that says who called what. All work in place: a vector is read from, received into and left where it is. `algorithm`
//! names one of the catalogue, or an [order](ripieno_plan::Order) of its ranks, or both (`chain@random:7`); `None`
//! leaves the choice to the [`Overrides`], and these to [`choose`](ripieno_plan::choose).

use crate::choice::Overrides;
use crate::communicator_state::{CommunicatorState, Replica};
use crate::core::{Core, CoreGuard, CoreShared};
use crate::elements::{ElementShape, ElementType};
use crate::error::{Error, argument};
use crate::flight::{self, FlightRecorder};
use crate::handle::Handle;
use crate::lock::lock;
use crate::owned_buffers::{NO_MEMORY, OwnedBuffers};
use crate::pool::BufferPool;
use crate::preferred;
use crate::statistics::Statistics;
use crate::task::{CollectiveTask, Whole};
use ripieno_plan::sparse::design::PacketCurve;
use ripieno_plan::{Algorithm, Collective, Group, Op, Topology};
use ripieno_run::recorder::Reading;
use ripieno_run::{Apart, BufferMemory, Call, CallKind, Element, Executor, Fabric, Header, JobFailure};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One rank's end of a group of ranks: of the whole world, or of a part of it that [`Communicator::split`] made.
pub struct Communicator {
    pub(crate) shared: Arc<CoreShared>,
    /// Its number among this rank's communicators; the world has 0.
    pub(crate) number: usize,
    /// Of a part of the world: whether it is closed.
    pub(crate) is_closed: AtomicBool,
    pub(crate) group: Group,
    pub(crate) world_ranks: Arc<[usize]>,
    /// Of logical ranks: which replica of its rank this one is.
    pub(crate) replica: Option<Replica>,
    /// As measured, for the design of sparse reductions.
    pub(crate) packets: Mutex<Option<PacketCurve>>,
}

impl Communicator {
    /// The communicator of the rank whose world is `fabric`.
    pub fn new(fabric: Box<dyn Fabric>) -> Communicator {
        let group = Group::with_topology(fabric.rank(), fabric.topology());
        let world_ranks: Arc<[usize]> = group.ranks().collect();
        let state = CommunicatorState::new(0, group.clone(), world_ranks.clone(), None);
        let shared = CoreShared::new(Core {
            fabric,
            executor: Executor::default(),
            scratch: BufferPool::default(),
            overrides: Overrides::default(),
            communicators: vec![Some(Box::new(state))],
            split_count: 0,
            replicated_count: 0,
            meetings: BTreeMap::new(),
        });
        Communicator::numbered(shared, 0, group, world_ranks, None)
    }

    /// One more communicator of the rank whose core is `core`; `id` is the same on every rank of it.
    pub(crate) fn among(
        shared: &Arc<CoreShared>,
        core: &mut Core,
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
        Communicator { shared, number, is_closed, group, world_ranks, replica, packets }
    }

    /// Asks `interrupt`, each time a caller has slept, whether to give up waiting. For all communicators of the rank.
    pub fn set_interrupt(&self, interrupt: impl Fn() -> bool + Send + Sync + 'static) -> Result<(), Error> {
        self.shared.set_interrupt(Arc::new(interrupt))
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.group.rank()
    }

    /// How many ranks.
    pub fn world_size(&self) -> usize {
        self.group.size()
    }

    /// Whether it is of all ranks, not a part that [`Communicator::split`] made.
    pub fn is_world(&self) -> bool {
        self.number == 0
    }

    /// The rank in the world of every rank, of its first replica where ranks have replicas.
    pub fn world_ranks(&self) -> &[usize] {
        &self.world_ranks
    }

    /// Where the ranks stand.
    pub fn topology(&self) -> &Topology {
        self.group.topology()
    }

    /// What packets between its ranks cost: as [kept](Communicator::keep_packets), else what is usual in the memory of
    /// one node, or between nodes.
    pub fn packets(&self) -> PacketCurve {
        let kept = lock(&self.packets).clone();
        kept.unwrap_or_else(|| match self.topology().node_count() {
            0 | 1 => PacketCurve::memory(),
            _ => PacketCurve::network(),
        })
    }

    /// Keeps what packets cost, as [measured](crate::packets::measure), for sparse reductions that are designed from
    /// now on. All ranks keep the same.
    pub fn keep_packets(&self, packets: PacketCurve) {
        *lock(&self.packets) = Some(packets);
    }

    /// The algorithm that runs when the caller of `collective` names none, for a vector (all chunks together) of
    /// `size_bytes`.
    pub fn choice(&self, collective: Collective, size_bytes: usize) -> Result<&'static Algorithm, Error> {
        let mut held = self.hold()?;
        let (runtime, state) = held.communicator(self.number)?;
        Ok(runtime.overrides.unasked(collective, &self.group, state.preferred(), size_bytes).algorithm)
    }

    /// The algorithms of `collective` that may be preferred, those of equal plans together. Bytes are those of the
    /// vector; of a rank's block for allgather, gather and scatter; all that a rank sends for alltoall.
    pub fn distinct_algorithms(&self, collective: Collective, bytes: usize) -> Vec<Vec<&'static str>> {
        preferred::distinct(collective, &self.group, bytes)
    }

    /// From now on these run where a call, or an override, names no algorithm: rows of ascending bytes in all, each for
    /// up to so many, the last for any more; without rows the usual ones. All ranks must prefer the same.
    pub fn prefer(&self, collective: Collective, rows: &[preferred::PreferredRow]) -> Result<(), Error> {
        let mut held = self.hold()?;
        held.communicator(self.number)?.1.prefer(collective, rows)
    }

    /// What runs when a call names no algorithm, for all communicators of the rank. All ranks must set the same.
    pub fn set_overrides(&self, overrides: Overrides) -> Result<(), Error> {
        let mut held = self.shared.hold()?;
        let core = held.core();
        core.overrides = overrides;
        core.communicators.iter_mut().flatten().for_each(|state| state.forget_repeats());
        Ok(())
    }

    /// The latest `count` collectives of this rank, of all communicators, or all that are kept: some thousands.
    pub fn flight(&self, count: Option<usize>) -> Result<FlightRecorder, Error> {
        let mut held = self.shared.hold()?;
        let core = held.core();
        Ok(FlightRecorder::of(&core.executor.recorder, count, core.fabric.now()))
    }

    /// What this rank has communicated, by whatever communicator, since this was first asked, as it stands `now` on its
    /// host's monotonic clock. Never waits for a call: the answer has the one that goes on.
    pub fn reading(&self, now: Duration) -> Reading {
        self.shared.gauge.read(now)
    }

    /// Keeps the last `count` collectives from now on, and the times of all: two looks at the clock for each.
    pub fn keep_records(&self, count: usize) -> Result<(), Error> {
        flight::keep(&mut self.shared.hold()?.core().executor, count);
        Ok(())
    }

    /// Of the world's links that stand and were no first choice, by rank: what they are, and why.
    pub fn second_choices(&self) -> Result<Vec<(usize, String)>, Error> {
        Ok(self.shared.hold()?.core().fabric.second_choices())
    }

    /// What was done so far.
    pub fn statistics(&self) -> Result<Statistics, Error> {
        Ok(self.hold()?.communicator(self.number)?.1.statistics())
    }

    /// Runs a task to its end, on its first buffer and, where it has one, its second.
    pub fn run<'a>(
        &self,
        task: &CollectiveTask<'_>,
        elements: impl Into<ElementType<'a>>,
        algorithm: Option<&str>,
        memory: [BufferMemory<'_>; 2],
    ) -> Result<(), Error> {
        let mut held = self.hold()?;
        let (mut runtime, state) = held.communicator(self.number)?;
        state.run(&mut runtime, task, elements.into(), algorithm, memory)
    }

    /// As [`Communicator::run`], for a task that repeats, goes by a few messages of a few bytes, and is run by the
    /// thread that runs most here. What of it waits is run by `apart`. `None` for any other task, of which nothing is
    /// done.
    pub fn run_briefly<'a>(
        &self,
        task: &CollectiveTask<'_>,
        elements: impl Into<ElementType<'a>>,
        algorithm: Option<&str>,
        memory: &mut [BufferMemory<'_>; 2],
        apart: Apart<'_>,
    ) -> Option<Result<(), Error>> {
        if self.is_closed.load(Ordering::Acquire) {
            return None;
        }
        let mut held = self.shared.enter()?;
        let (mut runtime, state) = held.communicator(self.number).ok()?;
        state.run_briefly(&mut runtime, task, elements.into(), algorithm, memory, apart)
    }

    /// As [`Communicator::run`], for a task whose sizes will not come again: its schedule is not kept.
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

    /// What calls on it need: the core, and its number among this rank's communicators.
    pub(crate) fn place(&self) -> (&Arc<CoreShared>, usize) {
        (&self.shared, self.number)
    }

    /// Begins a task and returns at once. It goes on without the caller; several may be in flight, and count in the
    /// order in which they and the blocking calls between them were made. As long as more than one call of a rank is in
    /// flight or waits, ranks that wait for each other in a circle are not told.
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
        let ticket = state.start(&mut runtime, task, elements.into(), algorithm, memory)?;
        drop(held);
        Ok(Handle::new(ticket, self.shared.clone()))
    }

    /// Every rank's `vector` becomes the root's. The root's is only read.
    pub fn broadcast(
        &self,
        vector: BufferMemory<'_>,
        element: Element,
        root: usize,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.run(&CollectiveTask::Broadcast { root, vector: Whole }, element, algorithm, [vector, NO_MEMORY])
    }

    /// The root's `vector` becomes the combination of all; the others' are scratch.
    pub fn reduce(
        &self,
        vector: &mut [u8],
        element: Element,
        op: Op,
        root: usize,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Reduce { op, root, vector: Whole }, vector, element, algorithm)
    }

    /// Every rank's `vector` becomes the combination of all, the same bits on every rank and in every run.
    pub fn allreduce(&self, vector: &mut [u8], element: Element, op: Op, algorithm: Option<&str>) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Allreduce { op, vector: Whole }, vector, element, algorithm)
    }

    /// Every rank's `vector` becomes the combination of those of all ranks up to it.
    pub fn scan(&self, vector: &mut [u8], element: Element, op: Op, algorithm: Option<&str>) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Scan { op, vector: Whole }, vector, element, algorithm)
    }

    /// Every rank's `vector` becomes the combination of those of all ranks before it; the first keeps its own.
    pub fn exscan(&self, vector: &mut [u8], element: Element, op: Op, algorithm: Option<&str>) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Exscan { op, vector: Whole }, vector, element, algorithm)
    }

    /// `vector` holds one chunk of `counts[rank]` elements per rank; each rank gives its own and gets all.
    pub fn allgather(
        &self,
        vector: &mut [u8],
        element: Element,
        counts: &[usize],
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Allgather { chunks: counts }, vector, element, algorithm)
    }

    /// `vector` holds one chunk of `counts[rank]` elements per rank; each rank's own becomes the combination of all,
    /// the rest is scratch.
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

    /// `vector` holds one chunk of `counts[rank]` elements per rank; each rank gives its own, the root gets all, what
    /// the others get is scratch.
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

    /// `vector` holds one chunk of `counts[rank]` elements per rank; the root gives all, each rank gets its own, what
    /// else it gets is scratch. The root's is only read.
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

    /// `out` holds one chunk per rank, that goes there; `into` gets one chunk per rank, that came from there.
    /// What one rank sends another must be what that one expects.
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

    /// `into` becomes the `out` of the rank `distance` before this one, around the ring; it must be as long as that.
    /// Lengths may differ from rank to rank.
    pub fn rotate(
        &self,
        out: &[u8],
        into: &mut [u8],
        element: Element,
        distance: usize,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.run(
            &CollectiveTask::Rotate { distance, out: Whole, into: Whole },
            element,
            algorithm,
            [BufferMemory::Read(out), BufferMemory::Write(into)],
        )
    }

    /// `out` holds `(peer, count)` elements after each other, that go there; `into` gets those that come from there.
    /// What one rank sends another must be what that one expects; ranks that are no neighbours exchange nothing.
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

    /// Returns once every rank has come.
    pub fn barrier(&self, algorithm: Option<&str>) -> Result<(), Error> {
        self.in_place(&CollectiveTask::Barrier { token: Whole }, &mut [0], Element::U8, algorithm)
    }

    /// Gives `vector` to rank `to`, which calls [`Communicator::receive`] for as many elements.
    ///
    /// The messages from one rank to another keep their order. Collectives pass them.
    pub fn send(&self, vector: &[u8], element: Element, to: usize) -> Result<(), Error> {
        let task = CollectiveTask::PointToPoint { from: self.rank(), to, vector: Whole };
        self.run(&task, element, None, [BufferMemory::Read(vector), NO_MEMORY])
    }

    /// Takes what rank `from` gives with [`Communicator::send`].
    pub fn receive(&self, vector: &mut [u8], element: Element, from: usize) -> Result<(), Error> {
        self.in_place(&CollectiveTask::PointToPoint { from, to: self.rank(), vector: Whole }, vector, element, None)
    }

    /// Waits until one of `sources` has sent this rank a message that [`Communicator::receive`] takes next, whose form
    /// these words stand for if there are any, and gives the rank; `None` if none came within `timeout`. A source that
    /// has sent something else is passed over, unless all have.
    pub fn await_message(
        &self,
        sources: &[usize],
        words: Option<&str>,
        timeout: Option<Duration>,
    ) -> Result<Option<usize>, Error> {
        for &source in sources {
            if source >= self.world_size() || source == self.rank() {
                return Err(argument("source", source, &format!("another rank of 0 to {}", self.world_size() - 1)));
            }
        }
        let peers: Vec<usize> = sources.iter().map(|&source| self.world_ranks[source]).collect();
        let form = words.map(|words| ElementShape::Told(words).form());
        let mut held = self.hold()?;
        let (runtime, state) = held.communicator(self.number)?;
        let until = timeout.map(|timeout| runtime.fabric.now() + timeout);
        let is_late = until.map(|until| move |now| now >= until);
        let is_late = is_late.as_ref().map(|is_late| is_late as &dyn Fn(Duration) -> bool);
        let kind = CallKind::Message { algorithm: 0, to: self.rank() as u32, element_count: 0 };
        let call = Call { kind, element: Element::U8, form: form.unwrap_or_default() };
        let header = Header { communicator: state.id(), sequence: 0, call };
        let found = runtime.executor.await_message(runtime.fabric, header, form, &peers, is_late)?;
        Ok(found.and_then(|peer| self.world_ranks.iter().position(|&rank| rank == peer)))
    }

    /// Tells every rank that this one cannot go on, and why. The first failure of a job is the one that all get. Works
    /// while another thread is in a call.
    pub fn abort(&self, host: &str, cause: &str, traceback: &str) {
        self.shared.remote().report(JobFailure::RankFailed {
            rank: self.shared.rank(),
            host: host.to_string(),
            cause: cause.to_string(),
            traceback: traceback.to_string(),
        });
    }

    /// Tells those who are left of a failure that this rank's program is over: they go on without it, and do not wait
    /// for it in [`Communicator::shrink`].
    pub fn withdraw(&self) {
        self.shared.remote().withdraw();
    }

    /// Closes the communicator: every later call on it gives [`Error::Closed`]. Closing the world ends what is in
    /// flight first, then closes all that was split from it and leaves the job in good order. Closing a part of it
    /// waits for nothing, and what is in flight on that goes on.
    pub fn close(&self) {
        match self.number {
            0 => self.shared.close(),
            number if !self.is_closed.swap(true, Ordering::AcqRel) => self.shared.retire(number),
            _ => {}
        }
    }

    /// The core, unless this communicator is closed.
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
