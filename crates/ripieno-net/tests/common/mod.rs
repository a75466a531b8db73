//! Shared helpers of the tests: worlds of endpoints, and ranks that wait like the executor.
#![allow(dead_code)]

pub mod process;

use ripieno_net::exchange::ThreadExchange;
use ripieno_net::{Config, Endpoint, Token};
use ripieno_plan::Collective;
use ripieno_run::{Call, CallKind, Element, Fabric, Header, JobFailure, LinkId, LinkInterest};
use std::time::{Duration, Instant};

/// Upper bound of each wait of a test.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Scale a duration for an idle machine by the present load.
pub fn under_load(time: Duration) -> Duration {
    let loads = std::fs::read_to_string("/proc/loadavg").unwrap();
    let fields: Vec<_> = loads.split([' ', '/']).collect();
    let running = fields[0].parse::<f64>().unwrap().max(fields[3].parse().unwrap());
    let cores = std::thread::available_parallelism().unwrap().get();
    time.mul_f64((running / cores as f64).max(1.0))
}

/// Return a world of endpoints in threads. They connect over sockets.
pub fn connect_threads(world_size: usize, change: impl Fn(Config) -> Config) -> Vec<Endpoint> {
    let exchanges = ThreadExchange::group(world_size, TIMEOUT);
    let threads = exchanges.into_iter().enumerate().map(|(rank, mut exchange)| {
        let mut config = Config::new(rank, world_size, Token::from_secret("test"));
        config.linger = Duration::from_secs(2);
        let config = change(config);
        std::thread::spawn(move || Endpoint::connect(config, &mut exchange))
    });
    threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
}

pub fn header(sequence: u64, collective: Collective) -> Header {
    let kind = CallKind::Catalogued { collective, algorithm: 0, op: None, root: 0, element_count: 9 };
    Header { communicator: 0, sequence, call: Call { kind, element: Element::U8, signature: 0 } }
}

/// Park like the executor until `progress` returns true; panic after [`TIMEOUT`].
pub fn park_until(
    fabric: &mut dyn Fabric,
    interest: Option<LinkInterest>,
    mut progress: impl FnMut(&mut dyn Fabric) -> bool,
) {
    let deadline = Instant::now() + under_load(TIMEOUT);
    while !progress(fabric) {
        fabric.prepare_park();
        if progress(fabric) {
            fabric.cancel_park();
            return;
        }
        fabric.park(interest.as_slice(), deadline.saturating_duration_since(Instant::now()));
        fabric.cancel_park();
        assert!(Instant::now() < deadline, "rank {} made no progress", fabric.rank());
    }
}

/// Return the job's failure, if it occurs within `timeout`.
pub fn next_failure(fabric: &mut dyn Fabric, timeout: Duration) -> Option<JobFailure> {
    let deadline = Instant::now() + under_load(timeout);
    while !fabric.has_failed() && Instant::now() < deadline {
        fabric.prepare_park();
        if !fabric.has_failed() {
            fabric.park(&[], deadline.saturating_duration_since(Instant::now()));
        }
        fabric.cancel_park();
    }
    fabric.failure()
}

/// Send all of `bytes` to `peer`.
pub fn deliver(fabric: &mut dyn Fabric, peer: usize, bytes: &[u8]) {
    let mut sent = 0;
    park_until(
        fabric,
        Some(LinkInterest { link: LinkId::collectives(peer), readable: false, writable: true }),
        |fabric| {
            if let Some(link) = fabric.link(LinkId::collectives(peer)).unwrap() {
                sent += link.send(&[&bytes[sent..]]).unwrap();
                link.flush().unwrap();
            }
            sent == bytes.len()
        },
    );
}

/// Receive `expected.len()` bytes from `peer` and compare them with `expected`.
pub fn collect(fabric: &mut dyn Fabric, peer: usize, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    let mut filled = 0;
    park_until(
        fabric,
        Some(LinkInterest { link: LinkId::collectives(peer), readable: true, writable: false }),
        |fabric| {
            if let Some(link) = fabric.link(LinkId::collectives(peer)).unwrap() {
                filled += link.receive(&mut got[filled..]).unwrap();
            }
            filled == expected.len()
        },
    );
    assert_eq!(got, expected);
}

/// Exchange messages that name sender and receiver with all other ranks.
pub fn send_and_receive(fabric: &mut dyn Fabric) {
    let (rank, world_size) = (fabric.rank(), fabric.world_size());
    let text = |from: usize, to: usize| format!("from {from} to {to}, {}", "x".repeat(1000)).into_bytes();
    for peer in (0..world_size).filter(|&peer| peer != rank) {
        deliver(fabric, peer, &text(rank, peer));
    }
    for peer in (0..world_size).filter(|&peer| peer != rank) {
        collect(fabric, peer, &text(peer, rank));
    }
}
