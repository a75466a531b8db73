//! Membership: who is alive, who called what, and which failure is the job's.
//!
//! A star: every rank holds one connection to rank 0. Rank 0 runs a [`hub::Hub`], the others a [`spoke::Spoke`]: state
//! machines that take events and the time, and give back messages to send and verdicts. The first failure that reaches
//! the hub is the job's; every rank gets that one. Cost: one small message per rank and quarter of the heartbeat
//! timeout; a failure reaches everybody in two hops. Needs connections that keep order and tell when the other end is
//! gone.
//!
//! Where ranks have [replicas](crate::replicas), every replica of rank 0 is a hub with a star of its own: one of them
//! lives as long as the job does. The lowest one speaks; the others know what it knows, and the next takes over when it
//! is gone.

pub mod agreement;
#[cfg(test)]
mod fuzz;
mod history;
mod hub;
mod inquiry;
mod machine;
mod message;
mod spoke;
#[cfg(test)]
mod tests;
mod waits;

pub use history::{CallHistory, FORMS_REMEMBERED, REMEMBERED};
pub use inquiry::{describe, describe_pair, is_one_collective, name_ranks};
pub use machine::Membership;
pub use message::{MESSAGE_BYTES_MAX, MembershipMessage, MessageError, MessageInbox};
pub use waits::BlockedWaits;

use crate::call::Header;
use crate::fabric::{Blocking, JobFailure};
use std::time::Duration;

/// The times of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct MembershipTiming {
    /// How long the hub waits for the last rank to come.
    pub join_timeout: Duration,
    /// A rank silent for this long has failed.
    pub heartbeat_timeout: Duration,
}

impl MembershipTiming {
    /// Time between two heartbeats.
    pub fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_timeout / 4
    }

    /// Time between two looks at who is silent.
    pub fn check_interval(&self) -> Duration {
        self.heartbeat_timeout / 16
    }
}

/// What happens to a machine.
#[derive(Clone, Debug, PartialEq)]
pub enum MembershipEvent {
    /// A connection to `peer` stands and is authenticated.
    Connected {
        /// The rank at the other end.
        peer: usize,
    },
    /// A message came.
    Received {
        /// From this rank.
        peer: usize,
        /// The message.
        message: MembershipMessage,
    },
    /// The connection to `peer` is gone.
    Closed {
        /// The rank at the other end.
        peer: usize,
        /// What the operating system said, as the cause of a failure.
        cause: String,
    },
    /// This rank asks for something.
    Request(MembershipRequest),
    /// Time has passed.
    Tick,
}

/// What a rank asks of its machine.
#[derive(Clone, Debug, PartialEq)]
pub enum MembershipRequest {
    /// This rank saw `JobFailure` first.
    Report(JobFailure),
    /// The link to `peer` closed.
    Suspect {
        /// The rank at the other end.
        peer: usize,
        /// What the link said.
        cause: String,
    },
    /// This rank waits in a collective for these peers.
    Stalled {
        /// The collective.
        header: Header,
        /// Who is waited for.
        peers: Vec<usize>,
        /// What the rank needs to continue.
        blocking: Blocking,
    },
    /// What this rank called is not what a peer sent ahead of its data.
    Differs {
        /// What this rank called.
        mine: Header,
        /// The rank at the other end.
        peer: usize,
        /// What it sent.
        theirs: Header,
    },
    /// This rank leaves in good order.
    Leave,
}

/// What a machine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum MembershipOutput {
    /// Send `message` to `to`.
    Send {
        /// The receiver.
        to: usize,
        /// What to send.
        message: MembershipMessage,
    },
    /// Every rank has come.
    Complete,
    /// The job has failed; given once.
    Failed(JobFailure),
    /// A rank has died, but a replica of it lives; given once.
    Lost(JobFailure),
    /// This rank has left and nobody needs its machine any more.
    Finished,
}

/// The failure of a rank, without a traceback.
fn rank_failed(rank: usize, hosts: &[String], cause: impl Into<String>) -> JobFailure {
    let host = hosts.get(rank).cloned().unwrap_or_default();
    JobFailure::RankFailed { rank, host, cause: cause.into(), traceback: String::new() }
}

/// The failure of a rank that was silent for `silence`.
fn silent(rank: usize, hosts: &[String], silence: Duration) -> JobFailure {
    rank_failed(rank, hosts, format!("no heartbeat for {:.1} s", silence.as_secs_f64()))
}

/// A machine's own clockwork: when to beat, when to check the others, and whether this very process stood still
/// (stopped, or its computer asleep), because then it cannot judge the silence of others for the time that it did not
/// listen.
#[derive(Clone, Copy, Debug)]
struct HeartbeatTiming {
    timing: MembershipTiming,
    last_event: Duration,
    next_check: Duration,
    next_beat: Duration,
}

impl HeartbeatTiming {
    fn new(now: Duration, timing: MembershipTiming) -> HeartbeatTiming {
        HeartbeatTiming { timing, last_event: now, next_check: now + timing.check_interval(), next_beat: now }
    }

    fn stood_still(&mut self, now: Duration) -> bool {
        let gap = now.saturating_sub(self.last_event);
        self.last_event = now;
        gap > self.timing.heartbeat_timeout / 2
    }

    fn check_is_due(&mut self, now: Duration) -> bool {
        let due = now >= self.next_check;
        if due {
            self.next_check = now + self.timing.check_interval();
        }
        due
    }

    fn beat_is_due(&mut self, now: Duration) -> bool {
        let due = now >= self.next_beat;
        if due {
            self.next_beat = now + self.timing.heartbeat_interval();
        }
        due
    }
}
