//! Connections: the payloads in transit between two processes, their delivery, and the opening of connections.

use crate::cables::{CableDirection, CablePayload, CablePurpose, Opening};
use crate::faults::HEARTBEAT;
use crate::world::{SimulatedWorld, WorldEvent};
use ripieno_run::membership::{MembershipEvent, agreement};

/// Delay before a lost payload is sent again, and before the next attempt to open a connection.
const AGAIN_US: u64 = 20_000;
/// Time limits for opening a connection: of an agreement, and of a link.
const KIN_TIMEOUT_US: u64 = HEARTBEAT.as_micros() as u64;
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
    pub fn cut_for_us(&self, one: usize, other: usize) -> u64 {
        let (one, other) = (self.processes[one].host, self.processes[other].host);
        let since = [(one, other), (other, one)].into_iter().filter_map(|hosts| self.cuts.get(&hosts));
        since.filter(|(count, _)| *count > 0).map(|(_, since_us)| self.now_us - since_us).max().unwrap_or(0)
    }

    pub fn is_one_host(&self, one: usize, other: usize) -> bool {
        self.processes[one].host == self.processes[other].host
    }

    fn delay_us(&mut self, way: CableDirection) -> u64 {
        let most = if self.is_one_host(way.from, way.to) { 20 } else { self.scenario.delay_us };
        1 + self.dice.below(most)
    }

    pub fn ship(&mut self, way: CableDirection, payload: CablePayload) {
        let delay_us = self.delay_us(way);
        let Some(cable) = self.ways.get_mut(&way) else { return };
        let at_us = cable.on_its_way.back().map_or(0, |(at_us, _)| *at_us).max(self.now_us + delay_us);
        cable.on_its_way.push_back((at_us, payload));
        assert!(cable.on_its_way.len() < MESSAGES_MAX, "{way:?}: what is on its way has a bound");
        self.plan(at_us, WorldEvent::Arrival(way));
    }

    pub fn arrive(&mut self, way: CableDirection) {
        if self.is_cut(way.from, way.to) {
            // The sender repeats it until it arrives.
            return self.plan(self.now_us + AGAIN_US, WorldEvent::Arrival(way));
        }
        let Some((_, payload)) = self.ways.get_mut(&way).and_then(|cable| cable.on_its_way.pop_front()) else { return };
        if !self.processes[way.to].is_alive() {
            // The operating system of the dead process resets the connection.
            if !matches!(payload, CablePayload::End) && !self.ways[&way.back()].has_ended {
                self.ship(way.back(), CablePayload::End);
            }
            return;
        }
        match payload {
            CablePayload::Bytes(bytes) => {
                let cable = self.ways.get_mut(&way).expect("it has brought something");
                cable.arrived.extend(bytes);
                self.wake(way.to);
            }
            CablePayload::Room(count) => {
                let cable = self.ways.get_mut(&way.back()).expect("connections have two ways");
                cable.unread_bytes -= count;
                self.wake(way.to);
            }
            CablePayload::End if matches!(way.purpose, CablePurpose::Data(_) | CablePurpose::Messages(..)) => {
                self.ways.get_mut(&way).expect("it has brought something").has_ended = true;
                self.wake(way.to);
            }
            payload if self.processes[way.to].runs() => self.deliver(way, payload),
            payload => self.processes[way.to].held.push((way, payload)),
        }
    }

    /// Deliver a payload to a monitor or to the agreement.
    pub fn deliver(&mut self, way: CableDirection, payload: CablePayload) {
        match (way.purpose, payload) {
            (CablePurpose::Control(world), payload) => {
                let Some(monitor) = self.processes[way.to].monitors.get(&world) else {
                    // The process has requested this connection and accepts it soon.
                    return self.processes[way.to].held.push((way, payload));
                };
                let peer = monitor.members.iter().position(|&member| member == way.from).expect("peers are members");
                match payload {
                    CablePayload::Message(message) => {
                        self.event(way.to, world, MembershipEvent::Received { peer, message: *message });
                    }
                    _ => {
                        self.ways.get_mut(&way).expect("it has brought something").has_ended = true;
                        let cause = "its process ended".to_string();
                        self.event(way.to, world, MembershipEvent::Closed { peer, cause });
                        if world == 0 {
                            self.agree(way.to, agreement::AgreementEvent::Ended { peer: way.from });
                        }
                    }
                }
            }
            (CablePurpose::Kin, CablePayload::Word(word)) => {
                self.agree(way.to, agreement::AgreementEvent::Heard { peer: way.from, word: *word });
            }
            (CablePurpose::Kin, _) => self.agree(way.to, agreement::AgreementEvent::Ended { peer: way.from }),
            (CablePurpose::Data(_) | CablePurpose::Messages(..), _) => unreachable!("bytes lie where they came"),
        }
    }

    /// Open a new address of `rank` and return it.
    pub fn listen(&mut self, rank: usize) -> u64 {
        self.order += 1;
        self.listeners.get_mut(&rank).expect("every rank has some").push(self.order);
        self.order
    }

    pub fn stop_listening(&mut self, rank: usize, seat: u64) {
        self.listeners.get_mut(&rank).expect("every rank has some").retain(|&listener| listener != seat);
    }

    /// Request a connection to the address `seat`.
    pub fn ask(&mut self, way: CableDirection, seat: u64) {
        self.openings.insert(way, Opening::Asked);
        let delay_us = self.delay_us(way) + self.delay_us(way.back());
        self.plan(self.now_us + delay_us, WorldEvent::Opening(way, seat, self.now_us));
    }

    pub fn try_open(&mut self, way: CableDirection, seat: u64, since_us: u64) {
        let CableDirection { purpose, from, to } = way;
        if !self.processes[from].is_alive() || self.openings.get(&way) != Some(&Opening::Asked) {
            return;
        }
        let limit_us = if purpose == CablePurpose::Kin { KIN_TIMEOUT_US } else { LINK_TIMEOUT_US };
        let is_cut = self.is_cut(from, to) || self.is_cut(to, from);
        if !is_cut && (!self.processes[to].is_alive() || !self.listeners[&to].contains(&seat)) {
            self.openings.insert(way, Opening::Refused);
            match purpose {
                CablePurpose::Kin => self.agree(from, agreement::AgreementEvent::Ended { peer: to }),
                _ => self.wake(from),
            }
        } else if !is_cut && self.processes[from].runs() && self.is_answered(purpose, to) {
            self.openings.insert(way, Opening::Open);
            self.ways.entry(way).or_default();
            self.ways.entry(way.back()).or_default();
            self.opened(way);
        } else if self.now_us - since_us > limit_us {
            // The agreement retries at its next beat.
            match purpose {
                CablePurpose::Kin => self.openings.remove(&way),
                _ => self.openings.insert(way, Opening::Refused),
            };
            self.wake(from);
        } else {
            self.plan(self.now_us + AGAIN_US, WorldEvent::Opening(way, seat, since_us));
        }
    }

    /// Return whether a running process can authenticate itself at the other end.
    fn is_answered(&self, purpose: CablePurpose, to: usize) -> bool {
        let process = &self.processes[to];
        process.runs()
            && match purpose {
                CablePurpose::Control(world) | CablePurpose::Data(world) | CablePurpose::Messages(world, _) => {
                    process.monitors.contains_key(&world)
                }
                CablePurpose::Kin => process.monitors.contains_key(&0),
            }
    }

    fn opened(&mut self, CableDirection { purpose, from, to }: CableDirection) {
        match purpose {
            CablePurpose::Control(world) => {
                let members = &self.processes[to].monitors[&world].members;
                let peer = members.iter().position(|&member| member == from).expect("peers are members");
                self.event(to, world, MembershipEvent::Connected { peer });
            }
            CablePurpose::Data(_) | CablePurpose::Messages(..) => {}
            CablePurpose::Kin => {
                self.agree(to, agreement::AgreementEvent::Connected { peer: from });
                self.agree(from, agreement::AgreementEvent::Connected { peer: to });
            }
        }
        self.wake(from);
        self.wake(to);
    }
}
