//! A rank's fabric over simulated links: the endpoint of `ripieno-net` without its sockets.

use crate::connections::{Direction, Opening, SimulatedPurpose};
use crate::faults::HEARTBEAT;
use crate::link::{SimulatedLink, closed};
use crate::scheduler::WorldScheduler;
use ripieno_run::membership::{MembershipEvent, MembershipRequest, agreement, describe_pair};
use ripieno_run::{
    Blocking, DescribedCall, Fabric, HEADER_BYTES, Header, JobFailure, Link, LinkError, LinkId, LinkInterest,
    LinkPurpose, Remote, Replicas, ShrinkError, ShrunkWorld, Topology,
};
use std::sync::Arc;
use std::time::Duration;

const LIVENESS_CHECK_US: u64 = 250_000;
const VERDICT_TIMEOUT_US: u64 = 1_500_000;

pub struct WorldRank {
    pub scheduler: Arc<WorldScheduler>,
    /// The rank's number in the first world, which identifies its process.
    pub first_rank: usize,
    pub world: u64,
    pub rank: usize,
    pub members: Vec<usize>,
    pub addresses: Vec<u64>,
    /// Links, by link index.
    pub slots: Vec<WorldLink>,
    pub topology: Arc<Topology>,
    pub replicas: usize,
    pub handled_loss_count: usize,
}

pub enum WorldLink {
    NotRequested,
    Opening,
    Open(SimulatedLink, bool),
    Broken(LinkError),
}

impl WorldRank {
    pub fn failed(&self, rank: usize, cause: &str) -> JobFailure {
        JobFailure::RankFailed { rank, host: String::new(), cause: cause.to_string(), traceback: String::new() }
    }

    fn request(&self, request: MembershipRequest) {
        self.scheduler.lock().event(self.first_rank, self.world, MembershipEvent::Request(request));
    }

    /// Report a problem and wait for the verdict. Without a verdict in time, the job fails with `fallback`.
    fn report_and_wait(&self, request: MembershipRequest, fallback: JobFailure) {
        report(&self.scheduler, self.first_rank, self.world, request, fallback);
    }
}

