//! Signatures: the properties of a rank's data besides count and dtype that must agree between ranks.
//!
//! The runtime compares these texts, and the shapes of arrays without text. The error shows the texts if ranks differ.

use crate::arrays::known_element;
use crate::plain_leaves::NUMBER_SIGNATURE;
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::fmt::Write;

/// Append the signature of an array inside a container: its dtype, and its shape unless it is a number.
pub fn put_array(signature: &mut String, dtype: &str, shape: &[usize]) {
    signature.push_str(dtype);
    if !shape.is_empty() {
        signature.push_str(" of shape ");
        put_shape(signature, shape);
    }
}

fn put_shape(signature: &mut String, shape: &[usize]) {
    let axes: Vec<String> = shape.iter().map(usize::to_string).collect();
    let comma = if axes.len() == 1 { "," } else { "" };
    // Writing to a string cannot fail.
    let _ = write!(signature, "({}{comma})", axes.join(", "));
}

/// Append the signature of tuples, lists and dicts of leaves. `put_leaf` appends the signature of the next leaf, in the
/// order in which `ripieno.wire.arrays.map_leaves` visits the leaves.
pub fn put_tree(
    signature: &mut String,
    value: &Bound<'_, PyAny>,
    put_leaf: &mut dyn FnMut(&mut String),
) -> PyResult<()> {
    if let Ok(dict) = value.cast::<PyDict>() {
        let mut entries = Vec::new();
        for (key, part) in dict.iter() {
            entries.push((key.repr()?.to_str()?.to_string(), part));
        }
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        return put_parts(
            signature,
            "{",
            entries.into_iter().map(|(key, part)| (format!("{key}: "), part)),
            "}",
            put_leaf,
        );
    }
    if let Ok(list) = value.cast::<PyList>() {
        return put_parts(signature, "[", list.iter().map(|part| (String::new(), part)), "]", put_leaf);
    }
    let Ok(tuple) = value.cast::<PyTuple>() else {
        put_leaf(signature);
        return Ok(());
    };
    if !tuple.is_exact_instance_of::<PyTuple>() && tuple.hasattr("_fields")? {
        let names: Vec<String> = tuple.getattr("_fields")?.extract()?;
        let open = format!("{}(", tuple.get_type().name()?);
        let fields = names.into_iter().map(|name| format!("{name}=")).zip(tuple.iter());
        return put_parts(signature, &open, fields, ")", put_leaf);
    }
    let close = if tuple.len() == 1 { ",)" } else { ")" };
    put_parts(signature, "(", tuple.iter().map(|part| (String::new(), part)), close, put_leaf)
}

fn put_parts<'py>(
    signature: &mut String,
    open: &str,
    parts: impl Iterator<Item = (String, Bound<'py, PyAny>)>,
    close: &str,
    put_leaf: &mut dyn FnMut(&mut String),
) -> PyResult<()> {
    signature.push_str(open);
    for (at, (prefix, part)) in parts.enumerate() {
        signature.push_str(if at == 0 { "" } else { ", " });
        signature.push_str(&prefix);
        put_tree(signature, &part, put_leaf)?;
    }
    signature.push_str(close);
    Ok(())
}

/// Return the signature of an array or a number inside a container.
#[pyfunction]
fn leaf_signature(array: &Bound<'_, PyUntypedArray>) -> PyResult<String> {
    let mut signature = String::new();
    match known_element(array)? {
        Some(element) => put_array(&mut signature, element.name(), array.shape()),
        None => put_array(&mut signature, array.dtype().str()?.to_str()?, array.shape()),
    }
    Ok(signature)
}

/// Return the signature of an array, or None if the runtime reads it from the array itself.
#[pyfunction]
fn array_signature(array: &Bound<'_, PyUntypedArray>) -> PyResult<Option<String>> {
    if known_element(array)?.is_some() { Ok(None) } else { leaf_signature(array).map(Some) }
}

/// Return the signature of an array with a number of rows that may differ between ranks.
#[pyfunction]
fn rows_signature(array: &Bound<'_, PyUntypedArray>) -> PyResult<Option<String>> {
    let is_known = known_element(array)?.is_some();
    if is_known && array.ndim() == 1 {
        return Ok(None);
    }
    let mut signature = String::from(if array.ndim() == 0 { "one element" } else { "rows" });
    if !is_known {
        let _ = write!(signature, " of {}", array.dtype().str()?.to_str()?);
    }
    if let Some(row) = array.shape().get(1..) {
        signature.push_str(" of shape ");
        put_shape(&mut signature, row);
    }
    Ok(Some(signature))
}

/// Return the signature of tuples, lists and dicts of leaves with these signatures.
#[pyfunction]
fn tree_signature(value: &Bound<'_, PyAny>, leaves: Vec<String>) -> PyResult<String> {
    let (mut signature, mut leaves) = (String::new(), leaves.iter());
    put_tree(&mut signature, value, &mut |signature| {
        signature.push_str(leaves.next().expect("the value has as many leaves as signatures"));
    })?;
    Ok(signature)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("NUMBER_SIGNATURE", NUMBER_SIGNATURE)?;
    module.add_function(wrap_pyfunction!(leaf_signature, module)?)?;
    module.add_function(wrap_pyfunction!(array_signature, module)?)?;
    module.add_function(wrap_pyfunction!(rows_signature, module)?)?;
    module.add_function(wrap_pyfunction!(tree_signature, module)?)
}
