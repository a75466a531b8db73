//! The monitor: one thread per rank that answers the listeners and runs the membership protocol.
//!
//! The thread sleeps in one epoll set that contains all its event sources; its only timeout is the next tick of the
//! membership machine. Program threads communicate with it through [`MonitorShared`].

mod accept;
mod entered;
mod shared;
mod survivor_connections;
mod wire;

pub(crate) use shared::{AgreementOutcome, EnteredCache, MonitorCommand, MonitorShared, MonitorStatus, lock};

use crate::acceptor::Acceptor;
use crate::auth::JobNonce;
use crate::config::Credentials;
use crate::connector::Connector;
use crate::liveness_probes::LivenessProbes;
use crate::peer_address::PeerAddress;
use crate::stream::Stream;
use ripieno_run::membership::agreement::{self, Agreement};
use ripieno_run::membership::{Membership, MembershipEvent, MembershipOutput, MembershipRequest};
use ripieno_run::{JobFailure, LinkId, Replicas};
use rustix::event::{Timespec, epoll};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use survivor_connections::SurvivorConnections;
use wire::{ControlConnection, ENDED};

/// Time that a leaving rank waits for the hub to close the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for which a hub stays after a failed rendezvous, to report the reason to late ranks.
const LINGER_TIMEOUT: Duration = Duration::from_millis(1000);

const EVENTS_MAX: usize = 256;

/// The source of an epoll event, stored in its 64-bit tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EpollTag {
    Wake,
    Acceptor,
    Peer(usize),
    Survivor(u32),
}

impl EpollTag {
    fn tag(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            EpollTag::Wake => 0,
            EpollTag::Acceptor => 1,
            EpollTag::Peer(rank) => 1 << 32 | rank as u64,
            EpollTag::Survivor(number) => 2 << 32 | u64::from(number),
        })
    }

    fn of(tag: u64) -> EpollTag {
        match (tag >> 32, tag as u32) {
            (0, 0) => EpollTag::Wake,
            (0, _) => EpollTag::Acceptor,
            (1, rank) => EpollTag::Peer(rank as usize),
            (_, number) => EpollTag::Survivor(number),
        }
    }
}

/// The initial state of a monitor.
pub(crate) struct Setup {
    pub shared: Arc<MonitorShared>,
    pub commands: Receiver<MonitorCommand>,
    pub machine: Membership,
    /// The agreements among survivors after the job has failed.
    pub agreement: Agreement,
    /// If the process did not run for this long, other ranks may have declared it silent.
    pub suspended_after: Duration,
    /// Limit of a probe.
    pub probe_limit: Duration,
    pub connector: Arc<Connector>,
    pub addresses: Arc<Vec<PeerAddress>>,
    pub acceptor: Acceptor,
    pub own: PeerAddress,
    pub credentials: Credentials,
    pub nonce: JobNonce,
    /// Groups of ranks that are replicas of each other; the replicas of rank 0 are hubs.
    pub replicas: Replicas,
    /// Connections to hubs: a hub connects to the lower hubs, another rank to all hubs.
    pub hubs: Vec<(usize, Stream)>,
    /// Time for which a hub continues to watch after it has left.
    pub linger: Duration,
    /// Receives authenticated connections for links.
    pub take_link: Box<dyn FnMut(LinkId, Stream) + Send>,
}

/// The thread's state.
pub(crate) struct Monitor {
    setup: Setup,
    epoll: OwnedFd,
    connections: BTreeMap<usize, ControlConnection>,
    survivors: SurvivorConnections,
    probes: LivenessProbes,
    events: VecDeque<MembershipEvent>,
    /// Time at which the monitor ends even with work left; set once this rank has left.
    end: Option<Instant>,
    finished: bool,
}

