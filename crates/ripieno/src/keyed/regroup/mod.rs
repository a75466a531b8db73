//! Regroup: the rows of every key come to one rank, combined, part by part.
//!
//! What was added is sealed first. What each rank has for each part goes to the part's home by a plan; with it ranks
//! agree on what they call, on homes and on waves. A wave is one plan, too ([`ripieno_plan::regroup`]): some parts of
//! every rank, whose keys are complete when it has come. The next one is in flight while it is merged and handed on.
//!
//! Cost: messages of 24 bytes per part to its home (twice if balanced), with 40 more to each rank, and the blocks of
//! the parts, of which those that stay go over no link. Where one wave is not enough, or parts are balanced, an
//! allgather of 8 bytes per part, too. So a small regroup is two collectives.
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
use super::block::{KeyedBlock, KeyedForm};
use super::parts::Parts;
use crate::communicator::Communicator;
use crate::error::{Error, argument};
use options::Steps;
use ripieno_kernels::Threads;
use sizes::RegroupSizes;
use std::time::{Duration, Instant};
use wave::WaveExchanges;

/// Takes blocks whose keys are complete, with what they look like.
pub(super) type OnBlock<'a> = dyn FnMut(&KeyedForm, KeyedBlock) -> Result<(), Error> + 'a;

/// A regroup on its way.
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
    /// Seals `rows`, sends those of every part to its home, merges those of equal keys there and hands the blocks of
    /// this rank's parts to `on_block`, in the order of the parts, each as soon as its keys are complete. Within a
    /// block keys lie in order of first appearance, one rank after the other; the result is the same bits in every run,
    /// for every size of waves and number of threads. Every rank calls it, with data of one form and the same options;
    /// a rank without rows takes form and merge from the others. `on_block` must not call a collective of this
    /// communicator.
    ///
    /// # Errors
    /// [`Error::Argument`] and [`Error::Unsupported`], and nothing sent, if options or form make no sense. Every rank
    /// gets [`Error::RowsDiffer`], and no row has travelled, if rows are of different forms, or ranks differ in `call`,
    /// `merge` or `balanced`. Ranks that call something else, or let rows travel otherwise, are told by
    /// [`JobFailure::Mismatch`](crate::JobFailure::Mismatch). What only this rank has, an error of `on_block`, of spilling or
    /// of memory, ends the job.
    pub fn regroup(
        &self,
        rows: Aggregation,
        options: &Regroup,
        on_block: &mut dyn FnMut(&KeyedForm, KeyedBlock) -> Result<(), Error>,
    ) -> Result<Regrouped, Error> {
        let (form, rank_count) = (*rows.form(), rows.homes.rank_count);
        if rank_count != self.world_size() {
            let expected = format!("{}, as many as there are ranks here", self.world_size());
            return Err(argument("ranks of the aggregation", rank_count, &expected));
        }
        KeyedForm { combine: options.merge, ..form }.reduction()?;
        let result = regroup(self, rows, options, on_block);
        if let Err(error) = &result
            && !matches!(error, Error::Failed(_) | Error::Interrupted | Error::Closed | Error::RowsDiffer { .. })
        {
            self.abort("", &error.to_string(), error.traceback());
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
        form: KeyedForm { combine: agreed.merge, ..agreed.form },
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
        handing_on: Duration::ZERO,
    };
    let mut regrouping = Regrouping { comm, options, steps, parts, sizes, exchanges, regrouped };
    let mut next = regrouping.start(0)?;
    while let Some(flight) = next {
        let wave = regrouping.finish(flight)?;
        next = regrouping.start(wave.number + 1)?;
        regrouping.merge(wave, on_block)?;
    }
    let sent_bytes = comm.statistics()?.sent_bytes - sent_before;
    Ok(Regrouped { bytes_sent: sent_bytes, ..regrouping.regrouped })
}
