//! Opens links: one rank of a pair connects and the other accepts, both on short-lived threads.
//!
//! The lower rank connects for collectives. For messages the sender connects, so it does not depend on the progress of
//! the receiver's program.

use super::{Endpoint, LinkSlot, LivenessSocket};
use crate::auth::ConnectionPurpose;
use crate::config::LinkPolicy;
use crate::connector::{Connection, Connector};
use crate::error::Address;
use crate::links::{RingLink, TcpLink, Waker, shared_memory};
use crate::peer_address::PeerAddress;
use crate::shortage::{no_thread, shortage};
use crate::stream::Stream;
use ripieno_run::membership::MembershipTiming;
use ripieno_run::{LinkError, LinkId, LinkPurpose};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Limit of the time to open a link, unless an outage may last longer.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// Limit of the time to set up shared memory on an authenticated connection.
const SETUP_TIMEOUT: Duration = Duration::from_secs(5);

/// An open link.
pub(super) struct Opened {
    pub link: LinkSlot,
    /// Failed attempts before this link, for the description.
    pub notes: Vec<String>,
}

/// The outcome of opening a link.
pub(super) struct OpenedLink {
    pub id: LinkId,
    pub outcome: Result<Opened, LinkError>,
}

/// The data that the threads that open links share.
#[derive(Clone)]
pub(super) struct Opener {
    connector: Arc<Connector>,
    waker: Waker,
    deliveries: Sender<OpenedLink>,
    timing: MembershipTiming,
    /// Capacity of each ring in shared memory.
    ring_bytes: usize,
}

impl Opener {
    pub fn new(
        connector: Arc<Connector>,
        waker: Waker,
        deliveries: Sender<OpenedLink>,
        timing: MembershipTiming,
        ring_bytes: usize,
    ) -> Opener {
        Opener { connector, waker, deliveries, timing, ring_bytes }
    }

    /// Connect to the rank with this address.
    pub fn connect(&self, id: LinkId, address: PeerAddress) {
        let purpose =
            if id.channel == LinkPurpose::Collectives { ConnectionPurpose::Data } else { ConnectionPurpose::Messages };
        self.open_on_thread(id, move |opener| opener.connected(&address, purpose));
    }

    /// Accept the authenticated connection of another rank.
    pub fn accept(&self, id: LinkId, stream: Stream) {
        self.open_on_thread(id, move |opener| opener.accepted(stream));
    }

    /// Open a link on a new thread, then wake the rank.
    fn open_on_thread(&self, id: LinkId, open: impl FnOnce(&Opener) -> Result<Opened, LinkError> + Send + 'static) {
        let opener = self.clone();
        let thread = std::thread::Builder::new().name("ripieno-open".to_string());
        let spawned = thread.spawn(move || opener.send(OpenedLink { id, outcome: open(&opener) }));
        if let Err(error) = spawned {
            self.send(OpenedLink { id, outcome: Err(no_thread(&error)) });
        }
    }

    fn send(&self, delivery: OpenedLink) {
        // A rank that has left accepts no links.
        let _ = self.deliveries.send(delivery);
        self.waker.wake();
    }

    fn connected(&self, address: &PeerAddress, purpose: ConnectionPurpose) -> Result<Opened, LinkError> {
        let deadline = Instant::now() + OPEN_TIMEOUT.max(self.connector.outage_limit);
        let reached = self.connector.connect(address, purpose, deadline)?;
        let mut notes = notes(&reached);
        let failed = match reached.stream {
            Stream::Unix(socket) => {
                let stream = Stream::Unix(socket);
                match self.share(&stream, |socket, waker| shared_memory::connect(socket, waker, self.ring_bytes)) {
                    Ok(ring) => return Ok(Opened { link: ring_slot(ring, stream), notes }),
                    Err(error) => sharing_error(&error),
                }
            }
            stream => return self.tcp(stream).map(|link| Opened { link, notes }),
        };
        if self.connector.links == LinkPolicy::SharedMemory {
            return Err(failed);
        }
        notes.push(failed.reason().to_string());
        let reached = self.connector.connect_by_tcp(address, purpose, deadline);
        let reached = reached.map_err(|error| match LinkError::from(error) {
            LinkError::Closed { cause } => LinkError::Closed { cause: format!("{}; {cause}", notes.join("; ")) },
            error => error,
        })?;
        self.tcp(reached.stream).map(|link| Opened { link, notes })
    }

    fn accepted(&self, stream: Stream) -> Result<Opened, LinkError> {
        let link = match stream {
            Stream::Tcp(_) | Stream::Tls(_) => self.tcp(stream)?,
            Stream::Unix(_) => {
                let ring = self.share(&stream, shared_memory::accept);
                ring_slot(ring.map_err(|error| sharing_error(&error))?, stream)
            }
        };
        Ok(Opened { link, notes: vec![] })
    }

    fn tcp(&self, stream: Stream) -> Result<LinkSlot, LinkError> {
        let link = TcpLink::over(stream)?;
        link.probe(self.timing).map_err(|error| LinkError::Closed { cause: error.to_string() })?;
        Ok(LinkSlot::Tcp(link))
    }

