//! What the flight recorder of a rank knows.

use ripieno_run::Executor;
use ripieno_run::recorder::{CollectiveRecord, Recorder, StallInterval};
use std::time::Duration;

/// The latest collectives of this rank. Times are of the monotonic clock of its host.
#[derive(Clone, Debug, Default)]
pub struct FlightRecorder {
    /// Oldest first, each with its number among all that this rank began.
    pub records: Vec<(u64, CollectiveRecord)>,
    /// The longer waits of these, oldest first.
    pub waits: Vec<StallInterval>,
    /// How long this rank has waited for each peer since the start, by rank in the world, whichever
    /// communicator that was in; none for ranks beyond the end.
    pub waited_for: Vec<Duration>,
}

impl FlightRecorder {
    /// The latest `count` records of `recorder`, or all that are kept, as they stand `now`.
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

/// Lets `executor` keep the last `count` collectives, all with times. What it has kept so far is gone.
pub(crate) fn keep(executor: &mut Executor, count: usize) {
    let gauge = executor.recorder.gauge.clone();
    executor.recorder = Recorder::new(count);
    executor.recorder.is_clocked = true;
    executor.recorder.gauge = gauge;
}
