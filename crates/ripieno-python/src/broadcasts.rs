//! Broadcast variables for Python: their bytes as memory that is only read.

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

/// The memory for values of this process, and where they go beyond.
#[pyclass(frozen, module = "ripieno._native")]
pub struct ValueMemory {
    inner: links::ValueMemory,
}

#[pymethods]
impl ValueMemory {
    /// Without a bound it is half of what is free, `most_bytes` at most.
    #[new]
    fn new(bound_bytes: Option<usize>, most_bytes: usize, directory: PathBuf) -> ValueMemory {
        ValueMemory { inner: links::ValueMemory::new(bound(bound_bytes, most_bytes), directory) }
    }

    /// Holds to another bound from now on.
    fn set_bound(&self, bound_bytes: Option<usize>, most_bytes: usize, directory: PathBuf) {
        self.inner.set_bound(bound(bound_bytes, most_bytes), directory);
    }

    /// The bound and what is held, in bytes; the values that have gone to disk, and their bytes; where; and why the
    /// last that was to go stays.
    fn tally(&self) -> (usize, usize, u64, u64, OsString, Option<String>) {
        let it = self.inner.tally();
        (it.bound_bytes, it.held_bytes, it.spilled_count, it.spilled_bytes, it.directory.into(), it.failure)
    }
}

fn bound(bound_bytes: Option<usize>, most_bytes: usize) -> links::Bound {
    bound_bytes.map_or(links::Bound::HalfOfFree { most_bytes }, links::Bound::Bytes)
}

/// A rank that listens, and whose address the others have still to learn.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Invited {
    inner: Mutex<Option<mesh::MeshMember>>,
    interruption: Interruption,
    rank: usize,
    world_size: usize,
    #[pyo3(get)]
    address: String,
}

impl Invited {
    pub fn new(config: Config, interruption: Interruption) -> PyResult<Invited> {
        let (rank, world_size) = (config.rank, config.world_size);
        let inner = mesh::MeshMember::new(config).map_err(errors::from_meeting)?;
        let address = inner.address();
        Ok(Invited { inner: Mutex::new(Some(inner)), interruption, rank, world_size, address })
    }
}

#[pymethods]
impl Invited {
    /// Begins to serve, once, with values in `memory`; `addresses` are those of all ranks.
    fn meet(&self, addresses: Vec<String>, memory: &ValueMemory) -> PyResult<Broadcasts> {
        let invited = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let invited = invited.ok_or_else(|| errors::input("it has met already".to_string()))?;
        let mesh = invited.meet(&addresses).map_err(errors::from_meeting)?;
        let memory = memory.inner.clone();
        let inner =
            broadcasts::Broadcasts::new(self.rank, self.world_size, mesh, memory).map_err(errors::from_meeting)?;
        Ok(Broadcasts { inner, interruption: self.interruption.clone() })
    }
}

/// One rank's part in the broadcasts of a communicator.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Broadcasts {
    inner: broadcasts::Broadcasts,
    interruption: Interruption,
}

#[pymethods]
impl Broadcasts {
    /// Gives out `length_bytes` bytes, made of pieces with their offsets.
    fn offer(
        &self,
        py: Python<'_>,
        length_bytes: usize,
        pieces: Vec<(usize, Bound<'_, PyUntypedArray>)>,
        strategy: &str,
        block_bytes: Option<usize>,
        order: Vec<usize>,
    ) -> PyResult<Variable> {
        let discipline = discipline(strategy)?;
        let read = |(offset, array): &(usize, Bound<'_, PyUntypedArray>)| Ok((*offset, ArrayBytes::of(array)?));
        let pieces: Vec<(usize, ArrayBytes)> = pieces.iter().map(read).collect::<PyResult<_>>()?;
        let offered = py.detach(|| {
            let pieces: Vec<(usize, &[u8])> = pieces.iter().map(|(offset, piece)| (*offset, piece.read())).collect();
            self.inner.offer(length_bytes, &pieces, discipline, block_bytes, order)
        });
        let failed = |error: std::io::Error| {
            PyMemoryError::new_err(format!("a value of {length_bytes} bytes in shared memory: {error}"))
        };
        Ok(self.variable(offered.map_err(failed)?))
    }

    /// Expects a value from `root`, fetched by `leader` if that is another rank of this host, and records what comes
    /// from whom if that `is_recorded`.
    #[pyo3(signature = (root, leader, *, is_recorded=false))]
    fn expect(&self, root: usize, leader: Option<usize>, is_recorded: bool) -> Variable {
        self.variable(self.inner.expect(root, leader, is_recorded))
    }

    /// Gives out a file to those in `order`, which call `fetch`.
    fn offer_file(&self, file: &BlockFile, strategy: &str, order: Vec<usize>) -> PyResult<Variable> {
        Ok(self.variable(self.inner.offer_file(file.take()?, discipline(strategy)?, order)))
    }

    /// Fetches what a file lacks from `root`, which offers a file of the same blocks.
    fn fetch(&self, root: usize, file: &BlockFile) -> PyResult<Variable> {
        Ok(self.variable(self.inner.fetch(root, file.take()?)))
    }

    /// Gives values to those who are fetching them, for a while, and ends.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }
}

fn discipline(strategy: &str) -> PyResult<Discipline> {
    Discipline::named(strategy).ok_or_else(|| errors::input(format!("strategy={strategy:?}: unknown")))
}

impl Broadcasts {
    fn variable(&self, inner: broadcasts::Variable) -> Variable {
        Variable { inner, interruption: self.interruption.clone() }
    }
}

/// Sender, block, bytes, and the seconds when the first and the last bytes came.
type FetchTuple = (usize, usize, usize, f64, f64);

/// A value of a communicator's ranks, released when it is dropped.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Variable {
    inner: broadcasts::Variable,
    interruption: Interruption,
}

#[pymethods]
impl Variable {
    /// Begins to fetch the value, if that has not begun.
    fn want(&self) {
        self.inner.want();
    }

