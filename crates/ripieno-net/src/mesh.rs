//! A mesh: TCP links among the members of a group, each opened on first use, without failure detection.
//!
//! A closed link stays closed, and the user of the mesh continues without that peer. If both ends open a link at the
//! same time, the link opened by the lower rank is used. A mesh listens on a port of its own, so it outlives the job's
//! links. Connections are authenticated with the token, as between ranks. Ranks whose links deliver nothing are probed
//! by new connections.

use crate::acceptor::Acceptor;
use crate::auth::{Answer, ConnectionPurpose, Greeting, JobNonce, Refusal};
use crate::config::Config;
use crate::connector::{Connector, authorize};
use crate::error::NetError;
use crate::links::{Doorbell, TcpLink, Waker, WatchedDescriptor};
use crate::listeners::Listeners;
use crate::liveness_probes::LivenessProbes;
use crate::peer_address::{PeerAddress, check_addresses};
use crate::shortage::{no_thread, with_advice};
use crate::stream::Stream;
use ripieno_run::membership::MembershipTiming;
use ripieno_run::swarm::{PeerLinks, UNSENT_BYTES_MAX};
use ripieno_run::{Link, LinkError, LinkInterest};
use socket2::SockRef;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Time that a rank waits for a link that a lower rank may be opening at the same time.
const SIMULTANEOUS_OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// A member that listens. The other members do not know its address yet.
pub struct MeshMember {
    config: Config,
    listeners: Listeners,
    own: PeerAddress,
}

/// The links of one member to the other members.
pub struct Mesh {
    config: Config,
    addresses: Vec<PeerAddress>,
    own: PeerAddress,
    nonce: JobNonce,
    connector: Arc<Connector>,
    acceptor: Acceptor,
    slots: BTreeMap<usize, MeshSlot>,
    new_peers: Vec<usize>,
    doorbell: Doorbell,
    opened: Receiver<(usize, Result<Stream, LinkError>)>,
    opener: Sender<(usize, Result<Stream, LinkError>)>,
    probes: LivenessProbes,
    probed: Receiver<(usize, bool)>,
    prober: Sender<(usize, bool)>,
    /// Peers that were reached by a probe, or have reached this rank by one, since the last report.
    reached: BTreeSet<usize>,
    /// Time of the next check for links that deliver nothing, and whether the last one has found any.
    next_check: Instant,
    is_probing: bool,
}

enum MeshSlot {
    /// The link is being opened until this time; `cause` is the last failure.
    Opening {
        until: Instant,
        cause: LinkError,
    },
    Open(TcpLink),
    Closed(LinkError),
}

impl MeshMember {
    /// Create a member that listens where `config` says.
    pub fn new(config: Config) -> Result<MeshMember, NetError> {
        config.check()?;
        let listeners = Listeners::open(&config)?;
        let own = PeerAddress::new(&config, &listeners)?;
        Ok(MeshMember { config, listeners, own })
    }

    /// Return this member's address, which all other members need.
    pub fn address(&self) -> String {
        self.own.encode()
    }

    /// Create the mesh of the members with these addresses, ordered by rank.
    pub fn connect(self, addresses: &[String]) -> Result<Mesh, NetError> {
        let MeshMember { config, listeners, own } = self;
        let addresses = PeerAddress::read_all(&config, addresses)?;
        check_addresses(&config, &addresses)?;
        let nonce = addresses[0].job_nonce();
        let os =
            |action| move |error: io::Error| NetError::Os { rank: config.rank, action, cause: with_advice(&error) };
        let doorbell = Doorbell::new().map_err(os("create a doorbell in shared memory"))?;
        let acceptor = Acceptor::new(listeners.listeners).map_err(os("watch its listeners"))?;
        let (opener, opened) = channel();
        let (prober, probed) = channel();
        Ok(Mesh {
            connector: Arc::new(Connector::new(&config, own.clone(), nonce)),
            config,
            addresses,
            own,
            nonce,
            acceptor,
            slots: BTreeMap::new(),
            new_peers: Vec::new(),
            doorbell,
            opened,
            opener,
            probes: LivenessProbes::default(),
            probed,
            prober,
            reached: BTreeSet::new(),
            next_check: Instant::now(),
            is_probing: false,
        })
    }
}

