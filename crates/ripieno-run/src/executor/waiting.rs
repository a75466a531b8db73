//! Records of a run's waits and its outcome.

use super::idle::{SPIN, Work};
use super::progress::WaitState;
use super::run::ScheduleRun;
use super::{RunError, RunTraffic};
use crate::recorder::CollectiveOutcome;
use std::time::Duration;

impl ScheduleRun<'_, '_> {
    /// Record that no bytes move now.
    pub fn begin_wait(&mut self, now: Duration) {
        match &mut self.progress.waiting {
            Some(waiting) => waiting.seen = now,
            none => {
                *none = Some(WaitState { since: now, seen: now, is_recorded: false });
                // Record a wait only from its second poll on: a shorter wait is negligible, unless other processes used
                // the core meanwhile.
                if self.fabric.has_core_per_rank() {
                    return;
                }
            }
        }
        let Some(waiting) = self.progress.waiting.as_mut().filter(|waiting| !waiting.is_recorded) else { return };
        waiting.is_recorded = true;
        let since = waiting.since;
        let mut interests = std::mem::take(&mut self.progress.interests);
        self.interests(&mut interests);
        self.recorder.begin_wait(self.progress.ticket, &interests, since);
        self.progress.interests = interests;
    }

    /// Record that bytes move again.
    pub fn end_wait(&mut self) {
        let Some(waiting) = self.progress.waiting.take().filter(|waiting| waiting.is_recorded) else { return };
        // A spinning rank has just read the clock. Otherwise other processes may have used its core.
        let has_spun = self.fabric.has_core_per_rank() && waiting.seen - waiting.since < SPIN;
        let until = if has_spun { waiting.seen } else { self.fabric.now() };
        self.recorder.end_wait(self.progress.ticket, until);
    }

    /// Record the outcome of the run and return its traffic.
    pub fn end(&mut self, ended: Result<(), RunError>) -> Result<RunTraffic, RunError> {
        let Err(error) = ended else { return Ok(self.end_successfully(self.progress.traffic)) };
        let is_interrupted = matches!(error, RunError::Interrupted);
        let outcome = if is_interrupted { CollectiveOutcome::Interrupted } else { CollectiveOutcome::Failed };
        self.revoke_zero_copy();
        self.recorder.end(self.progress.ticket, outcome, || self.fabric.now());
        Err(error)
    }

    /// Record the success of the run, which moved `moved`, and return its traffic.
    #[inline(always)]
    pub fn end_successfully(&mut self, moved: RunTraffic) -> RunTraffic {
        let ScheduleRun { fabric, recorder, progress, schedule, prepared, .. } = self;
        let elapsed = recorder.end(progress.ticket, CollectiveOutcome::Done, || fabric.now());
        let traffic = RunTraffic { elapsed_ns: elapsed.map_or(0, |elapsed| elapsed.as_nanos() as u64), ..moved };
        recorder.count(&prepared.record, &traffic, schedule.sent());
        traffic
    }
}
