//! Broadcast variables for Python, with their bytes as read-only memory.

use crate::arrays::ArrayBytes;
use crate::block_files::BlockFile;
use crate::errors;
use crate::interruption::Interruption;
use numpy::PyUntypedArray;
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ripieno::broadcasts::{self, BroadcastError, Discipline};
use ripieno::net::links::{self, HostMemory};
use ripieno::net::{Config, mesh};
use std::collections::BTreeMap;
use std::ffi::{OsString, c_int};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory for the values of this process, and the directory to which it moves values above its limit.
#[pyclass(frozen, module = "ripieno._native")]
pub struct ValueMemory {
    inner: links::ValueMemory,
}

#[pymethods]
impl ValueMemory {
    /// Create the memory. The default limit is half of the free memory, at most `max_bytes`.
    #[new]
    fn new(limit_bytes: Option<usize>, max_bytes: usize, directory: PathBuf) -> ValueMemory {
        ValueMemory { inner: links::ValueMemory::new(limit(limit_bytes, max_bytes), directory) }
    }

    /// Change the limit.
    fn set_limit(&self, limit_bytes: Option<usize>, max_bytes: usize, directory: PathBuf) {
        self.inner.set_limit(limit(limit_bytes, max_bytes), directory);
    }

    /// Return the limit and the memory in use, in bytes; the number and bytes of the values moved to disk; the
    /// directory; and the error of the last failed move, if any.
    fn stats(&self) -> (usize, usize, u64, u64, OsString, Option<String>) {
        let stats = self.inner.stats();
        (
            stats.limit_bytes,
            stats.in_memory_bytes,
            stats.spilled_count,
            stats.spilled_bytes,
            stats.directory.into(),
            stats.failure,
        )
    }
}

fn limit(limit_bytes: Option<usize>, max_bytes: usize) -> links::ValueMemoryLimit {
    limit_bytes.map_or(links::ValueMemoryLimit::HalfOfAvailable { max_bytes }, links::ValueMemoryLimit::Bytes)
}

/// A rank that listens for the broadcast connections of the other ranks, before they know its address.
#[pyclass(frozen, module = "ripieno._native")]
pub struct PendingMesh {
    inner: Mutex<Option<mesh::MeshMember>>,
    interruption: Interruption,
    rank: usize,
    world_size: usize,
    #[pyo3(get)]
    address: String,
}

impl PendingMesh {
    pub fn new(config: Config, interruption: Interruption) -> PyResult<PendingMesh> {
        let (rank, world_size) = (config.rank, config.world_size);
        let inner = mesh::MeshMember::new(config).map_err(errors::from_rendezvous)?;
        let address = inner.address();
        Ok(PendingMesh { inner: Mutex::new(Some(inner)), interruption, rank, world_size, address })
    }
}

#[pymethods]
impl PendingMesh {
    /// Connect to the ranks at `addresses`, and serve values in `memory`. May be called once.
    fn connect(&self, addresses: Vec<String>, memory: &ValueMemory) -> PyResult<Broadcasts> {
        let pending = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pending = pending.ok_or_else(|| errors::input("this mesh is connected already".to_string()))?;
        let mesh = pending.connect(&addresses).map_err(errors::from_rendezvous)?;
        let memory = memory.inner.clone();
        let inner =
            broadcasts::Broadcasts::new(self.rank, self.world_size, mesh, memory).map_err(errors::from_rendezvous)?;
        Ok(Broadcasts { inner, interruption: self.interruption.clone() })
    }
}

/// The broadcast service of one rank in a communicator.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Broadcasts {
    inner: broadcasts::Broadcasts,
    interruption: Interruption,
}

#[pymethods]
impl Broadcasts {
    /// Offer a value of `length_bytes`, composed of arrays at the given offsets. `strategy` is a name and the degree of
    /// a source. With `verify`, receivers compare each block with a digest.
    #[allow(clippy::too_many_arguments)]
    fn offer(
        &self,
        py: Python<'_>,
        length_bytes: usize,
        pieces: Vec<(usize, Bound<'_, PyUntypedArray>)>,
        strategy: (String, Option<usize>),
        block_bytes: Option<usize>,
        order: Vec<usize>,
        verify: bool,
    ) -> PyResult<Variable> {
        let discipline = discipline(&strategy.0, strategy.1)?;
        let read = |(offset, array): &(usize, Bound<'_, PyUntypedArray>)| Ok((*offset, ArrayBytes::of(array)?));
        let pieces: Vec<(usize, ArrayBytes)> = pieces.iter().map(read).collect::<PyResult<_>>()?;
        let offered = py.detach(|| {
            let pieces: Vec<(usize, &[u8])> = pieces.iter().map(|(offset, piece)| (*offset, piece.read())).collect();
            self.inner.offer(length_bytes, &pieces, discipline, block_bytes, order, verify)
        });
        let failed = |error: std::io::Error| {
            PyMemoryError::new_err(format!("a value of {length_bytes} bytes in shared memory: {error}"))
        };
        Ok(self.variable(offered.map_err(failed)?))
    }

    /// Expect a value from `root`. If another rank of this host fetches it, that rank is `leader`. If `is_recorded`,
    /// record the sender of each block.
    #[pyo3(signature = (root, leader, *, is_recorded=false))]
    fn expect(&self, root: usize, leader: Option<usize>, is_recorded: bool) -> Variable {
        self.variable(self.inner.expect(root, leader, is_recorded))
    }

    /// Offer a file to the ranks in `order`, which call `fetch`.
    fn offer_file(&self, file: &BlockFile, strategy: &str, order: Vec<usize>) -> PyResult<Variable> {
        Ok(self.variable(self.inner.offer_file(file.take()?, discipline(strategy, None)?, order)))
    }

    /// Fetch the missing blocks of a file from `root`, which offers a file with the same blocks.
    fn fetch(&self, root: usize, file: &BlockFile) -> PyResult<Variable> {
        Ok(self.variable(self.inner.fetch(root, file.take()?)))
    }

    /// Begin to close: serve the ranks that still fetch values, as long as bytes move. Do not wait for the end.
    fn begin_close(&self) {
        self.inner.begin_close();
    }

    /// Serve the ranks that still fetch values, as long as bytes move. Then stop.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }
}

/// Return the discipline with this name, and with `degree` concurrent uploads of a source if it is given.
pub fn discipline(strategy: &str, degree: Option<usize>) -> PyResult<Discipline> {
    let named = Discipline::named(strategy).ok_or_else(|| errors::input(format!("strategy={strategy:?}: unknown")))?;
    let Some(degree) = degree else { return Ok(named) };
    named.with_degree(degree).ok_or_else(|| {
        errors::input(format!("degree={degree} with strategy={strategy:?}: only csb, csb-llcf and bittorrent use it"))
    })
}

impl Broadcasts {
    fn variable(&self, inner: broadcasts::Variable) -> Variable {
        Variable { inner, interruption: self.interruption.clone() }
    }
}

/// Sender, block, bytes, and the arrival times in seconds of the first and the last byte.
type FetchTuple = (usize, usize, usize, f64, f64);

/// A broadcast value. Dropping this object releases it.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Variable {
    inner: broadcasts::Variable,
    interruption: Interruption,
}

#[pymethods]
impl Variable {
    /// Start fetching the value, unless this has already begun.
    fn start_fetch(&self) {
        self.inner.start_fetch();
    }

