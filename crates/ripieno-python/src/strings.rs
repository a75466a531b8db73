//! Columns of strings for Python: sorting and selection.

use crate::errors;
use crate::keyed::slice;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use ripieno_kernels::keyed::{self, Strings};
use std::num::NonZeroU32;

/// Add the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(order_of_strings, module)?)?;
    module.add_function(wrap_pyfunction!(joined_pieces, module)?)?;
    module.add_function(wrap_pyfunction!(feature_places, module)?)
}

/// Return the indices that sort the strings by their bytes; the sort is stable.
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

/// Concatenate the pieces of `data` that begin at `starts`.
#[pyfunction]
fn joined_pieces<'py>(
    py: Python<'py>,
    data: PyReadonlyArray1<'_, u8>,
    starts: PyReadonlyArray1<'_, i64>,
    lengths: PyReadonlyArray1<'_, i64>,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let (data, starts, lengths) = (slice(&data)?, slice(&starts)?, slice(&lengths)?);
    let joined = py.detach(|| keyed::joined_pieces(data, starts, lengths));
    let invalid = || errors::input(format!("starts and lengths: expected pieces within {} bytes", data.len()));
    Ok(joined.ok_or_else(invalid)?.into_pyarray(py))
}

/// The column and the sign of each feature.
type TextPlaces<'py> = (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<f64>>);

/// Return the columns of named features among `column_count`, and their signs.
#[pyfunction]
fn feature_places<'py>(
    py: Python<'py>,
    offsets: PyReadonlyArray1<'_, i64>,
    data: PyReadonlyArray1<'_, u8>,
    column_count: NonZeroU32,
) -> PyResult<TextPlaces<'py>> {
    let names = Strings::new(slice(&offsets)?, slice(&data)?).map_err(|bad| errors::input(bad.to_string()))?;
    let places = py.detach(|| keyed::feature_places(names, column_count.get()));
    let columns: Vec<i32> = places.iter().map(|place| place.column as i32).collect();
    let signs: Vec<f64> = places.iter().map(|place| if place.is_negative { -1.0 } else { 1.0 }).collect();
    Ok((columns.into_pyarray(py), signs.into_pyarray(py)))
}
