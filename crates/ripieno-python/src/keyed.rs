//! Keyed data for Python: aggregations, blocks and regroup.

use crate::arrays::ArrayBytes;
use crate::communicator::{Communicator, cause_and_traceback, parse_op};
use crate::errors;
use numpy::{IntoPyArray, PyArray1, PyArrayDescr, PyReadonlyArray1, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ripieno::keyed::{
    self, KeyColumn, KeyKind, KeyedCombine, KeyedSchema, MemoryLimit, OwnedKeys, Regroup, Regrouped, Strings,
};
use ripieno::{Element, Error};
use ripieno_kernels::Threads;
use ripieno_kernels::keyed::hash_string;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Add the classes of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Aggregation>()?;
    module.add_class::<KeyedArrays>()
}

/// Rows with keys. Rows of equal keys are combined.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Aggregation {
    schema: KeyedSchema,
    state: Mutex<AggregationState>,
}

/// The added rows until they are taken, and their counters.
#[derive(Default)]
struct AggregationState {
    rows: Option<keyed::Aggregation>,
    row_count: u64,
    spilled_bytes: u64,
}

/// A column of keys, as arrays.
#[derive(FromPyObject)]
enum KeyArrays<'py> {
    Int64(PyReadonlyArray1<'py, i64>),
    Strings(PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, u8>),
}

#[pymethods]
impl Aggregation {
    #[new]
    #[pyo3(signature = (key_kind, dtype, width, label, combine, rank_count, memory_limit_bytes=None,
        spill_directory=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        key_kind: &str,
        dtype: &str,
        width: usize,
        label: u64,
        combine: &str,
        rank_count: NonZeroUsize,
        memory_limit_bytes: Option<u64>,
        spill_directory: Option<PathBuf>,
    ) -> PyResult<Aggregation> {
        let schema = KeyedSchema {
            keys: parse_key_kind(key_kind)?,
            element: parse_element(dtype)?,
            width,
            combine: parse_combine(combine)?,
            label,
        };
        let limit = match (memory_limit_bytes, spill_directory) {
            (Some(bytes), Some(directory)) => Some(MemoryLimit { bytes, directory }),
            (None, None) => None,
            _ => return Err(errors::input("expected memory_limit_bytes and spill_directory, or neither".to_string())),
        };
        let rows = keyed::Aggregation::new(schema, rank_count.get(), limit).map_err(errors::from_collective)?;
        Ok(Aggregation {
            schema,
            state: Mutex::new(AggregationState { rows: Some(rows), ..AggregationState::default() }),
        })
    }

    /// Add a row for each key. `ranks` are the owners of the rows; without it, the hash determines them.
    #[pyo3(signature = (keys, values, ranks=None, threads=NonZeroUsize::MIN))]
    fn add(
        &self,
        py: Python<'_>,
        keys: KeyArrays<'_>,
        values: &Bound<'_, PyUntypedArray>,
        ranks: Option<PyReadonlyArray1<'_, u32>>,
        threads: NonZeroUsize,
    ) -> PyResult<()> {
        let (keys, values) = (keys.column()?, ArrayBytes::of(values)?);
        if values.element != self.schema.element {
            let (dtype, expected) = (values.element.name(), self.schema.element.name());
            return Err(errors::input(format!(
                "values of dtype {dtype}: expected {expected}, the dtype of the aggregation"
            )));
        }
        let ranks = ranks.as_ref().map(slice).transpose()?;
        let values = values.read();
        self.change(py, |state| {
            state.rows()?.add(keys, values, ranks, &Threads::new(threads.get()))?;
            state.row_count += keys.len() as u64;
            Ok(())
        })
    }

    /// Add all rows of `other`, which cannot be used afterwards.
    fn absorb(&self, py: Python<'_>, other: &Aggregation) -> PyResult<()> {
        let (rows, row_count) = other.take(py)?;
        self.change(py, |state| {
            state.rows()?.absorb(rows)?;
            state.row_count += row_count;
            Ok(())
        })
    }

    /// The number of rows added.
    #[getter]
    fn row_count(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.state.lock().unwrap_or_else(PoisonError::into_inner).row_count)
    }

    /// The number of bytes written to files.
    #[getter]
    fn spilled_bytes(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.state.lock().unwrap_or_else(PoisonError::into_inner).spilled_bytes())
    }

    /// Return the keys and rows of all parts, without communication. The aggregation cannot be used afterwards.
    #[pyo3(signature = (threads=NonZeroUsize::MIN))]
    fn block(&self, py: Python<'_>, threads: NonZeroUsize) -> PyResult<KeyedArrays> {
        let (rows, _) = self.take(py)?;
        let block = py.detach(|| {
            let mut parts = rows.seal(&Threads::new(threads.get()))?;
            let filled: Vec<usize> = (0..parts.part_count()).filter(|&part| parts.size(part).keys > 0).collect();
            let blocks = filled.into_iter().map(|part| parts.take(part)).collect::<Result<_, _>>()?;
            Ok(keyed::KeyedBlock::joined(blocks, &self.schema))
        });
        KeyedArrays::new(py, block.map_err(errors::from_collective)?, &self.schema)
    }
}

