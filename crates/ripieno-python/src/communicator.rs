//! The communicator for Python: collectives in place on C-contiguous arrays.
//!
//! Every collective waits for its end, or with `later=True` returns a handle at once.

use crate::address_exchange::AddressExchange;
use crate::arrays::ArrayBytes;
use crate::broadcasts::PendingMesh;
use crate::errors;
use crate::functions::{self, Raised, RowCombiner};
use crate::handle::{Handle, HandleMemory};
use crate::interruption::Interruption;
use crate::keyed::{self, Aggregation, KeyedArrays, RegroupArguments};
use crate::measuring;
use crate::plans::CheckedPlans;
use crate::recorder::{self, RecorderIdentity};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use ripieno::net::{Config, Encryption, LinkPolicy, Ports, Token};
use ripieno::{
    Algorithm, BufferMemory, Collective, CollectiveTask, Element, ElementShape, ElementType, Error, JobFailure,
    NO_MEMORY, Op, Overrides, WholeBuffer,
};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

type InputArray<'a, 'py> = &'a Bound<'py, PyUntypedArray>;

/// Result of a collective: nothing, or a handle if it is asynchronous.
type StartedCall = PyResult<Option<Handle>>;

/// One rank's handle to a group of ranks.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Communicator {
    inner: ripieno::Communicator,
    interruption: Interruption,
    identity: RecorderIdentity,
    config: Config,
    #[pyo3(get)]
    rank: usize,
    #[pyo3(get)]
    world_size: usize,
    #[pyo3(get)]
    replicas: usize,
    #[pyo3(get)]
    replica: usize,
    #[pyo3(get)]
    world_ranks: Vec<usize>,
    #[pyo3(get)]
    hosts: Vec<String>,
    #[pyo3(get)]
    nodes: Vec<usize>,
    racks: Mutex<KnownRacks>,
}

/// The rack of each rank.
#[derive(Clone)]
struct KnownRacks {
    names: Vec<Option<String>>,
    /// Whether the racks were adopted after the ranks connected. Survivors must then adopt them again.
    is_adopted: bool,
}

impl KnownRacks {
    /// Return the racks of some ranks.
    fn of(&self, ranks: &[usize]) -> KnownRacks {
        KnownRacks { names: ranks.iter().map(|&rank| self.names[rank].clone()).collect(), ..*self }
    }

    /// Return a number for each rank, equal for equal racks.
    fn numbers(&self) -> Vec<usize> {
        let first = |name| self.names.iter().position(|other| other == name).expect("the name is in the list");
        self.names.iter().map(first).collect()
    }
}