impl Mesh {
    /// Return the time for which a member may be silent.
    pub fn timing(&self) -> MembershipTiming {
        self.config.timing()
    }

    /// Return the waker that wakes this mesh from a sleep.
    pub fn waker(&self) -> Waker {
        self.doorbell.waker()
    }

    /// Announce a sleep. The owner must check for work once more before it sleeps.
    pub fn prepare_sleep(&mut self) {
        self.doorbell.prepare();
    }

    /// Cancel an announced sleep.
    pub fn cancel_sleep(&mut self) {
        self.doorbell.cancel();
    }

    /// Sleep until one of `interests` is ready, a connection arrives, [`Self::waker`] wakes it, or `timeout` expires.
    pub fn sleep(&mut self, interests: &[LinkInterest], timeout: Duration) {
        for interest in interests.iter().filter(|interest| interest.readable) {
            if let Some(MeshSlot::Open(link)) = self.slots.get_mut(&interest.link.peer) {
                link.prepare_sleep();
            }
        }
        let acceptor = WatchedDescriptor { fd: self.acceptor.as_fd(), readable: true, writable: false };
        let links = interests.iter().filter_map(|interest| match self.slots.get(&interest.link.peer)? {
            MeshSlot::Open(link) => {
                Some(WatchedDescriptor { fd: link.as_fd(), readable: interest.readable, writable: interest.writable })
            }
            _ => None,
        });
        let due = self.acceptor.due().into_iter().chain(self.is_probing.then_some(self.next_check)).min();
        let timeout = due.map_or(timeout, |due| timeout.min(due.saturating_duration_since(Instant::now())));
        // A failed sleep ends immediately; the caller checks again.
        if let Ok(true) = self.doorbell.wait(std::iter::once(acceptor).chain(links), timeout) {
            self.note_ready(interests);
        }
    }

    /// Mark the links that became ready during the sleep.
    fn note_ready(&mut self, interests: &[LinkInterest]) {
        // The first descriptor is the acceptor.
        let mut index = 1;
        for interest in interests {
            let Some(MeshSlot::Open(link)) = self.slots.get_mut(&interest.link.peer) else { continue };
            link.note_ready(self.doorbell.was_readable(index), self.doorbell.was_writable(index));
            index += 1;
        }
    }

    fn accept(&mut self) {
        let credentials = self.config.credentials();
        loop {
            let (own, nonce, slots) = (&self.own, self.nonce, &self.slots);
            let answer = self.acceptor.next_answer(&credentials, &mut |greeting| {
                authorize(own, nonce, greeting)?;
                expects(own.rank, slots.get(&(greeting.from as usize)), greeting)
            });
            match answer {
                Some(Answer::Accepted(_, greeting)) if greeting.purpose == ConnectionPurpose::Probe => {
                    self.reached.insert(greeting.from as usize);
                }
                Some(Answer::Accepted(stream, greeting)) => {
                    let peer = greeting.from as usize;
                    self.new_peers.push(peer);
                    self.open(peer, Ok(stream));
                }
                // An unauthenticated peer changes nothing.
                Some(_) => {}
                None => return,
            }
        }
    }

