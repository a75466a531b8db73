//! Provides the connector, which tries a peer's addresses in order and uses the first that authenticates as the
//! peer.

use crate::auth::{ConnectionPurpose, Denied, Greeting, JobNonce, Refusal, call};
use crate::config::{Config, Credentials, LinkPolicy};
use crate::error::{Address, Attempt, NetError};
use crate::peer_address::PeerAddress;
use crate::shortage::shortage;
use crate::stream::Stream;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Limit of the time to connect to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for authentication on an open connection, before the next address is tried.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(5);

/// TCP repeats a connection request that was lost after this time.
const REQUEST_REPEAT: Duration = Duration::from_secs(1);

/// Pause before another attempt, after a missing or unauthenticated answer.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// The data that a rank needs to connect to other ranks.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub own: PeerAddress,
    pub credentials: Credentials,
    pub nonce: JobNonce,
    pub links: LinkPolicy,
    /// How long a link that cannot be opened may be due to an outage that the job survives.
    pub outage_limit: Duration,
    /// How long the messages that open a link may be delayed by such an outage.
    pub delivery_limit: Duration,
}

/// Limits of the time of one attempt: to connect, and then to authenticate.
#[derive(Clone, Copy, Debug)]
struct AttemptLimits {
    connect: Duration,
    authenticate: Duration,
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub stream: Stream,
    /// Failed attempts before this connection, with their causes.
    pub failed: Vec<Attempt>,
}

impl Connector {
    pub fn new(config: &Config, own: PeerAddress, nonce: JobNonce) -> Connector {
        let outage_limit = config.timing().silence_limit() + REQUEST_REPEAT;
        let delivery_limit = config.timing().delivery_limit().max(outage_limit);
        Connector { own, credentials: config.credentials(), nonce, links: config.links, outage_limit, delivery_limit }
    }

    /// Connect to `peer` before `deadline`.
    ///
    /// If all addresses refuse, the error is immediate. An address that answers without authenticating is tried again:
    /// the rank may be late, or may have closed this connection during a flood of unauthenticated peers. For a link,
    /// an address that does not answer is tried again as long as this may be due to an outage.
    pub fn connect(
        &self,
        peer: &PeerAddress,
        purpose: ConnectionPurpose,
        deadline: Instant,
    ) -> Result<Connection, NetError> {
        let mut candidates = self.candidates(peer);
        if is_for_link(purpose) && self.links == LinkPolicy::SharedMemory {
            candidates.retain(|address| matches!(address, Address::Unix(_)));
        }
        self.connect_at(peer, purpose, &candidates, deadline)
    }

    /// Connect to `peer` before `deadline` over TCP only.
    pub fn connect_by_tcp(
        &self,
        peer: &PeerAddress,
        purpose: ConnectionPurpose,
        deadline: Instant,
    ) -> Result<Connection, NetError> {
        let mut candidates = self.candidates(peer);
        candidates.retain(|address| matches!(address, Address::Tcp(_)));
        self.connect_at(peer, purpose, &candidates, deadline)
    }

