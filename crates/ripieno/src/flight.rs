//! Contents of a rank's flight recorder.

use ripieno_run::Executor;
use ripieno_run::recorder::{CollectiveRecord, Recorder, StallInterval};
use std::time::Duration;

/// The latest collectives of a rank. Times are on the monotonic clock of its host.
#[derive(Clone, Debug, Default)]
pub struct FlightRecorder {
    /// Oldest first, each with its number among all collectives of this rank.
    pub records: Vec<(u64, CollectiveRecord)>,
    /// The longer waits of these collectives, oldest first.
    pub waits: Vec<StallInterval>,
    /// Time that this rank has waited for each world rank since the start, over all communicators. Missing entries at
    /// the end mean no wait.
    pub waited_for: Vec<Duration>,
}

impl FlightRecorder {
    /// Copy the latest `count` records of `recorder`, or all that it has, as of `now`.
    pub(crate) fn of(recorder: &Recorder, count: Option<usize>, now: Duration) -> FlightRecorder {
        let records: Vec<_> = recorder.latest(count.unwrap_or(usize::MAX), now).collect();
        let first = records.first().map_or(u64::MAX, |(number, _)| *number);
        FlightRecorder {
            records,
            waits: recorder.waits().filter(|wait| wait.number >= first).copied().collect(),
            waited_for: recorder.waited_for().to_vec(),
        }
    }
}

/// Make `executor` keep records of the last `count` collectives, all with times. Drops the existing records.
pub(crate) fn keep(executor: &mut Executor, count: usize) {
    let gauge = executor.recorder.gauge.clone();
    executor.recorder = Recorder::new(count);
    executor.recorder.is_clocked = true;
    executor.recorder.gauge = gauge;
}
