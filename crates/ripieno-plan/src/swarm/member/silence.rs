//! Silent sources: the time at which a member reports a source that sends nothing.
//!
//! Under streamed disciplines a source forwards all that it has, so a member watches each source by itself and suspects
//! a source soon after its bytes stop. Under other disciplines a source may serve other members first, so a member
//! waits until no source sends anything.

use super::{Action, SilentSource, SwarmMember, SwarmMessage, send};
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
    pub(super) fn end_silence(&mut self, now: Duration, block: usize, out: &mut Vec<Action>) {
        let Some(source) = self.source_of(block) else { return };
        let before = self.silences.insert(source, Silence { since: now, has_sent: true, report_count: 0 });
        if self.is_streamed() && before.is_some_and(|silence| silence.report_count > 0) {
            send(out, self.tracker, SwarmMessage::Resumed { source });
        }
    }

    /// Restart the observation of all sources: this process was suspended, and missed their messages.
    pub(super) fn restart_silences(&mut self, now: Duration) {
        self.last_received = now;
        self.silences.values_mut().for_each(|silence| silence.since = now);
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

#[cfg(test)]
mod tests {
    use super::super::*;
    use alloc::vec;

    /// Return a member of a chain that fetches from rank 0, and the time of its next tick.
    fn receiver() -> (SwarmMember, Duration) {
        let timing = SwarmTiming { stall_timeout: Duration::from_secs(1), answer_timeout: Duration::from_secs(8) };
        let mut member = SwarmMember::new(2, 0, None, timing, Duration::ZERO);
        let manifest = BlockManifest::new(1000, Some(100), Discipline::Chain, 3);
        let admitted = SwarmMessage::Admitted { manifest, sources: vec![0], neighbors: Vec::new() };
        handle(&mut member, Duration::ZERO, SwarmEvent::Received { from: 0, message: admitted });
        let at = member.next_tick().expect("the member fetches");
        (member, at)
    }

    fn handle(member: &mut SwarmMember, now: Duration, event: SwarmEvent) -> Vec<SwarmMessage> {
        let mut out = Vec::new();
        member.handle(now, event, &mut out);
        let messages = out.into_iter().filter_map(|action| match action {
            Action::SendMessage { to: 0, message } => Some(message),
            _ => None,
        });
        messages.filter(|message| message.is_for_tracker()).collect()
    }

    #[test]
    fn a_silent_source_is_reported_and_so_is_its_return() {
        let (mut member, at) = receiver();
        let sources = vec![SilentSource { rank: 0, silence: at }];
        assert_eq!(handle(&mut member, at, SwarmEvent::Tick), [SwarmMessage::Stalled { sources }]);
        let arrived = SwarmEvent::Arrived { block: 0, until_bytes: 10 };
        assert_eq!(handle(&mut member, at, arrived), [SwarmMessage::Resumed { source: 0 }]);
        assert_eq!(handle(&mut member, at, SwarmEvent::Arrived { block: 0, until_bytes: 20 }), []);
    }

    #[test]
    fn a_member_that_was_suspended_reports_no_source() {
        let (mut member, at) = receiver();
        let resumed = at + Duration::from_secs(5);
        assert_eq!(handle(&mut member, resumed, SwarmEvent::Tick), []);
        assert!(member.next_tick().expect("the member fetches") > resumed);
    }
}