    fn connect_at(
        &self,
        peer: &PeerAddress,
        purpose: ConnectionPurpose,
        candidates: &[Address],
        deadline: Instant,
    ) -> Result<Connection, NetError> {
        let started = Instant::now();
        // The kernel of a host that is up completes connections, even if the process is late.
        let left_of_outage = || {
            let limit = if is_for_link(purpose) { self.outage_limit } else { Duration::ZERO };
            limit.checked_sub(started.elapsed()).filter(|left| !left.is_zero())
        };
        loop {
            let mut failed = Vec::new();
            let mut may_recover = false;
            for (at, address) in candidates.iter().enumerate() {
                let connect = left_of_outage().map_or(CONNECT_TIMEOUT, |left| left.min(CONNECT_TIMEOUT));
                // If the peer has accepted a link, and its answer is lost in an outage, another connection would be
                // refused. Any address but the last may belong to another host, which does not answer.
                let is_last = at + 1 == candidates.len();
                let delayed = if is_last && is_for_link(purpose) { self.delivery_limit } else { Duration::ZERO };
                let limits = AttemptLimits { connect, authenticate: AUTHENTICATION_TIMEOUT.max(delayed) };
                match self.try_one(peer, purpose, address, limits, deadline) {
                    Ok(stream) => return Ok(Connection { stream, failed }),
                    Err(failure) => {
                        if let Some(cause) = failure.shortage() {
                            return Err(NetError::Os { rank: self.own.rank, action: "open a socket", cause });
                        }
                        may_recover |= match &failure {
                            ConnectFailure::Denied(denied) => !denied.is_proven(),
                            ConnectFailure::Connect(_) => {
                                left_of_outage().is_some() && matches!(address, Address::Tcp(_)) && !failure.has_ended()
                            }
                        };
                        failed.push(Attempt { address: address.clone(), cause: failure.to_string() });
                    }
                }
            }
            if !may_recover || Instant::now() + RETRY_PAUSE >= deadline {
                return Err(NetError::Unreachable {
                    rank: self.own.rank,
                    peer: peer.rank,
                    host: peer.host.clone(),
                    tried: failed,
                    elapsed_ms: started.elapsed().as_millis() as u64,
                });
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    /// Connect to `peer` before `deadline`. Return [`UnreachedPeer::Ended`] if all of its addresses refuse at once.
    pub fn reach(
        &self,
        peer: &PeerAddress,
        purpose: ConnectionPurpose,
        deadline: Instant,
    ) -> Result<Stream, UnreachedPeer> {
        loop {
            let mut has_ended = true;
            let candidates = self.candidates(peer);
            for (at, address) in candidates.iter().enumerate() {
                // An address that does not answer leaves time for the others.
                let left = deadline.saturating_duration_since(Instant::now());
                let until = Instant::now() + left / (candidates.len() - at) as u32;
                let limits = AttemptLimits { connect: CONNECT_TIMEOUT, authenticate: AUTHENTICATION_TIMEOUT };
                match self.try_one(peer, purpose, address, limits, until) {
                    Ok(stream) => return Ok(stream),
                    Err(failure) => has_ended &= failure.has_ended(),
                }
            }
            if has_ended {
                return Err(UnreachedPeer::Ended);
            }
            // A process that is ending accepts connections until the last moment, but answers none.
            std::thread::sleep(RETRY_PAUSE);
            if Instant::now() >= deadline {
                return Err(UnreachedPeer::Silent);
            }
        }
    }

    fn candidates(&self, peer: &PeerAddress) -> Vec<Address> {
        let same_host = peer.identity == self.own.identity;
        let tcp = |ip: &std::net::IpAddr| Address::Tcp(SocketAddr::new(*ip, peer.port));
        let mut candidates = Vec::new();
        if same_host && self.links != LinkPolicy::Tcp {
            candidates.extend(peer.unix.clone().map(Address::Unix));
        }
        if same_host {
            candidates.extend(peer.loopback.iter().map(tcp));
        }
        // An address that this host has as well (a container bridge, for example) would lead back to this host.
        let is_elsewhere = |ip: &&std::net::IpAddr| same_host || !self.own.usable.contains(ip);
        candidates.extend(peer.usable.iter().filter(is_elsewhere).map(tcp));
        candidates
    }

    fn try_one(
        &self,
        peer: &PeerAddress,
        purpose: ConnectionPurpose,
        address: &Address,
        limits: AttemptLimits,
        deadline: Instant,
    ) -> Result<Stream, ConnectFailure> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let stream = match address {
            Address::Unix(name) => Stream::connect_unix(name),
            Address::Tcp(address) => Stream::connect_tcp(*address, limits.connect.min(left)),
        }?;
        let greeting = Greeting {
            purpose,
            from: self.own.rank as u32,
            to: peer.rank as u32,
            world_size: self.own.world_size as u32,
            nonce: self.nonce,
        };
        let deadline = deadline.min(Instant::now() + limits.authenticate);
        call(stream, &self.credentials, &greeting, deadline).map_err(ConnectFailure::Denied)
    }
}

fn is_for_link(purpose: ConnectionPurpose) -> bool {
    matches!(purpose, ConnectionPurpose::Data | ConnectionPurpose::Messages)
}

/// The reason why a rank was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreachedPeer {
    /// No process listens at its addresses any more.
    Ended,
    /// The peer does not answer.
    Silent,
}

#[derive(Debug, thiserror::Error)]
enum ConnectFailure {
    #[error(transparent)]
    Connect(#[from] std::io::Error),
    #[error("{0}")]
    Denied(Denied),
}

impl ConnectFailure {
    /// Return the resource that this process lacks to connect, if any.
    fn shortage(&self) -> Option<String> {
        match self {
            ConnectFailure::Connect(error) => shortage(error),
            ConnectFailure::Denied(_) => None,
        }
    }

    /// Return whether the peer has ended permanently.
    fn has_ended(&self) -> bool {
        match self {
            ConnectFailure::Connect(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
            ConnectFailure::Denied(denied) => denied.is_proven(),
        }
    }
}

/// Decide whether to accept a caller, before the check for another connection of the same rank.
pub(crate) fn authorize(own: &PeerAddress, nonce: JobNonce, greeting: &Greeting) -> Result<(), Refusal> {
    let (rank, world_size) = (own.rank as u32, own.world_size as u32);
    match greeting {
        greeting if greeting.nonce != nonce => Err(Refusal::Job),
        greeting if greeting.world_size != world_size => Err(Refusal::WorldSize(world_size)),
        greeting if greeting.to != rank || greeting.from >= world_size || greeting.from == rank => {
            Err(Refusal::Rank(rank))
        }
        greeting if matches!(greeting.purpose, ConnectionPurpose::Rendezvous | ConnectionPurpose::Member) => {
            Err(Refusal::Purpose)
        }
        _ => Ok(()),
    }
}
