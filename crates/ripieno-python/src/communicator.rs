//! The communicator for Python: collectives in place on C-contiguous arrays.

use crate::arrays::Bytes;
use crate::errors;
use crate::interruption::Interruption;
use crate::recorder::{self, Whose};
use crate::supplier::Supplier;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ripieno::net::{Config, Links, Ports, Token};
use ripieno::{Algorithm, Collective, Error, Op, Overrides};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

type Array<'a, 'py> = &'a Bound<'py, PyUntypedArray>;

/// One rank's end of a world of ranks.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Communicator {
    inner: Mutex<Option<ripieno::Communicator>>,
    interruption: Interruption,
    whose: Whose,
    #[pyo3(get)]
    rank: usize,
    #[pyo3(get)]
    world_size: usize,
    #[pyo3(get)]
    hosts: Vec<String>,
    #[pyo3(get)]
    nodes: Vec<usize>,
    #[pyo3(get)]
    racks: Vec<Option<String>>,
}

#[pymethods]
impl Communicator {
    /// Meets the other ranks, over `exchange`, a TCP store or a shared directory.
    #[staticmethod]
    #[pyo3(signature = (rank, world_size, exchange=None, *, token, tcp_store=None, directory=None, bind_host=None,
        rack=None, ports=None, rendezvous_timeout_s=60.0, heartbeat_timeout_s=10.0, links="auto",
        flight_folder=None))]
    #[allow(clippy::too_many_arguments)]
    fn connect(
        py: Python<'_>,
        rank: usize,
        world_size: usize,
        exchange: Option<Py<PyAny>>,
        token: &[u8],
        tcp_store: Option<(String, u16)>,
        directory: Option<PathBuf>,
        bind_host: Option<String>,
        rack: Option<String>,
        ports: Option<(u16, u16)>,
        rendezvous_timeout_s: f64,
        heartbeat_timeout_s: f64,
        links: &str,
        flight_folder: Option<String>,
    ) -> PyResult<Communicator> {
        let mut config = Config::new(rank, world_size, Token::from_secret(token));
        config.host = bind_host;
        config.rack = rack;
        config.ports = ports.map(|(first, last)| Ports { first, last }).unwrap_or_default();
        config.links = parse_links(links)?;
        config.rendezvous_timeout = seconds("rendezvous_timeout_s", rendezvous_timeout_s)?;
        config.heartbeat_timeout = seconds("heartbeat_timeout_s", heartbeat_timeout_s)?;
        let overrides = std::env::var_os("RIPIENO_ALGORITHM").unwrap_or_default();
        let overrides = Overrides::parse(&overrides.to_string_lossy())
            .map_err(|error| errors::input(format!("RIPIENO_ALGORITHM: {error}")))?;
        let supplier = Supplier::parse(exchange, tcp_store, directory)?;
        let endpoint = supplier.meet(py, config)?;
        let whose = Whose::new(&endpoint, flight_folder);
        let hosts = (0..world_size).map(|rank| endpoint.host(rank).to_string()).collect();
        let racks = (0..world_size).map(|rank| endpoint.rack(rank).map(str::to_string)).collect();
        let mut inner = ripieno::Communicator::new(Box::new(endpoint));
        inner.set_overrides(overrides);
        whose.keep_records(&mut inner);
        let nodes = inner.topology().nodes();
        let interruption = Interruption::default();
        inner.set_interrupt(interruption.clone().check());
        Ok(Communicator { inner: Mutex::new(Some(inner)), interruption, whose, rank, world_size, hosts, nodes, racks })
    }

    /// Every rank's array becomes the root's.
    #[pyo3(signature = (array, root, algorithm=None))]
    fn broadcast(&self, py: Python<'_>, array: Array, root: usize, algorithm: Option<&str>) -> PyResult<()> {
        let bytes = Bytes::of(array)?;
        let memory = bytes.memory(self.rank == root)?;
        self.call(py, |inner| inner.broadcast(memory, bytes.element, root, algorithm))
    }

    /// The root's array becomes the combination of all; the others' are scratch.
    #[pyo3(signature = (array, op, root, algorithm=None))]
    fn reduce(&self, py: Python<'_>, array: Array, op: &str, root: usize, algorithm: Option<&str>) -> PyResult<()> {
        let (bytes, op) = (Bytes::of(array)?, parse_op(op)?);
        let vector = bytes.write()?;
        self.call(py, |inner| inner.reduce(vector, bytes.element, op, root, algorithm))
    }

    /// Every rank's array becomes the combination of all.
    #[pyo3(signature = (array, op, algorithm=None))]
    fn allreduce(&self, py: Python<'_>, array: Array, op: &str, algorithm: Option<&str>) -> PyResult<()> {
        let (bytes, op) = (Bytes::of(array)?, parse_op(op)?);
        let vector = bytes.write()?;
        self.call(py, |inner| inner.allreduce(vector, bytes.element, op, algorithm))
    }

    /// The array holds `counts[rank]` elements per rank; each rank gives its own and gets all.
    #[pyo3(signature = (array, counts, algorithm=None))]
    fn allgather(&self, py: Python<'_>, array: Array, counts: Vec<usize>, algorithm: Option<&str>) -> PyResult<()> {
        let bytes = Bytes::of(array)?;
        let vector = bytes.write()?;
        self.call(py, |inner| inner.allgather(vector, bytes.element, &counts, algorithm))
    }

    /// The array holds `counts[rank]` elements per rank; each rank's own become the combination of all.
    #[pyo3(signature = (array, counts, op, algorithm=None))]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        array: Array,
        counts: Vec<usize>,
        op: &str,
        algorithm: Option<&str>,
    ) -> PyResult<()> {
        let (bytes, op) = (Bytes::of(array)?, parse_op(op)?);
        let vector = bytes.write()?;
        self.call(py, |inner| inner.reduce_scatter(vector, bytes.element, &counts, op, algorithm))
    }

    /// The array holds `counts[rank]` elements per rank; each rank gives its own, the root gets all.
    #[pyo3(signature = (array, counts, root, algorithm=None))]
    fn gather(
        &self,
        py: Python<'_>,
        array: Array,
        counts: Vec<usize>,
        root: usize,
        algorithm: Option<&str>,
    ) -> PyResult<()> {
        let bytes = Bytes::of(array)?;
        let vector = bytes.write()?;
        self.call(py, |inner| inner.gather(vector, bytes.element, &counts, root, algorithm))
    }

    /// The array holds `counts[rank]` elements per rank; the root gives all, each rank gets its own.
    #[pyo3(signature = (array, counts, root, algorithm=None))]
    fn scatter(
        &self,
        py: Python<'_>,
        array: Array,
        counts: Vec<usize>,
        root: usize,
        algorithm: Option<&str>,
    ) -> PyResult<()> {
        let bytes = Bytes::of(array)?;
        let memory = bytes.memory(self.rank == root)?;
        self.call(py, |inner| inner.scatter(memory, bytes.element, &counts, root, algorithm))
    }

    /// `out_array` holds `out_counts[rank]` elements for each rank; `in_array` gets `in_counts[rank]` from each.
    #[pyo3(signature = (out_array, out_counts, in_array, in_counts, algorithm=None))]
    fn alltoall(
        &self,
        py: Python<'_>,
        out_array: Array,
        out_counts: Vec<usize>,
        in_array: Array,
        in_counts: Vec<usize>,
        algorithm: Option<&str>,
    ) -> PyResult<()> {
        let (out, into) = (Bytes::of(out_array)?, Bytes::of(in_array)?);
        let vector = into.write()?;
        self.call(py, |inner| inner.alltoall(out.read(), &out_counts, vector, &in_counts, out.element, algorithm))
    }

    /// Returns once every rank has come.
    #[pyo3(signature = (algorithm=None))]
    fn barrier(&self, py: Python<'_>, algorithm: Option<&str>) -> PyResult<()> {
        self.call(py, |inner| inner.barrier(algorithm))
    }

    /// Gives the array to rank `to`.
    fn send(&self, py: Python<'_>, array: Array, to: usize) -> PyResult<()> {
        let bytes = Bytes::of(array)?;
        self.call(py, |inner| inner.send(bytes.read(), bytes.element, to))
    }

    /// Fills the array with what rank `source` gives.
    fn receive(&self, py: Python<'_>, array: Array, source: usize) -> PyResult<()> {
        let bytes = Bytes::of(array)?;
        let vector = bytes.write()?;
        self.call(py, |inner| inner.receive(vector, bytes.element, source))
    }

    /// Tells every rank that this one cannot go on, and why.
    fn abort(&self, py: Python<'_>, cause: &str, traceback: &str) -> PyResult<()> {
        let host = &self.hosts[self.rank];
        self.call(py, |inner| {
            inner.abort(host, cause, traceback);
            Ok(())
        })
    }

    /// Leaves the job in good order.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.lock().take()));
    }

    /// What this communicator has done so far.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        // A thread inside a call holds the lock and asks for the interpreter each time it has slept.
        let statistics = py.detach(|| self.lock().as_ref().map(ripieno::Communicator::statistics));
        let statistics = statistics.ok_or_else(errors::closed)?;
        let entries = PyDict::new(py);
        entries.set_item("call_count", statistics.call_count)?;
        entries.set_item("seconds_communicating", statistics.communicating.as_secs_f64())?;
        entries.set_item("bytes_sent", statistics.sent_bytes)?;
        entries.set_item("bytes_received", statistics.received_bytes)?;
        Ok(entries)
    }

    /// The latest collectives of this rank, by default all that are kept, and whose they are.
    #[pyo3(signature = (count=None))]
    fn flight<'py>(&self, py: Python<'py>, count: Option<usize>) -> PyResult<Bound<'py, PyDict>> {
        let flight = py.detach(|| self.lock().as_ref().map(|inner| inner.flight(count))).ok_or_else(errors::closed)?;
        recorder::flight(py, &self.whose, flight)
    }
}

