//! Drivers of the monitor and agreement state machines: they pass events to them and perform their outputs.

use crate::connections::{Direction, Opening, Payload, SimulatedPurpose};
use crate::monitor::{DISCONNECT_TIMEOUT_US, LINGER_US, WorldMonitor};
use crate::process::AgreementResult;
use crate::world::{SimulatedWorld, WorldEvent};
use ripieno_run::membership::agreement::{self, AgreementMessage};
use ripieno_run::membership::{MembershipEvent, MembershipOutput, MembershipRequest};
use ripieno_run::{JobFailure, Replicas};
use std::time::Duration;

impl SimulatedWorld {
    /// Pass an event to the monitor of `rank` in `world`, and perform the outputs of its state machine.
    pub fn event(&mut self, rank: usize, world: u64, event: MembershipEvent) {
        let now = self.processes[rank].local(self.now_us);
        let Some(monitor) = self.processes[rank].monitors.get_mut(&world).filter(|monitor| !monitor.is_over) else {
            return;
        };
        let outputs = monitor.machine.handle(now, event, &monitor.history);
        let members = monitor.members.clone();
        for output in outputs {
            let monitor = self.processes[rank].monitors.get_mut(&world).expect("the monitor exists");
            match output {
                MembershipOutput::Send { to, message } => {
                    let direction =
                        Direction { purpose: SimulatedPurpose::Control(world), from: rank, to: members[to] };
                    if self.connections.get(&direction.back()).is_some_and(|connection| !connection.has_ended) {
                        self.send_payload(direction, Payload::Message(Box::new(message)));
                    }
                    continue;
                }
                MembershipOutput::Probe { to } => {
                    self.probe(rank, world, to, members[to]);
                    continue;
                }
                MembershipOutput::Complete => monitor.is_complete = true,
                MembershipOutput::Failed(failure) => {
                    monitor.failure.get_or_insert(failure);
                }
                MembershipOutput::Lost(failure) => {
                    if let JobFailure::RankFailed { rank: lost, .. } = failure {
                        monitor.losses.insert(lost, failure);
                    }
                }
                MembershipOutput::Finished => self.close_control(rank, world),
            }
            self.wake(rank);
        }
        self.plan_tick(rank, world);
    }

    /// Try a new connection to another process. It fails if the network is cut or the process does not run.
    fn probe(&mut self, rank: usize, world: u64, to: usize, process: usize) {
        let is_cut = self.is_cut(rank, process) || self.is_cut(process, rank);
        if !is_cut && self.processes[process].runs() && self.processes[process].monitors.contains_key(&world) {
            let own = self.processes[rank].monitors[&world].rank;
            self.event(rank, world, MembershipEvent::Reached { peer: to });
            self.event(process, world, MembershipEvent::Reached { peer: own });
        }
    }

    /// Schedule the next tick of a monitor.
    fn plan_tick(&mut self, rank: usize, world: u64) {
        let now_us = self.now_us;
        let process = &mut self.processes[rank];
        let Some(monitor) = process.monitors.get(&world).filter(|monitor| !monitor.is_over) else { return };
        let local = monitor.machine.next_tick();
        let due_us = if local == Duration::MAX { u64::MAX } else { process.global(local).max(now_us + 1) };
        let due_us = due_us.min(monitor.end_us.unwrap_or(u64::MAX).max(now_us + 1));
        if due_us < u64::MAX && (due_us < monitor.next_us || monitor.next_us <= now_us) {
            process.monitors.get_mut(&world).expect("the monitor exists").next_us = due_us;
            self.plan(due_us, WorldEvent::Tick { rank, world });
        }
    }

    pub fn tick(&mut self, rank: usize, world: u64) {
        let process = &self.processes[rank];
        let Some(monitor) = process.monitors.get(&world).filter(|_| process.runs()) else { return };
        if monitor.end_us.is_some_and(|end_us| self.now_us >= end_us) {
            self.close_control(rank, world);
        } else if self.now_us >= monitor.next_us {
            self.event(rank, world, MembershipEvent::Tick);
        }
    }

