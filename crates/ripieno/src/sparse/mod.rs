//! Sparse reductions: every rank contributes rows for some indices and receives combined rows for others.
//!
//! A permutation maps indices to keys that are spread evenly over their range. [`Communicator::sparse`] sends the
//! sorted keys down the layers of a nested butterfly once and creates a plan. [`SparseReduce::reduce`] runs the plan on
//! any rows. [`Communicator::sparse_reduce`] does both in one pass.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section III.
//!
//! [`Communicator::sparse`]: crate::Communicator::sparse
//! [`Communicator::sparse_reduce`]: crate::Communicator::sparse_reduce

mod configreduce;
mod configure;
mod design;
mod indices;
mod messages;
mod options;
mod reduce;
mod team;

pub use options::SparseOptions;
pub use reduce::SparseSchema;

use crate::communicator::Communicator;
use crate::core::CoreShared;
use crate::error::Error;
use crate::pool::BufferPool;
use configure::{PreparedConfigure, check_missing};
use indices::{InConversion, OutConversion};
use reduce::ReductionScheduleKey;
pub use ripieno_plan::sparse::{DENSE_ABOVE, Volume};
use ripieno_plan::sparse::{Degrees, Routes};
use ripieno_run::Schedule;
use std::sync::{Arc, Mutex};
use team::RankThreads;

/// A configured sparse reduction, which may run any number of times.
pub struct SparseReduce {
    shared: Arc<CoreShared>,
    /// Index of the communicator in the core.
    communicator: usize,
    pool: BufferPool,
    /// Number of the configuration within the communicator, from 1 on.
    number: u32,
    size: u64,
    degrees: Degrees,
    out_count: usize,
    in_count: usize,
    /// Number of distinct out-indices and in-indices.
    out_row_count: usize,
    in_row_count: usize,
    out_conversion: OutConversion,
    in_conversion: InConversion,
    routes: Routes,
    schedules: Mutex<Vec<(ReductionScheduleKey, Arc<Schedule>)>>,
    team: RankThreads,
}

impl SparseReduce {
    fn new(comm: &Communicator, prepared: PreparedConfigure, options: &SparseOptions) -> Result<SparseReduce, Error> {
        let PreparedConfigure { size, permutation, out_rows, in_rows, machine, degrees, team } = prepared;
        let (routes, missing) = machine.finish(&team);
        if !options.missing_is_zero {
            check_missing(comm, &missing, &permutation)?;
        }
        let (pool, number) = next_configuration(comm)?;
        let (shared, communicator) = comm.core_and_number();
        Ok(SparseReduce {
            shared: shared.clone(),
            communicator,
            pool,
            number,
            size,
            degrees,
            out_count: out_rows.count(),
            in_count: in_rows.count(),
            out_row_count: out_rows.key_count(),
            in_row_count: in_rows.key_count(),
            out_conversion: out_rows.out_conversion(&team),
            in_conversion: in_rows.in_conversion(),
            routes,
            schedules: Mutex::default(),
            team,
        })
    }

    /// Return the exclusive upper bound of the indices.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Return the number of ranks that exchange at each layer.
    pub fn degrees(&self) -> &Degrees {
        &self.degrees
    }

    /// Return the number of this rank's out-indices. A reduction needs one row of values for each.
    pub fn out_count(&self) -> usize {
        self.out_count
    }

    /// Return the number of this rank's in-indices. A result has one row for each.
    pub fn in_count(&self) -> usize {
        self.in_count
    }

    /// Return the data volume of this rank before the first layer and after each.
    pub fn volumes(&self) -> &[Volume] {
        self.routes.volumes()
    }
}

/// Return the result of `work`. An error that only this rank gets ends the job, because the other ranks wait for its
/// next message.
fn abort_on_error<T>(comm: &Communicator, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let result = work();
    if let Err(error @ (Error::Memory { .. } | Error::Malformed { .. })) = &result {
        comm.abort(&error.to_string(), "");
    }
    result
}

/// Return the buffer pool of a communicator, and the number of its next configuration.
fn next_configuration(comm: &Communicator) -> Result<(BufferPool, u32), Error> {
    let (shared, communicator) = comm.core_and_number();
    let mut held = shared.hold()?;
    let (runtime, state) = held.communicator(communicator)?;
    Ok((runtime.scratch.clone(), state.next_configuration()))
}
