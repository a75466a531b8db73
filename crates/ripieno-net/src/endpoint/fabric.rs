//! Implements the fabric interface of the executor for an endpoint.

use super::{Endpoint, LinkDescription, LinkSlot};
use crate::links::{Waker, WatchedDescriptor};
use crate::monitor::{MonitorCommand, MonitorShared, MonitorStatus};
use ripieno_run::membership::{MembershipRequest, agreement, describe_pair};
use ripieno_run::{
    Blocking, DescribedCall, Fabric, HEADER_BYTES, Header, JobFailure, Link, LinkError, LinkId, LinkInterest,
    PairCosts, Remote, Replicas, ShrinkError, ShrunkWorld, Topology,
};
use rustix::time::ClockId;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Sleep time after which a rank checks whether the awaited peers are alive.
const PEER_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Time that a rank waits for the job's verdict after one of its links closed.
const VERDICT_TIMEOUT: Duration = Duration::from_millis(1500);

impl Fabric for Endpoint {
    fn rank(&self) -> usize {
        self.config.rank
    }

    fn world_size(&self) -> usize {
        self.config.world_size
    }

    fn replicas(&self) -> Replicas {
        self.config.replicas_of_ranks()
    }

    fn topology(&self) -> Arc<Topology> {
        self.topology.clone()
    }

    fn link(&mut self, id: LinkId) -> Result<Option<&mut dyn Link>, LinkError> {
        if self.slot(id).is_open() {
            return Ok(self.existing_link(id));
        }
        self.store_opened();
        if matches!(self.slot(id), LinkSlot::NotRequested) {
            self.open_link(id);
        }
        if matches!(self.slot(id), LinkSlot::Opening)
            && !self.connects(id)
            && let Some(shortage) = self.shortage()
        {
            return Err(LinkError::MissingResource { cause: format!("it cannot accept a connection: {shortage}") });
        }
        self.slot(id).link()
    }

    fn existing_link(&mut self, id: LinkId) -> Option<&mut dyn Link> {
        self.slot(id).existing_link()
    }

    fn has_failed(&self) -> bool {
        self.shared.has_failed()
    }

    fn failure(&self) -> Option<JobFailure> {
        self.shared.status().failure
    }

    fn has_losses(&self) -> bool {
        self.shared.loss_count() > 0
    }

    fn losses(&self) -> Vec<JobFailure> {
        self.shared.status().losses.into_values().collect()
    }

    fn report(&mut self, failure: JobFailure) {
        report_failure(&self.shared, failure);
    }

    fn peer_failure(&mut self, peer: usize, cause: &str) -> JobFailure {
        self.shared.request(MembershipRequest::Suspect { peer, cause: cause.to_string() });
        let is_known =
            |status: &MonitorStatus| status.failure.is_some() || status.losses.contains_key(&peer) || status.over;
        let mut status = self.shared.wait(VERDICT_TIMEOUT, is_known);
        let failure = match (status.failure, status.losses.remove(&peer)) {
            (Some(verdict), _) => return verdict,
            // A replica of the peer lives, but this rank needs the peer itself.
            (None, Some(loss)) => loss,
            // The peer may have left while a replica works. The other ranks must learn that this rank cannot continue.
            (None, None) => {
                let cause = format!("its link to rank {} closed: {cause}", self.config.rank);
                let host = self.host(peer).to_string();
                JobFailure::RankFailed { rank: peer, host, cause, traceback: String::new() }
            }
        };
        report_failure(&self.shared, failure.clone());
        self.shared.status().failure.unwrap_or(failure)
    }

