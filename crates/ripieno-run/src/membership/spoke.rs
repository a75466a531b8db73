//! State machine for a rank's connection to a hub.

use super::inquiry::describe_pair;
use super::message::WireHeader;
use super::{
    CallHistory, HeartbeatTiming, LastContact, MembershipEvent, MembershipMessage, MembershipOutput, MembershipRequest,
    MembershipTiming, rank_failed,
};
use crate::call::{CollectiveId, DescribedCall};
use crate::fabric::JobFailure;
use std::sync::Arc;
use std::time::Duration;

/// The spoke's view of its hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HubLink {
    /// The connection is established.
    Connected,
    /// The hub has left in good order but still monitors the job.
    Leaving,
    /// The hub or this rank has left. The hub no longer monitors this rank.
    Detached,
}

/// State machine for a rank's connection to a hub.
pub struct Spoke {
    rank: usize,
    hub: usize,
    hosts: Arc<[String]>,
    hub_link: HubLink,
    contact: LastContact,
    heartbeats: HeartbeatTiming,
    failure: Option<JobFailure>,
}

impl Spoke {
    /// Return the machine of `rank`, which is connected to `hub`.
    pub fn new(rank: usize, hub: usize, hosts: Arc<[String]>, timing: MembershipTiming, now: Duration) -> Spoke {
        Spoke {
            rank,
            hub,
            hosts,
            hub_link: HubLink::Connected,
            contact: LastContact::new(now),
            heartbeats: HeartbeatTiming::new(now, timing),
            failure: None,
        }
    }

    /// Return the rank at the other end.
    pub fn hub(&self) -> usize {
        self.hub
    }

    /// Return whether the hub or this rank has left. Then no hub monitors this rank, and only a closed link indicates a
    /// death.
    pub fn is_detached(&self) -> bool {
        self.hub_link == HubLink::Detached
    }

    /// Return the time at which the machine needs its next tick.
    pub fn next_tick(&self) -> Duration {
        if self.hub_link == HubLink::Detached { Duration::MAX } else { self.heartbeats.next_check }
    }

    /// Handle an event and return the resulting outputs.
    pub fn handle(&mut self, now: Duration, event: MembershipEvent, history: &CallHistory) -> Vec<MembershipOutput> {
        if self.heartbeats.was_suspended(now) {
            self.contact = LastContact::new(now);
        }
        match event {
            MembershipEvent::Connected { .. } => vec![],
            MembershipEvent::Received { message, .. } => {
                self.contact = LastContact::new(now);
                self.receive(message, history)
            }
            MembershipEvent::Reached { .. } => {
                self.contact.last_reached = now;
                vec![]
            }
            MembershipEvent::Closed { cause, .. } => self.lose_hub(cause),
            MembershipEvent::Request(request) => self.request(request, history),
            MembershipEvent::Tick => self.tick(now),
        }
    }

    fn receive(&mut self, message: MembershipMessage, history: &CallHistory) -> Vec<MembershipOutput> {
        match message {
            MembershipMessage::Complete => vec![MembershipOutput::Complete],
            MembershipMessage::Failed(failure) => self.fail(failure),
            MembershipMessage::Lost(failure) => vec![MembershipOutput::Lost(failure)],
            MembershipMessage::Ask { communicator, sequence } => {
                let called = history.at(CollectiveId { communicator, sequence });
                let header = called.or_else(|| history.last_of(communicator));
                let call = header.map(|header| history.describe(header).into());
                self.send(MembershipMessage::Answer { communicator, sequence, call })
            }
            MembershipMessage::AskSignature(signature) => {
                self.send(MembershipMessage::Signature { signature, text: history.signature(signature) })
            }
            MembershipMessage::Goodbye { .. } => {
                self.hub_link = HubLink::Leaving;
                vec![]
            }
            _ => vec![],
        }
    }

    fn lose_hub(&mut self, cause: String) -> Vec<MembershipOutput> {
        self.detach(rank_failed(self.hub, &self.hosts, cause))
    }

    /// Continue without the hub. Its end counts as a death unless it has left.
    fn detach(&mut self, death: JobFailure) -> Vec<MembershipOutput> {
        match std::mem::replace(&mut self.hub_link, HubLink::Detached) {
            HubLink::Connected => vec![MembershipOutput::Lost(death)],
            HubLink::Leaving | HubLink::Detached => vec![],
        }
    }

    fn request(&mut self, request: MembershipRequest, history: &CallHistory) -> Vec<MembershipOutput> {
        if self.failure.is_some() && request != MembershipRequest::Leave {
            return vec![];
        }
        match (request, self.hub_link == HubLink::Detached) {
            (MembershipRequest::Report(failure), false) => self.send(MembershipMessage::Report(failure)),
            (MembershipRequest::Report(failure), true) => self.fail(failure),
            (MembershipRequest::Suspect { peer, cause }, false) => {
                self.send(MembershipMessage::Suspect { peer: peer as u32, cause })
            }
            (MembershipRequest::Suspect { peer, cause }, true) => {
                let cause = format!("its link to rank {} closed: {cause}", self.rank);
                self.fail(rank_failed(peer, &self.hosts, cause))
            }
            (MembershipRequest::Stalled { header, peers, blocking }, false) => {
                let peers = peers.iter().map(|&peer| peer as u32).collect();
                self.send(MembershipMessage::Stalled { call: history.describe(header).into(), peers, blocking })
            }
            (MembershipRequest::Differs { mine, peer, theirs }, false) => self.send(MembershipMessage::Differs {
                call: history.describe(mine).into(),
                peer: peer as u32,
                theirs: WireHeader(theirs),
            }),
            (MembershipRequest::Differs { mine, peer, theirs }, true) => {
                let pair = [(self.rank, history.describe(mine)), (peer, DescribedCall::undescribed(theirs))];
                self.fail(JobFailure::Mismatch { description: describe_pair(pair) })
            }
            (MembershipRequest::Stalled { header, peers, .. }, true) if peers.contains(&self.hub) => {
                let cause = format!("left the job while rank {} waited for it in {header}", self.rank);
                self.fail(rank_failed(self.hub, &self.hosts, cause))
            }
            (MembershipRequest::Stalled { .. }, true) => vec![],
            (MembershipRequest::Leave, false) => {
                // From here on, the hub closes the connection.
                self.hub_link = HubLink::Detached;
                vec![
                    MembershipOutput::Send { to: self.hub, message: history.last_calls().goodbye() },
                    MembershipOutput::Finished,
                ]
            }
            (MembershipRequest::Leave, true) => vec![MembershipOutput::Finished],
        }
    }

    fn tick(&mut self, now: Duration) -> Vec<MembershipOutput> {
        if self.hub_link == HubLink::Detached || !self.heartbeats.check_is_due(now) {
            return vec![];
        }
        let timing = self.heartbeats.timing;
        if let Some(cause) = self.contact.cause(now, timing) {
            return self.lose_hub(cause);
        }
        let mut outputs =
            if self.heartbeats.beat_is_due(now) { self.send(MembershipMessage::Heartbeat) } else { vec![] };
        if self.contact.silence(now) > timing.probe_delay() {
            outputs.push(MembershipOutput::Probe { to: self.hub });
        }
        outputs
    }

    fn fail(&mut self, failure: JobFailure) -> Vec<MembershipOutput> {
        if self.failure.is_some() {
            return vec![];
        }
        self.failure = Some(failure.clone());
        vec![MembershipOutput::Failed(failure)]
    }

    fn send(&self, message: MembershipMessage) -> Vec<MembershipOutput> {
        vec![MembershipOutput::Send { to: self.hub, message }]
    }
}
