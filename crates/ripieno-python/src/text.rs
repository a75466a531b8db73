//! Word counts and line search in texts, for Python.

use crate::errors;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ripieno_kernels::text::{LineQuery, LineSearch, MatchedLines, WordCounts};

/// Add the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Words>()?;
    module.add_class::<PyLineSearch>()?;
    module.add_class::<FoundLines>()
}

/// Strings as columns: the start of each string and the end of the last one, and the bytes.
type StringArrays<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u8>>);

/// Counts of the distinct words of texts.
#[pyclass(name = "WordCounts", module = "ripieno._native")]
struct Words(WordCounts);

#[pymethods]
impl Words {
    #[new]
    fn new(lower: bool) -> Words {
        Words(WordCounts::new(lower))
    }

    fn __len__(&self) -> usize {
        self.0.words().len()
    }

    #[getter]
    fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    fn add(&mut self, py: Python<'_>, text: &[u8]) {
        py.detach(|| self.0.add(text));
    }

    /// Remove and return the words and their counts.
    fn take<'py>(&mut self, py: Python<'py>) -> (StringArrays<'py>, Bound<'py, PyArray1<i64>>) {
        let (offsets, data, counts) = self.0.take();
        let counts: Vec<i64> = counts.into_iter().map(|count| count as i64).collect();
        ((offsets.into_pyarray(py), data.into_pyarray(py)), counts.into_pyarray(py))
    }
}

/// A search for lines.
#[pyclass(name = "LineSearch", frozen, module = "ripieno._native")]
struct PyLineSearch(LineSearch);

#[pymethods]
impl PyLineSearch {
    #[new]
    #[pyo3(signature = (pattern, *, fixed=false, ignore_case=false, invert=false))]
    fn new(pattern: &str, fixed: bool, ignore_case: bool, invert: bool) -> PyResult<PyLineSearch> {
        let search = LineSearch::new(pattern, LineQuery { fixed, ignore_case, invert });
        Ok(PyLineSearch(search.map_err(|error| errors::input(format!("pattern={pattern:?}: {error}")))?))
    }

    fn find(&self, py: Python<'_>, text: &[u8], at_most: Option<usize>) -> FoundLines {
        FoundLines(py.detach(|| self.0.find(text, at_most.unwrap_or(usize::MAX))))
    }

    fn count(&self, py: Python<'_>, text: &[u8], at_most: Option<usize>) -> usize {
        py.detach(|| self.0.count(text, at_most.unwrap_or(usize::MAX)))
    }
}

/// Lines that were found in a text.
#[pyclass(frozen, module = "ripieno._native")]
struct FoundLines(MatchedLines);

#[pymethods]
impl FoundLines {
    fn __len__(&self) -> usize {
        self.0.numbers.len()
    }

    #[getter]
    fn line_count(&self) -> u64 {
        self.0.line_count
    }

    /// Return the number of each line, its offset in the text, and the lines.
    fn columns<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u64>>, StringArrays<'py>) {
        let MatchedLines { numbers, starts, offsets, data, .. } = &self.0;
        let lines = (PyArray1::from_slice(py, offsets), PyArray1::from_slice(py, data));
        (PyArray1::from_slice(py, numbers), PyArray1::from_slice(py, starts), lines)
    }

    fn printed<'py>(
        &self,
        py: Python<'py>,
        label: &[u8],
        first_number: Option<u64>,
        at_most: usize,
    ) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.0.printed(label, first_number, at_most)))
    }
}