fn report(
    scheduler: &WorldScheduler,
    first_rank: usize,
    number: u64,
    request: MembershipRequest,
    fallback: JobFailure,
) {
    scheduler.lock().event(first_rank, number, MembershipEvent::Request(request));
    let received = scheduler.wait_for(first_rank, VERDICT_TIMEOUT_US, |world| {
        let monitor = &world.processes[first_rank].monitors[&number];
        (monitor.failure.is_some() || monitor.is_over).then_some(())
    });
    let mut world = scheduler.lock();
    let monitor = world.processes[first_rank].monitors.get_mut(&number).expect("each world has a monitor");
    if received.is_none() || monitor.failure.is_none() {
        monitor.failure.get_or_insert(fallback);
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
        if matches!(self.slots[index], WorldLink::NotRequested | WorldLink::Opening) {
            let (first_rank, other) = (self.first_rank, self.members[id.peer]);
            let direction = self.direction(id);
            let Direction { from, to, .. } = direction;
            let mut world = self.scheduler.lock();
            match world.openings.get(&direction) {
                None if from == first_rank => world.request_connection(direction, self.addresses[id.peer]),
                Some(Opening::Open) => {
                    let is_memory = world.is_one_host(from, to);
                    drop(world);
                    let direction = Direction { from: first_rank, to: other, ..direction };
                    let link =
                        SimulatedLink { scheduler: self.scheduler.clone(), direction, is_memory, peeked: vec![] };
                    self.slots[index] = WorldLink::Open(link, false);
                }
                Some(Opening::Refused) if from == first_rank => {
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
            WorldLink::NotRequested | WorldLink::Opening => Ok(None),
            WorldLink::Broken(error) => Err(error.clone()),
        }
    }

    fn has_failed(&self) -> bool {
        self.failure().is_some()
    }

    fn failure(&self) -> Option<JobFailure> {
        self.scheduler.lock().processes[self.first_rank].monitors[&self.world].failure.clone()
    }

    fn has_losses(&self) -> bool {
        !self.scheduler.lock().processes[self.first_rank].monitors[&self.world].losses.is_empty()
    }

    fn losses(&self) -> Vec<JobFailure> {
        self.scheduler.lock().processes[self.first_rank].monitors[&self.world].losses.values().cloned().collect()
    }

    fn report(&mut self, failure: JobFailure) {
        self.report_and_wait(MembershipRequest::Report(failure.clone()), failure);
    }

    fn peer_failure(&mut self, peer: usize, cause: &str) -> JobFailure {
        self.request(MembershipRequest::Suspect { peer, cause: cause.to_string() });
        self.scheduler.wait_for(self.first_rank, VERDICT_TIMEOUT_US, |world| {
            let monitor = &world.processes[self.first_rank].monitors[&self.world];
            (monitor.failure.is_some() || monitor.losses.contains_key(&peer) || monitor.is_over).then_some(())
        });
        let (verdict, loss) = {
            let mut world = self.scheduler.lock();
            let monitor =
                world.processes[self.first_rank].monitors.get_mut(&self.world).expect("each world has a monitor");
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
        let world = self.scheduler.lock();
        world.processes[self.first_rank].local(world.now_us)
    }

    fn yield_now(&self) {
        self.scheduler.sleep(self.first_rank, 20);
    }

    fn has_core_per_rank(&self) -> bool {
        false
    }

    fn note_signature(&mut self, signature: u32, text: &dyn Fn() -> String) {
        let mut world = self.scheduler.lock();
        let monitor = world.processes[self.first_rank].monitors.get_mut(&self.world).expect("each world has a monitor");
        monitor.history.note_signature(signature, text);
    }

    fn differs(&mut self, mine: Header, peer: usize, theirs: Header) {
        let own_described =
            self.scheduler.lock().processes[self.first_rank].monitors[&self.world].history.describe(mine);
        let pair = [(self.rank, own_described), (peer, DescribedCall::undescribed(theirs))];
        let fallback = JobFailure::Mismatch { description: describe_pair(pair) };
        self.report_and_wait(MembershipRequest::Differs { mine, peer, theirs }, fallback);
    }

    fn enter(&mut self, _communicator: u32, header: &[u8; HEADER_BYTES]) {
        let header = Header::decode(header).expect("the bytes are an encoded header");
        let mut world = self.scheduler.lock();
        world.processes[self.first_rank]
            .monitors
            .get_mut(&self.world)
            .expect("each world has a monitor")
            .history
            .enter(header);
    }

    fn stalled(&mut self, header: Header, peers: &[usize], blocking: Blocking) {
        // As on a host: sent data may still arrive and end the wait of a peer, and a link may still open.
        let is_busy = {
            let world = self.scheduler.lock();
            world.has_bytes_in_transit(self.first_rank) || world.is_connecting(self.first_rank)
        };
        let blocking = if is_busy { Blocking::Nothing } else { blocking };
        self.request(MembershipRequest::Stalled { header, peers: peers.to_vec(), blocking });
    }

    fn shrink(&mut self, _interrupt: &mut dyn FnMut() -> bool) -> Result<ShrunkWorld, ShrinkError> {
        let fabric = self.connect_survivors()?;
        let place = |member| self.members.iter().position(|other| other == member);
        let survivors = fabric.members.iter().filter_map(place).collect();
        let job = format!("world {}", fabric.world);
        Ok(ShrunkWorld { fabric: Box::new(fabric), survivors, job })
    }

    fn remote(&self) -> Arc<dyn Remote> {
        Arc::new(RemoteMonitor { scheduler: self.scheduler.clone(), first_rank: self.first_rank, world: self.world })
    }

    fn prepare_park(&mut self) {
        let mut world = self.scheduler.lock();
        let process = &mut world.processes[self.first_rank];
        process.has_events = false;
        let losses = process.monitors[&self.world].losses.clone();
        if losses.len() > self.handled_loss_count {
            self.handled_loss_count = losses.len();
            for (rank, failure) in losses {
                world.close_links_to(self.first_rank, self.members[rank], self.world);
                for id in LinkId::all_of(rank) {
                    self.slots[id.index(self.members.len())] = WorldLink::Broken(closed(failure.to_string()));
                }
            }
        }
    }

    fn park(&mut self, interests: &[LinkInterest], timeout: Duration) {
        let has_events = self.scheduler.sleep(self.first_rank, (timeout.as_micros() as u64).min(LIVENESS_CHECK_US));
        if !has_events {
            interests.iter().for_each(|interest| self.maintain(interest.link));
        }
    }

    fn cancel_park(&mut self) {}
}

impl WorldRank {
    /// Return the direction in which the connection is requested: from the connecting rank to its peer.
    fn direction(&self, id: LinkId) -> Direction {
        let (first_rank, other) = (self.first_rank, self.members[id.peer]);
        let (is_own, purpose) = match id.channel {
            LinkPurpose::Collectives => (self.rank < id.peer, SimulatedPurpose::Data(self.world)),
            LinkPurpose::Outbox => (true, SimulatedPurpose::Messages(self.world, first_rank)),
            LinkPurpose::Inbox => (false, SimulatedPurpose::Messages(self.world, other)),
        };
        let (from, to) = if is_own { (first_rank, other) } else { (other, first_rank) };
        Direction { purpose, from, to }
    }

    /// Detect a dead or unreachable peer. Shared memory reports no death, and a cut connection reports no error.
    fn maintain(&mut self, id: LinkId) {
        let (peer, index) = (id.peer, id.index(self.members.len()));
        let world = self.scheduler.lock();
        let WorldLink::Open(link, had_ended) = &mut self.slots[index] else { return };
        let back = link.direction.back();
        if !link.is_memory {
            if world.cut_for_us(self.first_rank, self.members[peer]) > HEARTBEAT.as_micros() as u64 {
                drop(world);
                self.slots[index] = WorldLink::Broken(closed("its host does not respond"));
            }
            return;
        }
        let has_ended = world.connections[&back].has_ended;
        drop(world);
        if std::mem::replace(had_ended, has_ended) {
            self.request(MembershipRequest::Suspect { peer, cause: "its process ended".to_string() });
        }
    }
}

impl Drop for WorldRank {
    fn drop(&mut self) {
        let mut world = self.scheduler.lock();
        if world.processes[self.first_rank].is_alive() && !world.is_over {
            world.close_links(self.first_rank, self.world);
            // The monitor of the first world continues: it serves the agreement.
            if self.world != 0 {
                world.leave(self.first_rank, self.world);
            }
        }
    }
}

struct RemoteMonitor {
    scheduler: Arc<WorldScheduler>,
    first_rank: usize,
    world: u64,
}

impl Remote for RemoteMonitor {
    fn wake(&self) {}

    fn report(&self, failure: JobFailure) {
        report(&self.scheduler, self.first_rank, self.world, MembershipRequest::Report(failure.clone()), failure);
    }

    fn withdraw(&self) {
        self.scheduler.lock().agree(self.first_rank, agreement::AgreementEvent::Withdraw);
    }
}
