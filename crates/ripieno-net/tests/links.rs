//! Contract tests for all kinds of links.

use ripieno_net::links::{
    DEFAULT_CAPACITY_BYTES, Doorbell, Region, RingLink, TcpLink, WatchedDescriptor, shared_memory, thread,
};
use ripieno_run::conformance::zero_copy::ZeroCopyMemory;
use ripieno_run::conformance::{LinkEnd, LinkPair, Parker};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Rings of this size wrap after a few messages.
const SMALL_CAPACITY_BYTES: usize = 4096;

mod between_threads {
    ripieno_run::link_laws!(|| super::links_only(super::thread_ends(super::SMALL_CAPACITY_BYTES)), || {
        super::thread_ends(super::SMALL_CAPACITY_BYTES)
    });
}

mod between_threads_with_large_rings {
    ripieno_run::link_laws!(|| super::links_only(super::thread_ends(super::DEFAULT_CAPACITY_BYTES)), || {
        super::thread_ends(super::DEFAULT_CAPACITY_BYTES)
    });
}

mod over_shared_memory {
    ripieno_run::link_laws!(|| super::links_only(super::shared_memory_ends()), super::shared_memory_ends);
    ripieno_run::zero_copy_laws!(
        || super::links_only(super::shared_memory_ends()),
        super::shared_memory_ends,
        super::region
    );
}

mod over_shared_memory_with_kernel_copies {
    ripieno_run::zero_copy_laws!(
        || super::links_only(super::shared_memory_ends()),
        super::shared_memory_ends,
        super::private_memory
    );
}

mod zero_copy {
    use ripieno_run::{Link, LinkError};

    /// Bytes outside of regions are read whole, in parts, and with an element across two parts.
    #[test]
    fn private_memory_is_read_at_any_split() {
        let (first, second) = super::shared_memory_ends();
        let (mut sender, mut receiver) = (first.link, second.link);
        let sent: Vec<u8> = (0..200_000).map(|at| ((at * 7) >> 3) as u8).collect();
        assert_eq!(sender.send_zero_copy(&sent), Ok(true));
        sender.flush().unwrap();
        let mut received = Vec::new();
        let mut peeked = |link: &mut dyn Link, min_bytes: usize, kept: usize| {
            let there = link.peek(min_bytes).unwrap();
            assert!(there.len() >= min_bytes, "{} bytes", there.len());
            let count = there.len() - kept;
            received.extend_from_slice(&there[..count]);
            link.consume(count);
        };
        peeked(&mut *receiver, 1, 5);
        peeked(&mut *receiver, 64, 0);
        peeked(&mut *receiver, 8, 7);
        let mut rest = vec![0; 200_000 - received.len()];
        let (head, tail) = rest.split_at_mut(3);
        assert_eq!(receiver.receive(head), Ok(3));
        assert_eq!(receiver.receive(tail).unwrap(), tail.len());
        received.extend_from_slice(&rest);
        assert!(received == sent);
        receiver.flush().unwrap();
        assert_eq!(sender.unreleased_bytes(), Ok(0));
    }

    #[test]
    fn memory_that_the_peer_has_not_mapped_closes_the_link() {
        let (first, second) = super::shared_memory_ends();
        let (mut sender, mut receiver) = (first.link, second.link);
        // SAFETY: The slice is never read here; only its address is used.
        let unmapped = unsafe { std::slice::from_raw_parts(std::ptr::without_provenance(64), 1000) };
        assert_eq!(sender.send_zero_copy(unmapped), Ok(true));
        sender.flush().unwrap();
        let read = receiver.receive(&mut [0; 1000]);
        assert!(matches!(&read, Err(LinkError::Closed { cause }) if cause.contains("memory of the peer")), "{read:?}");
        assert!(receiver.peek(1).is_err());
    }

    #[test]
    fn a_region_is_read_in_place() {
        let (first, second) = super::shared_memory_ends();
        let (mut sender, mut receiver) = (first.link, second.link);
        let mut region = super::region(1 << 20);
        region.fill(7);

        assert_eq!(sender.send(&[&[1, 2, 3]]), Ok(3));
        assert_eq!(sender.send_zero_copy(&region[8..]), Ok(true));
        assert_eq!(sender.send(&[&[4]]), Ok(1));

        assert_eq!(receiver.peek(64), Ok(&[1, 2, 3][..]));
        receiver.consume(3);
        // The ring holds 4 KiB, so one slice with all zero-copy bytes must be the region itself.
        assert_eq!(receiver.peek(1).unwrap(), &region[8..]);
        region[8..].fill(9);
        assert!(receiver.peek(64).unwrap().iter().all(|&byte| byte == 9), "no byte was copied");
        receiver.consume((1 << 20) - 8);
        assert_eq!(sender.unreleased_bytes(), Ok(0));
        assert_eq!(receiver.peek(1), Ok(&[4][..]));
    }
}

