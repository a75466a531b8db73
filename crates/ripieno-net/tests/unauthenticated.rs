//! Unauthenticated peers at the listeners do not affect the ranks of a job.

use crate::common::{connect_threads, deliver, next_failure, send_and_receive, under_load};
use ripieno_net::{Config, Encryption, LinkPolicy};
use ripieno_run::Fabric;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// More connections than the number of concurrent handshakes.
const CONNECTION_COUNT: usize = 300;

#[test]
fn many_unauthenticated_peers_do_not_keep_ranks_from_opening_links() {
    let mut endpoints = connect_threads(2, |config| Config { links: LinkPolicy::Tcp, ..config });
    let port = endpoints[1].describe().port;
    let connect_and_send = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let silent: Vec<TcpStream> = (0..CONNECTION_COUNT).map(|_| connect_and_send(b"")).collect();
    let slow: Vec<TcpStream> = (0..20).map(|_| connect_and_send(b"RIPIENO\x02\x02")).collect();
    let mut wrong_protocol: Vec<TcpStream> =
        (0..20).map(|_| connect_and_send(b"GET / HTTP/1.1\r\n\r\n".repeat(40).as_slice())).collect();

    let started = Instant::now();
    std::thread::scope(|scope| {
        for endpoint in &mut endpoints {
            scope.spawn(move || send_and_receive(endpoint));
        }
    });
    assert!(started.elapsed() < under_load(Duration::from_secs(4)), "took {:?}", started.elapsed());
    assert!(endpoints.iter().all(|endpoint| endpoint.failure().is_none()));

    // A connection with a different protocol is closed at once.
    for stream in &mut wrong_protocol {
        stream.set_read_timeout(Some(under_load(Duration::from_secs(4)))).unwrap();
        assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)));
    }
    drop((silent, slow));
}

#[test]
fn a_flood_of_unauthenticated_peers_does_not_keep_ranks_from_opening_links() {
    [false, true].into_iter().for_each(open_links_under_flood);
}

fn open_links_under_flood(tls: bool) {
    let mut endpoints = connect_threads(2, |config| Config {
        links: LinkPolicy::Tcp,
        tls: Encryption::from_setting(Some(tls)),
        ..config
    });
    let port = endpoints[1].describe().port;
    let is_over = AtomicBool::new(false);
    let flood = || {
        let mut connections = VecDeque::new();
        while !is_over.load(Ordering::Relaxed) {
            connections.extend(TcpStream::connect(("127.0.0.1", port)));
            if connections.len() > CONNECTION_COUNT {
                connections.pop_front();
            }
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(flood)));
        let ranks: Vec<_> = endpoints.iter_mut().map(|each| scope.spawn(move || send_and_receive(each))).collect();
        let results: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
    assert!(endpoints.iter().all(|endpoint| endpoint.failure().is_none()));
}

#[test]
fn a_silent_unauthenticated_peer_is_closed_in_time() {
    let endpoints = connect_threads(1, |config| config);
    let mut stream = TcpStream::connect(("127.0.0.1", endpoints[0].describe().port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let started = Instant::now();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    assert!(started.elapsed() < under_load(Duration::from_secs(7)));
}

#[test]
fn a_rank_of_another_job_is_unauthenticated() {
    let mut ours = connect_threads(2, |config| config);
    let mut theirs = connect_threads(2, |config| config);
    // Two jobs with the same token and ranks but different nonces do not exchange data.
    deliver(&mut ours[0], 1, b"ours");
    deliver(&mut theirs[0], 1, b"theirs");
    crate::common::collect(&mut ours[1], 0, b"ours");
    crate::common::collect(&mut theirs[1], 0, b"theirs");
    theirs.clear();
    assert_eq!(next_failure(&mut ours[0], Duration::from_millis(50)), None);
}