    fn now(&self) -> Duration {
        // All processes of a host use one clock, so that their records are comparable.
        let now = rustix::time::clock_gettime(ClockId::Monotonic);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    fn has_core_per_rank(&self) -> bool {
        self.has_core_per_rank
    }

    fn fallback_links(&self) -> Vec<(usize, String)> {
        let describe = |link: LinkDescription| link.fallback().map(|choice| (link.peer, choice));
        self.describe().peers.into_iter().filter_map(describe).collect()
    }

    fn pair_costs(&self) -> Vec<(usize, PairCosts)> {
        let costs = |peer| match &self.slots[LinkId::collectives(peer).index(self.config.world_size)] {
            LinkSlot::Ring(link, _) => Some((peer, link.pair_costs())),
            _ => None,
        };
        (0..self.config.world_size).filter_map(costs).collect()
    }

    fn note_wait(&mut self, was_ready_at_once: bool) {
        if self.has_core_per_rank {
            self.co_location.record_wait(was_ready_at_once);
        }
    }

    fn note_signature(&mut self, signature: u32, text: &dyn Fn() -> String) {
        self.shared.note_signature(&mut self.entered_cache, signature, text);
    }

    fn differs(&mut self, mine: Header, peer: usize, theirs: Header) {
        report(&self.shared, MembershipRequest::Differs { mine, peer, theirs }, || {
            let pair = [
                (self.config.rank, self.shared.history().history.describe(mine)),
                (peer, DescribedCall::undescribed(theirs)),
            ];
            JobFailure::Mismatch { description: describe_pair(pair) }
        });
    }

    fn enter(&mut self, communicator: u32, header: &[u8; HEADER_BYTES]) {
        self.shared.enter(&mut self.entered_cache, communicator, header);
    }

    fn stalled(&mut self, header: Header, peers: &[usize], blocking: Blocking) {
        // Sent data may still arrive and end the wait of a peer, and a link may still open, as after an outage. Then
        // the ranks are not deadlocked.
        let is_in_flight = |slot: &LinkSlot| matches!(slot, LinkSlot::Tcp(link) if link.awaits_acknowledgement());
        let mut links = peers.iter().flat_map(|&peer| LinkId::all_of(peer));
        let is_opening = links.any(|id| matches!(self.slot(id), LinkSlot::Opening) && self.connects(id));
        let is_busy = is_opening || self.slots.iter().any(is_in_flight);
        let blocking = if is_busy { Blocking::Nothing } else { blocking };
        self.shared.request(MembershipRequest::Stalled { header, peers: peers.to_vec(), blocking });
    }

    fn shrink(&mut self, interrupt: &mut dyn FnMut() -> bool) -> Result<ShrunkWorld, ShrinkError> {
        self.shrink_world(interrupt)
    }

    fn remote(&self) -> Arc<dyn Remote> {
        let first = self.first.as_ref().map(|first| first.monitored().clone());
        Arc::new(EndpointRemote { waker: self.doorbell.waker(), shared: self.shared.clone(), first })
    }

    fn prepare_park(&mut self) {
        self.doorbell.prepare();
        if self.shared.loss_count() > self.closed_count {
            self.close_lost();
        }
    }

    fn park(&mut self, interests: &[LinkInterest], timeout: Duration) {
        for interest in interests.iter().filter(|interest| interest.readable) {
            if let LinkSlot::Tcp(link) = self.slot(interest.link) {
                link.prepare_sleep();
            }
        }
        let watches =
            interests.iter().filter_map(|interest| match &self.slots[interest.link.index(self.config.world_size)] {
                LinkSlot::Tcp(link) => Some(WatchedDescriptor {
                    fd: link.as_fd(),
                    readable: interest.readable,
                    writable: interest.writable,
                }),
                _ => None,
            });
        // A failed sleep ends immediately; the caller checks again.
        match self.doorbell.wait(watches, timeout.min(PEER_CHECK_INTERVAL)) {
            Ok(true) => self.note_ready(interests),
            Ok(false) => self.check_peers(interests),
            Err(_) => {}
        }
    }

    fn cancel_park(&mut self) {
        self.doorbell.cancel();
    }
}

/// The part of an endpoint that other threads can use.
struct EndpointRemote {
    waker: Waker,
    shared: Arc<MonitorShared>,
    /// State of the first world. Its ranks take part in agreements.
    first: Option<Arc<MonitorShared>>,
}

impl Remote for EndpointRemote {
    fn wake(&self) {
        self.waker.wake();
    }

    fn report(&self, failure: JobFailure) {
        report_failure(&self.shared, failure);
    }