    /// The bytes of the value, once they are here.
    fn wait(&self, py: Python<'_>) -> PyResult<Shown> {
        let check = self.interruption.clone().check();
        let waited = py.detach(|| self.inner.wait(&check));
        waited.map(|value| Shown { value }).map_err(|error| match error {
            BroadcastError::Interrupted => {
                self.interruption.take().unwrap_or_else(|| errors::from_broadcast(&BroadcastError::Interrupted))
            }
            other => errors::from_broadcast(&other),
        })
    }

    /// The value, which is here, is used again.
    fn note_use(&self) {
        self.inner.note_use();
    }

    /// Whether `wait` would return at once.
    fn has_ended(&self) -> bool {
        self.inner.has_ended()
    }

    /// Bytes that have come here, that were given from here, and of the value; and whether everybody who lives has all.
    fn progress(&self) -> (u64, u64, u64, bool) {
        let meter = self.inner.meter();
        (meter.came_bytes(), meter.gave_bytes(), meter.value_bytes(), meter.is_released())
    }

    /// What was recorded: senders, blocks, bytes, and the seconds since the variable began here when the first and the
    /// last bytes came; and the bytes for which the record had no room.
    fn record(&self) -> (Vec<FetchTuple>, usize) {
        let record = self.inner.record();
        let told = |it: &broadcasts::MeteredBlock| {
            (it.from, it.block, it.bytes, it.first.as_secs_f64(), it.last.as_secs_f64())
        };
        (record.fetches.iter().map(told).collect(), record.left_out_bytes)
    }

    /// Tells another rank something about the variable.
    fn tell(&self, to: usize, bytes: Vec<u8>) {
        self.inner.tell(to, bytes);
    }

    /// What other ranks have told last of it.
    fn told(&self) -> BTreeMap<usize, Vec<u8>> {
        self.inner.told()
    }

    /// The ranks to which the connection has been lost.
    fn lost(&self) -> Vec<usize> {
        self.inner.lost().into_iter().collect()
    }

    /// At the root: who has the value, who was lost before, and the blocks that came wrong as (block, source,
    /// receiver); None as long as somebody fetches it.
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

/// The bytes of a value, under Python's buffer protocol, to read only.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Shown {
    value: Arc<HostMemory>,
}

#[pymethods]
impl Shown {
    /// Waits until the bytes, which are a file's, are on its disk.
    fn sync(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.value.sync()).map_err(|error| errors::from_file(&error, &path))
    }

    /// Shows the bytes to whoever asks, for as long as it holds a reference to this object.
    ///
    /// # Safety
    /// `view` is a buffer that the interpreter wants filled.
    unsafe fn __getbuffer__(slf: PyRef<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (data, length) = (slf.value.as_ptr().cast_mut().cast(), slf.value.len() as ffi::Py_ssize_t);
        // SAFETY: the memory stays where it is as long as this object lives, and the view, which is read-only, holds a
        // reference to it.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ValueMemory>()?;
    module.add_class::<Invited>()?;
    module.add_class::<Broadcasts>()?;
    module.add_class::<Variable>()?;
    module.add_class::<Shown>()
}
