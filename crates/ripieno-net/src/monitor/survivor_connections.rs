//! Connections for the agreement of survivors, opened between two ranks when one has a message for the other.

use super::wire::{ControlConnection, ENDED};
use super::{AgreementOutcome, EpollTag, Monitor, MonitorCommand};
use crate::auth::ConnectionPurpose;
use crate::connector::UnreachedPeer;
use crate::stream::Stream;
use ripieno_run::membership::MembershipMessage;
use ripieno_run::membership::agreement::{AgreementEvent, AgreementMessage, AgreementOutput};
use rustix::event::epoll;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The connections for the agreement. Both ends may open one at the same time; either connection works.
#[derive(Default)]
pub(super) struct SurvivorConnections {
    connections: BTreeMap<u32, (usize, ControlConnection)>,
    next_number: u32,
    opening: BTreeSet<usize>,
}

impl Monitor {
    /// Pass an event to the agreement and execute its outputs.
    pub(super) fn agree(&mut self, event: AgreementEvent) {
        if let AgreementEvent::Ended { peer }
        | AgreementEvent::Received { peer, message: AgreementMessage::Withdrawn { .. } } = event
        {
            self.setup.shared.update(|status| {
                status.ended.insert(peer);
            });
        }
        let outputs = self.setup.agreement.handle(self.setup.shared.now(), event);
        for output in outputs {
            let outcome = match output {
                AgreementOutput::Send { to, message } => {
                    self.send_to_survivor(to, message);
                    continue;
                }
                AgreementOutput::Decided(decision) => AgreementOutcome::Decided(decision),
                AgreementOutput::Excluded => AgreementOutcome::Excluded,
                AgreementOutput::GaveUp(cause) => AgreementOutcome::GaveUp(cause),
            };
            // Notify excluded ranks first: this rank's program may end the process once it learns the outcome.
            self.flush_survivor();
            self.setup.shared.update(|status| status.outcome = Some(outcome));
        }
    }

    /// Queue a message. Without a connection, open one; the agreement sends again once it is open.
    fn send_to_survivor(&mut self, to: usize, message: AgreementMessage) {
        if let Some((_, connection)) = self.survivors.connections.values_mut().find(|(peer, _)| *peer == to) {
            return connection.queue(&MembershipMessage::Agreement(message));
        }
        if !self.survivors.opening.insert(to) {
            return;
        }
        let (shared, connector) = (self.setup.shared.clone(), self.setup.connector.clone());
        let (addresses, deadline) = (self.setup.addresses.clone(), Instant::now() + self.setup.suspended_after * 2);
        let open = move || {
            shared.send_command(match connector.reach(&addresses[to], ConnectionPurpose::Agreement, deadline) {
                Ok(stream) => MonitorCommand::Open { peer: to, stream },
                Err(reason) => MonitorCommand::NotOpen { peer: to, reason },
            });
        };
        if std::thread::Builder::new().name("ripieno-open".to_string()).spawn(open).is_err() {
            // The next tick of the agreement tries again.
            self.survivors.opening.remove(&to);
        }
    }

    /// Add an open connection.
    pub(super) fn add_survivor(&mut self, peer: usize, stream: Stream) {
        self.survivors.opening.remove(&peer);
        let number = self.survivors.next_number;
        let tag = EpollTag::Survivor(number).tag();
        if self.end.is_some()
            || stream.set_nonblocking(true).is_err()
            || epoll::add(&self.epoll, &stream, tag, epoll::EventFlags::IN).is_err()
        {
            return;
        }
        self.survivors.next_number = number.wrapping_add(1);
        self.survivors.connections.insert(number, (peer, ControlConnection::new(stream)));
        self.agree(AgreementEvent::Connected { peer });
    }

    /// Handle a failure to connect.
    pub(super) fn survivor_unreachable(&mut self, peer: usize, reason: UnreachedPeer) {
        self.survivors.opening.remove(&peer);
        if reason == UnreachedPeer::Ended {
            self.agree(AgreementEvent::Ended { peer });
        }
    }

    pub(super) fn read_survivor(&mut self, number: u32) {
        let Some((peer, connection)) = self.survivors.connections.get_mut(&number) else { return };
        let (peer, (messages, closed)) = (*peer, connection.read());
        for message in messages {
            if let MembershipMessage::Agreement(message) = message {
                self.agree(AgreementEvent::Received { peer, message });
            }
        }
        if let Some(cause) = closed {
            self.survivors.connections.remove(&number);
            if cause == ENDED {
                self.agree(AgreementEvent::Ended { peer });
            }
        }
    }

    /// Send as much as the sockets accept.
    pub(super) fn flush_survivor(&mut self) {
        let mut broken = Vec::new();
        for (&number, (_, connection)) in &mut self.survivors.connections {
            if connection.flush().is_err() {
                broken.push(number);
            } else if connection.awaits_writable != connection.has_queued() {
                connection.awaits_writable = connection.has_queued();
                let writable =
                    if connection.has_queued() { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
                // The descriptor is in the set as long as the connection lives, so this cannot fail.
                let _ = epoll::modify(
                    &self.epoll,
                    &connection.stream,
                    EpollTag::Survivor(number).tag(),
                    epoll::EventFlags::IN | writable,
                );
            }
        }
        // Read the remaining messages, and the end of the connection.
        broken.into_iter().for_each(|number| self.read_survivor(number));
    }

    /// Leave the agreement: the closed connections show the other ranks that this rank has left.
    pub(super) fn leave_survivors(&mut self) {
        self.survivors.connections.clear();
    }
}
