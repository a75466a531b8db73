//! The communicator: collectives over bytes of typed elements.
//!
//! Every method is called by every rank of the world, in the same order; ranks that disagree all get an error that says
//! who called what. All work in place: a vector is read from, received into and left where it is. `algorithm` names one of
//! the catalogue, or an [order](ripieno_plan::Order) of its ranks, or both (`chain@random:7`); `None` leaves the choice to
//! the [`Overrides`], and these to [`choose`](ripieno_plan::choose).

use crate::choice::{Choice, Overrides};
use crate::error::Error;
use crate::flight::{self, Flight};
use crate::pool::BufferPool;
use crate::schedules::Schedules;
use ripieno_plan::{Algorithm, Buffer, Collective, Group, Op, Plan, Request, Span, Topology, Unsuitable};
use ripieno_run::{Call, Element, Executor, Fabric, Failure, Header, Memory, Schedule};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// What takes the place of a buffer that a collective does not have.
const NO_MEMORY: Memory<'static> = Memory::Read(&[]);

/// One rank's end of a world of ranks.
pub struct Communicator {
    fabric: Box<dyn Fabric>,
    group: Group,
    executor: Executor,
    schedules: Schedules,
    overrides: Overrides,
    /// Memory lent to plans that need some beside the caller's.
    scratch: BufferPool,
    sequence: u64,
    /// Messages so far, by sender and receiver.
    messages: BTreeMap<(usize, usize), u64>,
    statistics: Statistics,
}

/// What a communicator has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Calls that ended well.
    pub call_count: u64,
    /// Time inside calls.
    pub communicating: Duration,
    /// Payload bytes that left this rank.
    pub sent_bytes: u64,
    /// Payload bytes that reached this rank.
    pub received_bytes: u64,
}

/// What a caller asks for, beside the memory it concerns.
struct Ask<'a> {
    collective: Collective,
    element: Element,
    op: Option<Op>,
    root: usize,
    element_count: usize,
    counts: &'a [usize],
    algorithm: Option<&'a str>,
}

impl Communicator {
    /// The communicator of the rank whose world is `fabric`.
    pub fn new(fabric: Box<dyn Fabric>) -> Communicator {
        let group = Group::with_topology(fabric.rank(), fabric.topology());
        Communicator {
            fabric,
            group,
            executor: Executor::default(),
            schedules: Schedules::default(),
            overrides: Overrides::default(),
            scratch: BufferPool::default(),
            sequence: 0,
            messages: BTreeMap::new(),
            statistics: Statistics::default(),
        }
    }

    /// Asks `interrupt`, each time this rank has slept, whether to give up waiting.
    pub fn set_interrupt(&mut self, interrupt: impl FnMut() -> bool + Send + 'static) {
        self.executor.interrupt = Some(Box::new(interrupt));
    }

    /// What runs when a call names no algorithm. All ranks must set the same.
    pub fn set_overrides(&mut self, overrides: Overrides) {
        self.overrides = overrides;
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.group.rank()
    }

    /// How many ranks.
    pub fn world_size(&self) -> usize {
        self.group.size()
    }

    /// Where the ranks stand.
    pub fn topology(&self) -> &Topology {
        self.group.topology()
    }