impl Communicator {
    /// Calls `collective` with the interpreter released.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        collective: impl FnOnce(&mut ripieno::Communicator) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| self.lock().as_mut().map(collective)).ok_or_else(errors::closed)?;
        done.map_err(|error| {
            let flight = error.ends_job().then(|| self.flight(py, self.whose.count_for_error()));
            let raised = self.interruption.take().unwrap_or_else(|| errors::from_collective(error));
            flight.map_or(raised.clone_ref(py), |flight| recorder::attach(py, raised, flight))
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<ripieno::Communicator>> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The names of the algorithms of a collective, in the order of their numbers.
#[pyfunction]
pub fn algorithms(collective: &str) -> PyResult<Vec<&'static str>> {
    Ok(Algorithm::of(parse_collective(collective)?).map(|algorithm| algorithm.name).collect())
}

/// What this machine offers to ranks, and what is wrong with it.
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

/// The collective of this name, with hyphens or underscores.
pub(crate) fn parse_collective(name: &str) -> PyResult<Collective> {
    let known = Collective::ALL.into_iter().find(|known| known.name() == name.replace('_', "-"));
    known.ok_or_else(|| {
        let names = Collective::ALL.map(Collective::name).join(", ");
        errors::input(format!("collective={name:?}: expected one of {names}"))
    })
}

fn parse_op(name: &str) -> PyResult<Op> {
    let op = Op::ALL.into_iter().find(|op| op.name() == name);
    op.ok_or_else(|| errors::input(format!("op={name:?}: expected one of {}", Op::ALL.map(Op::name).join(", "))))
}

fn parse_links(name: &str) -> PyResult<Links> {
    match name {
        "auto" => Ok(Links::Auto),
        "tcp" => Ok(Links::Tcp),
        "shared-memory" => Ok(Links::SharedMemory),
        _ => Err(errors::input(format!("links={name:?}: expected auto, tcp or shared-memory"))),
    }
}

pub(crate) fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| errors::input(format!("{name}={value}: expected a positive number of seconds")))
}
