//! A rank's fabric over simulated links: the endpoint of `ripieno-net` without its sockets.

use crate::connections::{Direction, Opening, SimulatedPurpose};
use crate::faults::HEARTBEAT;
use crate::link::{SimulatedLink, closed};
use crate::world_state::WorldStage;
use ripieno_run::membership::{MembershipEvent, MembershipRequest, agreement, describe_pair};
use ripieno_run::{
    Blocking, Channel, DescribedCall, Fabric, HEADER_BYTES, Header, JobFailure, Link, LinkError, LinkId, LinkInterest,
    Remote, Replicas, ShrinkError, ShrunkWorld, Topology,
};
use std::sync::Arc;
use std::time::Duration;

const LIVENESS_CHECK_US: u64 = 250_000;
const VERDICT_TIMEOUT_US: u64 = 1_500_000;

pub struct WorldRank {
    pub world_state: Arc<WorldStage>,
    /// The rank's number in the first world.
    pub own: usize,
    pub world: u64,
    pub rank: usize,
    pub members: Vec<usize>,
    pub addresses: Vec<u64>,
    /// Links, by link index.
    pub slots: Vec<WorldLink>,
    pub topology: Arc<Topology>,
    pub replicas: usize,
    pub closed_count: usize,
}

pub enum WorldLink {
    Unasked,
    Opening,
    Open(SimulatedLink, bool),
    Broken(LinkError),
}

impl WorldRank {
    pub fn failed(&self, rank: usize, cause: &str) -> JobFailure {
        JobFailure::RankFailed { rank, host: String::new(), cause: cause.to_string(), traceback: String::new() }
    }

    fn request(&self, request: MembershipRequest) {
        self.world_state.lock().event(self.own, self.world, MembershipEvent::Request(request));
    }

    /// Report a problem and wait for the verdict. Without a verdict in time, the job fails with `alone`.
    fn report_and_wait(&self, request: MembershipRequest, alone: JobFailure) {
        report(&self.world_state, self.own, self.world, request, alone);
    }
}

fn report(world_state: &WorldStage, own: usize, number: u64, request: MembershipRequest, alone: JobFailure) {
    world_state.lock().event(own, number, MembershipEvent::Request(request));
    let received = world_state.wait_for(own, VERDICT_TIMEOUT_US, |world| {
        let monitor = &world.processes[own].monitors[&number];
        (monitor.failure.is_some() || monitor.is_over).then_some(())
    });
    let mut world = world_state.lock();
    let monitor = world.processes[own].monitors.get_mut(&number).expect("it watches");
    if received.is_none() || monitor.failure.is_none() {
        monitor.failure.get_or_insert(alone);
    }
}

