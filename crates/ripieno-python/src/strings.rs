//! Columns of strings for Python: their order, and some of them.

use crate::errors;
use crate::keyed::slice;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use ripieno_kernels::keyed::{self, Strings};

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(order_of_strings, module)?)?;
    module.add_function(wrap_pyfunction!(joined_pieces, module)?)
}

/// The numbers of strings in the order of their bytes; equal ones stay in theirs.
#[pyfunction]
fn order_of_strings<'py>(
    py: Python<'py>,
    offsets: PyReadonlyArray1<'_, i64>,
    data: PyReadonlyArray1<'_, u8>,
    descending: bool,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let strings = Strings::new(slice(&offsets)?, slice(&data)?).map_err(|bad| errors::input(bad.to_string()))?;
    Ok(py.detach(|| keyed::order_of_strings(strings, descending)).into_pyarray(py))
}

/// The pieces of `data` that begin at `starts`, one behind the other.
#[pyfunction]
fn joined_pieces<'py>(
    py: Python<'py>,
    data: PyReadonlyArray1<'_, u8>,
    starts: PyReadonlyArray1<'_, i64>,
    lengths: PyReadonlyArray1<'_, i64>,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let (data, starts, lengths) = (slice(&data)?, slice(&starts)?, slice(&lengths)?);
    let joined = py.detach(|| keyed::joined_pieces(data, starts, lengths));
    let outside = || errors::input(format!("starts and lengths: pieces that do not lie in {} bytes", data.len()));
    Ok(joined.ok_or_else(outside)?.into_pyarray(py))
}
