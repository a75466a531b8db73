//! Connections: the payloads in transit between two processes, their delivery, and the opening of connections.

use crate::connections::{Direction, Opening, Payload, SimulatedPurpose};
use crate::faults::HEARTBEAT;
use crate::world::{SimulatedWorld, WorldEvent};
use ripieno_run::membership::{MembershipEvent, agreement};

/// Delay before a lost payload is retransmitted, and before the next attempt to open a connection.
const RETRY_US: u64 = 20_000;
/// Time limits for opening a connection for an agreement, and a link.
const SURVIVOR_TIMEOUT_US: u64 = HEARTBEAT.as_micros() as u64;
const LINK_TIMEOUT_US: u64 = 20_000_000;
/// Upper bound on the payloads in transit in one direction of a connection.
const MESSAGES_MAX: usize = 4000;

impl SimulatedWorld {
    /// Return whether packets between the two hosts are lost now.
    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        let hosts = (self.processes[from].host, self.processes[to].host);
        self.cuts.get(&hosts).is_some_and(|&(count, _)| count > 0)
    }

    /// Return how long packets between the two hosts have been lost, in either direction.
    pub fn cut_for_us(&self, from: usize, to: usize) -> u64 {
        let (from, to) = (self.processes[from].host, self.processes[to].host);
        let since = [(from, to), (to, from)].into_iter().filter_map(|hosts| self.cuts.get(&hosts));
        since.filter(|(count, _)| *count > 0).map(|(_, since_us)| self.now_us - since_us).max().unwrap_or(0)
    }

    pub fn is_one_host(&self, first: usize, second: usize) -> bool {
        self.processes[first].host == self.processes[second].host
    }

    fn delay_us(&mut self, direction: Direction) -> u64 {
        let max_delay_us = if self.is_one_host(direction.from, direction.to) { 20 } else { self.scenario.delay_us };
        1 + self.random.below(max_delay_us)
    }

    /// Return whether bytes that the process has sent to another host have not arrived.
    pub fn has_bytes_in_transit(&self, from: usize) -> bool {
        let mut sent = self.connections.iter().filter(|(direction, _)| direction.from == from);
        sent.any(|(direction, connection)| {
            let has_bytes = connection.in_transit.iter().any(|(_, payload)| matches!(payload, Payload::Bytes(_)));
            has_bytes && !self.is_one_host(from, direction.to)
        })
    }

    /// Return whether a connection that the process has requested is neither open nor refused.
    pub fn is_connecting(&self, from: usize) -> bool {
        self.openings.iter().any(|(direction, &opening)| direction.from == from && opening == Opening::Requested)
    }

    /// Send a payload, which arrives after a random delay and after all earlier payloads.
    pub fn send_payload(&mut self, direction: Direction, payload: Payload) {
        let delay_us = self.delay_us(direction);
        let Some(connection) = self.connections.get_mut(&direction) else { return };
        let at_us = connection.in_transit.back().map_or(0, |(at_us, _)| *at_us).max(self.now_us + delay_us);
        connection.in_transit.push_back((at_us, payload));
        assert!(connection.in_transit.len() < MESSAGES_MAX, "{direction:?}: too many payloads in transit");
        self.plan(at_us, WorldEvent::Arrival(direction));
    }

    /// Handle the arrival of the oldest payload.
    pub fn arrive(&mut self, direction: Direction) {
        if self.is_cut(direction.from, direction.to) {
            // The sender retransmits the payload until it arrives.
            return self.plan(self.now_us + RETRY_US, WorldEvent::Arrival(direction));
        }
        let Some((_, payload)) =
            self.connections.get_mut(&direction).and_then(|connection| connection.in_transit.pop_front())
        else {
            return;
        };
        if !self.processes[direction.to].is_alive() {
            // The operating system of the dead process resets the connection.
            if !matches!(payload, Payload::End) && !self.connections[&direction.back()].has_ended {
                self.send_payload(direction.back(), Payload::End);
            }
            return;
        }
        match payload {
            Payload::Bytes(bytes) => {
                let connection = self.connections.get_mut(&direction).expect("the connection exists");
                connection.arrived.extend(bytes);
                self.wake(direction.to);
            }
            Payload::Writable(count) => {
                let connection = self.connections.get_mut(&direction.back()).expect("connections have two directions");
                connection.unread_bytes -= count;
                self.wake(direction.to);
            }
            Payload::End if matches!(direction.purpose, SimulatedPurpose::Data(_) | SimulatedPurpose::Messages(..)) => {
                self.connections.get_mut(&direction).expect("the connection exists").has_ended = true;
                self.wake(direction.to);
            }
            payload if self.processes[direction.to].runs() => self.deliver(direction, payload),
            payload => self.processes[direction.to].held.push((direction, payload)),
        }
    }

    /// Deliver a payload to a monitor or to the agreement.
    pub fn deliver(&mut self, direction: Direction, payload: Payload) {
        match (direction.purpose, payload) {
            (SimulatedPurpose::Control(world), payload) => {
                let Some(monitor) = self.processes[direction.to].monitors.get(&world) else {
                    // The process will accept this connection as soon as it has started its monitor.
                    return self.processes[direction.to].held.push((direction, payload));
                };
                let peer =
                    monitor.members.iter().position(|&member| member == direction.from).expect("peers are members");
                match payload {
                    Payload::Message(message) => {
                        self.event(direction.to, world, MembershipEvent::Received { peer, message: *message });
                    }
                    _ => {
                        self.connections.get_mut(&direction).expect("the connection exists").has_ended = true;
                        let cause = "its process ended".to_string();
                        self.event(direction.to, world, MembershipEvent::Closed { peer, cause });
                        if world == 0 {
                            self.agree(direction.to, agreement::AgreementEvent::Ended { peer: direction.from });
                        }
                    }
                }
            }
            (SimulatedPurpose::Survivor, Payload::Agreement(message)) => {
                self.agree(
                    direction.to,
                    agreement::AgreementEvent::Received { peer: direction.from, message: *message },
                );
            }
            (SimulatedPurpose::Survivor, _) => {
                self.agree(direction.to, agreement::AgreementEvent::Ended { peer: direction.from })
            }
            (SimulatedPurpose::Data(_) | SimulatedPurpose::Messages(..), _) => {
                unreachable!("`arrive` stores bytes in the connection")
            }
        }
    }

    /// Open a new address of `rank` and return it.
    pub fn listen(&mut self, rank: usize) -> u64 {
        self.order += 1;
        self.listeners.get_mut(&rank).expect("every rank has listeners").push(self.order);
        self.order
    }

    pub fn stop_listening(&mut self, rank: usize, address: u64) {
        self.listeners.get_mut(&rank).expect("every rank has listeners").retain(|&listener| listener != address);
    }

    /// Request a connection to the address `address`.
    pub fn request_connection(&mut self, direction: Direction, address: u64) {
        self.openings.insert(direction, Opening::Requested);
        let delay_us = self.delay_us(direction) + self.delay_us(direction.back());
        self.plan(self.now_us + delay_us, WorldEvent::Opening(direction, address, self.now_us));
    }

    pub fn try_open(&mut self, direction: Direction, address: u64, since_us: u64) {
        let Direction { purpose, from, to } = direction;
        if !self.processes[from].is_alive() || self.openings.get(&direction) != Some(&Opening::Requested) {
            return;
        }
        let limit_us = if purpose == SimulatedPurpose::Survivor { SURVIVOR_TIMEOUT_US } else { LINK_TIMEOUT_US };
        let is_cut = self.is_cut(from, to) || self.is_cut(to, from);
        if !is_cut && (!self.processes[to].is_alive() || !self.listeners[&to].contains(&address)) {
            self.openings.insert(direction, Opening::Refused);
            match purpose {
                SimulatedPurpose::Survivor => self.agree(from, agreement::AgreementEvent::Ended { peer: to }),
                _ => self.wake(from),
            }
        } else if !is_cut && self.processes[from].runs() && self.has_reply(purpose, to) {
            self.openings.insert(direction, Opening::Open);
            self.connections.entry(direction).or_default();
            self.connections.entry(direction.back()).or_default();
            self.opened(direction);
        } else if self.now_us - since_us > limit_us {
            // The agreement retries at its next beat.
            match purpose {
                SimulatedPurpose::Survivor => self.openings.remove(&direction),
                _ => self.openings.insert(direction, Opening::Refused),
            };
            self.wake(from);
        } else {
            self.plan(self.now_us + RETRY_US, WorldEvent::Opening(direction, address, since_us));
        }
    }

    /// Return whether a process at the other end can accept the connection.
    fn has_reply(&self, purpose: SimulatedPurpose, to: usize) -> bool {
        let process = &self.processes[to];
        process.runs()
            && match purpose {
                SimulatedPurpose::Control(world)
                | SimulatedPurpose::Data(world)
                | SimulatedPurpose::Messages(world, _) => process.monitors.contains_key(&world),
                SimulatedPurpose::Survivor => process.monitors.contains_key(&0),
            }
    }

    fn opened(&mut self, Direction { purpose, from, to }: Direction) {
        match purpose {
            SimulatedPurpose::Control(world) => {
                let members = &self.processes[to].monitors[&world].members;
                let peer = members.iter().position(|&member| member == from).expect("peers are members");
                self.event(to, world, MembershipEvent::Connected { peer });
            }
            SimulatedPurpose::Data(_) | SimulatedPurpose::Messages(..) => {}
            SimulatedPurpose::Survivor => {
                self.agree(to, agreement::AgreementEvent::Connected { peer: from });
                self.agree(from, agreement::AgreementEvent::Connected { peer: to });
            }
        }
        self.wake(from);
        self.wake(to);
    }
}
