//! Contract tests for all kinds of links.

use ripieno_net::links::{
    DEFAULT_CAPACITY_BYTES, Doorbell, Region, RingLink, TcpLink, WatchedDescriptor, shared_memory, thread,
};
use ripieno_run::conformance::lending::LendingLink;
use ripieno_run::conformance::{LinkEnd, LinkPair, Sleeper};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Rings of this size wrap after a few messages.
const SMALL_CAPACITY_BYTES: usize = 4096;

mod between_threads {
    ripieno_run::link_laws!(|| super::unwoken(super::thread_ends(super::SMALL_CAPACITY_BYTES)), || super::thread_ends(
        super::SMALL_CAPACITY_BYTES
    ));
}

mod between_threads_with_large_rings {
    ripieno_run::link_laws!(|| super::unwoken(super::thread_ends(super::DEFAULT_CAPACITY_BYTES)), || {
        super::thread_ends(super::DEFAULT_CAPACITY_BYTES)
    });
}

mod over_shared_memory {
    ripieno_run::link_laws!(|| super::unwoken(super::shared_memory_ends()), super::shared_memory_ends);
    ripieno_run::lending_laws!(
        || super::unwoken(super::shared_memory_ends()),
        super::shared_memory_ends,
        super::region
    );
}

mod lending_a_region {
    #[test]
    fn is_read_where_it_is() {
        let (first, second) = super::shared_memory_ends();
        let (mut lender, mut borrower) = (first.link, second.link);
        let mut region = super::region(1 << 20);
        region.fill(7);

        assert_eq!(lender.send(&[&[1, 2, 3]]), Ok(3));
        assert_eq!(lender.lend(&region[8..]), Ok(true));
        assert_eq!(lender.send(&[&[4]]), Ok(1));

        assert_eq!(borrower.peek(64), Ok(&[1, 2, 3][..]));
        borrower.consume(3);
        // The ring holds 4 KiB, so one slice with all lent bytes must be the region itself.
        assert_eq!(borrower.peek(1).unwrap(), &region[8..]);
        region[8..].fill(9);
        assert!(borrower.peek(64).unwrap().iter().all(|&byte| byte == 9), "no byte was copied");
        borrower.consume((1 << 20) - 8);
        assert_eq!(lender.lent_bytes(), Ok(0));
        assert_eq!(borrower.peek(1), Ok(&[4][..]));
    }
}

mod over_shared_memory_with_barriers_for_fences {
    use super::shared_memory_ends_with_barriers as ends;
    use ripieno_run::conformance;

    #[test]
    fn an_end_that_sleeps_is_woken_for_bytes() {
        conformance::an_end_that_sleeps_is_woken_for_bytes(ends);
    }

    #[test]
    fn an_end_that_sleeps_is_woken_for_room() {
        conformance::an_end_that_sleeps_is_woken_for_room(ends);
    }

    #[test]
    fn an_end_that_sleeps_is_woken_by_a_close() {
        conformance::an_end_that_sleeps_is_woken_by_a_close(ends);
    }
}

mod over_tcp_on_ipv4 {
    ripieno_run::link_laws!(|| super::unwoken(super::tcp_ends("127.0.0.1:0")), || super::tcp_ends("127.0.0.1:0"));
}

mod over_tcp_on_ipv6 {
    ripieno_run::link_laws!(|| super::unwoken(super::tcp_ends("[::1]:0")), || super::tcp_ends("[::1]:0"));
}

fn thread_ends(capacity_bytes: usize) -> (LinkEnd, LinkEnd) {
    let (first, second) = (Doorbell::new().unwrap(), Doorbell::new().unwrap());
    let links = thread::pair(capacity_bytes, first.bell(), second.bell()).unwrap();
    (ring_end(links.0, first), ring_end(links.1, second))
}

fn shared_memory_ends() -> (LinkEnd, LinkEnd) {
    shared_memory_ends_at(Doorbell::new().unwrap(), Doorbell::new().unwrap())
}

fn shared_memory_ends_with_barriers() -> (LinkEnd, LinkEnd) {
    let (mut first, mut second) = (Doorbell::new().unwrap(), Doorbell::new().unwrap());
    first.make_barriers();
    second.make_barriers();
    shared_memory_ends_at(first, second)
}

fn shared_memory_ends_at(first: Doorbell, second: Doorbell) -> (LinkEnd, LinkEnd) {
    let (here, there) = UnixStream::pair().unwrap();
    let offer = shared_memory::offer(&here, &first.bell(), SMALL_CAPACITY_BYTES).unwrap();
    let accepted = shared_memory::accept(&there, &second.bell()).unwrap();
    let peer = offer.finish(&here).unwrap();
    (ring_end(offer.into_link(peer), first), ring_end(accepted, second))
}

fn region(length_bytes: usize) -> LendingLink {
    Box::new(Region::new(length_bytes).unwrap().unwrap())
}

fn tcp_ends(address: &str) -> (LinkEnd, LinkEnd) {
    let listener = TcpListener::bind(address).unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (there, _) = listener.accept().unwrap();
    (tcp_end(here), tcp_end(there))
}

fn ring_end(link: RingLink, doorbell: Doorbell) -> LinkEnd {
    LinkEnd { link: Box::new(link), sleeper: Box::new(LinkDoorbell { doorbell, socket: None }) }
}

fn tcp_end(stream: TcpStream) -> LinkEnd {
    let socket = Some(stream.try_clone().unwrap());
    let sleeper = LinkDoorbell { doorbell: Doorbell::new().unwrap(), socket };
    LinkEnd { link: Box::new(TcpLink::new(stream).unwrap()), sleeper: Box::new(sleeper) }
}

fn unwoken((first, second): (LinkEnd, LinkEnd)) -> LinkPair {
    (first.link, second.link)
}

struct LinkDoorbell {
    doorbell: Doorbell,
    socket: Option<TcpStream>,
}

impl Sleeper for LinkDoorbell {
    fn prepare(&mut self) {
        self.doorbell.prepare();
    }

    fn sleep(&mut self, readable: bool, writable: bool, timeout: Duration) {
        let watches = self.socket.iter().map(|socket| WatchedDescriptor { fd: socket.as_fd(), readable, writable });
        self.doorbell.wait(watches, timeout).unwrap();
    }

    fn cancel(&mut self) {
        self.doorbell.cancel();
    }
}