mod over_shared_memory_with_barriers_for_fences {
    use super::shared_memory_ends_with_barriers as ends;
    use ripieno_run::conformance;

    #[test]
    fn a_parked_end_is_woken_for_bytes() {
        conformance::a_parked_end_is_woken_for_bytes(ends);
    }

    #[test]
    fn a_parked_end_is_woken_for_space() {
        conformance::a_parked_end_is_woken_for_space(ends);
    }

    #[test]
    fn a_parked_end_is_woken_by_a_close() {
        conformance::a_parked_end_is_woken_by_a_close(ends);
    }
}

mod over_tcp_on_ipv4 {
    ripieno_run::link_laws!(|| super::links_only(super::tcp_ends("127.0.0.1:0")), || super::tcp_ends("127.0.0.1:0"));
}

mod over_tcp_on_ipv6 {
    ripieno_run::link_laws!(|| super::links_only(super::tcp_ends("[::1]:0")), || super::tcp_ends("[::1]:0"));
}

fn thread_ends(capacity_bytes: usize) -> (LinkEnd, LinkEnd) {
    let (first, second) = (Doorbell::new().unwrap(), Doorbell::new().unwrap());
    let links = thread::pair(capacity_bytes, first.waker(), second.waker()).unwrap();
    (ring_end(links.0, first), ring_end(links.1, second))
}

fn shared_memory_ends() -> (LinkEnd, LinkEnd) {
    shared_memory_ends_at(Doorbell::new().unwrap(), Doorbell::new().unwrap())
}

fn shared_memory_ends_with_barriers() -> (LinkEnd, LinkEnd) {
    let (mut first, mut second) = (Doorbell::new().unwrap(), Doorbell::new().unwrap());
    first.issue_barriers();
    second.issue_barriers();
    shared_memory_ends_at(first, second)
}

fn shared_memory_ends_at(first: Doorbell, second: Doorbell) -> (LinkEnd, LinkEnd) {
    let (here, there) = UnixStream::pair().unwrap();
    let offer = shared_memory::offer(&here, &first.waker(), SMALL_CAPACITY_BYTES).unwrap();
    let accepted = shared_memory::accept(&there, &second.waker()).unwrap();
    let peer = offer.finish(&here).unwrap();
    (ring_end(offer.into_link(peer), first), ring_end(accepted, second))
}

fn region(length_bytes: usize) -> ZeroCopyMemory {
    Box::new(Region::new(length_bytes).unwrap().unwrap())
}

fn private_memory(length_bytes: usize) -> ZeroCopyMemory {
    Box::new(vec![0; length_bytes])
}

fn tcp_ends(address: &str) -> (LinkEnd, LinkEnd) {
    let listener = TcpListener::bind(address).unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (there, _) = listener.accept().unwrap();
    (tcp_end(here), tcp_end(there))
}

fn ring_end(link: RingLink, doorbell: Doorbell) -> LinkEnd {
    LinkEnd { link: Box::new(link), parker: Box::new(LinkDoorbell { doorbell, socket: None }) }
}

fn tcp_end(stream: TcpStream) -> LinkEnd {
    let socket = Some(stream.try_clone().unwrap());
    let parker = LinkDoorbell { doorbell: Doorbell::new().unwrap(), socket };
    LinkEnd { link: Box::new(TcpLink::new(stream).unwrap()), parker: Box::new(parker) }
}

fn links_only((first, second): (LinkEnd, LinkEnd)) -> LinkPair {
    (first.link, second.link)
}

struct LinkDoorbell {
    doorbell: Doorbell,
    socket: Option<TcpStream>,
}

impl Parker for LinkDoorbell {
    fn prepare(&mut self) {
        self.doorbell.prepare();
    }

    fn park(&mut self, readable: bool, writable: bool, timeout: Duration) {
        let watches = self.socket.iter().map(|socket| WatchedDescriptor { fd: socket.as_fd(), readable, writable });
        self.doorbell.wait(watches, timeout).unwrap();
    }

    fn cancel(&mut self) {
        self.doorbell.cancel();
    }
}
