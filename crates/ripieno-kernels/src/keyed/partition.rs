//! Grouping of rows by part: the part of each row, and the rows of each part in their original order.

/// The part of each row.
#[derive(Clone, Debug)]
pub struct RowParts {
    /// The part of each row, below `counts.len()`.
    parts: Vec<u32>,
    /// The number of rows of each part.
    counts: Vec<usize>,
}

/// Rows grouped by part.
#[derive(Clone, Debug)]
pub struct Partition {
    /// The rows of part `p` are `rows[offsets[p]..offsets[p + 1]]`.
    offsets: Vec<usize>,
    /// Row numbers, ascending within a part.
    rows: Vec<u32>,
}

impl RowParts {
    /// Assign row `i` to part `parts[i]`, below `part_count`.
    ///
    /// # Panics
    /// If a part is not below `part_count`.
    pub fn new(parts: Vec<u32>, part_count: usize) -> RowParts {
        let mut counts = vec![0; part_count];
        for &part in &parts {
            counts[part as usize] += 1;
        }
        RowParts { parts, counts }
    }

    /// Return the part of each row.
    pub fn parts(&self) -> &[u32] {
        &self.parts
    }

    /// Return the number of rows of each part.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// Group the rows by part, with a counting sort.
    ///
    /// # Panics
    /// If there are more than 2^32 rows.
    pub fn sorted(&self) -> Partition {
        assert!(self.parts.len() as u64 <= 1 << 32, "rows are numbered by 32 bits");
        let mut end = 0;
        let mut offsets = vec![0];
        offsets.extend(self.counts.iter().map(|count| {
            end += count;
            end
        }));
        let (mut next, mut rows) = (offsets.clone(), vec![0; self.parts.len()]);
        for (row, &part) in (0..).zip(&self.parts) {
            let next = &mut next[part as usize];
            rows[*next] = row;
            *next += 1;
        }
        Partition { offsets, rows }
    }
}

impl Partition {
    /// Return the rows of part `part`.
    ///
    /// # Panics
    /// If `part` is not below the number of parts.
    pub fn rows_of(&self, part: usize) -> &[u32] {
        &self.rows[self.offsets[part]..self.offsets[part + 1]]
    }
}