impl Aggregation {
    /// Change the added rows with the interpreter released.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut AggregationState) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner)));
        done.map_err(errors::from_collective)
    }

    /// Take the added rows and their number. No rows can be added afterwards.
    fn take(&self, py: Python<'_>) -> PyResult<(keyed::Aggregation, u64)> {
        self.change(py, |state| {
            state.spilled_bytes = state.spilled_bytes();
            state.rows()?;
            let rows = state.rows.take().expect("`rows` has checked this");
            Ok((rows, state.row_count))
        })
    }
}

impl AggregationState {
    fn rows(&mut self) -> Result<&mut keyed::Aggregation, Error> {
        self.rows.as_mut().ok_or_else(|| Error::Argument {
            name: "aggregation",
            value: "an aggregation without rows".to_string(),
            expected: "an aggregation that was not regrouped, absorbed or converted to a block before".to_string(),
        })
    }

    fn spilled_bytes(&self) -> u64 {
        self.rows.as_ref().map_or(self.spilled_bytes, keyed::Aggregation::spilled_bytes)
    }
}

impl KeyArrays<'_> {
    fn column(&self) -> PyResult<KeyColumn<'_>> {
        Ok(match self {
            KeyArrays::Int64(keys) => KeyColumn::Int64(slice(keys)?),
            KeyArrays::Strings(offsets, data) => {
                let strings = Strings::new(slice(offsets)?, slice(data)?);
                KeyColumn::Strings(strings.map_err(|bad| errors::input(bad.to_string()))?)
            }
        })
    }
}

/// Distinct keys and their rows, as arrays that own the memory.
#[pyclass(frozen, get_all, module = "ripieno._native")]
pub struct KeyedArrays {
    /// The label of its schema.
    label: u64,
    keys: Py<PyAny>,
    counts: Option<Py<PyArray1<u64>>>,
    values: Py<PyAny>,
}

impl KeyedArrays {
    fn new(py: Python<'_>, block: keyed::KeyedBlock, schema: &KeyedSchema) -> PyResult<KeyedArrays> {
        let row_count = block.view().row_count();
        let keys = match block.keys {
            OwnedKeys::Int64(keys) => keys.into_pyarray(py).into_any(),
            OwnedKeys::Strings { offsets, data } => {
                (offsets.into_pyarray(py), data.into_pyarray(py)).into_pyobject(py)?.into_any()
            }
        };
        let counts = block.counts.map(|counts| counts.into_pyarray(py).unbind());
        let dtype = PyArrayDescr::new(py, schema.element.name())?;
        let values = block.values.into_pyarray(py).call_method1("view", (dtype,))?;
        let values = match schema.width {
            1 => values,
            width => values.call_method1("reshape", ((row_count, width),))?,
        };
        Ok(KeyedArrays { label: schema.label, keys: keys.unbind(), counts, values: values.unbind() })
    }
}

/// Options of a regroup, as the caller passes them.
#[derive(Default)]
pub struct RegroupArguments<'a> {
    /// Description of the call, equal on all ranks.
    pub call: &'a str,
    pub merge: Option<&'a str>,
    pub balanced: bool,
    pub wave_bytes: Option<u64>,
    pub eager_bytes: Option<usize>,
    pub pulls: Option<NonZeroUsize>,
    pub threads: Option<NonZeroUsize>,
    pub memory_limit_bytes: Option<u64>,
}