    fn close_control(&mut self, rank: usize, world: u64) {
        self.processes[rank].monitors.get_mut(&world).expect("the monitor exists").is_over = true;
        self.close_connections(rank, |direction| direction.purpose == SimulatedPurpose::Control(world));
        self.wake(rank);
    }

    /// Close the outgoing connections of `rank` that match.
    fn close_connections(&mut self, rank: usize, matches: impl Fn(Direction) -> bool) {
        let is_own = |direction: &Direction| direction.from == rank && matches(*direction);
        let directions: Vec<Direction> = self.connections.keys().copied().filter(is_own).collect();
        directions.into_iter().for_each(|direction| self.send_payload(direction, Payload::End));
    }

    /// Close the links of `rank` in `world`.
    pub fn close_links(&mut self, rank: usize, world: u64) {
        self.close_connections(rank, |direction| direction.purpose.is_link_of(world));
    }

    /// Close the links of `rank` to `peer` in `world`.
    pub fn close_links_to(&mut self, rank: usize, peer: usize, world: u64) {
        self.close_connections(rank, |direction| direction.to == peer && direction.purpose.is_link_of(world));
    }

    /// Leave `world` in an orderly way, and schedule the end of the control connections.
    pub fn leave(&mut self, rank: usize, world: u64) {
        let replicas = self.scenario.replicas;
        let Some(monitor) = self.processes[rank].monitors.get_mut(&world).filter(|monitor| !monitor.is_over) else {
            return;
        };
        let address = monitor.address;
        let is_hub = Replicas::new(monitor.members.len(), replicas).logical(monitor.rank) == 0;
        monitor.end_us = Some(self.now_us + if is_hub { LINGER_US } else { DISCONNECT_TIMEOUT_US });
        if world != 0 {
            self.stop_listening(rank, address);
        }
        self.event(rank, world, MembershipEvent::Request(MembershipRequest::Leave));
    }

    /// Start monitoring in `world`; the connections to the hubs are open.
    pub fn watch(&mut self, rank: usize, world: u64, monitor: WorldMonitor, hubs: &[usize]) {
        self.processes[rank].monitors.insert(world, monitor);
        hubs.iter().for_each(|&peer| self.event(rank, world, MembershipEvent::Connected { peer }));
        self.event(rank, world, MembershipEvent::Tick);
        self.deliver_held(rank);
    }

    /// Pass an event to the agreement of `rank`, and perform its outputs.
    pub fn agree(&mut self, rank: usize, event: agreement::AgreementEvent) {
        if let agreement::AgreementEvent::Ended { peer }
        | agreement::AgreementEvent::Received { peer, message: AgreementMessage::Withdrawn { .. } } = event
        {
            self.processes[rank].ended.insert(peer);
        }
        let now = self.processes[rank].local(self.now_us);
        let outputs = self.processes[rank].agreement.handle(now, event);
        for output in outputs {
            let outcome = match output {
                agreement::AgreementOutput::Send { to, message } => {
                    self.send_message(rank, to, message);
                    continue;
                }
                agreement::AgreementOutput::Decided(decision) => AgreementResult::Decided(decision),
                agreement::AgreementOutput::Excluded => AgreementResult::Excluded,
                agreement::AgreementOutput::GaveUp(cause) => AgreementResult::GaveUp(cause),
            };
            self.processes[rank].outcome = Some(outcome);
            self.wake(rank);
        }
        let next = self.processes[rank].agreement.next_tick();
        if next < Duration::MAX {
            let at_us = self.processes[rank].global(next);
            self.plan(at_us.max(self.now_us + 1), WorldEvent::Beat { rank });
        }
    }

    fn send_message(&mut self, from: usize, to: usize, message: AgreementMessage) {
        let direction = Direction { purpose: SimulatedPurpose::Survivor, from, to };
        if self.connections.contains_key(&direction) {
            self.send_payload(direction, Payload::Agreement(Box::new(message)));
        } else if self.openings.get(&direction) != Some(&Opening::Requested) {
            self.request_connection(direction, 0);
        }
    }
}
