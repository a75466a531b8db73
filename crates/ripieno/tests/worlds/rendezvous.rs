//! Rendezvous of all ranks in the first world, and of the survivors in later worlds, like in `ripieno-net`.

use crate::connections::{Direction, Opening, SimulatedPurpose};
use crate::fabric::{WorldLink, WorldRank};
use crate::faults::TIMING;
use crate::link::closed;
use crate::monitor::WorldMonitor;
use crate::process::AgreementResult;
use crate::scheduler::WorldScheduler;
use ripieno_run::membership::agreement::{self, Decision};
use ripieno_run::membership::{Membership, MembershipEvent, MembershipRequest, MembershipTiming};
use ripieno_run::{JobFailure, LinkId, Replicas, Topology};
use std::sync::Arc;
use std::time::Duration;

const VERDICT_MARGIN_US: u64 = 1_000_000;
const RENDEZVOUS_MARGIN: Duration = Duration::from_secs(1);
const RENDEZVOUS_COUNT_MAX: usize = 8;

impl WorldRank {
    /// Connect to all ranks of the first world.
    pub fn connect_first(scheduler: &Arc<WorldScheduler>, first_rank: usize) -> Result<WorldRank, String> {
        let size = scheduler.scenario().hosts.len();
        WorldRank::connect(scheduler, first_rank, 0, (0..size).collect(), vec![0; size], TIMING.join_timeout)
    }

    /// Connect to the hubs and wait until all ranks have connected.
    fn connect(
        scheduler: &Arc<WorldScheduler>,
        first_rank: usize,
        world: u64,
        members: Vec<usize>,
        addresses: Vec<u64>,
        timeout: Duration,
    ) -> Result<WorldRank, String> {
        let scenario = scheduler.scenario();
        let rank = members.iter().position(|&member| member == first_rank).expect("this rank is a member");
        let replicas = Replicas::new(members.len(), scenario.replicas);
        let timeout_us = timeout.as_micros() as u64;
        let connects_to = |hub: &usize| *hub < rank || (replicas.logical(rank) != 0 && *hub != rank);
        let mut hubs: Vec<usize> = replicas.of(0).filter(connects_to).collect();
        hubs.reverse();
        for &hub in &hubs {
            let direction = Direction { purpose: SimulatedPurpose::Control(world), from: first_rank, to: members[hub] };
            scheduler.lock().request_connection(direction, addresses[hub]);
            let is_open = scheduler.wait_for(first_rank, timeout_us, |world| {
                Some(world.openings[&direction]).filter(|&opening| opening != Opening::Requested)
            });
            if is_open != Some(Opening::Open) {
                return Err(format!("rank {hub} cannot be reached"));
            }
        }
        let hosts = members.iter().map(|&member| format!("host {}", scenario.hosts[member])).collect();
        {
            let mut state = scheduler.lock();
            let now = state.processes[first_rank].local(state.now_us);
            let timing = MembershipTiming { join_timeout: timeout, ..TIMING };
            let machine = Membership::new(rank, hosts, scenario.replicas, timing, now);
            let mut monitor = WorldMonitor::new(rank, members.clone(), addresses[rank], machine);
            monitor.is_complete = members.len() == 1;
            state.watch(first_rank, world, monitor, &hubs);
        }
        let topology =
            Topology::new(members.iter().map(|&member| scenario.hosts[member]).collect(), vec![0; members.len()]);
        let fabric = WorldRank {
            scheduler: scheduler.clone(),
            first_rank,
            world,
            rank,
            slots: (0..LinkId::PER_PEER * members.len()).map(|_| WorldLink::NotRequested).collect(),
            members,
            addresses,
            topology: Arc::new(topology),
            replicas: scenario.replicas,
            handled_loss_count: 0,
        };
        fabric.wait_for_all(timeout_us + VERDICT_MARGIN_US)?;
        Ok(fabric)
    }

    fn wait_for_all(&self, timeout_us: u64) -> Result<(), String> {
        let connected = self.scheduler.wait_for(self.first_rank, timeout_us, |world| {
            // The launcher or the agreement reports ended ranks to rank 0.
            let has_ended = |&member: &usize| match self.world {
                0 => !world.processes[member].is_alive(),
                _ => world.processes[self.first_rank].ended.contains(&member),
            };
            let lost = self.members.iter().position(has_ended).filter(|_| self.rank == 0);
            if let Some(lost) = lost {
                let failure = self.failed(lost, "it ended during the rendezvous");
                world.event(self.first_rank, self.world, MembershipEvent::Request(MembershipRequest::Report(failure)));
            }
            let monitor = &world.processes[self.first_rank].monitors[&self.world];
            let failure = monitor.failure.clone().map(|failure| Err(failure.to_string()));
            failure.or_else(|| monitor.is_complete.then_some(Ok(())))
        });
        connected.unwrap_or_else(|| Err("rank 0 did not report that all ranks have connected".to_string()))
    }

    /// Agree on the survivors and connect to them. Retry if another rank ends meanwhile.
    pub fn connect_survivors(&mut self) -> Result<WorldRank, JobFailure> {
        self.slots
            .iter_mut()
            .for_each(|slot| *slot = WorldLink::Broken(closed("this rank has left the world for a smaller one")));
        self.scheduler.lock().close_links(self.first_rank, self.world);
        let mut last = String::new();
        for _ in 0..RENDEZVOUS_COUNT_MAX + self.members.len() {
            let address = self.scheduler.lock().listen(self.first_rank);
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
            match self.connect_agreed(&decision) {
                Ok(fabric) => return Ok(fabric),
                // Another rank has ended: retry.
                Err(error) => last = error,
            }
            let mut world = self.scheduler.lock();
            world.count("failed rendezvous of survivors");
            world.stop_listening(self.first_rank, address);
        }
        Err(self.failed(self.rank, &format!("the survivors agreed repeatedly but could not connect: {last}")))
    }

    fn agree(&self, address: u64) -> Option<AgreementResult> {
        let event = agreement::AgreementEvent::Begin { address: address.to_string() };
        {
            let mut world = self.scheduler.lock();
            world.processes[self.first_rank].outcome = None;
            world.agree(self.first_rank, event);
        }
        self.scheduler.wait_for(self.first_rank, u64::MAX / 4, |world| world.processes[self.first_rank].outcome.clone())
    }

    fn connect_agreed(&self, decision: &Decision) -> Result<WorldRank, String> {
        self.scheduler.lock().verdicts.note_decision(self.first_rank, decision);
        let address = |member: &usize| decision.addresses.get(member).and_then(|address| address.parse().ok());
        let addresses: Option<Vec<u64>> = decision.members.iter().map(address).collect();
        let addresses = addresses.ok_or("a rank ended during the agreement")?;
        let world = addresses[0];
        let connected = WorldRank::connect(
            &self.scheduler,
            self.first_rank,
            world,
            decision.members.clone(),
            addresses,
            TIMING.heartbeat_timeout + RENDEZVOUS_MARGIN,
        );
        if connected.is_err() {
            self.scheduler.lock().leave(self.first_rank, world);
        }
        connected
    }
}