impl Fabric for WorldRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.members.len()
    }

    fn replicas(&self) -> Replicas {
        Replicas::new(self.members.len(), self.replicas)
    }

    fn topology(&self) -> Arc<Topology> {
        self.topology.clone()
    }

    fn link(&mut self, id: LinkId) -> Result<Option<&mut dyn Link>, LinkError> {
        let index = id.index(self.members.len());
        if matches!(self.slots[index], WorldLink::Unasked | WorldLink::Opening) {
            let (own, other) = (self.own, self.members[id.peer]);
            let direction = self.direction(id);
            let Direction { from, to, .. } = direction;
            let mut world = self.world_state.lock();
            match world.openings.get(&direction) {
                None if from == own => world.ask(direction, self.addresses[id.peer]),
                Some(Opening::Open) => {
                    let is_memory = world.is_one_host(from, to);
                    drop(world);
                    let direction = Direction { from: own, to: other, ..direction };
                    let link =
                        SimulatedLink { world_state: self.world_state.clone(), direction, is_memory, seen: vec![] };
                    self.slots[index] = WorldLink::Open(link, false);
                }
                Some(Opening::Refused) if from == own => {
                    drop(world);
                    self.slots[index] = WorldLink::Broken(closed("it cannot be reached"));
                }
                _ => {
                    drop(world);
                    self.slots[index] = WorldLink::Opening;
                }
            }
        }
        match &mut self.slots[index] {
            WorldLink::Open(link, _) => Ok(Some(link)),
            WorldLink::Unasked | WorldLink::Opening => Ok(None),
            WorldLink::Broken(error) => Err(error.clone()),
        }
    }

    fn has_failed(&self) -> bool {
        self.failure().is_some()
    }

    fn failure(&self) -> Option<JobFailure> {
        self.world_state.lock().processes[self.own].monitors[&self.world].failure.clone()
    }

    fn has_losses(&self) -> bool {
        !self.world_state.lock().processes[self.own].monitors[&self.world].losses.is_empty()
    }

    fn losses(&self) -> Vec<JobFailure> {
        self.world_state.lock().processes[self.own].monitors[&self.world].losses.values().cloned().collect()
    }

    fn report(&mut self, failure: JobFailure) {
        self.report_and_wait(MembershipRequest::Report(failure.clone()), failure);
    }

    fn peer_failure(&mut self, peer: usize, cause: &str) -> JobFailure {
        self.request(MembershipRequest::Suspect { peer, cause: cause.to_string() });
        self.world_state.wait_for(self.own, VERDICT_TIMEOUT_US, |world| {
            let monitor = &world.processes[self.own].monitors[&self.world];
            (monitor.failure.is_some() || monitor.losses.contains_key(&peer) || monitor.is_over).then_some(())
        });
        let (verdict, loss) = {
            let mut world = self.world_state.lock();
            let monitor = world.processes[self.own].monitors.get_mut(&self.world).expect("it watches");
            (monitor.failure.clone(), monitor.losses.get(&peer).cloned())
        };
        if let Some(verdict) = verdict {
            return verdict;
        }
        let cause = format!("its link to rank {} closed: {cause}", self.rank);
        let failure = loss.unwrap_or_else(|| self.failed(peer, &cause));
        self.report_and_wait(MembershipRequest::Report(failure.clone()), failure.clone());
        self.failure().unwrap_or(failure)
    }

    fn now(&self) -> Duration {
        let world = self.world_state.lock();
        world.processes[self.own].local(world.now_us)
    }

    fn yield_now(&self) {
        self.world_state.sleep(self.own, 20);
    }

    fn has_core_per_rank(&self) -> bool {
        false
    }

    fn note_form(&mut self, form: u32, words: &dyn Fn() -> String) {
        let mut world = self.world_state.lock();
        let monitor = world.processes[self.own].monitors.get_mut(&self.world).expect("it watches");
        monitor.history.note_form(form, words);
    }

    fn differs(&mut self, mine: Header, peer: usize, theirs: Header) {
        let own_described = self.world_state.lock().processes[self.own].monitors[&self.world].history.describe(mine);
        let pair = [(self.rank, own_described), (peer, DescribedCall::undescribed(theirs))];
        let alone = JobFailure::Mismatch { description: describe_pair(pair) };
        self.report_and_wait(MembershipRequest::Differs { mine, peer, theirs }, alone);
    }

    fn enter(&mut self, _communicator: u32, header: &[u8; HEADER_BYTES]) {
        let header = Header::decode(header).expect("what a rank enters is a header");
        let mut world = self.world_state.lock();
        world.processes[self.own].monitors.get_mut(&self.world).expect("it watches").history.enter(header);
    }

    fn stalled(&mut self, header: Header, peers: &[usize], blocking: Blocking) {
        self.request(MembershipRequest::Stalled { header, peers: peers.to_vec(), blocking });
    }

    fn shrink(&mut self, _interrupt: &mut dyn FnMut() -> bool) -> Result<ShrunkWorld, ShrinkError> {
        let fabric = self.meet_survivors()?;
        let place = |member| self.members.iter().position(|other| other == member);
        let survivors = fabric.members.iter().filter_map(place).collect();
        let job = format!("world {}", fabric.world);
        Ok(ShrunkWorld { fabric: Box::new(fabric), survivors, job })
    }

    fn remote(&self) -> Arc<dyn Remote> {
        Arc::new(RemoteMonitor { world_state: self.world_state.clone(), own: self.own, world: self.world })
    }

    fn prepare_park(&mut self) {
        let mut world = self.world_state.lock();
        let process = &mut world.processes[self.own];
        process.has_events = false;
        let losses = process.monitors[&self.world].losses.clone();
        drop(world);
        if losses.len() > self.closed_count {
            self.closed_count = losses.len();
            for (rank, failure) in losses {
                for id in LinkId::all_of(rank) {
                    self.slots[id.index(self.members.len())] = WorldLink::Broken(closed(failure.to_string()));
                }
            }
        }
    }

    fn park(&mut self, interests: &[LinkInterest], timeout: Duration) {
        let has_events = self.world_state.sleep(self.own, (timeout.as_micros() as u64).min(LIVENESS_CHECK_US));
        if !has_events {
            interests.iter().for_each(|interest| self.maintain(interest.link));
        }
    }

    fn cancel_park(&mut self) {}
}

impl WorldRank {
    /// Return the direction of the connection request: from the connecting rank to its peer.
    fn direction(&self, id: LinkId) -> Direction {
        let (own, other) = (self.own, self.members[id.peer]);
        let (is_own, purpose) = match id.channel {
            Channel::Collectives => (self.rank < id.peer, SimulatedPurpose::Data(self.world)),
            Channel::Outbox => (true, SimulatedPurpose::Messages(self.world, own)),
            Channel::Inbox => (false, SimulatedPurpose::Messages(self.world, other)),
        };
        let (from, to) = if is_own { (own, other) } else { (other, own) };
        Direction { purpose, from, to }
    }

    /// Detect a dead or unreachable peer. Shared memory does not show a death, and a cut connection shows no error.
    fn maintain(&mut self, id: LinkId) {
        let (peer, index) = (id.peer, id.index(self.members.len()));
        let world = self.world_state.lock();
        let WorldLink::Open(link, was_ended) = &mut self.slots[index] else { return };
        let back = link.direction.back();
        if !link.is_memory {
            if world.cut_for_us(self.own, self.members[peer]) > HEARTBEAT.as_micros() as u64 {
                drop(world);
                self.slots[index] = WorldLink::Broken(closed("its host has answered nothing"));
            }
            return;
        }
        let has_ended = world.ways[&back].has_ended;
        drop(world);
        if std::mem::replace(was_ended, has_ended) {
            self.request(MembershipRequest::Suspect { peer, cause: "its process ended".to_string() });
        }
    }
}

impl Drop for WorldRank {
    fn drop(&mut self) {
        let mut world = self.world_state.lock();
        if world.processes[self.own].is_alive() && !world.is_over {
            world.close_links(self.own, self.world);
            // The monitor of the first world continues: it serves the agreement.
            if self.world != 0 {
                world.leave(self.own, self.world);
            }
        }
    }
}

struct RemoteMonitor {
    world_state: Arc<WorldStage>,
    own: usize,
    world: u64,
}

impl Remote for RemoteMonitor {
    fn wake(&self) {}

    fn report(&self, failure: JobFailure) {
        report(&self.world_state, self.own, self.world, MembershipRequest::Report(failure.clone()), failure);
    }

    fn withdraw(&self) {
        self.world_state.lock().agree(self.own, agreement::AgreementEvent::Withdraw);
    }
}
