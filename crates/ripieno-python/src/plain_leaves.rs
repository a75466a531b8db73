//! Leaves: numbers and short arrays, alone or in tuples and lists. Leaves of one element type are sent together.

use crate::arrays::{ArrayBytes, empty};
use crate::signatures;
use numpy::npyffi::{NPY_ORDER, PY_ARRAY_API};
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods, dtype};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyType};
use ripieno::{Element, Op};

/// Signature of Python numbers of any type, which have the words of `ripieno.wire.numbers`.
pub const NUMBER_SIGNATURE: &str = "number";
/// Size of the words of a number.
const NUMBER_BYTES: usize = 32;
/// Bits of the lower word of a whole number in sums.
const HALF_BITS: u32 = 36;
const LOW_WORD_MASK: i64 = (1 << HALF_BITS) - 1;

/// A number or an array.
pub enum Leaf<'a, 'py> {
    /// A Python number, and an operation other than the product.
    Number(PythonNumber<'py>, Op),
    /// A short array.
    Array(ArrayBytes, &'a Bound<'py, PyUntypedArray>),
}

/// A number of Python, or a NumPy float64.
pub enum PythonNumber<'py> {
    /// An integer.
    Whole(i64),
    /// A float, and the class of NumPy's float64 if it is one.
    Float(f64, Option<Bound<'py, PyType>>),
}

impl<'a, 'py> Leaf<'a, 'py> {
    /// Convert `value` to a leaf of this operation, if it is one. Factors of products are not, except for arrays.
    pub fn of(value: &'a Bound<'py, PyAny>, op: Op) -> Option<Leaf<'a, 'py>> {
        if let Some(number) = PythonNumber::of(value) {
            return (op != Op::Prod).then_some(Leaf::Number(number, op));
        }
        let (bytes, array) = ArrayBytes::plain_to_read(value).filter(|(bytes, _)| bytes.is_short())?;
        Some(Leaf::Array(bytes, array))
    }

    /// Return the type of its elements.
    pub fn element(&self) -> Element {
        match self {
            Leaf::Number(_, Op::Sum) => Element::F64,
            Leaf::Number(..) => Element::I64,
            Leaf::Array(bytes, _) => bytes.element,
        }
    }

    /// Return the size of its elements in bytes.
    pub fn length_bytes(&self) -> usize {
        match self {
            Leaf::Number(..) => NUMBER_BYTES,
            Leaf::Array(bytes, _) => bytes.read().len(),
        }
    }

    /// Append its elements to `buffer`.
    pub fn put(&self, buffer: &mut Vec<u8>) {
        match self {
            Leaf::Number(number, Op::Sum) => buffer.extend(number.addends().as_flattened()),
            Leaf::Number(number, op) => buffer.extend(number.ordered(*op).map(i64::to_ne_bytes).as_flattened()),
            Leaf::Array(bytes, _) => buffer.extend_from_slice(bytes.read()),
        }
    }

    /// Append the signature that ranks compare.
    pub fn put_signature(&self, signature: &mut String) {
        match self {
            Leaf::Number(..) => signature.push_str(NUMBER_SIGNATURE),
            Leaf::Array(_, array) => signatures::put_array(signature, self.element().name(), array.shape()),
        }
    }

    /// Remove the elements of a leaf like this one from the front of `buffer`, and return its value.
    pub fn take(&self, py: Python<'py>, buffer: &mut &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let mut next = |count: usize| buffer.split_off(..count).expect("a buffer has the elements of all its leaves");
        match self {
            Leaf::Number(number, op) => {
                let mut words = [[0; 8]; 4];
                words.as_flattened_mut().copy_from_slice(next(NUMBER_BYTES));
                let class = if let PythonNumber::Float(_, class) = number { class.as_ref() } else { None };
                if *op == Op::Sum { total(py, words, class) } else { extremum(py, words, class, *op) }
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

impl<'py> PythonNumber<'py> {
    fn of(value: &Bound<'py, PyAny>) -> Option<PythonNumber<'py>> {
        if let Ok(number) = value.cast::<PyFloat>() {
            let class = number.get_type();
            if class.is(dtype::<f64>(value.py()).typeobj()) {
                return Some(PythonNumber::Float(number.value(), Some(class)));
            }
            return number.is_exact_instance_of::<PyFloat>().then(|| PythonNumber::Float(number.value(), None));
        }
        value.cast_exact::<PyInt>().ok()?.extract().ok().map(PythonNumber::Whole)
    }

    /// Return the words for sums: the float, the halves of the whole number, and the count of floats.
    fn addends(&self) -> [[u8; 8]; 4] {
        let words = match *self {
            // -0.0 changes no float that is added to it. The halves have fewer bits than a float.
            PythonNumber::Whole(number) => [-0.0, (number & LOW_WORD_MASK) as f64, (number >> HALF_BITS) as f64, 0.0],
            PythonNumber::Float(number, _) => [number, 0.0, 0.0, 1.0],
        };
        words.map(f64::to_ne_bytes)
    }

    /// Return the words for minima and maxima: the whole number, the bits of the float in ascending order, the kind,
    /// and whether the number is whole.
    fn ordered(&self, op: Op) -> [i64; 4] {
        let (sign, absent, beyond) = if op == Op::Max { (1, i64::MIN, i64::MAX) } else { (-1, i64::MAX, i64::MIN) };
        match *self {
            PythonNumber::Whole(number) => [number, absent, sign, sign],
            PythonNumber::Float(number, _) if number.is_nan() => [absent, beyond, 2 * sign, 0],
            PythonNumber::Float(number, _) => [absent, ascending(number.to_bits() as i64), 2 * sign, 0],
        }
    }
}

/// Map the bits of floats to integers in the order of the floats, and back.
fn ascending(bits: i64) -> i64 {
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

/// Return the sum that words represent.
fn total<'py>(py: Python<'py>, words: [[u8; 8]; 4], class: Option<&Bound<'py, PyType>>) -> PyResult<Bound<'py, PyAny>> {
    let [fraction, low, high, float_count] = words.map(f64::from_ne_bytes);
    let whole = (low as i128) + ((high as i128) << HALF_BITS);
    if float_count == 0.0 {
        return Ok(whole.into_pyobject(py)?.into_any());
    }
    float(py, if whole == 0 { fraction } else { fraction + whole as f64 }, class)
}

/// Return the minimum or maximum that words represent.
fn extremum<'py>(
    py: Python<'py>,
    words: [[u8; 8]; 4],
    class: Option<&Bound<'py, PyType>>,
    op: Op,
) -> PyResult<Bound<'py, PyAny>> {
    let [whole, bits, kind, is_whole] = words.map(i64::from_ne_bytes);
    let fraction = f64::from_bits(ascending(bits) as u64);
    match kind.abs() {
        0 => Ok(PyBool::new(py, whole != 0).to_owned().into_any()),
        1 => Ok(whole.into_pyobject(py)?.into_any()),
        _ if is_whole == 0 || fraction.is_nan() => float(py, fraction, class),
        _ if op == Op::Max => float(py, fraction.max(whole as f64), class),
        _ => float(py, fraction.min(whole as f64), class),
    }
}

fn float<'py>(py: Python<'py>, number: f64, class: Option<&Bound<'py, PyType>>) -> PyResult<Bound<'py, PyAny>> {
    class.map_or_else(|| Ok(PyFloat::new(py, number).into_any()), |class| class.call1((number,)))
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
