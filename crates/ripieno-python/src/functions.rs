//! Reductions by a user-defined function: a Python function or a pointer to a foreign function, which is called without
//! the interpreter.

use crate::arrays::ArrayBytes;
use crate::communicator::{Communicator, cause_and_traceback, take_raised};
use crate::errors;
use crate::handle::{Handle, HandleMemory};
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use ripieno::{CollectiveTask, Element, ElementShape, ElementType, Function, FunctionError, arg_reduction};
use std::sync::{Arc, Mutex, PoisonError};

/// A foreign function. It combines `row_count` rows of `row_bytes` bytes at `from` into the rows at `into`, which are
/// from lower ranks.
type Foreign = unsafe extern "C" fn(from: *const u8, into: *mut u8, row_count: i64, row_bytes: i64);

/// Exception of a Python function, stored for the thread that waits for the call.
pub type Raised = Arc<Mutex<Option<PyErr>>>;

/// Function that combines rows.
#[derive(FromPyObject)]
pub enum RowCombiner {
    /// The address of a foreign function.
    #[pyo3(transparent)]
    Address(usize),
    /// "argmin" or "argmax", and the element type of the values.
    #[pyo3(transparent)]
    Extremum((String, String)),
    /// A Python function. It gets the address of the rows of lower ranks, which it updates, the address of the other
    /// rows, and their size in bytes.
    #[pyo3(transparent)]
    Callable(Py<PyAny>),
}

impl RowCombiner {
    fn function(self, comm: &Communicator, row_bytes: usize, raised: &Raised) -> PyResult<Function> {
        let function = match self {
            RowCombiner::Address(0) => {
                return Err(errors::input("op: a null pointer: expected a function".to_string()));
            }
            RowCombiner::Address(address) => {
                // SAFETY: the program guarantees that the address is a function of this type, which stays valid.
                let foreign = unsafe { std::mem::transmute::<usize, Foreign>(address) };
                comm.inner().function(row_bytes, move |into, from| {
                    let row_count = (from.len() / row_bytes) as i64;
                    // SAFETY: both have `row_count` rows and do not overlap. The function stays within them, as its
                    // type requires.
                    unsafe { foreign(from.as_ptr(), into.as_mut_ptr(), row_count, row_bytes as i64) };
                    Ok(())
                })
            }
            RowCombiner::Extremum((name, element)) => {
                let known = Element::ALL.into_iter().find(|known| known.name() == element);
                let element = known.ok_or_else(|| errors::input(format!("dtype {element}: expected a number")))?;
                let (expected_bytes, keep) = arg_reduction(element, name == "argmax");
                assert_eq!(expected_bytes, row_bytes, "a row is a value and an index");
                comm.inner().function(row_bytes, move |into, from| {
                    keep(into, from);
                    Ok(())
                })
            }
            RowCombiner::Callable(callable) => {
                let raised = raised.clone();
                comm.inner().function(row_bytes, move |into, from| {
                    Python::attach(|py| {
                        let addresses = (into.as_mut_ptr() as usize, from.as_ptr() as usize, from.len());
                        callable.call1(py, addresses).map(drop).map_err(|error| {
                            let (cause, traceback) = cause_and_traceback(py, &error);
                            *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                            FunctionError { cause, traceback }
                        })
                    })
                })
            }
        };
        function.map_err(errors::from_collective)
    }
}

/// Reduce the rows of `array` by a task of the operation "function", asynchronously if `later`. Raise the exception of
/// the function, if it raised one.
#[allow(clippy::too_many_arguments)]
pub fn perform(
    py: Python<'_>,
    comm: &Communicator,
    task: &CollectiveTask<'_>,
    array: &Bound<'_, PyUntypedArray>,
    combine: RowCombiner,
    row_bytes: usize,
    signature: &str,
    algorithm: Option<&str>,
    later: bool,
) -> PyResult<Option<Handle>> {
    let (bytes, raised) = (ArrayBytes::of(array)?, Raised::default());
    let function = combine.function(comm, row_bytes, &raised)?;
    let elements = ElementType { element: bytes.element, shape: ElementShape::Described(signature) };
    if later {
        let memory = HandleMemory::arrays(array, None, false)?;
        let handle = comm.call(py, |inner| inner.start_by(task, elements, &function, algorithm, memory))?;
        return Ok(Some(comm.handle(handle, Some(raised))));
    }
    let vector = bytes.write()?;
    let ended = comm.call(py, |inner| inner.run_by(task, elements, &function, algorithm, vector));
    ended.map(|()| None).map_err(|error| take_raised(&raised).unwrap_or(error))
}
