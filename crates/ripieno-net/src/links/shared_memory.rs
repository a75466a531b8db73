//! Links between processes of one host, over memory that one process passes to the other through a Unix socket.
//!
//! No object has a name in a file system, so a process leaves nothing behind when it crashes, and the size of
//! `/dev/shm` does not matter. The socket is authenticated before use. It carries no data afterwards, but its end
//! signals the peer's death, which memory does not.

use super::descriptors::{receive_fds, send_fds};
use super::doorbell::Waker;
use super::ring::{RingLink, RingSide, Segment};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Step 1 of 2 of the initiator: create the memory of a link and offer it to the peer, with this process's waker.
pub fn offer(socket: &UnixStream, own: &Waker, capacity_bytes: usize) -> io::Result<Offer> {
    let pid = pid_of(socket)?;
    let (segment, memfd) = Segment::create(capacity_bytes)?;
    segment.publish_token(RingSide::First)?;
    let [eventfd, page] = own.fds();
    send_fds(socket, &[memfd.as_fd(), eventfd, page])?;
    Ok(Offer { segment, pid })
}

/// A link that the peer has not accepted yet.
pub struct Offer {
    segment: Segment,
    pid: Option<i32>,
}

impl Offer {
    /// Step 2 of 2 of the initiator: receive the peer's waker. `WouldBlock` on a non-blocking socket means try again.
    pub fn finish(&self, socket: &UnixStream) -> io::Result<Waker> {
        let [eventfd, page] = receive_fds(socket)?;
        Waker::from_fds(eventfd, page)
    }

    /// Return the initiator's end, after the peer's waker has arrived.
    pub fn into_link(self, peer: Waker) -> RingLink {
        RingLink::new(Arc::new(self.segment), RingSide::First, peer, self.pid)
    }
}

/// Return the initiator's end. `socket` is blocking, and its other end calls [`accept`].
pub fn connect(socket: &UnixStream, own: &Waker, capacity_bytes: usize) -> io::Result<RingLink> {
    let offer = offer(socket, own, capacity_bytes)?;
    let peer = offer.finish(socket)?;
    Ok(offer.into_link(peer))
}

/// Return the acceptor's end. `WouldBlock` on a non-blocking socket means that the offer has not arrived yet.
pub fn accept(socket: &UnixStream, own: &Waker) -> io::Result<RingLink> {
    let pid = pid_of(socket)?;
    let [memfd, eventfd, page]: [OwnedFd; 3] = receive_fds(socket)?;
    let segment = Segment::open(&memfd)?;
    segment.publish_token(RingSide::Second)?;
    let waker = Waker::from_fds(eventfd, page)?;
    let link = RingLink::new(Arc::new(segment), RingSide::Second, waker, pid);
    send_fds(socket, &own.fds())?;
    Ok(link)
}

/// Return the process ID of the other end in this process's PID namespace, or `None` if it is not visible there.
fn pid_of(socket: &UnixStream) -> io::Result<Option<i32>> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length_bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let (option, place) = (libc::SO_PEERCRED, (&raw mut peer).cast());
    // SAFETY: The socket is open, and the kernel writes at most `length_bytes` at `place`, which the struct covers.
    // rustix is not used here because its type excludes a pid of 0, which occurs across namespaces.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, place, &raw mut length_bytes) } {
        0 => Ok((peer.pid > 0).then_some(peer.pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::{Doorbell, Region};
    use ripieno_run::{Link, SendFlow};

    #[test]
    fn the_process_at_the_other_end_is_known() {
        let (here, _there) = UnixStream::pair().unwrap();
        assert_eq!(pid_of(&here).unwrap(), Some(std::process::id() as i32));
    }

    #[test]
    fn bytes_are_copied_to_a_peer_that_cannot_see_this_process() {
        let (segment, _) = Segment::create(1 << 16).unwrap();
        [RingSide::First, RingSide::Second].into_iter().for_each(|side| segment.publish_token(side).unwrap());
        let (segment, doorbell) = (Arc::new(segment), Doorbell::new().unwrap());
        let own = Some(std::process::id() as i32);
        let mut first = RingLink::new(segment.clone(), RingSide::First, doorbell.waker(), own);
        let mut second = RingLink::new(segment, RingSide::Second, doorbell.waker(), None);
        let region = Region::new(1000).unwrap().unwrap();

        for bytes in [&region[..], &[7; 1000]] {
            assert_eq!(
                [&mut first, &mut second].map(|end| end.can_send_zero_copy(bytes, SendFlow::Exchange)),
                [false, true]
            );
        }
        assert!(!second.can_send_zero_copy(&[7; 1000], SendFlow::Gradual));

        let mut into = [7; 1000];
        assert_eq!(first.send(&[&region[..1000]]), Ok(1000));
        assert_eq!((second.receive(&mut into), into), (Ok(1000), [0; 1000]));
    }
}
