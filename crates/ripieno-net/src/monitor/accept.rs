//! Handles the connections that arrive at the monitor's acceptor.

use super::Monitor;
use crate::auth::{Answer, ConnectionPurpose, Greeting, Refusal};
use crate::connector::authorize;
use crate::stream::Stream;
use ripieno_run::membership::MembershipEvent;
use ripieno_run::{LinkId, Replicas};
use std::collections::BTreeMap;

impl Monitor {
    /// Handle all pending connections.
    pub(super) fn receive(&mut self) {
        loop {
            let (own, nonce, connections, replicas) =
                (&self.setup.own, self.setup.nonce, &self.connections, self.setup.replicas);
            let has_left = self.end.is_some();
            let answer = self.setup.acceptor.next_answer(&self.setup.credentials, &mut |greeting| {
                authorize(own, nonce, greeting)?;
                expects(own.rank, replicas, connections, has_left, greeting)
            });
            match answer {
                Some(Answer::Accepted(stream, greeting)) => self.add_accepted(stream, &greeting),
                // An unauthenticated peer changes nothing.
                Some(_) => {}
                None => break,
            }
        }
        // A rank that lacks a resource for some time is unreachable. It reports this once it waits for a connection.
        let shortage = self.setup.acceptor.lasting_shortage();
        if shortage.is_some() != self.setup.shared.shortages() {
            self.setup.shared.update(|status| status.shortage = shortage.map(str::to_string));
        }
    }

    fn add_accepted(&mut self, stream: Stream, greeting: &Greeting) {
        let peer = greeting.from as usize;
        match greeting.purpose {
            ConnectionPurpose::Control => {
                if self.add_connection(peer, stream).is_ok() {
                    self.events.push_back(MembershipEvent::Connected { peer });
                    self.handle_events();
                }
            }
            ConnectionPurpose::Data => (self.setup.take_link)(LinkId::collectives(peer), stream),
            ConnectionPurpose::Messages => (self.setup.take_link)(LinkId::inbox(peer), stream),
            ConnectionPurpose::Agreement => self.add_survivor(peer, stream),
            ConnectionPurpose::Probe => self.note_reached(peer),
            ConnectionPurpose::Rendezvous | ConnectionPurpose::Member => {}
        }
    }
}

/// Return whether this rank expects such a connection. Hubs accept control connections, one per rank; of two hubs, the
/// higher one connects. The lower rank of a pair opens the link for collectives. For messages the sender does.
fn expects(
    own: usize,
    replicas: Replicas,
    connections: &BTreeMap<usize, super::wire::ControlConnection>,
    has_left: bool,
    greeting: &Greeting,
) -> Result<(), Refusal> {
    let peer = greeting.from as usize;
    match greeting.purpose {
        ConnectionPurpose::Control if replicas.logical(own) != 0 => Err(Refusal::Purpose),
        ConnectionPurpose::Control if replicas.logical(peer) == 0 && peer < own => Err(Refusal::Purpose),
        ConnectionPurpose::Control if connections.contains_key(&peer) => Err(Refusal::Taken),
        ConnectionPurpose::Data if peer > own => Err(Refusal::Purpose),
        ConnectionPurpose::Agreement if has_left => Err(Refusal::Purpose),
        _ => Ok(()),
    }
}
