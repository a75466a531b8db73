//! Waiting for a message of any of several peers: it is looked at, not taken. Runs in flight go on meanwhile.
//!
//! A peer that has sent something else, such as a message of another communicator, is passed over as long as another may
//! bring a message.

use super::idle::{self, Work};
use super::in_flight_runs::Everyone;
use super::preamble::{PREAMBLE_BYTES, Preamble};
use super::{Executor, NoneLeft, RunError};
use crate::call::{CallKind, Header};
use crate::fabric::{Blocking, Fabric, JobFailure, LinkId, Want};
use crate::link::LinkError;
use std::time::Duration;

/// What is known of a peer.
enum Seen {
    Nothing,
    Message,
    Other,
    Closed(LinkError),
}

/// A wait for the first message.
struct Arrivals<'a> {
    everyone: Everyone<'a>,
    /// Of a message to this rank.
    header: Header,
    form: Option<u32>,
    peers: &'a [usize],
    /// Whose message is there; with nothing but other things from all, whoever sent the first of these.
    found: Option<usize>,
    is_late: Option<&'a dyn Fn(Duration) -> bool>,
    has_ended: bool,
}

impl Executor {
    /// Waits until one of `peers` has sent a message on the communicator of `header`, which is of a message to this rank,
    /// and of this form if one is given, and gives the peer, or `None` when `is_late` at the time of the fabric. Without such a limit a peer that has sent something
    /// else is given once all have.
    pub fn await_message(
        &mut self,
        fabric: &mut dyn Fabric,
        header: Header,
        form: Option<u32>,
        peers: &[usize],
        is_late: Option<&dyn Fn(Duration) -> bool>,
    ) -> Result<Option<usize>, RunError> {
        let guard = NoneLeft { executor: self, fabric };
        let Executor { flights, recorder, wants, interrupt, .. } = &mut *guard.executor;
        let everyone = Everyone { fabric: &mut *guard.fabric, recorder, flights, until: &|| false, is_awaited: false };
        let mut arrivals = Arrivals { everyone, header, form, peers, found: None, is_late, has_ended: false };
        let finished = idle::finish(&mut arrivals, wants, interrupt);
        let found = arrivals.found;
        if let Err(error) = &finished {
            let failure = guard.fabric.failure().map_or_else(|| error.clone(), RunError::Failed);
            flights.fail(&failure, recorder, guard.fabric);
        }
        std::mem::forget(guard);
        finished.map(|()| found)
    }
}

impl Arrivals<'_> {
    fn look(&mut self, peer: usize) -> Seen {
        let inbox = LinkId::inbox(peer);
        if self.everyone.flights.reads_from(inbox) {
            return Seen::Nothing;
        }
        let bytes = match self.everyone.fabric.link(inbox) {
            Ok(None) => return self.look_for_life(peer),
            Ok(Some(link)) => link.peek(PREAMBLE_BYTES),
            Err(error) => Err(error),
        };
        match bytes.map(|bytes| bytes.first_chunk().copied()) {
            Ok(None) => Seen::Nothing,
            Ok(Some(preamble)) => match Preamble(preamble).header() {
                Some(header)
                    if header.communicator == self.header.communicator
                        && self.form.is_none_or(|form| form == header.call.form)
                        && matches!(header.call.kind, CallKind::Message { .. }) =>
                {
                    Seen::Message
                }
                _ => Seen::Other,
            },
            Err(error) => Seen::Closed(error),
        }
    }

    /// Looks at a peer that has never sent a message. The link for collectives is closed when the peer is gone.
    fn look_for_life(&mut self, peer: usize) -> Seen {
        let link = self.everyone.fabric.link(LinkId::collectives(peer));
        match link.and_then(|link| link.map_or(Ok(()), |link| link.peek(1).map(|_| ()))) {
            Ok(()) => Seen::Nothing,
            Err(error) => Seen::Closed(error),
        }
    }

    /// Looks at all peers; fails if none is left.
    fn look_around(&mut self) -> Result<(), RunError> {
        let (mut other, mut closed, mut is_hopeful) = (None, None, false);
        for &peer in self.peers {
            match self.look(peer) {
                Seen::Message => {
                    self.found = Some(peer);
                    return Ok(());
                }
                Seen::Nothing => is_hopeful = true,
                Seen::Other => other = other.or(Some(peer)),
                Seen::Closed(error) => closed = closed.or(Some((peer, error))),
            }
        }
        match (is_hopeful, other, closed) {
            (true, _, _) => Ok(()),
            (false, Some(peer), _) => {
                self.found = self.is_late.is_none().then_some(peer);
                Ok(())
            }
            (false, None, Some((peer, error))) => Err(self.everyone.fabric.blame(peer, error.why()).into()),
            (false, None, None) => Ok(()),
        }
    }
}

impl Work for Arrivals<'_> {
    fn progress(&mut self) -> Result<bool, RunError> {
        let moved = self.everyone.progress()?;
        if self.found.is_none() {
            self.look_around()?;
        }
        let now = self.everyone.fabric.now();
        self.has_ended = self.is_late.is_some_and(|is_late| is_late(now));
        Ok(moved || self.is_over())
    }

    fn is_over(&self) -> bool {
        self.found.is_some() || self.has_ended
    }

    fn failure(&mut self) -> Option<RunError> {
        idle::failure(self.everyone.fabric, true)
    }

    fn fabric(&mut self) -> &mut dyn Fabric {
        self.everyone.fabric
    }

    fn wants(&mut self, wants: &mut Vec<Want>) {
        self.everyone.wants(wants);
        wants.extend(self.peers.iter().map(|&peer| Want {
            link: LinkId::inbox(peer),
            readable: true,
            writable: false,
        }));
    }

    fn waits_on_memory(&mut self) -> Result<bool, RunError> {
        for &peer in self.peers {
            let is_memory = self
                .everyone
                .fabric
                .link(LinkId::inbox(peer))
                .is_ok_and(|link| link.is_some_and(|link| link.is_memory()));
            if !is_memory {
                return Ok(false);
            }
        }
        self.everyone.waits_on_memory()
    }

    fn waits_since(&mut self, now: Duration) {
        self.everyone.waits_since(now);
    }

    fn set_relay_unit_bytes(&mut self, change: fn(usize) -> usize) {
        self.everyone.set_relay_unit_bytes(change);
    }

    fn ask(&mut self) {
        self.everyone.ask();
        if self.is_late.is_none() {
            let blocking = if self.everyone.flights.is_at_rest() { Blocking::Any } else { Blocking::Nothing };
            self.everyone.fabric.stalled(self.header, self.peers, blocking);
        }
    }

    fn interrupt(&mut self) -> RunError {
        let rank = self.everyone.fabric.rank();
        self.everyone.fabric.report(JobFailure::RankFailed {
            rank,
            host: String::new(),
            cause: "interrupted while it waited for a message of any rank".to_string(),
            traceback: String::new(),
        });
        RunError::Interrupted
    }
}