    fn share(
        &self,
        stream: &Stream,
        agree: impl FnOnce(&std::os::unix::net::UnixStream, &Waker) -> io::Result<RingLink>,
    ) -> io::Result<RingLink> {
        stream.set_nonblocking(false)?;
        stream.set_timeout(SETUP_TIMEOUT)?;
        match stream {
            Stream::Unix(socket) => agree(socket, &self.waker),
            Stream::Tcp(_) | Stream::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

fn ring_slot(ring: RingLink, socket: Stream) -> LinkSlot {
    LinkSlot::Ring(Box::new(ring), LivenessSocket { socket, has_ended: false })
}

fn sharing_error(error: &io::Error) -> LinkError {
    match shortage(error) {
        Some(missing) => LinkError::MissingResource { cause: format!("it cannot set up shared memory: {missing}") },
        None => LinkError::Closed { cause: format!("shared memory cannot be set up ({error})") },
    }
}

/// Describe the failed attempts to use a Unix socket, before a connection to a peer on this host.
fn notes(reached: &Connection) -> Vec<String> {
    let unix = reached.failed.iter().filter(|attempt| matches!(attempt.address, Address::Unix(_)));
    unix.map(|attempt| format!("{} could not be reached ({})", attempt.address, attempt.cause)).collect()
}

impl Endpoint {
    /// Start to open a link, or wait for the peer to open it.
    pub(super) fn open_link(&mut self, id: LinkId) {
        *self.slot(id) = LinkSlot::Opening;
        if self.connects(id) {
            self.opener.connect(id, self.addresses[id.peer].clone());
        }
    }

    /// Return whether this rank is the one that connects.
    pub(super) fn connects(&self, id: LinkId) -> bool {
        match id.channel {
            LinkPurpose::Collectives => self.config.rank < id.peer,
            LinkPurpose::Outbox => true,
            LinkPurpose::Inbox => false,
        }
    }

    /// Store the links that have opened since the last call.
    pub(super) fn store_opened(&mut self) {
        while let Ok(OpenedLink { id, outcome }) = self.deliveries.try_recv() {
            match outcome {
                // The peer has died.
                Ok(_) if matches!(self.slot(id), LinkSlot::Broken(_)) => {}
                Ok(opened) => {
                    *self.slot(id) = opened.link;
                    self.notes.extend(opened.notes.into_iter().map(|note| (id.peer, note)));
                }
                // After an acceptor's failure, the connecting rank tries the next kind of link, if another is allowed.
                Err(error) if !self.connects(id) && !is_lasting(&error, self.config.links) => {
                    self.notes.push((id.peer, error.reason().to_string()));
                }
                Err(error) => *self.slot(id) = LinkSlot::Broken(error),
            }
        }
    }
}

/// Return whether another attempt of the peer would fail as well.
fn is_lasting(error: &LinkError, links: LinkPolicy) -> bool {
    links == LinkPolicy::SharedMemory && matches!(error, LinkError::MissingResource { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Token};
    use crate::endpoint::LinkKind;
    use crate::exchange::ThreadExchange;
    use ripieno_run::Fabric;

    /// Create two endpoints. The first has a wrong path for the second one's Unix socket.
    fn with_broken_shared_memory(links: LinkPolicy) -> Vec<Endpoint> {
        let connect = |(rank, mut exchange): (usize, ThreadExchange)| {
            let linger = Duration::from_millis(100);
            let config = Config { links, linger, ..Config::new(rank, 2, Token::from_secret("test")) };
            std::thread::spawn(move || Endpoint::connect(config, &mut exchange))
        };
        let exchanges = ThreadExchange::group(2, Duration::from_secs(20)).into_iter().enumerate();
        let threads: Vec<_> = exchanges.map(connect).collect();
        let connected = threads.into_iter().map(|thread| thread.join().unwrap().unwrap());
        let mut endpoints: Vec<Endpoint> = connected.collect();
        Arc::make_mut(&mut endpoints[0].addresses)[1].unix = Some("ripieno-missing".to_string());
        endpoints
    }

    /// Request the link until it is open or broken.
    fn open_first(endpoint: &mut Endpoint) -> Result<(), LinkError> {
        loop {
            endpoint.prepare_park();
            if endpoint.link(LinkId::collectives(1))?.is_some() {
                return Ok(());
            }
            endpoint.park(&[], Duration::from_secs(20));
            endpoint.cancel_park();
        }
    }

    #[test]
    fn a_fallback_to_tcp_is_reported_and_forbidden_where_shared_memory_was_requested() {
        let mut endpoints = with_broken_shared_memory(LinkPolicy::Auto);
        open_first(&mut endpoints[0]).unwrap();
        let peer = endpoints[0].describe().peers.remove(0);
        assert_eq!(peer.kind, LinkKind::Tcp);
        assert!(peer.notes[0].contains("unix:@ripieno-missing"), "{peer:?}");
        let [(1, text)] = &endpoints[0].fallback_links()[..] else { panic!("one link, to rank 1") };
        assert!(text.starts_with("TCP, cause: ") && text.contains("unix:@ripieno-missing"), "{text}");

        let mut endpoints = with_broken_shared_memory(LinkPolicy::SharedMemory);
        let error = open_first(&mut endpoints[0]).unwrap_err().to_string();
        assert!(error.contains("unix:@ripieno-missing"), "{error}");
    }
}
