//! Properties of TCP links beyond the contract of all links.

use ripieno_net::links::{Doorbell, TcpLink, WatchedDescriptor};
use ripieno_run::Link;
use rustix::net::sockopt;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(20);

#[test]
fn a_reset_connection_reports_the_system_error() {
    let (here, there) = connection();
    let mut link = TcpLink::new(here).unwrap();
    sockopt::set_socket_linger(&there, Some(Duration::ZERO)).unwrap();
    drop(there);

    let started = Instant::now();
    let cause = loop {
        match link.receive(&mut [0; 8]) {
            Ok(_) => assert!(started.elapsed() < Duration::from_secs(20), "a reset is seen"),
            Err(error) => break error.reason().to_string(),
        }
    };
    assert!(cause.contains("reset"), "{cause}");
    assert!(link.send(&[&[0; 8]]).is_err());
}

#[test]
fn messages_are_sent_at_once_and_buffers_keep_autotuning() {
    let (here, _there) = connection();
    let before = sockopt::socket_send_buffer_size(&here).unwrap();
    let same = here.try_clone().unwrap();
    let _link = TcpLink::new(here).unwrap();

    assert!(same.nodelay().unwrap());
    let limits = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap();
    let grows_to: usize = limits.split_whitespace().last().unwrap().parse().unwrap();
    let after = sockopt::socket_send_buffer_size(&same).unwrap();
    assert!(after >= 128 << 10 || grows_to >= 128 << 10);
    assert!(after == before || grows_to < 128 << 10, "a buffer that can grow is not fixed: {before} became {after}");
}

#[test]
fn an_empty_socket_is_skipped_until_it_is_reported_ready() {
    let (here, mut there) = connection();
    let mut link = TcpLink::new(here).unwrap();
    assert_eq!(link.receive(&mut [0; 8]), Ok(0));
    there.write_all(&[1; 8]).unwrap();
    assert_eq!(link.receive(&mut [0; 8]), Ok(0));

    link.note_ready(true, false);

    let mut into = [0; 8];
    assert_eq!(link.receive(&mut into), Ok(8));
    assert_eq!(into, [1; 8]);
}

#[test]
fn a_parked_rank_is_woken_for_all_expected_bytes_or_the_end() {
    let (here, mut there) = connection();
    let mut link = TcpLink::new(here).unwrap();
    let mut doorbell = Doorbell::new().unwrap();
    let mut woken = |link: &mut TcpLink, timeout| {
        link.prepare_sleep();
        doorbell.wait([WatchedDescriptor { fd: link.as_fd(), readable: true, writable: false }], timeout).unwrap()
    };
    link.expect(16 << 10);
    there.write_all(&[0; 8 << 10]).unwrap();
    assert!(!woken(&mut link, SHORT));
    there.write_all(&[0; 8 << 10]).unwrap();
    assert!(woken(&mut link, LONG));

    link.expect(24 << 10);
    assert!(!woken(&mut link, SHORT));
    drop(there);
    assert!(woken(&mut link, LONG));
}

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}
