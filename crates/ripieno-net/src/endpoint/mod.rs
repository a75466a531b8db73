//! The endpoint of a rank: its links, its membership and its orderly shutdown.
//!
//! Start-up takes one exchange of strings and one connection per rank to rank 0, or to each of its replicas. A link
//! opens when a plan first needs it, on a separate thread, so that no rank blocks on it. For collectives the lower
//! rank of a pair connects, for messages the sender.

mod describe;
mod fabric;
mod open;
mod survivors;
mod topology;

pub use describe::{Description, LinkDescription, LinkKind};

use crate::acceptor::Acceptor;
use crate::auth::ConnectionPurpose;
use crate::config::{Config, LinkPolicy};
use crate::connector::Connector;
use crate::error::NetError;
use crate::exchange::Exchange;
use crate::host::{core_count, has_core_each, has_core_quota};
use crate::links::{DEFAULT_CAPACITY_BYTES, Doorbell, LARGE_CAPACITY_BYTES, RingLink, TcpLink};
use crate::listeners::Listeners;
use crate::monitor::{EnteredCache, Monitor, MonitorShared, Setup};
use crate::peer_address::{PeerAddress, check_addresses};
use crate::shortage::with_advice;
use crate::stream::Stream;
use open::{OpenedLink, Opener};
use ripieno_cores::CoLocationDetector;
use ripieno_run::membership::agreement::{Agreement, AgreementTimeouts};
use ripieno_run::membership::{Membership, MembershipRequest};
use ripieno_run::{JobFailure, LinkError, LinkId, Topology};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use survivors::FirstWorld;

/// Interval at which the endpoint queries the exchange for lost ranks while ranks connect.
const LOSS_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Limit of ranks on a host that issue memory barriers for each other.
const BARRIER_RANK_COUNT_MAX: usize = 16;
/// Limit of ranks on a host that have large rings.
const LARGE_RING_RANK_COUNT_MAX: usize = 8;
/// Additional wait beyond the hub's deadline. The hub's verdict, which names the missing ranks, arrives meanwhile.
const VERDICT_MARGIN: Duration = Duration::from_secs(1);

/// A rank of a job: a [`ripieno_run::Fabric`] over shared memory and TCP.
pub struct Endpoint {
    config: Config,
    addresses: Arc<Vec<PeerAddress>>,
    topology: Arc<Topology>,
    shared: Arc<MonitorShared>,
    entered_cache: EnteredCache,
    doorbell: Doorbell,
    /// Indexed by the index of the link.
    slots: Vec<LinkSlot>,
    opener: Opener,
    deliveries: Receiver<OpenedLink>,
    /// `None` after the endpoint is closed.
    monitor_handle: Option<Arc<MonitorHandle>>,
    /// The original world that this one descends from, possibly itself; `None` after the endpoint is closed.
    first: Option<Arc<FirstWorld>>,
    /// The rank of each member in the first world.
    members: Vec<usize>,
    /// Failed attempts to open links, with the peer.
    notes: Vec<(usize, String)>,
    has_core_per_rank: bool,
    co_location: CoLocationDetector,
    /// Number of dead ranks with closed links.
    closed_count: usize,
}

/// A running monitor. Dropping the handle leaves the job normally.
struct MonitorHandle {
    shared: Arc<MonitorShared>,
    monitor: Option<JoinHandle<()>>,
}

/// The state of a link to a peer.
enum LinkSlot {
    NotRequested,
    Opening,
    Ring(Box<RingLink>, LivenessSocket),
    Tcp(TcpLink),
    Broken(LinkError),
}

/// The socket over which shared memory was set up. Its end signals the peer's death, which memory does not.
struct LivenessSocket {
    socket: Stream,
    has_ended: bool,
}

/// Reports failures to the job and reads them, from any thread or a signal handler's thread.
#[derive(Clone)]
pub struct FailureHandle {
    shared: Arc<MonitorShared>,
}

impl Endpoint {
    /// Connect to the other ranks; return when all of them are connected.
    pub fn connect(config: Config, exchange: &mut dyn Exchange) -> Result<Endpoint, NetError> {
        config.check()?;
        let started = Instant::now();
        let deadline = started + config.rendezvous_timeout;
        let listeners = Listeners::open(&config)?;
        let own = PeerAddress::new(&config, &listeners)?;
        let strings = exchange.exchange(&own.encode())?;
        let addresses = PeerAddress::read_all(&config, &strings)?;
        check_addresses(&config, &addresses)?;
        check_links(&config, &addresses)?;
        let topology = topology::topology(&config, &addresses)?;

        let nonce = addresses[0].job_nonce();
        let connector = Connector::new(&config, own.clone(), nonce);
        let hubs = connect_to_hubs(&config, &connector, &addresses, exchange, deadline)?;
        let mut endpoint = Endpoint::start(config, addresses, topology, listeners, connector, hubs, None)?;
        match endpoint.wait_for_all(exchange, deadline) {
            Ok(()) => Ok(endpoint),
            Err(error) => {
                endpoint.close();
                Err(error)
            }
        }
    }

