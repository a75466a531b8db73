//! Row selection: a list of row numbers that restricts a span to some of its rows.

use alloc::sync::Arc;

/// Selected rows of a span, in strictly ascending order.
///
/// Row `r` consists of the bytes from `r * row_bytes` to `(r + 1) * row_bytes` of the span. Because the rows ascend, an
/// operation that has processed all selected rows below `r` does not access bytes below row `r` again. It advances
/// through its span like an operation without rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    numbers: Arc<[u32]>,
    row_bytes: usize,
}

impl Rows {
    /// Create rows with these numbers, of `row_bytes` bytes each.
    ///
    /// # Panics
    ///
    /// Unless the numbers ascend strictly and a row has at least one byte.
    pub fn new(numbers: Arc<[u32]>, row_bytes: usize) -> Rows {
        assert!(numbers.is_sorted_by(|a, b| a < b), "the row numbers ascend strictly");
        assert!(row_bytes > 0, "a row has at least one byte");
        Rows { numbers, row_bytes }
    }

    /// Return the row numbers.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// Return the size of a row in bytes.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Return the same bytes as rows of one element of `element_bytes` each.
    ///
    /// # Panics
    ///
    /// Unless a row consists of whole elements.
    pub(crate) fn elements(&self, element_bytes: usize) -> Rows {
        assert!(self.row_bytes.is_multiple_of(element_bytes), "a row consists of whole elements");
        let width = self.row_bytes / element_bytes;
        let elements = |row: &u32| {
            let first = *row as usize * width;
            (first..first + width).map(|element| u32::try_from(element).expect("element numbers fit into 32 bits"))
        };
        Rows::new(self.numbers.iter().flat_map(elements).collect(), element_bytes)
    }

    /// Return the total size in bytes.
    pub fn length_bytes(&self) -> usize {
        self.numbers.len() * self.row_bytes
    }
}