impl Monitor {
    /// Allocate all resources in advance, so that the thread itself cannot fail.
    pub fn new(mut setup: Setup) -> io::Result<Monitor> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, setup.shared.wake_fd(), EpollTag::Wake.tag(), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &setup.acceptor, EpollTag::Acceptor.tag(), epoll::EventFlags::IN)?;
        let hubs = std::mem::take(&mut setup.hubs);
        let mut monitor = Monitor {
            setup,
            epoll,
            connections: BTreeMap::new(),
            survivors: SurvivorConnections::default(),
            probes: LivenessProbes::default(),
            events: VecDeque::new(),
            end: None,
            finished: false,
        };
        for (hub, stream) in hubs {
            stream.set_nonblocking(true)?;
            monitor.add_connection(hub, stream)?;
            monitor.events.push_back(MembershipEvent::Connected { peer: hub });
        }
        Ok(monitor)
    }

    /// Run until this rank has left and no other rank needs it.
    pub fn run(mut self) {
        let over = MonitorEndGuard { shared: self.setup.shared.clone(), rank: self.setup.own.rank };
        self.handle_events();
        while !self.is_over() {
            for source in self.wait() {
                self.handle_source(source);
            }
            if self.setup.acceptor.due().is_some_and(|due| due <= Instant::now()) {
                self.receive();
            }
            self.events.push_back(MembershipEvent::Tick);
            self.handle_events();
            self.agree(agreement::AgreementEvent::Tick);
            self.flush();
            self.flush_survivor();
        }
        drop(over);
    }

    fn is_over(&mut self) -> bool {
        if self.end.is_some_and(|end| Instant::now() >= end) {
            return true;
        }
        let all_sent = self.connections.values().all(|connection| !connection.has_queued());
        if !self.finished || !all_sent {
            return false;
        }
        // The hub closes the connection after it has read the goodbye; closing first could lose the goodbye in flight.
        self.is_hub() || self.connections.is_empty()
    }

    fn is_hub(&self) -> bool {
        self.setup.replicas.logical(self.setup.own.rank) == 0
    }

    fn wait(&mut self) -> Vec<EpollTag> {
        let now = Instant::now();
        let tick = self.setup.machine.next_tick().min(self.setup.agreement.next_tick());
        let tick = self.setup.shared.started.checked_add(tick);
        let next = tick.into_iter().chain(self.setup.acceptor.due()).chain(self.end).min();
        let timeout = next.map(|next| next.saturating_duration_since(now));
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut events = Vec::with_capacity(EVENTS_MAX);
        // An interrupted wait reports no event.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
        if next.is_some_and(|next| Instant::now() > next.max(now) + self.setup.suspended_after) {
            self.agree(agreement::AgreementEvent::Suspended);
        }
        events.iter().map(|event| EpollTag::of(event.data.u64())).collect()
    }

    fn handle_source(&mut self, source: EpollTag) {
        match source {
            EpollTag::Wake => {
                self.setup.shared.drain_wake();
                while let Ok(command) = self.setup.commands.try_recv() {
                    self.handle_command(command);
                }
            }
            EpollTag::Acceptor => self.receive(),
            EpollTag::Peer(peer) => self.read(peer),
            EpollTag::Survivor(number) => self.read_survivor(number),
        }
    }

    fn handle_command(&mut self, command: MonitorCommand) {
        match command {
            MonitorCommand::Request(request) => {
                if request == MembershipRequest::Leave {
                    self.end = Some(Instant::now() + self.finish_timeout());
                    self.leave_survivors();
                }
                self.events.push_back(MembershipEvent::Request(request));
            }
            MonitorCommand::Agreement(event) => self.agree(event),
            MonitorCommand::Open { peer, stream } => self.add_survivor(peer, stream),
            MonitorCommand::NotOpen { peer, reason } => self.survivor_unreachable(peer, reason),
            MonitorCommand::Probe { peer } => self.probe(peer),
            MonitorCommand::Probed { peer, is_reached } => {
                self.probes.end(peer);
                if is_reached {
                    self.note_reached(peer);
                }
            }
        }
    }

    fn probe(&mut self, peer: usize) {
        let shared = self.setup.shared.clone();
        let report = move |is_reached| shared.send_command(MonitorCommand::Probed { peer, is_reached });
        let Setup { connector, addresses, probe_limit, .. } = &self.setup;
        self.probes.begin(connector, &addresses[peer], *probe_limit, report);
    }

    /// Handle a successful probe of a rank, or by it.
    fn note_reached(&mut self, peer: usize) {
        self.setup.shared.note_reached(peer);
        self.events.push_back(MembershipEvent::Reached { peer });
    }

    /// Return the time for which this rank stays after it has left.
    fn finish_timeout(&self) -> Duration {
        match self.is_hub() {
            true if self.setup.shared.status().complete => self.setup.linger,
            true => LINGER_TIMEOUT,
            false => CLOSE_TIMEOUT,
        }
    }

    fn read(&mut self, peer: usize) {
        let Some(connection) = self.connections.get_mut(&peer) else { return };
        let (messages, closed) = connection.read();
        self.events.extend(messages.into_iter().map(|message| MembershipEvent::Received { peer, message }));
        let has_ended = closed.as_deref() == Some(ENDED);
        if let Some(cause) = closed {
            self.connections.remove(&peer);
            self.events.push_back(MembershipEvent::Closed { peer, cause });
        }
        self.handle_events();
        if has_ended {
            self.agree(agreement::AgreementEvent::Ended { peer });
        }
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.events.pop_front() {
            let now = self.setup.shared.now();
            let outputs = self.setup.machine.handle(now, event, &self.setup.shared.history().history);
            for output in outputs {
                self.execute(output);
            }
        }
    }

    fn execute(&mut self, output: MembershipOutput) {
        match output {
            MembershipOutput::Send { to, message } => {
                if let Some(connection) = self.connections.get_mut(&to) {
                    connection.queue(&message);
                }
            }
            MembershipOutput::Probe { to } => self.probe(to),
            MembershipOutput::Complete => self.setup.shared.update(|status| status.complete = true),
            MembershipOutput::Failed(failure) => {
                // Notify other ranks first: this rank's program may end the process once it learns of the failure.
                self.flush();
                self.setup.shared.fail(failure);
            }
            MembershipOutput::Lost(failure) => {
                if let JobFailure::RankFailed { rank, .. } = failure {
                    self.setup.shared.lose(rank, failure);
                }
            }
            MembershipOutput::Finished => {
                self.finished = true;
                self.flush();
                if !self.is_hub() {
                    self.connections
                        .values_mut()
                        .filter(|connection| !connection.has_queued())
                        .for_each(|connection| connection.stream.end_sending());
                }
            }
        }
    }

    /// Send queued bytes, and watch for writability where some remain.
    fn flush(&mut self) {
        let mut lost_peers = Vec::new();
        for (&peer, connection) in &mut self.connections {
            if let Err(cause) = connection.flush() {
                lost_peers.push((peer, cause));
                continue;
            }
            if connection.awaits_writable != connection.has_queued() {
                connection.awaits_writable = connection.has_queued();
                let writable =
                    if connection.has_queued() { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
                let flags = epoll::EventFlags::IN | writable;
                // The descriptor is in the set as long as the connection lives, so this cannot fail.
                let _ = epoll::modify(&self.epoll, &connection.stream, EpollTag::Peer(peer).tag(), flags);
            }
        }
        for (peer, cause) in lost_peers {
            // The last messages of the peer may explain why the connection ended.
            let Some(mut connection) = self.connections.remove(&peer) else { continue };
            let (messages, closed) = connection.read();
            self.events.extend(messages.into_iter().map(|message| MembershipEvent::Received { peer, message }));
            self.events.push_back(MembershipEvent::Closed { peer, cause: closed.unwrap_or(cause) });
        }
    }

    fn add_connection(&mut self, peer: usize, stream: Stream) -> io::Result<()> {
        epoll::add(&self.epoll, &stream, EpollTag::Peer(peer).tag(), epoll::EventFlags::IN)?;
        self.connections.insert(peer, ControlConnection::new(stream));
        Ok(())
    }
}

/// Notifies waiting threads when the monitor ends, also after a panic.
struct MonitorEndGuard {
    shared: Arc<MonitorShared>,
    rank: usize,
}

impl Drop for MonitorEndGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = "its monitor thread panicked".to_string();
            let (rank, host) = (self.rank, crate::host::host_name());
            self.shared.fail(JobFailure::RankFailed { rank, host, cause, traceback: String::new() });
        }
        self.shared.update(|status| status.over = true);
    }
}
