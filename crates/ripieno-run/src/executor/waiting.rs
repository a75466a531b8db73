//! What the recorder learns of a run: when nothing of it moved, and how it ended.

use super::idle::{SPIN, Work};
use super::progress::Waiting;
use super::run::ScheduleRun;
use super::{RunError, RunTraffic};
use crate::recorder::CollectiveOutcome;
use std::time::Duration;

impl ScheduleRun<'_, '_> {
    /// Notes that nothing moves now.
    pub fn begin_wait(&mut self, now: Duration) {
        match &mut self.progress.waiting {
            Some(waiting) => waiting.seen = now,
            none => {
                *none = Some(Waiting { since: now, seen: now, is_noted: false });
                // What ends before the second look was short, unless others have had the core meanwhile.
                if self.fabric.has_core_per_rank() {
                    return;
                }
            }
        }
        let Some(waiting) = self.progress.waiting.as_mut().filter(|waiting| !waiting.is_noted) else { return };
        waiting.is_noted = true;
        let since = waiting.since;
        let mut wants = std::mem::take(&mut self.progress.wants);
        self.wants(&mut wants);
        self.recorder.begin_wait(self.progress.ticket, &wants, since);
        self.progress.wants = wants;
    }

    /// Notes that something moves again.
    pub fn end_wait(&mut self) {
        let Some(waiting) = self.progress.waiting.take().filter(|waiting| waiting.is_noted) else { return };
        // A rank that spins has just looked at the clock; later anything may have had its core.
        let has_spun = self.fabric.has_core_per_rank() && waiting.seen - waiting.since < SPIN;
        let until = if has_spun { waiting.seen } else { self.fabric.now() };
        self.recorder.end_wait(self.progress.ticket, until);
    }

    /// Notes how the run ended, and returns what it cost.
    pub fn end(&mut self, ended: Result<(), RunError>) -> Result<RunTraffic, RunError> {
        let Err(error) = ended else { return Ok(self.end_well()) };
        let is_interrupted = matches!(error, RunError::Interrupted);
        let outcome = if is_interrupted { CollectiveOutcome::Interrupted } else { CollectiveOutcome::Failed };
        self.recall();
        self.recorder.end(self.progress.ticket, outcome, || self.fabric.now());
        Err(error)
    }

    /// Notes that the run has ended well, and returns what it cost.
    #[inline(always)]
    pub fn end_well(&mut self) -> RunTraffic {
        let ScheduleRun { fabric, recorder, progress, schedule, prepared, .. } = self;
        progress.traffic.elapsed = recorder.end(progress.ticket, CollectiveOutcome::Done, || fabric.now());
        recorder.count(&prepared.record, &progress.traffic, schedule.sent());
        progress.traffic
    }
}
