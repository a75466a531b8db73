//! Leaves: numbers and short arrays, alone or in tuples and lists. Leaves of one element type are sent together.

use crate::arrays::{ArrayBytes, empty};
use crate::signatures;
use numpy::npyffi::{NPY_ORDER, PY_ARRAY_API};
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods, dtype};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyType};
use ripieno::Element;

/// Signature of Python integers. They are summed exactly in two words, like in `ripieno.wire.integers`.
pub const INTEGER_SIGNATURE: &str = "int";
/// Mask of the lower word.
const LOW_WORD_MASK: i64 = u32::MAX as i64;

/// A number or an array.
pub enum Leaf<'a, 'py> {
    /// A Python float or, with its class, a NumPy float.
    Float(f64, Option<Bound<'py, PyType>>),
    /// A Python integer, for sums.
    Integer(i64),
    /// A short array.
    Array(ArrayBytes, &'a Bound<'py, PyUntypedArray>),
}

impl<'a, 'py> Leaf<'a, 'py> {
    /// Convert `value` to a leaf, if it is one. Integers are leaves of sums only.
    pub fn of(value: &'a Bound<'py, PyAny>, is_sum: bool) -> Option<Leaf<'a, 'py>> {
        if let Ok(number) = value.cast::<PyFloat>() {
            let class = number.get_type();
            if class.is(dtype::<f64>(value.py()).typeobj()) {
                return Some(Leaf::Float(number.value(), Some(class)));
            }
            return number.is_exact_instance_of::<PyFloat>().then(|| Leaf::Float(number.value(), None));
        }
        if let Ok(number) = value.cast_exact::<PyInt>() {
            return number.extract().ok().filter(|_| is_sum).map(Leaf::Integer);
        }
        let (bytes, array) = ArrayBytes::plain_to_read(value).filter(|(bytes, _)| bytes.is_short())?;
        Some(Leaf::Array(bytes, array))
    }

    /// Return the type of its elements.
    pub fn element(&self) -> Element {
        match self {
            Leaf::Float(..) => Element::F64,
            Leaf::Integer(_) => Element::I64,
            Leaf::Array(bytes, _) => bytes.element,
        }
    }

    /// Return the size of its elements in bytes.
    pub fn length_bytes(&self) -> usize {
        match self {
            Leaf::Float(..) => 8,
            Leaf::Integer(_) => 16,
            Leaf::Array(bytes, _) => bytes.read().len(),
        }
    }

    /// Append its elements to `line`.
    pub fn put(&self, line: &mut Vec<u8>) {
        match *self {
            Leaf::Float(number, _) => line.extend(number.to_ne_bytes()),
            Leaf::Integer(number) => {
                line.extend((number & LOW_WORD_MASK).to_ne_bytes());
                line.extend((number >> LOW_WORD_MASK.count_ones()).to_ne_bytes());
            }
            Leaf::Array(bytes, _) => line.extend_from_slice(bytes.read()),
        }
    }

    /// Append the signature that ranks compare.
    pub fn put_signature(&self, signature: &mut String) {
        match self {
            Leaf::Integer(_) => signature.push_str(INTEGER_SIGNATURE),
            Leaf::Float(..) => signature.push_str(self.element().name()),
            Leaf::Array(_, array) => signatures::put_array(signature, self.element().name(), array.shape()),
        }
    }

    /// Remove the elements of a leaf like this one from the front of `line`, and return its value.
    pub fn take(&self, py: Python<'py>, line: &mut &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let mut next = |count: usize| line.split_off(..count).expect("a line has the elements of all its leaves");
        let mut word = || <[u8; 8]>::try_from(next(8)).expect("a word has eight bytes");
        match self {
            Leaf::Float(_, class) => {
                let number = f64::from_ne_bytes(word());
                match class {
                    Some(class) => class.call1((number,)),
                    None => Ok(PyFloat::new(py, number).into_any()),
                }
            }
            Leaf::Integer(_) => {
                let [low, high] = [word(), word()].map(|word| i128::from(i64::from_ne_bytes(word)));
                Ok((low + (high << LOW_WORD_MASK.count_ones())).into_pyobject(py)?.into_any())
            }
            Leaf::Array(bytes, array) => {
                let array = empty(py, bytes.element, array.shape())?;
                let (bytes, _) = ArrayBytes::plain(&array).expect("a new array of numbers is plain");
                let into = bytes.write()?;
                into.copy_from_slice(next(into.len()));
                Ok(array)
            }
        }
    }
}

/// Return a contiguous copy of an array.
pub fn copied<'py>(array: &Bound<'py, PyUntypedArray>) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    // SAFETY: the pointer refers to a live array object, and the result is a new reference or null.
    unsafe {
        let copy = PY_ARRAY_API.PyArray_NewCopy(py, array.as_array_ptr(), NPY_ORDER::NPY_CORDER);
        Bound::from_owned_ptr_or_err(py, copy)
    }
}
