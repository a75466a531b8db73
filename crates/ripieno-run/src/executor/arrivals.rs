//! Waits for a message from any of several peers without consuming it. Runs in flight progress meanwhile.
//!
//! A peer may have sent other data, such as a message of another communicator. Such a peer is skipped as long as
//! another peer may still send a matching message.

use super::idle::{self, Work};
use super::in_flight_runs::AllRuns;
use super::preamble::{PREAMBLE_BYTES, Preamble};
use super::{AbandonOnPanic, Executor, RunError};
use crate::call::{CallKind, Header};
use crate::fabric::{Blocking, Fabric, JobFailure, LinkId, LinkInterest};
use crate::link::LinkError;
use std::time::Duration;

/// The input that has arrived from a peer.
enum PeerInput {
    Nothing,
    Message,
    OtherData,
    Closed(LinkError),
}

/// A wait for the first message.
struct Arrivals<'a> {
    all_runs: AllRuns<'a>,
    /// Header of a message to this rank.
    header: Header,
    signature: Option<u32>,
    peers: &'a [usize],
    /// The peer with a matching message. If all peers sent other data: the first such peer.
    found: Option<usize>,
    is_expired: Option<&'a dyn Fn(Duration) -> bool>,
    timed_out: bool,
}

impl Executor {
    /// Wait until one of `peers` has sent a message to this rank on the communicator of `header`, with the given
    /// signature, if one is given. Return the peer, or `None` when `is_expired` returns true for the fabric's time.
    /// Without `is_expired`, return a peer that has sent other data once all peers have done so.
    pub fn await_message(
        &mut self,
        fabric: &mut dyn Fabric,
        header: Header,
        signature: Option<u32>,
        peers: &[usize],
        is_expired: Option<&dyn Fn(Duration) -> bool>,
    ) -> Result<Option<usize>, RunError> {
        let guard = AbandonOnPanic { executor: self, fabric };
        let Executor { in_flight, recorder, interests, interrupt, .. } = &mut *guard.executor;
        let all_runs = AllRuns { fabric: &mut *guard.fabric, recorder, in_flight, until: &|| false, is_awaited: false };
        let mut arrivals = Arrivals { all_runs, header, signature, peers, found: None, is_expired, timed_out: false };
        let finished = idle::finish(&mut arrivals, interests, interrupt);
        let found = arrivals.found;
        if let Err(error) = &finished {
            let failure = guard.fabric.failure().map_or_else(|| error.clone(), RunError::Failed);
            in_flight.fail(&failure, recorder, guard.fabric);
        }
        std::mem::forget(guard);
        finished.map(|()| found)
    }
}

impl Arrivals<'_> {
    fn check_peer(&mut self, peer: usize) -> PeerInput {
        let inbox = LinkId::inbox(peer);
        if self.all_runs.in_flight.reads_from(inbox) {
            return PeerInput::Nothing;
        }
        let bytes = match self.all_runs.fabric.link(inbox) {
            Ok(None) => return self.check_alive(peer),
            Ok(Some(link)) => link.peek(PREAMBLE_BYTES),
            Err(error) => Err(error),
        };
        match bytes.map(|bytes| bytes.first_chunk().copied()) {
            Ok(None) => PeerInput::Nothing,
            Ok(Some(preamble)) => match Preamble(preamble).header() {
                Some(header)
                    if header.communicator == self.header.communicator
                        && self.signature.is_none_or(|signature| signature == header.call.signature)
                        && matches!(header.call.kind, CallKind::Message { .. }) =>
                {
                    PeerInput::Message
                }
                _ => PeerInput::OtherData,
            },
            Err(error) => PeerInput::Closed(error),
        }
    }

    /// Check a peer that has never sent a message. Its link for collectives closes when the peer dies.
    fn check_alive(&mut self, peer: usize) -> PeerInput {
        let link = self.all_runs.fabric.link(LinkId::collectives(peer));
        match link.and_then(|link| link.map_or(Ok(()), |link| link.peek(1).map(|_| ()))) {
            Ok(()) => PeerInput::Nothing,
            Err(error) => PeerInput::Closed(error),
        }
    }

    /// Check all peers. Fail if none is left.
    fn check_all_peers(&mut self) -> Result<(), RunError> {
        let (mut other, mut closed, mut may_arrive) = (None, None, false);
        for &peer in self.peers {
            match self.check_peer(peer) {
                PeerInput::Message => {
                    self.found = Some(peer);
                    return Ok(());
                }
                PeerInput::Nothing => may_arrive = true,
                PeerInput::OtherData => other = other.or(Some(peer)),
                PeerInput::Closed(error) => closed = closed.or(Some((peer, error))),
            }
        }
        match (may_arrive, other, closed) {
            (true, _, _) => Ok(()),
            (false, Some(peer), _) => {
                self.found = self.is_expired.is_none().then_some(peer);
                Ok(())
            }
            (false, None, Some((peer, error))) => Err(self.all_runs.fabric.peer_failure(peer, error.reason()).into()),
            (false, None, None) => Ok(()),
        }
    }
}

impl Work for Arrivals<'_> {
    fn progress(&mut self) -> Result<bool, RunError> {
        let moved = self.all_runs.progress()?;
        if self.found.is_none() {
            self.check_all_peers()?;
        }
        let now = self.all_runs.fabric.now();
        self.timed_out = self.is_expired.is_some_and(|is_expired| is_expired(now));
        Ok(moved || self.is_over())
    }

    fn is_over(&self) -> bool {
        self.found.is_some() || self.timed_out
    }

    fn failure(&mut self) -> Option<RunError> {
        idle::failure(self.all_runs.fabric, true)
    }

    fn fabric(&mut self) -> &mut dyn Fabric {
        self.all_runs.fabric
    }

    fn interests(&mut self, interests: &mut Vec<LinkInterest>) {
        self.all_runs.interests(interests);
        interests.extend(self.peers.iter().map(|&peer| LinkInterest {
            link: LinkId::inbox(peer),
            readable: true,
            writable: false,
        }));
    }

    fn waits_on_memory(&mut self) -> Result<bool, RunError> {
        for &peer in self.peers {
            let is_memory = self
                .all_runs
                .fabric
                .link(LinkId::inbox(peer))
                .is_ok_and(|link| link.is_some_and(|link| link.is_memory()));
            if !is_memory {
                return Ok(false);
            }
        }
        self.all_runs.waits_on_memory()
    }

    fn waits_since(&mut self, now: Duration) {
        self.all_runs.waits_since(now);
    }

    fn set_relay_unit_bytes(&mut self, change: fn(usize) -> usize) {
        self.all_runs.set_relay_unit_bytes(change);
    }

    fn query_peers(&mut self) {
        self.all_runs.query_peers();
        if self.is_expired.is_none() {
            let blocking =
                if self.all_runs.in_flight.has_no_unfinished_run() { Blocking::Any } else { Blocking::Nothing };
            self.all_runs.fabric.stalled(self.header, self.peers, blocking);
        }
    }

    fn interrupt(&mut self) -> RunError {
        let rank = self.all_runs.fabric.rank();
        self.all_runs.fabric.report(JobFailure::RankFailed {
            rank,
            host: String::new(),
            cause: "interrupted while it waited for a message of any rank".to_string(),
            traceback: String::new(),
        });
        RunError::Interrupted
    }
}