    /// The algorithm that runs when the caller of `collective` names none, for a vector (all chunks together) of
    /// `size_bytes`.
    pub fn choice(&self, collective: Collective, size_bytes: usize) -> &'static Algorithm {
        self.overrides.unasked(collective, &self.group, size_bytes).algorithm
    }

    /// What was done so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The latest `count` collectives of this rank, or all that are kept: some thousands.
    pub fn flight(&self, count: Option<usize>) -> Flight {
        Flight::of(&self.executor.recorder, count, self.fabric.now())
    }

    /// Keeps the last `count` collectives from now on, and the times of all: two looks at the clock for each.
    pub fn keep_records(&mut self, count: usize) {
        flight::keep(&mut self.executor, count);
    }

    /// Every rank's `vector` becomes the root's. The root's is only read.
    pub fn broadcast(
        &mut self,
        vector: Memory<'_>,
        element: Element,
        root: usize,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.check_rank("root", root)?;
        let whole = whole(&vector, element)?;
        let ask = Ask { root, ..ask(Collective::Broadcast, element, whole, algorithm) };
        self.run(&ask, [vector, NO_MEMORY], |algorithm, group| {
            algorithm.plan(group, &Request::Broadcast { root, vector: whole })
        })
    }

    /// The root's `vector` becomes the combination of all; the others' are scratch.
    pub fn reduce(
        &mut self,
        vector: &mut [u8],
        element: Element,
        op: Op,
        root: usize,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.check_rank("root", root)?;
        let vector = Memory::Write(vector);
        let whole = whole(&vector, element)?;
        let ask = Ask { root, op: Some(op), ..ask(Collective::Reduce, element, whole, algorithm) };
        self.run(&ask, [vector, NO_MEMORY], |algorithm, group| {
            algorithm.plan(group, &Request::Reduce { root, vector: whole, op })
        })
    }

    /// Every rank's `vector` becomes the combination of all, the same bits on every rank and in every run.
    pub fn allreduce(
        &mut self,
        vector: &mut [u8],
        element: Element,
        op: Op,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        let vector = Memory::Write(vector);
        let whole = whole(&vector, element)?;
        let ask = Ask { op: Some(op), ..ask(Collective::Allreduce, element, whole, algorithm) };
        self.run(&ask, [vector, NO_MEMORY], |algorithm, group| {
            algorithm.plan(group, &Request::Allreduce { vector: whole, op })
        })
    }

    /// `vector` holds one chunk of `counts[rank]` elements per rank; each rank gives its own and gets all.
    pub fn allgather(
        &mut self,
        vector: &mut [u8],
        element: Element,
        counts: &[usize],
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        let vector = Memory::Write(vector);
        let whole = self.cut(&vector, element, counts)?;
        let ask = Ask { counts, ..ask(Collective::Allgather, element, whole, algorithm) };
        self.run(&ask, [vector, NO_MEMORY], |algorithm, group| {
            algorithm.plan(group, &Request::Allgather { chunks: &whole.split(counts) })
        })
    }

    /// `vector` holds one chunk of `counts[rank]` elements per rank; each rank's own becomes the combination of all,
    /// the rest is scratch.
    pub fn reduce_scatter(
        &mut self,
        vector: &mut [u8],
        element: Element,
        counts: &[usize],
        op: Op,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        let vector = Memory::Write(vector);
        let whole = self.cut(&vector, element, counts)?;
        let ask = Ask { counts, op: Some(op), ..ask(Collective::ReduceScatter, element, whole, algorithm) };
        self.run(&ask, [vector, NO_MEMORY], |algorithm, group| {
            algorithm.plan(group, &Request::ReduceScatter { chunks: &whole.split(counts), op })
        })
    }

    /// `vector` holds one chunk of `counts[rank]` elements per rank; each rank gives its own, the root gets all, what the
    /// others get is scratch.
    pub fn gather(
        &mut self,
        vector: &mut [u8],
        element: Element,
        counts: &[usize],
        root: usize,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.check_rank("root", root)?;
        let vector = Memory::Write(vector);
        let whole = self.cut(&vector, element, counts)?;
        let ask = Ask { counts, root, ..ask(Collective::Gather, element, whole, algorithm) };
        self.run(&ask, [vector, NO_MEMORY], |algorithm, group| {
            algorithm.plan(group, &Request::Gather { root, chunks: &whole.split(counts) })
        })
    }

    /// `vector` holds one chunk of `counts[rank]` elements per rank; the root gives all, each rank gets its own, what else
    /// it gets is scratch. The root's is only read.
    pub fn scatter(
        &mut self,
        vector: Memory<'_>,
        element: Element,
        counts: &[usize],
        root: usize,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        self.check_rank("root", root)?;
        let whole = self.cut(&vector, element, counts)?;
        let ask = Ask { counts, root, ..ask(Collective::Scatter, element, whole, algorithm) };
        self.run(&ask, [vector, NO_MEMORY], |algorithm, group| {
            algorithm.plan(group, &Request::Scatter { root, chunks: &whole.split(counts) })
        })
    }

    /// `out` holds one chunk per rank, that goes there; `into` gets one chunk per rank, that came from there.
    /// What one rank sends another must be what that one expects.
    pub fn alltoall(
        &mut self,
        out: &[u8],
        out_counts: &[usize],
        into: &mut [u8],
        in_counts: &[usize],
        element: Element,
        algorithm: Option<&str>,
    ) -> Result<(), Error> {
        let (out, into) = (Memory::Read(out), Memory::Write(into));
        let out_whole = self.cut(&out, element, out_counts)?;
        let in_whole = Span { buffer: Buffer::OUTPUT, ..self.cut(&into, element, in_counts)? };
        let counts = [out_counts, in_counts].concat();
        let ask = Ask { counts: &counts, ..ask(Collective::Alltoall, element, out_whole, algorithm) };
        self.run(&ask, [out, into], |algorithm, group| {
            let (out_chunks, in_chunks) = (&out_whole.split(out_counts), &in_whole.split(in_counts));
            algorithm.plan(group, &Request::Alltoall { out_chunks, in_chunks })
        })
    }

    /// Returns once every rank has come.
    pub fn barrier(&mut self, algorithm: Option<&str>) -> Result<(), Error> {
        let mut token = [0];
        let whole = Span::whole(Buffer::MAIN, 1, 1);
        let ask = Ask { op: Some(Op::Or), ..ask(Collective::Barrier, Element::U8, whole, algorithm) };
        self.run(&ask, [Memory::Write(&mut token), NO_MEMORY], |algorithm, group| {
            algorithm.plan(group, &Request::Barrier { token: whole })
        })
    }

    /// Gives `vector` to rank `to`, which calls [`Communicator::receive`] for as many elements.
    ///
    /// Between two ranks, messages and collectives keep their order: both call them in the same one.
    pub fn send(&mut self, vector: &[u8], element: Element, to: usize) -> Result<(), Error> {
        self.point_to_point(Memory::Read(vector), element, self.rank(), to)
    }

    /// Takes what rank `from` gives with [`Communicator::send`].
    pub fn receive(&mut self, vector: &mut [u8], element: Element, from: usize) -> Result<(), Error> {
        self.point_to_point(Memory::Write(vector), element, from, self.rank())
    }

    /// Tells every rank that this one cannot go on, and why. The first failure of a job is the one that all get.
    pub fn abort(&mut self, host: &str, cause: &str, traceback: &str) {
        self.fabric.report(Failure::RankFailed {
            rank: self.rank(),
            host: host.to_string(),
            cause: cause.to_string(),
            traceback: traceback.to_string(),
        });
    }

    fn point_to_point(&mut self, vector: Memory<'_>, element: Element, from: usize, to: usize) -> Result<(), Error> {
        let peer = if self.rank() == from { to } else { from };
        self.check_rank("peer", peer)?;
        if peer == self.rank() {
            return Err(argument("peer", peer, "another rank than this one"));
        }
        let whole = whole(&vector, element)?;
        let ask = Ask { root: to, counts: &[from], ..ask(Collective::PointToPoint, element, whole, None) };
        self.run(&ask, [vector, NO_MEMORY], |algorithm, group| {
            algorithm.plan(group, &Request::PointToPoint { from, to, vector: whole })
        })
    }

    /// Plans what is asked for, unless that was done before, and runs it.
    fn run(
        &mut self,
        ask: &Ask<'_>,
        [main, output]: [Memory<'_>; 2],
        plan: impl FnOnce(&Algorithm, &Group) -> Result<Plan, Unsuitable>,
    ) -> Result<(), Error> {
        let bytes = ask.element_count * ask.element.size_bytes();
        let choice = self.overrides.choice(ask.collective, ask.algorithm, &self.group, bytes)?;
        let call = ask.call(&choice);
        let group = &self.group;
        let schedule = self.schedules.get(call, choice.order, ask.counts, || {
            let plan = plan(choice.algorithm, &group.in_order(choice.order)).map_err(|unsuitable| {
                argument("algorithm", choice.algorithm.name, &format!("another one, because {unsuitable}"))
            })?;
            Ok::<_, Error>(Schedule::new(&plan))
        })?;
        let header = Header { sequence: *self.sequence_of(ask), call };
        let mut scratch = match schedule.scratch_bytes() {
            0 => None,
            length_bytes => Some(self.scratch.take(length_bytes)),
        };
        let scratch = scratch.as_mut().map_or(NO_MEMORY, |scratch| Memory::Write(scratch.bytes_mut()));
        let memory = &mut [main, output, scratch];
        let traffic = self.executor.run(&mut *self.fabric, header, &schedule, memory)?;
        *self.sequence_of(ask) += 1;
        self.statistics.call_count += 1;
        self.statistics.communicating += traffic.elapsed.unwrap_or_default();
        self.statistics.sent_bytes += traffic.sent_bytes;
        self.statistics.received_bytes += traffic.received_bytes;
        Ok(())
    }

    /// The number that the next such call gets on every rank that takes part in it.
    fn sequence_of(&mut self, ask: &Ask<'_>) -> &mut u64 {
        match (ask.collective, ask.counts) {
            (Collective::PointToPoint, &[from]) => self.messages.entry((from, ask.root)).or_default(),
            _ => &mut self.sequence,
        }
    }

    fn check_rank(&self, name: &'static str, rank: usize) -> Result<(), Error> {
        if rank < self.world_size() {
            return Ok(());
        }
        Err(argument(name, rank, &format!("0 to {}", self.world_size() - 1)))
    }

    /// The whole of `memory`, which must hold exactly the chunks that `counts` tells of.
    fn cut(&self, memory: &Memory<'_>, element: Element, counts: &[usize]) -> Result<Span, Error> {
        let whole = whole(memory, element)?;
        if counts.len() != self.world_size() {
            return Err(argument(
                "counts",
                format!("{counts:?}"),
                &format!("{} counts, one per rank", self.world_size()),
            ));
        }
        let total = counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count));
        if total != Some(whole.element_count()) {
            return Err(argument("counts", format!("{counts:?}"), &format!("a sum of {}", whole.element_count())));
        }
        Ok(whole)
    }
}

