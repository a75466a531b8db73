//! Links between processes of one host: memory passed as a descriptor over a Unix socket.
//!
//! Nothing has a name in a file system, so nothing is left behind, however a process ends, and the size of `/dev/shm`
//! does not matter. The socket is authenticated before; afterwards it is not used, but whoever keeps it is told of a peer's
//! death by its end: memory does not tell.

use super::descriptors::{receive_fds, send_fds};
use super::doorbell::Bell;
use super::ring::{RingLink, Segment, Side};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The initiator's step 1 of 2: makes the memory of a link and offers it, with its own bell, to the peer.
pub fn offer(socket: &UnixStream, own: &Bell, capacity_bytes: usize) -> io::Result<Offer> {
    let (segment, memfd) = Segment::create(capacity_bytes)?;
    segment.invite(Side::First)?;
    let [eventfd, page] = own.fds();
    send_fds(socket, &[memfd.as_fd(), eventfd, page])?;
    Ok(Offer { segment, pid: pid_of(socket)? })
}

/// A link that the peer has not accepted yet.
pub struct Offer {
    segment: Segment,
    pid: i32,
}

impl Offer {
    /// The initiator's step 2 of 2: takes the peer's bell. On a non-blocking socket `WouldBlock` means try again.
    pub fn finish(&self, socket: &UnixStream) -> io::Result<Bell> {
        let [eventfd, page] = receive_fds(socket)?;
        Bell::from_fds(eventfd, page)
    }

    /// The initiator's end, once the peer's bell is there.
    pub fn into_link(self, peer: Bell) -> RingLink {
        RingLink::new(Arc::new(self.segment), Side::First, peer, self.pid)
    }
}

/// The initiator's end, on a blocking socket whose other end calls [`accept`].
pub fn connect(socket: &UnixStream, own: &Bell, capacity_bytes: usize) -> io::Result<RingLink> {
    let offer = offer(socket, own, capacity_bytes)?;
    let peer = offer.finish(socket)?;
    Ok(offer.into_link(peer))
}

/// The acceptor's end. On a non-blocking socket `WouldBlock` means that the offer is not there yet.
pub fn accept(socket: &UnixStream, own: &Bell) -> io::Result<RingLink> {
    let [memfd, eventfd, page]: [OwnedFd; 3] = receive_fds(socket)?;
    let segment = Segment::open(&memfd)?;
    segment.invite(Side::Second)?;
    let bell = Bell::from_fds(eventfd, page)?;
    let link = RingLink::new(Arc::new(segment), Side::Second, bell, pid_of(socket)?);
    send_fds(socket, &own.fds())?;
    Ok(link)
}

/// The process at the other end, as this one knows it.
fn pid_of(socket: &UnixStream) -> io::Result<i32> {
    Ok(rustix::net::sockopt::socket_peercred(socket)?.pid.as_raw_nonzero().get())
}