    fn withdraw(&self) {
        if let Some(first) = &self.first {
            first.send_command(MonitorCommand::Agreement(agreement::AgreementEvent::Withdraw));
        }
    }
}

/// Report a request and wait for the verdict. Without a verdict, the job fails with `fallback`.
fn report(shared: &MonitorShared, request: MembershipRequest, fallback: impl FnOnce() -> JobFailure) {
    shared.request(request);
    let status = shared.wait(VERDICT_TIMEOUT, |status| status.failure.is_some() || status.over);
    if status.failure.is_none() {
        shared.fail(fallback());
    }
}

fn report_failure(shared: &MonitorShared, failure: JobFailure) {
    report(shared, MembershipRequest::Report(failure.clone()), || failure);
}

impl Endpoint {
    #[inline]
    pub(super) fn slot(&mut self, id: LinkId) -> &mut LinkSlot {
        &mut self.slots[id.index(self.config.world_size)]
    }

    /// Mark the links that became ready during the sleep.
    fn note_ready(&mut self, interests: &[LinkInterest]) {
        let mut index = 0;
        for interest in interests {
            let LinkSlot::Tcp(link) = &mut self.slots[interest.link.index(self.config.world_size)] else { continue };
            link.note_ready(self.doorbell.was_readable(index), self.doorbell.was_writable(index));
            index += 1;
        }
    }

    fn shortage(&self) -> Option<String> {
        self.shared.shortages().then(|| self.shared.status().shortage)?
    }

    /// Close the links to ranks that have died while replicas of them live.
    fn close_lost(&mut self) {
        let losses = self.shared.status().losses;
        self.closed_count = losses.len();
        for (rank, failure) in losses {
            for id in LinkId::all_of(rank) {
                *self.slot(id) = LinkSlot::Broken(LinkError::Closed { cause: failure.to_string() });
            }
        }
    }

    /// Check the peers that a timed-out sleep has waited for. Shared memory never signals the death of a peer, and the
    /// hubs may have ended. A TCP connection does not signal a broken network path.
    fn check_peers(&mut self, interests: &[LinkInterest]) {
        for interest in interests {
            let index = interest.link.index(self.config.world_size);
            match &mut self.slots[index] {
                LinkSlot::Ring(_, liveness) => {
                    // The end was detected in an earlier check. Since then, all data of the peer has been received.
                    if liveness.has_ended {
                        let cause = "its process ended".to_string();
                        self.shared.request(MembershipRequest::Suspect { peer: interest.link.peer, cause });
                    }
                    liveness.has_ended = liveness.socket.has_ended();
                }
                LinkSlot::Tcp(_) => {
                    let (peer, timing) = (interest.link.peer, self.config.timing());
                    let silence = self.silence_of(peer);
                    if silence <= timing.probe_delay() {
                        continue;
                    }
                    // After an outage the peer answers new connections before data arrives again.
                    self.shared.send_command(MonitorCommand::Probe { peer });
                    let reached = self.shared.since_reached(peer).map_or(silence, |since| since.min(silence));
                    if reached > timing.silence_limit() || silence > timing.delivery_limit() {
                        let cause = format!("its host has not answered for {:.1} s", silence.as_secs_f64());
                        self.slots[index] = LinkSlot::Broken(LinkError::Closed { cause });
                    }
                }
                LinkSlot::NotRequested | LinkSlot::Opening | LinkSlot::Broken(_) => {}
            }
        }
    }

    /// Return the longest time for which the host of `peer` has not acknowledged data on a link. A rank that waits for
    /// a message may have sent data on another link.
    fn silence_of(&mut self, peer: usize) -> Duration {
        let silence = |id| match self.slot(id) {
            LinkSlot::Tcp(link) => link.unanswered(),
            _ => Duration::ZERO,
        };
        LinkId::all_of(peer).map(silence).into_iter().max().unwrap_or_default()
    }
}

impl LinkSlot {
    fn link(&mut self) -> Result<Option<&mut dyn Link>, LinkError> {
        match self {
            LinkSlot::Broken(error) => Err(error.clone()),
            _ => Ok(self.existing_link()),
        }
    }

    #[inline]
    fn existing_link(&mut self) -> Option<&mut dyn Link> {
        match self {
            LinkSlot::Ring(link, _) => Some(&mut **link),
            LinkSlot::Tcp(link) => Some(link),
            LinkSlot::NotRequested | LinkSlot::Opening | LinkSlot::Broken(_) => None,
        }
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        matches!(self, LinkSlot::Ring(..) | LinkSlot::Tcp(_))
    }
}
