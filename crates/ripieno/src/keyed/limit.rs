//! Memory limit of an aggregation, and the parts that are spilled because of it.
//!
//! To spill a part, its keys and rows are written to a file as a run, and the part becomes empty. For sums and products
//! of floats, the result depends on the order of rows. In this case, the part keeps all rows after the first run, and
//! the merge of the runs combines them in order. The limit therefore does not change the result.

use super::block::{KeyedCombine, KeyedSchema};
use super::part::{KeyedPart, PartColumns, PartScratch};
use super::spill::{SpillFile, SpillRecord};
use crate::error::Error;
use ripieno_plan::Op;
use std::ops::Range;
use std::path::PathBuf;

/// Bytes read from a run at a time.
const READ_BYTES: usize = 1 << 20;

/// Maximum memory of an aggregation, and the directory for spilled parts.
///
/// The limit includes allocated tables, keys and rows. It excludes the caller's input and blocks that were taken. Each
/// part must fit in half of the limit, because a part is merged as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Maximum memory in bytes.
    pub bytes: u64,
    /// Directory of the unnamed spill files.
    pub directory: PathBuf,
}

/// A memory limit, and the runs spilled because of it.
#[derive(Debug)]
pub(super) struct Limited {
    limit: MemoryLimit,
    file: Option<SpillFile>,
    /// The runs of each part, oldest first.
    runs: Vec<Vec<SpillRecord>>,
}

impl Limited {
    pub fn new(limit: MemoryLimit, part_count: usize) -> Limited {
        Limited { limit, file: None, runs: vec![Vec::new(); part_count] }
    }

    pub fn bytes(&self) -> usize {
        usize::try_from(self.limit.bytes).unwrap_or(usize::MAX)
    }

    /// Return the maximum bytes of rows that are added at a time.
    pub fn chunk_bytes(&self) -> usize {
        self.bytes() / 8
    }

    pub fn has_runs(&self, part: usize) -> bool {
        !self.runs[part].is_empty()
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, SpillFile::size_bytes)
    }

    /// Create a spill file in the configured directory.
    pub fn new_file(&self) -> Result<SpillFile, Error> {
        SpillFile::new(&self.limit.directory)
    }

    /// Write a part to the file as a run, and make the part empty.
    pub fn spill(&mut self, at: usize, part: &mut KeyedPart, schema: &KeyedSchema) -> Result<(), Error> {
        let PartColumns { keys, owners, values } = part.columns();
        if self.file.is_none() {
            self.file = Some(self.new_file()?);
        }
        let run = self.file.as_mut().expect("it was just opened").append(keys, owners, values)?;
        self.runs[at].push(run);
        part.restart(schema, depends_on_order(schema));
        Ok(())
    }

    /// Merge the runs of a part with its later rows in memory, and remove the runs.
    pub fn merged(&mut self, at: usize, rest: KeyedPart, schema: &KeyedSchema) -> Result<KeyedPart, Error> {
        let runs = std::mem::take(&mut self.runs[at]);
        let Some(file) = &self.file else { return Ok(rest) };
        let (mut merged, mut scratch) = (KeyedPart::new(schema, schema.reduction()?), PartScratch::default());
        for run in &runs {
            let keys = file.keys(run, schema.keys)?;
            let numbers = merged.numbers(keys.view(), &mut scratch);
            drop(keys);
            let row_count = run.link_count::<u32>().max(run.key_count);
            let step = (READ_BYTES / (schema.held_row_bytes() + size_of::<u32>())).max(1);
            for start in (0..row_count).step_by(step) {
                let count = step.min(row_count - start);
                let owners = file.links::<u32>(run, schema.keys, start, count)?;
                let values =
                    file.values(run, schema.keys, start * schema.held_row_bytes(), count * schema.held_row_bytes())?;
                add_rows(&mut merged, &numbers, owners.as_deref(), start..start + count, &values);
            }
        }
        let PartColumns { keys, owners, values } = rest.columns();
        let numbers = merged.numbers(keys, &mut scratch);
        let row_count = owners.map_or(numbers.len(), <[u32]>::len);
        add_rows(&mut merged, &numbers, owners, 0..row_count, values);
        Ok(merged)
    }
}

/// Add rows to `part`. Without `owners`, row `i` belongs to key `numbers[i]`; otherwise to key `numbers[owners[i]]`.
fn add_rows(part: &mut KeyedPart, numbers: &[u32], owners: Option<&[u32]>, rows: Range<usize>, values: &[u8]) {
    match owners {
        None => part.add_numbered(&numbers[rows], values),
        Some(owners) => {
            let numbers: Vec<u32> = owners.iter().map(|&owner| numbers[owner as usize]).collect();
            part.add_numbered(&numbers, values);
        }
    }
}

/// Return whether a combined row depends on the order of combination.
fn depends_on_order(schema: &KeyedSchema) -> bool {
    schema.element.is_float() && matches!(schema.combine, KeyedCombine::Op(Op::Sum | Op::Prod))
}