#[pymethods]
impl Communicator {
    /// Connect to the other ranks, over `exchange`, a TCP store or a shared directory.
    #[staticmethod]
    #[pyo3(signature = (rank, world_size, exchange=None, *, token, replicas=1, tcp_store=None, directory=None,
        bind_host=None,
        rack=None, ports=None, rendezvous_timeout_s=60.0, heartbeat_timeout_s=10.0, links="auto",
        tls=None, flight_folder=None))]
    #[allow(clippy::too_many_arguments)]
    fn connect(
        py: Python<'_>,
        rank: usize,
        world_size: usize,
        exchange: Option<Py<PyAny>>,
        token: &[u8],
        replicas: usize,
        tcp_store: Option<(String, u16)>,
        directory: Option<PathBuf>,
        bind_host: Option<String>,
        rack: Option<String>,
        ports: Option<(u16, u16)>,
        rendezvous_timeout_s: f64,
        heartbeat_timeout_s: f64,
        links: &str,
        tls: Option<bool>,
        flight_folder: Option<String>,
    ) -> PyResult<Communicator> {
        let mut config = Config::new(rank, world_size, Token::from_secret(token));
        config.replicas = replicas;
        config.host = bind_host;
        config.rack = rack;
        config.ports = ports.map(|(first, last)| Ports { first, last }).unwrap_or_default();
        config.links = parse_links(links)?;
        config.tls = Encryption::from_setting(tls);
        config.rendezvous_timeout = seconds("rendezvous_timeout_s", rendezvous_timeout_s)?;
        config.heartbeat_timeout = seconds("heartbeat_timeout_s", heartbeat_timeout_s)?;
        let overrides = std::env::var_os("RIPIENO_ALGORITHM").unwrap_or_default();
        let overrides = Overrides::parse(&overrides.to_string_lossy())
            .map_err(|error| errors::input(format!("RIPIENO_ALGORITHM: {error}")))?;
        let address_exchange = AddressExchange::parse(exchange, tcp_store, directory)?;
        let endpoint = address_exchange.connect(py, config.clone())?;
        let identity = RecorderIdentity::new(&endpoint, flight_folder);
        let hosts = (0..world_size).map(|rank| endpoint.host(rank).to_string()).collect();
        let racks = (0..world_size).map(|rank| endpoint.rack(rank).map(str::to_string)).collect();
        let inner = ripieno::Communicator::new(Box::new(endpoint));
        inner.set_overrides(overrides).map_err(errors::from_collective)?;
        identity.keep_records(&inner).map_err(errors::from_collective)?;
        let nodes = inner.topology().nodes();
        let world_ranks = (0..world_size).collect();
        let interruption = Interruption::default();
        inner.set_interrupt(interruption.clone().check()).map_err(errors::from_collective)?;
        let (replicas, replica) = (inner.replicas(), inner.replica());
        Ok(Communicator {
            inner,
            interruption,
            identity,
            config,
            rank,
            world_size,
            replicas,
            replica,
            world_ranks,
            hosts,
            nodes,
            racks: Mutex::new(KnownRacks { names: racks, is_adopted: false }),
        })
    }

    /// Return the rack of each rank.
    #[getter]
    fn racks(&self) -> Vec<Option<String>> {
        self.known_racks().names
    }

    /// Plan all later calls for these racks, one per rank.
    fn adopt_racks(&self, py: Python<'_>, names: Vec<String>) -> PyResult<()> {
        let racks = KnownRacks { names: names.into_iter().map(Some).collect(), is_adopted: true };
        let numbers = racks.numbers();
        self.call(py, |inner| inner.adopt_racks(&numbers))?;
        *self.racks.lock().unwrap_or_else(PoisonError::into_inner) = racks;
        Ok(())
    }

    /// Perform a task: a tuple of the name of a collective and its arguments, as [`Communicator::with_task`] lists.
    #[pyo3(signature = (task, array, algorithm=None, signature=None, output=None, *, later=false))]
    #[allow(clippy::too_many_arguments)]
    fn collective(
        &self,
        py: Python<'_>,
        task: &Bound<'_, PyTuple>,
        array: InputArray,
        algorithm: Option<&str>,
        signature: Option<&str>,
        output: Option<InputArray>,
        later: bool,
    ) -> StartedCall {
        self.with_task(task, parse_op, |task| self.perform(py, task, array, output, algorithm, signature, later))
    }

    /// Run this rank's plan of a checked set on its buffers. `signature` describes the set.
    #[pyo3(signature = (array, plans, output=None, signature=None, *, later=false))]
    fn run_plan(
        &self,
        py: Python<'_>,
        array: InputArray,
        plans: &CheckedPlans,
        output: Option<InputArray>,
        signature: Option<&str>,
        later: bool,
    ) -> StartedCall {
        let (bytes, only_reads) = (ArrayBytes::of(array)?, plans.0.only_reads(self.rank));
        let shape = signature.map_or(ElementShape::Vector, ElementShape::Described);
        let elements = ElementType { element: bytes.element, shape };
        if later {
            let memory = HandleMemory::arrays(array, output, only_reads)?;
            let handle = self.call(py, |inner| inner.start_plan(&plans.0, elements, memory))?;
            return Ok(Some(self.handle(handle, None)));
        }
        let into = output.map(|output| ArrayBytes::of(output)?.write()).transpose()?;
        let memory = [bytes.memory(only_reads)?, into.map_or(NO_MEMORY, BufferMemory::Write)];
        self.call(py, |inner| inner.run_plan(&plans.0, elements, memory)).map(|()| None)
    }

    /// Return after every rank has entered the barrier.
    #[pyo3(signature = (algorithm=None, *, later=false))]
    fn barrier(&self, py: Python<'_>, algorithm: Option<&str>, later: bool) -> StartedCall {
        let task = CollectiveTask::Barrier { token: WholeBuffer };
        if later {
            return self.begin(py, &task, Element::U8.into(), algorithm, HandleMemory::Token([0]));
        }
        let memory = [BufferMemory::Write(&mut [0]), NO_MEMORY];
        self.run(py, &task, Element::U8.into(), algorithm, memory).map(|()| None)
    }

    /// Reduce rows of `row_bytes` bytes by a function. A Python function gets the address of the rows of lower ranks,
    /// which it updates, the address of the other rows, and their size in bytes. The function may also be the address
    /// of a foreign function, or "argmin" or "argmax" with an element type.
    #[pyo3(signature = (task, array, combine, row_bytes, signature, algorithm=None, *, later=false))]
    #[allow(clippy::too_many_arguments)]
    fn reduce_by(
        &self,
        py: Python<'_>,
        task: &Bound<'_, PyTuple>,
        array: InputArray,
        combine: RowCombiner,
        row_bytes: usize,
        signature: &str,
        algorithm: Option<&str>,
        later: bool,
    ) -> StartedCall {
        self.with_task(
            task,
            |_| Ok(Op::Function),
            |task| functions::perform(py, self, task, array, combine, row_bytes, signature, algorithm, later),
        )
    }

    /// Wait until one of `sources` has sent a message to this rank, and return the source; None after `timeout_s`. If
    /// `signature` is given, the message must have this signature.
    #[pyo3(signature = (sources, signature=None, timeout_s=None))]
    fn await_message(
        &self,
        py: Python<'_>,
        sources: Vec<usize>,
        signature: Option<&str>,
        timeout_s: Option<f64>,
    ) -> PyResult<Option<usize>> {
        let timeout = timeout_s.map(|timeout_s| seconds("timeout_s", timeout_s)).transpose()?;
        self.call(py, |inner| inner.await_message(&sources, signature, timeout))
    }

    /// Send the rows of an aggregation to the owners of their keys.
    #[pyo3(signature = (aggregation, call="", merge=None, balanced=false, wave_bytes=None, eager_bytes=None, pulls=None,
        threads=None, memory_limit_bytes=None, on_block=None))]
    #[allow(clippy::too_many_arguments)]
    fn regroup<'py>(
        &self,
        py: Python<'py>,
        aggregation: &Aggregation,
        call: &str,
        merge: Option<&str>,
        balanced: bool,
        wave_bytes: Option<u64>,
        eager_bytes: Option<usize>,
        pulls: Option<NonZeroUsize>,
        threads: Option<NonZeroUsize>,
        memory_limit_bytes: Option<u64>,
        on_block: Option<Py<PyAny>>,
    ) -> PyResult<(Option<KeyedArrays>, Bound<'py, PyDict>)> {
        let request =
            RegroupArguments { call, merge, balanced, wave_bytes, eager_bytes, pulls, threads, memory_limit_bytes };
        keyed::regroup(py, self, aggregation, &request, on_block)
    }

    /// Create the communicator of the ranks of one color, ordered by `key`; None for ranks without a color.
    #[pyo3(signature = (color, key))]
    fn split(&self, py: Python<'_>, color: Option<u32>, key: i64) -> PyResult<Option<Communicator>> {
        Ok(self.call(py, |inner| inner.split(color, key))?.map(|inner| self.part(inner)))
    }

    /// Create the communicator of these ranks, in this order. Only these ranks call this.
    fn group(&self, py: Python<'_>, ranks: Vec<usize>) -> PyResult<Communicator> {
        Ok(self.part(self.call(py, |inner| inner.group(&ranks))?))
    }

    /// Create the communicator of the logical ranks of a world that was started with `replicas` replicas.
    fn replicate(&self, py: Python<'_>, replicas: usize) -> PyResult<Communicator> {
        Ok(self.part(self.call(py, |inner| inner.replicate(replicas))?))
    }

    /// Create the communicator of the survivors of a failed world. Return it with the former ranks of the survivors,
    /// and the failure.
    fn shrink(&self, py: Python<'_>) -> PyResult<(Communicator, Vec<usize>, PyErr)> {
        let survivors = self.call(py, ripieno::Communicator::shrink)?;
        let failure = errors::from_collective(Error::Failed(survivors.failure));
        let (inner, places) = (survivors.communicator, survivors.former_ranks);
        let (rank, world_size) = (inner.rank(), inner.world_size());
        let identity = self.identity.in_world(survivors.job, rank, world_size);
        identity.keep_records(&inner).map_err(errors::from_collective)?;
        inner.set_interrupt(self.interruption.clone().check()).map_err(errors::from_collective)?;
        let racks = self.known_racks().of(&places);
        if racks.is_adopted {
            inner.adopt_racks(&racks.numbers()).map_err(errors::from_collective)?;
        }
        let communicator = Communicator {
            interruption: self.interruption.clone(),
            identity,
            config: Config { rank, world_size, ..self.config.clone() },
            rank,
            world_size,
            replicas: 1,
            replica: 0,
            world_ranks: (0..world_size).collect(),
            hosts: places.iter().map(|&place| self.hosts[place].clone()).collect(),
            nodes: inner.topology().nodes(),
            racks: Mutex::new(racks),
            inner,
        };
        Ok((communicator, places, failure))
    }

    /// Return the dead ranks of the world that have a live replica.
    fn lost(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        let losses = self.call(py, ripieno::Communicator::losses)?;
        let rank = |failure: &JobFailure| match failure {
            JobFailure::RankFailed { rank, .. } => Some(*rank),
            JobFailure::Mismatch { .. } => None,
        };
        Ok(losses.iter().filter_map(rank).collect())
    }

    /// Report a failure of this rank, with its cause, to every rank.
    fn abort(&self, py: Python<'_>, cause: &str, traceback: &str) {
        py.detach(|| self.inner.abort(cause, traceback));
    }

    /// Report to every rank that this rank's program has ended. Survivors of a failure then do not wait for it.
    fn withdraw(&self, py: Python<'_>) {
        py.detach(|| self.inner.withdraw());
    }

    /// Complete the runs in flight and leave the job. A part of the world is only closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.close());
        self.interruption_of_close().map_or(Ok(()), Err)
    }

    /// Listen for connections of the other ranks of this communicator, for broadcast variables.
    fn pending_mesh(&self) -> PyResult<PendingMesh> {
        let (rank, world_size) = (self.rank, self.world_size);
        let config = Config { rank, world_size, replicas: 1, ..self.config.clone() };
        PendingMesh::new(config, self.interruption.clone())
    }

    /// Return the counters of this communicator.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        // Release the interpreter: a thread in a call acquires it each time it has slept.
        let statistics = self.call(py, ripieno::Communicator::statistics)?;
        let entries = PyDict::new(py);
        entries.set_item("call_count", statistics.call_count)?;
        entries.set_item("seconds_communicating", statistics.communicating.as_secs_f64())?;
        entries.set_item("bytes_sent", statistics.sent_bytes)?;
        entries.set_item("zero_copy_bytes", statistics.zero_copy_bytes)?;
        entries.set_item("bytes_received", statistics.received_bytes)?;
        Ok(entries)
    }

    /// Return the latest `count` collectives of this rank, by default all recorded ones, and the identity of the rank.
    #[pyo3(signature = (count=None))]
    fn flight<'py>(&self, py: Python<'py>, count: Option<usize>) -> PyResult<Bound<'py, PyDict>> {
        let flight = py.detach(|| self.inner.flight(count)).map_err(errors::from_collective)?;
        recorder::flight(py, &self.identity, flight)
    }

    /// Return the measured costs of the open links to ranks of this host, by world rank.
    fn pair_costs<'py>(&self, py: Python<'py>) -> PyResult<Vec<(usize, Bound<'py, PyDict>)>> {
        let costs = self.call(py, ripieno::Communicator::pair_costs)?;
        costs.into_iter().map(|(rank, costs)| Ok((rank, measuring::pair_entries(py, costs)?))).collect()
    }

    /// Return the fallback links in use, by world rank: the kind of the link, and the reason for the fallback.
    fn fallback_links(&self, py: Python<'_>) -> PyResult<Vec<(usize, String)>> {
        self.call(py, |inner| inner.fallback_links())
    }

    /// Return the communication counters of this rank since the first call of this method. `now_s` is a time on the
    /// monotonic clock. The method does not wait for calls of other threads.
    fn traffic<'py>(&self, py: Python<'py>, now_s: f64) -> PyResult<Bound<'py, PyDict>> {
        let now = seconds("now_s", now_s)?;
        recorder::traffic(py, now, self.inner.traffic(now))
    }

    /// Return the collective for which the program waits at `now_s`, a time on the monotonic clock: its text, the
    /// seconds and the rank that it waits for. The method does not wait for calls of other threads.
    fn stalled(&self, now_s: f64) -> PyResult<Option<(String, f64, Option<usize>)>> {
        let stalled = self.inner.stalled(seconds("now_s", now_s)?);
        Ok(stalled.map(|record| (record.to_string(), recorder::seconds(record.waiting()), record.waited_for())))
    }
}

