//! Rows: an index map, the chosen rows of a span.

use alloc::sync::Arc;

/// Some rows of a span, in strictly ascending order. Row `r` is the bytes from `r * row_bytes` to `(r + 1) * row_bytes`
/// of the span.
///
/// Because the rows ascend, an operation that has passed all chosen rows below `r` has nothing more to do with any byte
/// below row `r`: it advances through its span as one without rows does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    numbers: Arc<[u32]>,
    row_bytes: usize,
}

impl Rows {
    /// The rows of these numbers, of `row_bytes` bytes each. Panics unless the numbers ascend strictly.
    pub fn new(numbers: Arc<[u32]>, row_bytes: usize) -> Rows {
        assert!(numbers.is_sorted_by(|a, b| a < b), "row numbers ascend");
        assert!(row_bytes > 0, "a row has bytes");
        Rows { numbers, row_bytes }
    }

    /// Their numbers.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// Size of a row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// The same bytes as rows of one element each, of `element_bytes`. Panics unless a row is made of whole elements.
    pub(crate) fn elements(&self, element_bytes: usize) -> Rows {
        assert!(self.row_bytes.is_multiple_of(element_bytes), "a row cuts no element");
        let width = self.row_bytes / element_bytes;
        let elements = |row: &u32| {
            let first = *row as usize * width;
            (first..first + width)
                .map(|element| u32::try_from(element).expect("elements of rows are counted in 32 bits"))
        };
        Rows::new(self.numbers.iter().flat_map(elements).collect(), element_bytes)
    }

    /// Size of all of them.
    pub fn length_bytes(&self) -> usize {
        self.numbers.len() * self.row_bytes
    }
}