    /// Store the outcome of opening a link.
    fn open(&mut self, peer: usize, outcome: Result<Stream, LinkError>) {
        let link = outcome.and_then(|stream| {
            // If the kernel does not support the option, messages wait longer in the socket buffer.
            let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX as u32);
            TcpLink::over(stream)
        });
        self.slots.insert(peer, link.map_or_else(MeshSlot::Closed, MeshSlot::Open));
    }

    fn store_opened(&mut self) {
        while let Ok((peer, outcome)) = self.opened.try_recv() {
            match (self.slots.get_mut(&peer), outcome) {
                (Some(MeshSlot::Opening { until, cause }), Err(error @ LinkError::Closed { .. }))
                    if peer < self.own.rank =>
                {
                    // The peer may have refused this connection because it is opening one itself.
                    (*until, *cause) = (Instant::now() + SIMULTANEOUS_OPEN_TIMEOUT, error);
                }
                (Some(MeshSlot::Opening { .. }), outcome) => self.open(peer, outcome),
                // The peer connected first, or the link is lost.
                _ => {}
            }
        }
        let late = self.slots.iter().filter_map(|(&peer, slot)| match slot {
            MeshSlot::Opening { until, cause } if *until <= Instant::now() => Some((peer, cause.clone())),
            _ => None,
        });
        late.collect::<Vec<_>>().into_iter().for_each(|(peer, cause)| self.open(peer, Err(cause)));
    }

    /// Probe the peers that do not acknowledge sent data. After an outage they answer before data arrives again.
    fn check_links(&mut self) {
        let (now, timing) = (Instant::now(), self.config.timing());
        if now < self.next_check {
            return;
        }
        (self.next_check, self.is_probing) = (now + timing.check_interval(), false);
        for (&peer, slot) in &mut self.slots {
            let MeshSlot::Open(link) = slot else { continue };
            // A connection that delivers nothing for longer is broken, although the peer lives.
            if !(timing.probe_delay()..timing.delivery_limit()).contains(&link.unanswered()) {
                continue;
            }
            self.is_probing = true;
            let (prober, waker) = (self.prober.clone(), self.doorbell.waker());
            let report = move |is_reached| {
                // The mesh may be gone already.
                let _ = prober.send((peer, is_reached));
                waker.wake();
            };
            self.probes.begin(&self.connector, &self.addresses[peer], timing.probe_delay(), report);
        }
    }

    fn connect(&mut self, peer: usize) {
        let deadline = Instant::now() + self.connector.delivery_limit;
        let cause = LinkError::Closed { cause: "it could not be opened in time".to_string() };
        // Longer than the connecting thread's deadline, because the thread reports a more precise cause.
        self.slots.insert(peer, MeshSlot::Opening { until: deadline + SIMULTANEOUS_OPEN_TIMEOUT, cause });
        let (connector, address) = (self.connector.clone(), self.addresses[peer].clone());
        let (opener, waker) = (self.opener.clone(), self.doorbell.waker());
        let connect = move || {
            let reached = connector.connect_by_tcp(&address, ConnectionPurpose::Data, deadline);
            // The mesh may be gone already.
            let _ = opener.send((address.rank, reached.map(|it| it.stream).map_err(LinkError::from)));
            waker.wake();
        };
        if let Err(error) = std::thread::Builder::new().name("ripieno-open".to_string()).spawn(connect) {
            self.open(peer, Err(no_thread(&error)));
        }
    }
}

/// Return whether to accept a link from a peer: none is open or closed, and this rank opens no link that has priority.
fn expects(own: usize, slot: Option<&MeshSlot>, greeting: &Greeting) -> Result<(), Refusal> {
    match slot {
        _ if greeting.purpose == ConnectionPurpose::Probe => Ok(()),
        _ if greeting.purpose != ConnectionPurpose::Data => Err(Refusal::Purpose),
        None => Ok(()),
        Some(MeshSlot::Opening { .. }) if (greeting.from as usize) < own => Ok(()),
        Some(_) => Err(Refusal::Taken),
    }
}

impl PeerLinks for Mesh {
    fn link(&mut self, peer: usize) -> Result<Option<&mut dyn Link>, LinkError> {
        if !matches!(self.slots.get(&peer), Some(MeshSlot::Open(_))) {
            self.store_opened();
        }
        if !self.slots.contains_key(&peer) {
            self.connect(peer);
        }
        match self.slots.get_mut(&peer) {
            Some(MeshSlot::Open(link)) => Ok(Some(link)),
            Some(MeshSlot::Closed(error)) => Err(error.clone()),
            _ => Ok(None),
        }
    }

    fn new_peers(&mut self) -> Vec<usize> {
        self.store_opened();
        self.accept();
        std::mem::take(&mut self.new_peers)
    }

    fn reached_peers(&mut self) -> Vec<usize> {
        self.check_links();
        while let Ok((peer, is_reached)) = self.probed.try_recv() {
            self.probes.end(peer);
            self.reached.extend(is_reached.then_some(peer));
        }
        std::mem::take(&mut self.reached).into_iter().collect()
    }

    fn close(&mut self, peer: usize, cause: &str) {
        self.slots.insert(peer, MeshSlot::Closed(LinkError::Closed { cause: cause.to_string() }));
    }
}
