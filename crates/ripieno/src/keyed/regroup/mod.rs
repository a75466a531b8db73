//! Regroup: send the rows of each key to the rank that owns it, and combine them there, one part at a time.
//!
//! First, each rank seals its rows. By one plan, it sends the size of its rows of each part to the part's owner. In the
//! same plan, ranks agree on the call, on owners and on waves. Each wave is one more plan ([`ripieno_plan::regroup`])
//! and moves some parts of every rank. Their keys are complete when the wave has arrived. The next wave is in flight
//! while the receivers merge a wave and pass it to the caller.
//!
//! Cost: 24 bytes per part to its owner (twice if balanced), 40 bytes to each rank, and the blocks of the parts. Blocks
//! that stay on their rank use no link. With several waves or balanced parts, an allgather of 8 bytes per part is
//! added. A small regroup is therefore two collectives.
//! Source: Zhang and Qiu, "Clustering social images with MapReduce and high performance collective communication"
//! (Twister), section 5; Zhang, Ruan and Qiu, "Harp: collective communication on Hadoop", IC2E 2015, section IV.

mod agreement;
mod encoding;
#[cfg(test)]
mod fuzz;
mod merge;
mod options;
mod sizes;
mod wave;

pub use options::{Regroup, Regrouped};

use super::aggregation::Aggregation;
use super::block::{KeyedBlock, KeyedSchema};
use super::parts::Parts;
use crate::communicator::Communicator;
use crate::error::{Error, argument};
use options::Steps;
use ripieno_kernels::Threads;
use sizes::RegroupSizes;
use std::time::{Duration, Instant};
use wave::WaveExchanges;

/// Callback that receives blocks with complete keys, and their schema.
pub(super) type OnBlock<'a> = dyn FnMut(&KeyedSchema, KeyedBlock) -> Result<(), Error> + 'a;

/// A regroup in progress.
struct Regrouping<'a> {
    comm: &'a Communicator,
    options: &'a Regroup,
    steps: Steps,
    parts: Parts,
    sizes: RegroupSizes,
    exchanges: WaveExchanges,
    regrouped: Regrouped,
}

impl Communicator {
    /// Seal `rows`, send the rows of every part to its owner and merge rows of equal keys there. `on_block` receives
    /// the blocks of this rank's parts in the order of the parts, each as soon as its keys are complete.
    ///
    /// Within a block, keys are in order of first appearance, one rank after the other. The result is bitwise identical
    /// in every run, for every wave size and number of threads. Every rank must call this function, with data of one
    /// schema and the same options. A rank without rows adopts the schema and the merge operation of the other ranks.
    /// `on_block` must not call a collective of this communicator.
    ///
    /// # Errors
    /// [`Error::Argument`] and [`Error::Unsupported`] if options or schema are invalid; nothing is sent. Every rank
    /// gets [`Error::RowsDiffer`] if the schemas differ, or if ranks differ in `call`, `merge` or `balanced`; no row is
    /// sent. If a rank makes another call or uses other transport options, all get
    /// [`JobFailure::Mismatch`](crate::JobFailure::Mismatch). An error on one rank only (in `on_block`, spilling or
    /// memory) ends the job.
    pub fn regroup(
        &self,
        rows: Aggregation,
        options: &Regroup,
        on_block: &mut dyn FnMut(&KeyedSchema, KeyedBlock) -> Result<(), Error>,
    ) -> Result<Regrouped, Error> {
        let (schema, rank_count) = (*rows.schema(), rows.owners.rank_count);
        if rank_count != self.world_size() {
            let expected = format!("{}, the number of ranks of this communicator", self.world_size());
            return Err(argument("ranks of the aggregation", rank_count, &expected));
        }
        KeyedSchema { combine: options.merge, ..schema }.reduction()?;
        let result = regroup(self, rows, options, on_block);
        if let Err(error) = &result
            && !matches!(error, Error::Failed(_) | Error::Interrupted | Error::Closed | Error::RowsDiffer { .. })
        {
            self.abort(&error.to_string(), error.traceback());
        }
        result
    }
}

fn regroup(
    comm: &Communicator,
    rows: Aggregation,
    options: &Regroup,
    on_block: &mut OnBlock<'_>,
) -> Result<Regrouped, Error> {
    let started = Instant::now();
    let mut parts = rows.seal(&Threads::new(options.threads.get()))?;
    let sealing = started.elapsed();
    let (started, sent_before) = (Instant::now(), comm.statistics()?.sent_bytes);
    let mut steps = Steps::new(parts.part_count(), options);
    let (sizes, agreed) = RegroupSizes::exchange(comm, &mut parts, &mut steps, options)?;
    let exchanges = WaveExchanges::new(comm, &parts, &sizes, options.eager_bytes);
    let (waves, spilled_bytes) = (sizes.waves.count(), parts.spilled_bytes());
    let regrouped = Regrouped {
        schema: KeyedSchema { combine: agreed.merge, ..agreed.schema },
        waves,
        spilled_bytes,
        sealing,
        sizes: started.elapsed(),
        rows_in: 0,
        rows_sent: 0,
        keys: 0,
        rows: 0,
        bytes_sent: 0,
        exchange: Duration::ZERO,
        merge: Duration::ZERO,
        callback: Duration::ZERO,
    };
    let mut regrouping = Regrouping { comm, options, steps, parts, sizes, exchanges, regrouped };
    let mut next = regrouping.start(0)?;
    while let Some(wave_in_flight) = next {
        let wave = regrouping.finish(wave_in_flight)?;
        next = regrouping.start(wave.number + 1)?;
        regrouping.merge(wave, on_block)?;
    }
    let sent_bytes = comm.statistics()?.sent_bytes - sent_before;
    Ok(Regrouped { bytes_sent: sent_bytes, ..regrouping.regrouped })
}