    /// Wait for the value, and return its bytes.
    fn wait(&self, py: Python<'_>) -> PyResult<ValueBuffer> {
        let check = self.interruption.clone().check();
        let waited = py.detach(|| self.inner.wait(&check));
        waited.map(|value| ValueBuffer { value }).map_err(|error| match error {
            BroadcastError::Interrupted => {
                self.interruption.take().unwrap_or_else(|| errors::from_broadcast(&BroadcastError::Interrupted))
            }
            other => errors::from_broadcast(&other),
        })
    }

    /// Record another use of the value, which must be complete.
    fn note_use(&self) {
        self.inner.note_use();
    }

    /// Return whether `wait` would return at once.
    fn has_ended(&self) -> bool {
        self.inner.has_ended()
    }

    /// Return the bytes received, the bytes sent, the size of the value, and whether all live ranks have the value.
    fn progress(&self) -> (u64, u64, u64, bool) {
        let meter = self.inner.meter();
        (meter.received_bytes(), meter.sent_bytes(), meter.value_bytes(), meter.is_released())
    }

    /// Return the record of the fetch, and the number of bytes above its capacity. Times are in seconds since the
    /// variable began on this rank.
    fn record(&self) -> (Vec<FetchTuple>, usize) {
        let record = self.inner.record();
        let to_tuple = |it: &broadcasts::MeteredBlock| {
            (it.from, it.block, it.bytes, it.first.as_secs_f64(), it.last.as_secs_f64())
        };
        (record.fetches.iter().map(to_tuple).collect(), record.left_out_bytes)
    }

    /// Send a message about the variable to another rank.
    fn send_message(&self, to: usize, bytes: Vec<u8>) {
        self.inner.send_message(to, bytes);
    }

    /// Return the latest message of each other rank about the variable.
    fn latest_messages(&self) -> BTreeMap<usize, Vec<u8>> {
        self.inner.latest_messages()
    }

    /// Return the ranks with a lost connection.
    fn lost(&self) -> Vec<usize> {
        self.inner.lost().into_iter().collect()
    }

    /// Return the ranks that have the value, the ranks that were lost before, and the corrupt blocks as (block, source,
    /// receiver). Return None while any rank fetches the value. Only the root knows them.
    fn delivery<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(delivery) = self.inner.delivery() else { return Ok(None) };
        let corruptions: Vec<_> = delivery.corruptions.iter().map(|it| (it.block, it.source, it.receiver)).collect();
        let entries = PyDict::new(py);
        entries.set_item("acknowledged", delivery.acknowledged)?;
        entries.set_item("lost", delivery.lost)?;
        entries.set_item("corruptions", corruptions)?;
        Ok(Some(entries))
    }
}

/// Read-only buffer with the bytes of a value.
#[pyclass(frozen, module = "ripieno._native")]
pub struct ValueBuffer {
    value: Arc<HostMemory>,
}

#[pymethods]
impl ValueBuffer {
    /// Write the bytes of a file to its disk, and wait until they are there.
    fn sync(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.value.sync()).map_err(|error| errors::from_file(&error, &path))
    }

    /// Export the bytes as a buffer, which holds a reference to this object.
    ///
    /// # Safety
    /// `view` must be a buffer that the interpreter has passed to be filled.
    unsafe fn __getbuffer__(slf: PyRef<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (data, length) = (slf.value.as_ptr().cast_mut().cast(), slf.value.len() as ffi::Py_ssize_t);
        // SAFETY: the memory stays in place while this object lives. The view is read-only and holds a reference to the
        // object.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ValueMemory>()?;
    module.add_class::<PendingMesh>()?;
    module.add_class::<Broadcasts>()?;
    module.add_class::<Variable>()?;
    module.add_class::<ValueBuffer>()
}
