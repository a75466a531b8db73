//! Membership: tracks which ranks are alive and which calls they make, and determines the job's failure.
//!
//! The topology is a star: every rank holds one connection to rank 0. Rank 0 runs a [`hub::Hub`], the other ranks a
//! [`spoke::Spoke`]. Both are state machines: they take events and the time, and return messages to send and reports to
//! their rank. The first failure that reaches the hub becomes the job's failure on all ranks.
//!
//! After a network outage, TCP may wait for the length of the outage again before it retransmits. Both ends of a silent
//! connection therefore probe each other by new connections. Messages remain on the first connection, in order.
//!
//! Cost: one small message per rank in each eighth of the heartbeat timeout. A failure reaches all ranks in two hops.
//! Requires connections that preserve order and report when the other end closes.
//!
//! With [replicas](crate::replicas), every replica of rank 0 is a hub with its own star. At least one hub is alive as
//! long as the job is. Only the lowest live hub sends messages other than heartbeats and goodbyes. The other hubs keep
//! the same state, and the next one takes over when it dies.

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

pub use history::{CALL_COUNT_MAX, CallHistory, SIGNATURE_COUNT_MAX};
pub use inquiry::{describe, describe_pair, is_same_collective, name_ranks};
pub use machine::Membership;
pub use message::{MESSAGE_BYTES_MAX, MembershipMessage, MessageError, MessageInbox};
pub use waits::BlockedWaits;

use crate::call::Header;
use crate::fabric::{Blocking, JobFailure};
use std::time::Duration;

/// Timeouts of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct MembershipTiming {
    /// Time that the hub waits for the last rank to join.
    pub join_timeout: Duration,
    /// A rank that is silent for nine eighths of this time has failed. The job survives an outage of nine tenths of it.
    pub heartbeat_timeout: Duration,
}

impl MembershipTiming {
    /// Return the interval between two heartbeats.
    pub fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_timeout / 8
    }

    /// Return the interval between two checks for silent ranks, and between two probes of a silent rank.
    pub fn check_interval(&self) -> Duration {
        self.heartbeat_timeout / 32
    }

    /// Return the silence after which a rank is probed, and the limit of a probe. Two heartbeats are overdue then.
    pub fn probe_delay(&self) -> Duration {
        self.heartbeat_timeout / 4
    }

    /// Return the silence after which a rank has failed. The last heartbeat may be one interval older than an outage.
    pub fn silence_limit(&self) -> Duration {
        self.heartbeat_timeout + self.heartbeat_interval()
    }

    /// Return the time for which a connection may deliver nothing while probes succeed. TCP waits up to twice the
    /// length of an outage before it retransmits.
    pub fn delivery_limit(&self) -> Duration {
        self.heartbeat_timeout * 3
    }
}

/// An input of a state machine.
#[derive(Clone, Debug, PartialEq)]
pub enum MembershipEvent {
    /// A connection to `peer` is established and authenticated.
    Connected {
        /// The rank at the other end.
        peer: usize,
    },
    /// A message arrived.
    Received {
        /// The sender.
        peer: usize,
        /// The message.
        message: MembershipMessage,
    },
    /// The connection to `peer` is closed.
    Closed {
        /// The rank at the other end.
        peer: usize,
        /// The error of the operating system, used as the cause of a failure.
        cause: String,
    },
    /// A probe of `peer`, or by it, has succeeded: its process answers new connections.
    Reached {
        /// The rank at the other end.
        peer: usize,
    },
    /// A request of this rank.
    Request(MembershipRequest),
    /// Time has passed.
    Tick,
}

/// A request of a rank to its own state machine.
#[derive(Clone, Debug, PartialEq)]
pub enum MembershipRequest {
    /// This rank observed the failure first. The machine adds the host if it is empty.
    Report(JobFailure),
    /// The link to `peer` closed.
    Suspect {
        /// The rank at the other end.
        peer: usize,
        /// The error of the link.
        cause: String,
    },
    /// This rank waits in a collective for these peers.
    Stalled {
        /// The collective.
        header: Header,
        /// The awaited peers.
        peers: Vec<usize>,
        /// The condition under which the rank continues.
        blocking: Blocking,
    },
    /// This rank's header differs from the header that a peer sent.
    Differs {
        /// This rank's header.
        mine: Header,
        /// The rank at the other end.
        peer: usize,
        /// The peer's header.
        theirs: Header,
    },
    /// This rank leaves in good order.
    Leave,
}

/// An output of a state machine.
#[derive(Clone, Debug, PartialEq)]
pub enum MembershipOutput {
    /// Send `message` to `to`.
    Send {
        /// The receiver.
        to: usize,
        /// The message.
        message: MembershipMessage,
    },
    /// Try to connect to the silent rank `to`. Repeated at each check until a message or probe of the rank arrives.
    Probe {
        /// The silent rank.
        to: usize,
    },
    /// Every rank has joined.
    Complete,
    /// The job has failed. Returned once.
    Failed(JobFailure),
    /// A rank has died, but a replica of it is alive. Returned once per rank.
    Lost(JobFailure),
    /// This rank has left, and no other rank needs its state machine.
    Finished,
}

/// Return the failure of a rank, without a traceback.
fn rank_failed(rank: usize, hosts: &[String], cause: impl Into<String>) -> JobFailure {
    let host = hosts.get(rank).cloned().unwrap_or_default();
    JobFailure::RankFailed { rank, host, cause: cause.into(), traceback: String::new() }
}

/// The last evidence that a rank at the other end of a connection lives.
#[derive(Clone, Copy, Debug)]
struct LastContact {
    /// Time of the last message on the connection.
    last_message: Duration,
    /// Time of the last message or successful probe.
    last_reached: Duration,
}

impl LastContact {
    fn new(now: Duration) -> LastContact {
        LastContact { last_message: now, last_reached: now }
    }

    fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_reached)
    }

    /// Return the cause if the rank counts as failed.
    fn cause(&self, now: Duration, timing: MembershipTiming) -> Option<String> {
        let (silence, delay) = (self.silence(now), now.saturating_sub(self.last_message));
        if silence > timing.silence_limit() {
            return Some(format!("no heartbeat for {:.1} s", silence.as_secs_f64()));
        }
        let is_broken = delay > timing.delivery_limit();
        let delay_s = delay.as_secs_f64();
        is_broken.then(|| format!("its connection delivers nothing for {delay_s:.1} s, but it accepts new ones"))
    }
}

/// Heartbeat clock of a state machine: the times of the next heartbeat and the next check. It also detects that this
/// process was suspended (stopped, or its computer asleep). Then the rank cannot judge the silence of other ranks for
/// that time.
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

    fn was_suspended(&mut self, now: Duration) -> bool {
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
