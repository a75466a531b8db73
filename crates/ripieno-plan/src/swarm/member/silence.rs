//! Silent sources: the time at which a member reports a source that sends nothing.
//!
//! Under streamed disciplines a source forwards all that it has, so a member watches each source by itself and suspects
//! a source soon after its bytes stop. Under other disciplines a source may serve other members first, so a member
//! waits until no source sends anything.

use super::{SilentSource, SwarmMember};
use alloc::vec::Vec;
use core::time::Duration;

/// A member reports a source that has sent bytes before after one and after two suspicion timeouts.
const SUSPICION_COUNT: u32 = 2;

/// Silence of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// Time of the last byte, or of the first request.
    since: Duration,
    has_sent: bool,
    report_count: u32,
}

impl SwarmMember {
    /// Start to watch `source`, unless another fetch from it is running.
    pub(super) fn begin_silence(&mut self, now: Duration, source: usize) {
        let is_watched = self.fetches.values().any(|fetch| fetch.source == source);
        if !is_watched {
            self.silences.insert(source, Silence { since: now, has_sent: false, report_count: 0 });
        }
    }

    /// Record that bytes of `block` arrived from its source.
    pub(super) fn end_silence(&mut self, now: Duration, block: usize) {
        if let Some(source) = self.source_of(block) {
            self.silences.insert(source, Silence { since: now, has_sent: true, report_count: 0 });
        }
    }

    /// Return the time at which the member queries the tracker if nothing arrives.
    pub(super) fn next_report(&self) -> Duration {
        let stalled = self.last_received + self.timing.stall_timeout;
        if !self.is_streamed() {
            return stalled;
        }
        self.watched().map(|(_, silence)| self.report_time(silence)).min().unwrap_or(stalled)
    }

    /// Return the silent sources and schedule their next report.
    pub(super) fn report_silent_sources(&mut self, now: Duration) -> Vec<SilentSource> {
        let is_due = |silence: &Silence| !self.is_streamed() || self.report_time(silence) <= now;
        let due: Vec<usize> = self.watched().filter(|(_, silence)| is_due(silence)).map(|(rank, _)| rank).collect();
        due.into_iter()
            .map(|rank| {
                let silence = self.silences.get_mut(&rank).expect("a source of a running fetch is watched");
                silence.report_count += 1;
                SilentSource { rank, silence: now - silence.since }
            })
            .collect()
    }

    fn is_streamed(&self) -> bool {
        self.manifest.is_some_and(|manifest| manifest.discipline.is_streamed())
    }

    /// Return the sources of the running fetches.
    fn watched(&self) -> impl Iterator<Item = (usize, &Silence)> {
        let is_in_use = |source: usize| self.fetches.values().any(|fetch| fetch.source == source);
        self.silences.iter().filter(move |(source, _)| is_in_use(**source)).map(|(&source, silence)| (source, silence))
    }

    fn report_time(&self, silence: &Silence) -> Duration {
        let next = silence.report_count + 1;
        let after = match silence.has_sent {
            true if next <= SUSPICION_COUNT => self.timing.suspicion_timeout() * next,
            // The last suspicion is followed by the second stall report.
            true => self.timing.stall_timeout * (next - SUSPICION_COUNT + 1),
            false => self.timing.stall_timeout * next,
        };
        silence.since + after
    }
}