    fn start(
        config: Config,
        addresses: Vec<PeerAddress>,
        topology: Topology,
        listeners: Listeners,
        connector: Connector,
        hubs: Vec<(usize, Stream)>,
        first: Option<Arc<FirstWorld>>,
    ) -> Result<Endpoint, NetError> {
        let os = |action| {
            move |error: std::io::Error| NetError::Os { rank: config.rank, action, cause: with_advice(&error) }
        };
        let own_identity = &addresses[config.rank].identity;
        let masks: Vec<_> = addresses
            .iter()
            .filter(|address| address.identity.shares_cores(own_identity))
            .map(|address| &address.cores)
            .collect();
        let neighbours = masks.len();
        // A container quota below the affinity limits all ranks. Ranks that are pinned to cores have one each.
        let has_core_per_rank = neighbours <= core_count() || !has_core_quota() && has_core_each(&masks);
        let mut doorbell = Doorbell::new().map_err(os("create a doorbell in shared memory"))?;
        // Ranks that share cores sleep often. With many ranks, every sleep would interrupt too many cores.
        if has_core_per_rank && (2..=BARRIER_RANK_COUNT_MAX).contains(&neighbours) {
            doorbell.issue_barriers();
        }
        let (shared, commands) = MonitorShared::new(doorbell.waker()).map_err(os("create an event descriptor"))?;
        let shared = Arc::new(shared);
        let timing = config.timing();
        let hosts = addresses.iter().map(|address| address.host.clone()).collect();
        let (sender, deliveries) = channel();
        let connector = Arc::new(connector);
        let addresses = Arc::new(addresses);
        let agreement_timeouts =
            AgreementTimeouts { silence: config.heartbeat_timeout, late: config.rendezvous_timeout };
        let has_large_rings = has_core_per_rank && neighbours <= LARGE_RING_RANK_COUNT_MAX;
        let ring_bytes = if has_large_rings { LARGE_CAPACITY_BYTES } else { DEFAULT_CAPACITY_BYTES };
        let opener = Opener::new(connector.clone(), doorbell.waker(), sender, timing, ring_bytes);
        let acceptor = opener.clone();
        let setup = Setup {
            shared: shared.clone(),
            commands,
            machine: Membership::new(config.rank, hosts, config.replicas, timing, shared.now()),
            agreement: Agreement::new(config.rank, config.world_size, topology.node_count() == 1, agreement_timeouts),
            suspended_after: config.heartbeat_timeout / 2,
            probe_limit: timing.probe_delay(),
            connector,
            addresses: addresses.clone(),
            acceptor: Acceptor::new(listeners.listeners).map_err(os("watch its listeners"))?,
            own: addresses[config.rank].clone(),
            credentials: config.credentials(),
            nonce: addresses[0].job_nonce(),
            replicas: config.replicas_of_ranks(),
            hubs,
            linger: config.linger,
            take_link: Box::new(move |id, stream| acceptor.accept(id, stream)),
        };
        let monitor = Monitor::new(setup).map_err(os("set up the monitor"))?;
        let thread = std::thread::Builder::new().name("ripieno-monitor".to_string());
        let monitor = thread.spawn(|| monitor.run()).map_err(os("start the monitor thread"))?;
        let monitor_handle = Arc::new(MonitorHandle { shared: shared.clone(), monitor: Some(monitor) });
        let first = first.unwrap_or_else(|| FirstWorld::of(&config, &addresses, &monitor_handle));
        if config.world_size == 1 {
            shared.update(|status| status.complete = true);
        }
        Ok(Endpoint {
            slots: (0..LinkId::PER_PEER * config.world_size).map(|_| LinkSlot::NotRequested).collect(),
            co_location: CoLocationDetector::of(config.rank),
            members: (0..config.world_size).collect(),
            config,
            addresses,
            topology: Arc::new(topology),
            shared,
            entered_cache: EnteredCache::default(),
            doorbell,
            opener,
            deliveries,
            monitor_handle: Some(monitor_handle),
            first: Some(first),
            notes: vec![],
            has_core_per_rank,
            closed_count: 0,
        })
    }