impl RegroupArguments<'_> {
    fn options(&self, schema: &KeyedSchema) -> PyResult<Regroup> {
        let default = Regroup::new(self.merge.map_or(Ok(schema.combine), parse_combine)?);
        let default = self.wave_bytes.map_or(default, |bytes| default.in_waves_of(bytes));
        let request = Regroup {
            call: hash_string(self.call.as_bytes()),
            balanced: self.balanced,
            eager_bytes: self.eager_bytes.unwrap_or(default.eager_bytes),
            pulls: self.pulls.unwrap_or(default.pulls),
            threads: self.threads.unwrap_or(default.threads),
            ..default
        };
        Ok(self.memory_limit_bytes.map_or(request, |bytes| request.within(bytes)))
    }
}

/// Send the rows to the owners of their keys. Return the keys that this rank owns, unless `on_block` receives them, and
/// statistics.
pub fn regroup<'py>(
    py: Python<'py>,
    communicator: &Communicator,
    aggregation: &Aggregation,
    request: &RegroupArguments<'_>,
    on_block: Option<Py<PyAny>>,
) -> PyResult<(Option<KeyedArrays>, Bound<'py, PyDict>)> {
    let options = request.options(&aggregation.schema)?;
    let (rows, _) = aggregation.take(py)?;
    let (mut blocks, raised) = (Vec::new(), Mutex::new(None));
    let mut keep = |schema: &KeyedSchema, block: keyed::KeyedBlock| -> Result<(), Error> {
        let Some(on_block) = &on_block else {
            blocks.push(block);
            return Ok(());
        };
        Python::attach(|py| {
            let called = KeyedArrays::new(py, block, schema).and_then(|block| on_block.call1(py, (block,)));
            called.map(drop).map_err(|error| {
                let reported = describe(py, &error);
                *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                reported
            })
        })
    };
    let ended = communicator.call(py, |comm| comm.regroup(rows, &options, &mut keep));
    if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let regrouped = ended?;
    let block = match on_block {
        Some(_) => None,
        None => {
            let block = py.detach(|| keyed::KeyedBlock::joined(blocks, &regrouped.schema));
            Some(KeyedArrays::new(py, block, &regrouped.schema)?)
        }
    };
    Ok((block, statistics(py, &regrouped)?))
}

/// Describe an exception for the other ranks.
fn describe(py: Python<'_>, error: &PyErr) -> Error {
    let (cause, traceback) = cause_and_traceback(py, error);
    Error::Callback { cause, traceback }
}

fn statistics<'py>(py: Python<'py>, regrouped: &Regrouped) -> PyResult<Bound<'py, PyDict>> {
    let Regrouped { waves, rows_in, rows_sent, keys, rows, bytes_sent, spilled_bytes, .. } = *regrouped;
    let Regrouped { sealing, sizes, exchange, merge, callback, .. } = *regrouped;
    let entries = PyDict::new(py);
    entries.set_item("waves", waves)?;
    entries.set_item("rows_in", rows_in)?;
    entries.set_item("rows_sent", rows_sent)?;
    entries.set_item("keys", keys)?;
    entries.set_item("rows", rows)?;
    entries.set_item("bytes_sent", bytes_sent)?;
    entries.set_item("spilled_bytes", spilled_bytes)?;
    let times =
        [("sealing", sealing), ("sizes", sizes), ("exchange", exchange), ("merge", merge), ("callback", callback)];
    for (name, time) in times {
        entries.set_item(format!("{name}_s"), time.as_secs_f64())?;
    }
    Ok(entries)
}

fn parse_key_kind(name: &str) -> PyResult<KeyKind> {
    let known = [KeyKind::Int64, KeyKind::Strings];
    let kind = known.into_iter().find(|kind| kind.name() == name);
    kind.ok_or_else(|| errors::input(format!("key_kind={name:?}: expected {}", known.map(KeyKind::name).join(" or "))))
}

fn parse_element(name: &str) -> PyResult<Element> {
    let element = Element::ALL.into_iter().find(|element| element.name() == name);
    let names = || Element::ALL.map(Element::name).join(", ");
    element.ok_or_else(|| errors::input(format!("dtype={name:?}: expected one of {}", names())))
}

fn parse_combine(name: &str) -> PyResult<KeyedCombine> {
    if name == "concat" { Ok(KeyedCombine::Concat) } else { parse_op(name).map(KeyedCombine::Op) }
}

pub fn slice<'a, T: numpy::Element>(array: &'a PyReadonlyArray1<'_, T>) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|_| errors::input("expected C-contiguous arrays of keys, offsets and ranks".to_string()))
}
