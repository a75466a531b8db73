//! Radix partition: the rows of each part together, in the order in which they came.
//!
//! A counting sort by part. Cost: two passes over the part numbers.

/// Rows by part.
#[derive(Clone, Debug)]
pub struct Partition {
    /// The rows of part `p` are `rows[offsets[p]..offsets[p + 1]]`.
    pub offsets: Vec<usize>,
    /// Numbers of rows, ascending within a part.
    pub rows: Vec<u32>,
}

impl Partition {
    /// Sorts rows, of which row `i` belongs to part `parts[i]`, below `part_count`.
    ///
    /// # Panics
    /// If a part is not below `part_count`, or there are more than 2^32 rows.
    pub fn new(parts: &[u32], part_count: usize) -> Partition {
        assert!(parts.len() as u64 <= 1 << 32, "rows are numbered by 32 bits");
        let mut offsets = vec![0; part_count + 1];
        for &part in parts {
            offsets[part as usize + 1] += 1;
        }
        for part in 0..part_count {
            offsets[part + 1] += offsets[part];
        }
        let (mut next, mut rows) = (offsets.clone(), vec![0; parts.len()]);
        for (row, &part) in (0..).zip(parts) {
            let next = &mut next[part as usize];
            rows[*next] = row;
            *next += 1;
        }
        Partition { offsets, rows }
    }

    /// The rows of part `part`.
    pub fn rows_of(&self, part: usize) -> &[u32] {
        &self.rows[self.offsets[part]..self.offsets[part + 1]]
    }
}