    fn wait_for_all(&self, exchange: &mut dyn Exchange, deadline: Instant) -> Result<(), NetError> {
        let started = Instant::now();
        loop {
            let status = self.shared.wait(LOSS_CHECK_INTERVAL, |status| status.complete || status.failure.is_some());
            if let Some(failure) = status.failure {
                return Err(failure.into());
            }
            if status.complete {
                return Ok(());
            }
            // The other ranks hold a connection to rank 0; its end notifies them.
            let loss = if self.config.rank == 0 { exchange.lost() } else { None };
            if let Some(loss) = loss {
                self.shared.request(MembershipRequest::Report(loss));
            }
            if Instant::now() > deadline + VERDICT_MARGIN {
                return Err(NetError::Missing {
                    rank: self.config.rank,
                    missing: vec![],
                    cause: "rank 0 did not confirm that all ranks have connected".to_string(),
                    elapsed_ms: started.elapsed().as_millis() as u64,
                });
            }
        }
    }

    /// Return the configuration of this rank.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Return the identifier of the job, equal on all of its ranks and unique per job.
    pub fn job(&self) -> &str {
        &self.addresses[0].nonce
    }

    /// Return the host name of a rank.
    pub fn host(&self, rank: usize) -> &str {
        &self.addresses[rank].host
    }

    /// Return the configured rack of a rank.
    pub fn rack(&self, rank: usize) -> Option<&str> {
        self.addresses[rank].rack.as_deref()
    }

    /// Return a handle that reports and reads failures from any thread.
    pub fn failure_handle(&self) -> FailureHandle {
        FailureHandle { shared: self.shared.clone() }
    }

    /// Leave the job normally. Rank 0 stays for up to [`Config::linger`] to watch ranks that still work.
    pub fn close(&mut self) {
        self.monitor_handle = None;
        self.first = None;
    }
}

impl Drop for MonitorHandle {
    fn drop(&mut self) {
        let Some(monitor) = self.monitor.take() else { return };
        self.shared.request(MembershipRequest::Leave);
        // The monitor bounds its own shutdown; a panic in it has become the job's failure.
        let _ = monitor.join();
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (rank, host) = (self.config.rank, self.host(self.config.rank).to_string());
            let cause = "its program panicked".to_string();
            self.shared.request(MembershipRequest::Report(JobFailure::RankFailed {
                rank,
                host,
                cause,
                traceback: String::new(),
            }));
        }
        self.close();
    }
}

impl FailureHandle {
    /// Report a failure to the job.
    pub fn report(&self, failure: JobFailure) {
        self.shared.request(MembershipRequest::Report(failure));
    }

    /// Return the failure of the job, if it has failed.
    pub fn failure(&self) -> Option<JobFailure> {
        self.shared.status().failure
    }

    /// Wait until the job fails, for at most `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<JobFailure> {
        self.shared.wait(timeout, |status| status.failure.is_some() || status.over).failure
    }
}

fn check_links(config: &Config, addresses: &[PeerAddress]) -> Result<(), NetError> {
    let own = &addresses[config.rank].identity;
    match addresses.iter().find(|address| address.identity != *own) {
        Some(other) if config.links == LinkPolicy::SharedMemory => Err(NetError::Config {
            name: "links",
            value: "shared-memory".to_string(),
            expected: format!("all ranks on one host, but rank {} is on host {}", other.rank, other.host),
        }),
        _ => Ok(()),
    }
}

/// Connect to the hubs (rank 0 and its replicas), or as a hub to the lower hubs. Rank 0 comes last: once all ranks are
/// connected to it, they are connected to the other hubs.
fn connect_to_hubs(
    config: &Config,
    connector: &Connector,
    addresses: &[PeerAddress],
    exchange: &mut dyn Exchange,
    deadline: Instant,
) -> Result<Vec<(usize, Stream)>, NetError> {
    let replicas = config.replicas_of_ranks();
    let is_called = |hub: &usize| *hub < config.rank || (replicas.logical(config.rank) != 0 && *hub != config.rank);
    let mut hubs: Vec<usize> = replicas.of(0).filter(is_called).collect();
    hubs.reverse();
    hubs.into_iter().map(|hub| Ok((hub, connect_to_hub(connector, &addresses[hub], exchange, deadline)?))).collect()
}

/// Connect to a hub. If that fails because a rank has died, the error names the rank.
fn connect_to_hub(
    connector: &Connector,
    hub: &PeerAddress,
    exchange: &mut dyn Exchange,
    deadline: Instant,
) -> Result<Stream, NetError> {
    match connector.connect(hub, ConnectionPurpose::Control, deadline) {
        Ok(reached) => Ok(reached.stream),
        Err(error) => Err(exchange.lost().map_or(error, NetError::Failed)),
    }
}