impl Ask<'_> {
    /// What other ranks must have asked for too.
    fn call(&self, choice: &Choice) -> Call {
        let (element_count, counts_hash) = match self.collective {
            Collective::Alltoall => (0, 0),
            Collective::Allgather | Collective::ReduceScatter | Collective::Gather | Collective::Scatter => {
                (self.element_count as u64, hash(self.counts))
            }
            _ => (self.element_count as u64, 0),
        };
        Call {
            collective: self.collective,
            algorithm: choice.algorithm.index,
            element: self.element,
            op: self.op,
            root: self.root as u32,
            element_count,
            counts_hash: counts_hash ^ u64::from(choice.order_hash()),
        }
    }
}

fn ask<'a>(collective: Collective, element: Element, whole: Span, algorithm: Option<&'a str>) -> Ask<'a> {
    Ask { collective, element, op: None, root: 0, element_count: whole.element_count(), counts: &[], algorithm }
}

/// All of `memory`, in whole elements.
fn whole(memory: &Memory<'_>, element: Element) -> Result<Span, Error> {
    let size_bytes = element.size_bytes();
    if !memory.len().is_multiple_of(size_bytes) {
        let expected = format!("a multiple of {size_bytes}, the size of {}", element.name());
        return Err(argument("length in bytes", memory.len(), &expected));
    }
    Ok(Span::whole(Buffer::MAIN, memory.len() / size_bytes, size_bytes))
}

/// The same on every rank: no seed, no address.
fn hash(counts: &[usize]) -> u64 {
    let mut hasher = DefaultHasher::new();
    counts.hash(&mut hasher);
    hasher.finish()
}

fn argument(name: &'static str, value: impl ToString, expected: &str) -> Error {
    Error::Argument { name, value: value.to_string(), expected: expected.to_string() }
}
