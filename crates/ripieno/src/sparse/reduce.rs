//! Sparse reduction: combines rows of values layer by layer, and sends the results back through the same ranks.
//!
//! Cost: each rank sends `2(d - 1)` messages for a layer of degree `d`, with the rows of its index sets in each part of
//! the range. The plan fixes the order of combination, so the result is bitwise identical in every run.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section III.B.

use super::SparseReduce;
use super::indices::{InConversion, OutConversion};
use crate::communicator_state::CommunicatorState;
use crate::elements::ElementShape;
use crate::error::{Error, argument};
use crate::lock::lock;
use crate::pool::{BufferPool, PooledBuffer};
use ripieno_plan::Op;
use ripieno_run::reduction::Reduction;
use ripieno_run::{BufferMemory, Call, CallKind, Element, Fabric, Schedule};
use std::fmt;
use std::sync::Arc;

/// Maximum number of cached plans, one for each schema of rows. A plan beyond it clears the cache.
const MAX_PLAN_COUNT: usize = 16;

/// Element type, width and layout of the rows of a reduction, and the operation that combines them.
#[derive(Clone, Copy, Debug)]
pub struct SparseSchema<'a> {
    /// Type of the elements.
    pub element: Element,
    /// Number of elements in a row, at least 1.
    pub width: usize,
    /// Operation that combines elements.
    pub op: Op,
    /// Layout of the elements of a row.
    pub row: ElementShape<'a>,
}

/// Key of a cached schedule.
pub(super) type ReductionScheduleKey = (Element, usize, Op);

impl SparseSchema<'_> {
    /// Return the size of a row. [`SparseSchema::reduction`] rejects sizes that overflow.
    pub(super) fn row_bytes(&self) -> usize {
        self.width * self.element.size_bytes()
    }

    /// Return the reduction of rows. Fails if the operation or the row size is invalid.
    pub(super) fn reduction(&self) -> Result<&'static Reduction, Error> {
        match self.width.checked_mul(self.element.size_bytes()) {
            Some(0) => Err(argument("width", 0, "at least one element in a row")),
            None => Err(argument("width", self.width, "a row that memory can hold")),
            Some(_) => Reduction::of(self.element, self.op).map_err(Error::Unsupported),
        }
    }

    /// Return the call for comparison between ranks, and register the layout of a row with `fabric`.
    pub(super) fn call(&self, configuration: u32, fabric: &mut dyn Fabric) -> Call {
        fabric.note_signature(self.row.signature(), &|| self.row.text());
        let kind = CallKind::Sparse { configuration, op: self.op, width: self.width as u64 };
        Call { kind, element: self.element, signature: self.row.signature() }
    }
}

impl fmt::Display for SparseSchema<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rows of {} × {}, {}", self.element.name(), self.width, self.op.name())?;
        let row = self.row.text();
        if row.is_empty() { Ok(()) } else { write!(f, ", {row}") }
    }
}

impl SparseReduce {
    /// Reduce `values`, one row per out-index of this rank, and write one combined row per in-index to `into`. Both are
    /// in the caller's order. Every rank must call this function with the same `schema`.
    pub fn reduce(&self, values: &[u8], into: &mut [u8], schema: SparseSchema<'_>) -> Result<(), Error> {
        schema.reduction()?;
        let row_bytes = schema.row_bytes();
        check_rows("values", values.len(), self.out_count, row_bytes)?;
        check_rows("into", into.len(), self.in_count, row_bytes)?;

        let mut converted = match self.out_conversion {
            OutConversion::Identity => None,
            _ => Some(self.take(self.out_row_count * row_bytes)?),
        };
        let main: &[u8] = match &mut converted {
            Some(rows) => {
                self.out_conversion.fill(rows.bytes_mut(), values, schema, &self.team)?;
                rows.bytes_mut()
            }
            None => values,
        };
        if let InConversion::Identity = self.in_conversion {
            return self.run(main, into, schema);
        }
        let mut rows = self.take(self.in_row_count * row_bytes)?;
        self.run(main, rows.bytes_mut(), schema)?;
        self.in_conversion.fill(into, rows.bytes_mut(), row_bytes, &self.team);
        Ok(())
    }

    /// Run the plan for `schema`. `main` and `output` have one row per distinct index.
    fn run(&self, main: &[u8], output: &mut [u8], schema: SparseSchema<'_>) -> Result<(), Error> {
        let mut held = self.shared.hold()?;
        let (mut runtime, state) = held.communicator(self.communicator)?;
        let schedule = self.schedule(state, schema);
        let mut scratch = self.take(schedule.scratch_bytes())?;
        let buffers = [BufferMemory::Read(main), BufferMemory::Write(output), BufferMemory::Write(scratch.bytes_mut())];
        let call = schema.call(self.number, runtime.fabric);
        state.run_uncatalogued(&mut runtime, call, schedule, buffers)
    }

    fn schedule(&self, state: &CommunicatorState, schema: SparseSchema<'_>) -> Arc<Schedule> {
        let mut schedules = lock(&self.schedules);
        let key = (schema.element, schema.width, schema.op);
        if let Some((_, schedule)) = schedules.iter().find(|(known, _)| *known == key) {
            return schedule.clone();
        }
        if schedules.len() >= MAX_PLAN_COUNT {
            schedules.clear();
        }
        let plan = self.routes.plan(schema.row_bytes(), schema.element.size_bytes(), schema.op);
        let schedule = state.schedule(plan);
        schedules.push((key, schedule.clone()));
        schedule
    }

    fn take(&self, length_bytes: usize) -> Result<PooledBuffer, Error> {
        take(&self.pool, length_bytes)
    }
}

pub(super) fn take(pool: &BufferPool, length_bytes: usize) -> Result<PooledBuffer, Error> {
    pool.take(length_bytes).map_err(|error| Error::Memory { length_bytes, cause: error.to_string() })
}

pub(super) fn check_rows(name: &'static str, length_bytes: usize, count: usize, row_bytes: usize) -> Result<(), Error> {
    match count.checked_mul(row_bytes) == Some(length_bytes) {
        true => Ok(()),
        false => {
            let expected = format!("{count} rows of {row_bytes} bytes, one per index");
            Err(argument(name, format!("{length_bytes} bytes"), &expected))
        }
    }
}
