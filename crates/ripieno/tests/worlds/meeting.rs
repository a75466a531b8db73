//! Meetings of ranks, for the first world and for survivors, as in the endpoint of `ripieno-net`.

use crate::connections::{Direction, Opening, SimulatedPurpose};
use crate::fabric::{WorldLink, WorldRank};
use crate::faults::TIMING;
use crate::link::closed;
use crate::monitor::WorldMonitor;
use crate::process::AgreementResult;
use crate::world_state::WorldStage;
use ripieno_run::membership::agreement::{self, Decision};
use ripieno_run::membership::{Membership, MembershipEvent, MembershipRequest, MembershipTiming};
use ripieno_run::{JobFailure, LinkId, Replicas, Topology};
use std::sync::Arc;
use std::time::Duration;

const VERDICT_MARGIN_US: u64 = 1_000_000;
const MEETING_MARGIN: Duration = Duration::from_secs(1);
const MEETINGS_MAX: usize = 8;

impl WorldRank {
    /// Meet all ranks of the first world.
    pub fn connect_first(world_state: &Arc<WorldStage>, own: usize) -> Result<WorldRank, String> {
        let size = world_state.scenario().hosts.len();
        WorldRank::meet(world_state, own, 0, (0..size).collect(), vec![0; size], TIMING.join_timeout)
    }

    /// Connect to the hubs and wait until all ranks have connected.
    fn meet(
        world_state: &Arc<WorldStage>,
        own: usize,
        world: u64,
        members: Vec<usize>,
        addresses: Vec<u64>,
        timeout: Duration,
    ) -> Result<WorldRank, String> {
        let scenario = world_state.scenario();
        let rank = members.iter().position(|&member| member == own).expect("who meets the others is one of them");
        let replicas = Replicas::new(members.len(), scenario.replicas);
        let timeout_us = timeout.as_micros() as u64;
        let is_called = |hub: &usize| *hub < rank || (replicas.logical(rank) != 0 && *hub != rank);
        let mut hubs: Vec<usize> = replicas.of(0).filter(is_called).collect();
        hubs.reverse();
        for &hub in &hubs {
            let direction = Direction { purpose: SimulatedPurpose::Control(world), from: own, to: members[hub] };
            world_state.lock().ask(direction, addresses[hub]);
            let is_open = world_state.wait_for(own, timeout_us, |world| {
                Some(world.openings[&direction]).filter(|&opening| opening != Opening::Requested)
            });
            if is_open != Some(Opening::Open) {
                return Err(format!("rank {hub} cannot be reached"));
            }
        }
        let hosts = members.iter().map(|&member| format!("host {}", scenario.hosts[member])).collect();
        {
            let mut state = world_state.lock();
            let now = state.processes[own].local(state.now_us);
            let timing = MembershipTiming { join_timeout: timeout, ..TIMING };
            let machine = Membership::new(rank, hosts, scenario.replicas, timing, now);
            let mut monitor = WorldMonitor::new(rank, members.clone(), addresses[rank], machine);
            monitor.is_complete = members.len() == 1;
            state.watch(own, world, monitor, &hubs);
        }
        let topology =
            Topology::new(members.iter().map(|&member| scenario.hosts[member]).collect(), vec![0; members.len()]);
        let fabric = WorldRank {
            world_state: world_state.clone(),
            own,
            world,
            rank,
            slots: (0..LinkId::PER_PEER * members.len()).map(|_| WorldLink::Unasked).collect(),
            members,
            addresses,
            topology: Arc::new(topology),
            replicas: scenario.replicas,
            closed_count: 0,
        };
        fabric.wait_for_all(timeout_us + VERDICT_MARGIN_US)?;
        Ok(fabric)
    }

    fn wait_for_all(&self, timeout_us: u64) -> Result<(), String> {
        let met = self.world_state.wait_for(self.own, timeout_us, |world| {
            // The launcher or the agreement reports ended ranks to rank 0.
            let has_ended = |&member: &usize| match self.world {
                0 => !world.processes[member].is_alive(),
                _ => world.processes[self.own].ended.contains(&member),
            };
            let lost = self.members.iter().position(has_ended).filter(|_| self.rank == 0);
            if let Some(lost) = lost {
                let failure = self.failed(lost, "it ended while ranks met");
                world.event(self.own, self.world, MembershipEvent::Request(MembershipRequest::Report(failure)));
            }
            let monitor = &world.processes[self.own].monitors[&self.world];
            let failure = monitor.failure.clone().map(|failure| Err(failure.to_string()));
            failure.or_else(|| monitor.is_complete.then_some(Ok(())))
        });
        met.unwrap_or_else(|| Err("rank 0 did not confirm that all ranks have connected".to_string()))
    }

    pub fn meet_survivors(&mut self) -> Result<WorldRank, JobFailure> {
        self.slots
            .iter_mut()
            .for_each(|slot| *slot = WorldLink::Broken(closed("its world has been left for a smaller one")));
        self.world_state.lock().close_links(self.own, self.world);
        let mut last = String::new();
        for _ in 0..MEETINGS_MAX + self.members.len() {
            let address = self.world_state.lock().listen(self.own);
            let decision = match self.agree(address) {
                Some(AgreementResult::Decided(decision)) => decision,
                Some(AgreementResult::Excluded) => {
                    return Err(self.failed(self.rank, "the others continued without it"));
                }
                Some(AgreementResult::GaveUp(cause)) => {
                    return Err(self.failed(self.rank, &format!("gave up: {cause}")));
                }
                None => return Err(self.failed(self.rank, "its process has ended")),
            };
            match self.meet_agreed(&decision) {
                Ok(fabric) => return Ok(fabric),
                // Another rank has ended in the meantime: retry.
                Err(error) => last = error,
            }
            let mut world = self.world_state.lock();
            world.count("meetings of survivors that failed");
            world.stop_listening(self.own, address);
        }
        Err(self.failed(self.rank, &format!("the survivors agreed repeatedly but could not connect: {last}")))
    }

    fn agree(&self, address: u64) -> Option<AgreementResult> {
        let event = agreement::AgreementEvent::Begin { address: address.to_string() };
        {
            let mut world = self.world_state.lock();
            world.processes[self.own].outcome = None;
            world.agree(self.own, event);
        }
        self.world_state.wait_for(self.own, u64::MAX / 4, |world| world.processes[self.own].outcome.clone())
    }

    fn meet_agreed(&self, decision: &Decision) -> Result<WorldRank, String> {
        self.world_state.lock().verdicts.note_decision(self.own, decision);
        let address = |member: &usize| decision.addresses.get(member).and_then(|address| address.parse().ok());
        let addresses: Option<Vec<u64>> = decision.members.iter().map(address).collect();
        let addresses = addresses.ok_or("one ended while the survivors agreed")?;
        let world = addresses[0];
        let met = WorldRank::meet(
            &self.world_state,
            self.own,
            world,
            decision.members.clone(),
            addresses,
            TIMING.heartbeat_timeout + MEETING_MARGIN,
        );
        if met.is_err() {
            self.world_state.lock().leave(self.own, world);
        }
        met
    }
}