impl Communicator {
    fn known_racks(&self) -> KnownRacks {
        self.racks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Wrap a communicator of some ranks of this communicator.
    fn part(&self, inner: ripieno::Communicator) -> Communicator {
        // The rank of each member in this communicator.
        let places: Vec<usize> =
            inner.world_ranks().iter().filter_map(|rank| self.world_ranks.iter().position(|r| r == rank)).collect();
        Communicator {
            interruption: self.interruption.clone(),
            identity: self.identity.clone(),
            config: self.config.clone(),
            rank: inner.rank(),
            world_size: inner.world_size(),
            replicas: inner.replicas(),
            replica: inner.replica(),
            world_ranks: inner.world_ranks().to_vec(),
            hosts: places.iter().map(|&place| self.hosts[place].clone()).collect(),
            nodes: inner.topology().nodes(),
            racks: Mutex::new(self.known_racks().of(&places)),
            inner,
        }
    }

    /// Return the exception that a signal handler raised while the world was closed, if any.
    fn interruption_of_close(&self) -> Option<PyErr> {
        self.inner.is_world().then(|| self.interruption.take()).flatten()
    }

    /// Call `perform` with a task. The tuple has the name of a collective and its arguments:
    ///
    /// - a root: `("broadcast", root)`
    /// - operations: `("allreduce" | "scan" | "exscan", op)`, `("reduce", op, root)`
    /// - elements per rank: `("allgather", counts)`, `("gather" | "scatter", counts, root)`,
    ///   `("reduce_scatter", counts, op)`, `("alltoall", out_counts, in_counts)`
    /// - other ranks: `("send", to)`, `("receive", source)`, `("rotate", distance)`
    /// - elements per (peer, count): `("neighbour_exchange", out_peers, in_peers)`
    fn with_task<R>(
        &self,
        arguments: &Bound<'_, PyTuple>,
        parse_op: impl Fn(&str) -> PyResult<Op>,
        perform: impl FnOnce(&CollectiveTask<'_>) -> PyResult<R>,
    ) -> PyResult<R> {
        let vector = WholeBuffer;
        let number = |at| arguments.get_item(at)?.extract::<usize>();
        let counts = |at| arguments.get_item(at)?.extract::<Vec<usize>>();
        let peers = |at| arguments.get_item(at)?.extract::<Vec<(usize, usize)>>();
        let op = |at| parse_op(arguments.get_item(at)?.cast::<PyString>()?.to_str()?);
        match arguments.get_item(0)?.cast::<PyString>()?.to_str()? {
            "broadcast" => perform(&CollectiveTask::Broadcast { root: number(1)?, vector }),
            "reduce" => perform(&CollectiveTask::Reduce { op: op(1)?, root: number(2)?, vector }),
            "allreduce" => perform(&CollectiveTask::Allreduce { op: op(1)?, vector }),
            "scan" => perform(&CollectiveTask::Scan { op: op(1)?, vector }),
            "exscan" => perform(&CollectiveTask::Exscan { op: op(1)?, vector }),
            "allgather" => perform(&CollectiveTask::Allgather { chunks: &counts(1)? }),
            "gather" => perform(&CollectiveTask::Gather { chunks: &counts(1)?, root: number(2)? }),
            "scatter" => perform(&CollectiveTask::Scatter { chunks: &counts(1)?, root: number(2)? }),
            "reduce_scatter" => perform(&CollectiveTask::ReduceScatter { chunks: &counts(1)?, op: op(2)? }),
            "alltoall" => perform(&CollectiveTask::Alltoall { out_chunks: &counts(1)?, in_chunks: &counts(2)? }),
            "rotate" => perform(&CollectiveTask::Rotate { distance: number(1)?, out: vector, into: vector }),
            "neighbour_exchange" => perform(&CollectiveTask::NeighbourExchange { out: &peers(1)?, into: &peers(2)? }),
            "send" => perform(&CollectiveTask::PointToPoint { from: self.rank, to: number(1)?, vector }),
            "receive" => perform(&CollectiveTask::PointToPoint { from: number(1)?, to: self.rank, vector }),
            name => Err(errors::input(format!("task={name:?}: expected the name of a collective"))),
        }
    }

    /// Perform a task on arrays, asynchronously if `later`. The default signature is the shape of the first array.
    #[allow(clippy::too_many_arguments)]
    fn perform(
        &self,
        py: Python<'_>,
        task: &CollectiveTask<'_>,
        main: InputArray,
        output: Option<InputArray>,
        algorithm: Option<&str>,
        signature: Option<&str>,
        later: bool,
    ) -> StartedCall {
        let (bytes, only_reads) = (ArrayBytes::of(main)?, self.inner.only_reads(task, main.len()));
        let shape = match signature {
            Some(signature) => ElementShape::Described(signature),
            None if main.ndim() == 1 => ElementShape::Vector,
            None => ElementShape::Axes(main.shape()),
        };
        let elements = ElementType { element: bytes.element, shape };
        if later {
            return self.begin(py, task, elements, algorithm, HandleMemory::arrays(main, output, only_reads)?);
        }
        let memory = bytes.memory(only_reads)?;
        let into = output.map(|output| ArrayBytes::of(output)?.write()).transpose()?;
        let into = into.map_or(NO_MEMORY, BufferMemory::Write);
        self.run(py, task, elements, algorithm, [memory, into]).map(|()| None)
    }

    /// Run a task. Release the interpreter only if the task may wait, because this takes longer than the rest of a
    /// short call.
    #[inline]
    pub(crate) fn run(
        &self,
        py: Python<'_>,
        task: &CollectiveTask<'_>,
        elements: ElementType<'_>,
        algorithm: Option<&str>,
        memory: [BufferMemory<'_>; 2],
    ) -> PyResult<()> {
        let release = &mut |section: &mut (dyn FnMut() + Send)| py.detach(section);
        let done = self.inner.run_with_section(task, elements, algorithm, memory, release);
        done.map_err(|error| exception_of(py, error, &self.inner, &self.interruption, &self.identity))
    }

    fn begin(
        &self,
        py: Python<'_>,
        task: &CollectiveTask<'_>,
        elements: ElementType<'_>,
        algorithm: Option<&str>,
        memory: HandleMemory,
    ) -> StartedCall {
        let handle = self.call(py, |inner| inner.start(task, elements, algorithm, memory))?;
        Ok(Some(self.handle(handle, None)))
    }

    /// Create the handle of an asynchronous call. `raised` stores the exception of its function, if it has one.
    pub(crate) fn handle(&self, inner: ripieno::Handle<HandleMemory>, raised: Option<Raised>) -> Handle {
        Handle::new(inner, self.interruption.clone(), raised)
    }

    pub(crate) fn inner(&self) -> &ripieno::Communicator {
        &self.inner
    }

    /// Call `collective` with the interpreter released.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        collective: impl FnOnce(&ripieno::Communicator) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| collective(&self.inner));
        done.map_err(|error| exception_of(py, error, &self.inner, &self.interruption, &self.identity))
    }
}

impl Drop for Communicator {
    /// Close the communicator with the interpreter released: closing the world waits for calls, which acquire the
    /// interpreter.
    fn drop(&mut self) {
        Python::attach(|py| {
            let pending = PyErr::take(py);
            py.detach(|| self.inner.close());
            if let Some(raised) = self.interruption_of_close() {
                raised.write_unraisable(py, None);
            }
            if let Some(pending) = pending {
                pending.restore(py);
            }
        });
    }
}

/// Return the exception for an error of a collective: the exception of a signal handler if there is one, else the
/// error. An error that ends the job carries the latest records.
pub(crate) fn exception_of(
    py: Python<'_>,
    error: Error,
    inner: &ripieno::Communicator,
    interruption: &Interruption,
    identity: &RecorderIdentity,
) -> PyErr {
    let flight = error.ends_job().then(|| py.detach(|| inner.flight(identity.count_for_error())));
    let raised = interruption.exception(error);
    match flight {
        Some(Ok(flight)) => recorder::attach(py, raised, recorder::flight(py, identity, flight)),
        _ => raised,
    }
}

/// Take the exception of a function of the program, if it raised one.
pub(crate) fn take_raised(raised: &Raised) -> Option<PyErr> {
    raised.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Describe an exception for the other ranks: its message and its traceback.
pub(crate) fn cause_and_traceback(py: Python<'_>, error: &PyErr) -> (String, String) {
    let described = py.import("ripieno.comm").and_then(|comm| comm.call_method1("describe", (error.value(py),)));
    described.and_then(|it| it.extract()).unwrap_or((error.to_string(), String::new()))
}

/// Return the names of the algorithms of a collective, in the order of their numbers.
#[pyfunction]
pub fn algorithms(collective: &str) -> PyResult<Vec<&'static str>> {
    Ok(Algorithm::of(parse_collective(collective)?).map(|algorithm| algorithm.name).collect())
}

/// Return a report on the resources of this machine, and their problems.
#[pyfunction]
#[pyo3(signature = (world_size=2, *, bind_host=None, ports=None))]
pub fn doctor<'py>(
    py: Python<'py>,
    world_size: usize,
    bind_host: Option<String>,
    ports: Option<(u16, u16)>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut config = Config::new(0, world_size, Token::from_secret([]));
    config.host = bind_host;
    config.ports = ports.map(|(first, last)| Ports { first, last }).unwrap_or_default();
    let report = py.detach(|| ripieno::net::probe::probe(&config));
    let text = serde_json::to_string(&report).expect("a report is plain data");
    py.import("json")?.call_method1("loads", (text,))
}

/// Return the collective with this name. The name may have hyphens or underscores.
pub(crate) fn parse_collective(name: &str) -> PyResult<Collective> {
    let known = Collective::catalogued().find(|known| known.name() == name.replace('_', "-"));
    known.ok_or_else(|| {
        let names: Vec<&str> = Collective::catalogued().map(Collective::name).collect();
        errors::input(format!("collective={name:?}: expected one of {}", names.join(", ")))
    })
}

pub(crate) fn parse_op(name: &str) -> PyResult<Op> {
    let op = Op::ALL.into_iter().find(|op| op.name() == name);
    op.ok_or_else(|| errors::input(format!("op={name:?}: expected one of {}", Op::ALL.map(Op::name).join(", "))))
}

fn parse_links(name: &str) -> PyResult<LinkPolicy> {
    match name {
        "auto" => Ok(LinkPolicy::Auto),
        "tcp" => Ok(LinkPolicy::Tcp),
        "shared-memory" => Ok(LinkPolicy::SharedMemory),
        _ => Err(errors::input(format!("links={name:?}: expected auto, tcp or shared-memory"))),
    }
}

pub(crate) fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| errors::input(format!("{name}={value}: expected a positive number of seconds")))
}
