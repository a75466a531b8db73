//! The machine of a rank's connection to a hub.

use super::inquiry::describe_pair;
use super::message::WireHeader;
use super::{Event, History, Message, Output, Pulse, Request, Timing, rank_failed, silent};
use crate::call::{CollectiveId, Told};
use crate::fabric::Failure;
use std::sync::Arc;
use std::time::Duration;

/// What a spoke knows of its hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bond {
    /// The connection stands.
    Held,
    /// The hub has left in good order but still watches.
    Lingering,
    /// The hub is gone, or this rank is: it watches no more.
    Alone,
}

/// The machine of a rank's connection to a hub.
pub struct Spoke {
    rank: usize,
    hub: usize,
    hosts: Arc<[String]>,
    bond: Bond,
    heard: Duration,
    pulse: Pulse,
    failure: Option<Failure>,
}

impl Spoke {
    /// The machine of `rank`, whose connection to `hub` stands.
    pub fn new(rank: usize, hub: usize, hosts: Arc<[String]>, timing: Timing, now: Duration) -> Spoke {
        Spoke { rank, hub, hosts, bond: Bond::Held, heard: now, pulse: Pulse::new(now, timing), failure: None }
    }

    /// The rank at the other end.
    pub fn hub(&self) -> usize {
        self.hub
    }

    /// Whether the hub is gone, or this rank is. Then nobody watches any more, and a closed link is all that tells of a
    /// death.
    pub fn is_alone(&self) -> bool {
        self.bond == Bond::Alone
    }

    /// When the machine wants its next tick.
    pub fn next_tick(&self) -> Duration {
        if self.bond == Bond::Alone { Duration::MAX } else { self.pulse.next_check }
    }

    /// Takes an event.
    pub fn handle(&mut self, now: Duration, event: Event, history: &History) -> Vec<Output> {
        if self.pulse.stood_still(now) {
            self.heard = now;
        }
        match event {
            Event::Connected { .. } => vec![],
            Event::Received { message, .. } => {
                self.heard = now;
                self.receive(message, history)
            }
            Event::Closed { cause, .. } => self.lose_hub(cause),
            Event::Request(request) => self.request(request, history),
            Event::Tick => self.tick(now),
        }
    }

    fn receive(&mut self, message: Message, history: &History) -> Vec<Output> {
        match message {
            Message::Complete => vec![Output::Complete],
            Message::Failed(failure) => self.fail(failure),
            Message::Lost(failure) => vec![Output::Lost(failure)],
            Message::Ask { communicator, sequence } => {
                let called = history.at(CollectiveId { communicator, sequence });
                let header = called.or_else(|| history.last_of(communicator));
                let call = header.map(|header| history.told(header).into());
                self.send(Message::Answer { communicator, sequence, call })
            }
            Message::AskForm(form) => self.send(Message::Form { form, words: history.form(form) }),
            Message::Goodbye { .. } => {
                self.bond = Bond::Lingering;
                vec![]
            }
            _ => vec![],
        }
    }

    fn lose_hub(&mut self, cause: String) -> Vec<Output> {
        self.let_go(rank_failed(self.hub, &self.hosts, cause))
    }

    /// Goes on without the hub, whose end is a death unless it has left.
    fn let_go(&mut self, death: Failure) -> Vec<Output> {
        match std::mem::replace(&mut self.bond, Bond::Alone) {
            Bond::Held => vec![Output::Lost(death)],
            Bond::Lingering | Bond::Alone => vec![],
        }
    }

    fn request(&mut self, request: Request, history: &History) -> Vec<Output> {
        if self.failure.is_some() && request != Request::Leave {
            return vec![];
        }
        match (request, self.bond == Bond::Alone) {
            (Request::Report(failure), false) => self.send(Message::Report(failure)),
            (Request::Report(failure), true) => self.fail(failure),
            (Request::Suspect { peer, cause }, false) => self.send(Message::Suspect { peer: peer as u32, cause }),
            (Request::Suspect { peer, cause }, true) => {
                let cause = format!("its link to rank {} closed: {cause}", self.rank);
                self.fail(rank_failed(peer, &self.hosts, cause))
            }
            (Request::Stalled { header, peers, blocking }, false) => {
                let peers = peers.iter().map(|&peer| peer as u32).collect();
                self.send(Message::Stalled { call: history.told(header).into(), peers, blocking })
            }
            (Request::Differs { mine, peer, theirs }, false) => self.send(Message::Differs {
                call: history.told(mine).into(),
                peer: peer as u32,
                theirs: WireHeader(theirs),
            }),
            (Request::Differs { mine, peer, theirs }, true) => {
                let pair = [(self.rank, history.told(mine)), (peer, Told::untold(theirs))];
                self.fail(Failure::Mismatch { description: describe_pair(pair) })
            }
            (Request::Stalled { header, peers, .. }, true) if peers.contains(&self.hub) => {
                let cause = format!("left the job while rank {} waited for it in {header}", self.rank);
                self.fail(rank_failed(self.hub, &self.hosts, cause))
            }
            (Request::Stalled { .. }, true) => vec![],
            (Request::Leave, false) => {
                // From here on it is the hub's part to hang up.
                self.bond = Bond::Alone;
                vec![Output::Send { to: self.hub, message: history.lasts().goodbye() }, Output::Finished]
            }
            (Request::Leave, true) => vec![Output::Finished],
        }
    }

    fn tick(&mut self, now: Duration) -> Vec<Output> {
        if self.bond == Bond::Alone || !self.pulse.check_is_due(now) {
            return vec![];
        }
        let silence = now.saturating_sub(self.heard);
        if silence > self.pulse.timing.heartbeat_timeout {
            return self.let_go(silent(self.hub, &self.hosts, silence));
        }
        if self.pulse.beat_is_due(now) { self.send(Message::Heartbeat) } else { vec![] }
    }

    fn fail(&mut self, failure: Failure) -> Vec<Output> {
        if self.failure.is_some() {
            return vec![];
        }
        self.failure = Some(failure.clone());
        vec![Output::Failed(failure)]
    }

    fn send(&self, message: Message) -> Vec<Output> {
        vec![Output::Send { to: self.hub, message }]
    }
}
