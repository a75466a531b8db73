//! What the tests share: worlds of endpoints, and ranks that wait as the executor does.
#![allow(dead_code)]

pub mod process;

use ripieno_net::exchange::ThreadExchange;
use ripieno_net::{Config, Endpoint, Token};
use ripieno_plan::Collective;
use ripieno_run::{Call, CallKind, Element, Fabric, Header, JobFailure, LinkId, Want};
use std::time::{Duration, Instant};

/// No wait of a test is longer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What takes this long on an idle machine, at the load that this machine has now.
pub fn under_load(time: Duration) -> Duration {
    let loads = std::fs::read_to_string("/proc/loadavg").unwrap();
    let fields: Vec<_> = loads.split([' ', '/']).collect();
    let running = fields[0].parse::<f64>().unwrap().max(fields[3].parse().unwrap());
    let cores = std::thread::available_parallelism().unwrap().get();
    time.mul_f64((running / cores as f64).max(1.0))
}

/// A world of endpoints whose ranks are threads that meet by sockets all the same.
pub fn meet_threads(world_size: usize, change: impl Fn(Config) -> Config) -> Vec<Endpoint> {
    let exchanges = ThreadExchange::group(world_size, PATIENCE);
    let threads = exchanges.into_iter().enumerate().map(|(rank, mut exchange)| {
        let mut config = Config::new(rank, world_size, Token::from_secret("test"));
        config.linger = Duration::from_secs(2);
        let config = change(config);
        std::thread::spawn(move || Endpoint::meet(config, &mut exchange))
    });
    threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
}

pub fn header(sequence: u64, collective: Collective) -> Header {
    let kind = CallKind::Catalogued { collective, algorithm: 0, op: None, root: 0, element_count: 9 };
    Header { communicator: 0, sequence, call: Call { kind, element: Element::U8, form: 0 } }
}

/// Parks, as the executor does, until `progress` says that it is done; panics when patience ends.
pub fn park_until(fabric: &mut dyn Fabric, want: Option<Want>, mut progress: impl FnMut(&mut dyn Fabric) -> bool) {
    let deadline = Instant::now() + under_load(PATIENCE);
    while !progress(fabric) {
        fabric.prepare_park();
        if progress(fabric) {
            fabric.cancel_park();
            return;
        }
        fabric.park(want.as_slice(), deadline.saturating_duration_since(Instant::now()));
        fabric.cancel_park();
        assert!(Instant::now() < deadline, "rank {} waited in vain", fabric.rank());
    }
}

/// The job's failure, if there is one within `patience`.
pub fn next_failure(fabric: &mut dyn Fabric, patience: Duration) -> Option<JobFailure> {
    let deadline = Instant::now() + under_load(patience);
    while !fabric.has_failed() && Instant::now() < deadline {
        fabric.prepare_park();
        if !fabric.has_failed() {
            fabric.park(&[], deadline.saturating_duration_since(Instant::now()));
        }
        fabric.cancel_park();
    }
    fabric.failure()
}

/// Sends all of `bytes` to `peer`.
pub fn deliver(fabric: &mut dyn Fabric, peer: usize, bytes: &[u8]) {
    let mut sent = 0;
    park_until(fabric, Some(Want { link: LinkId::collectives(peer), readable: false, writable: true }), |fabric| {
        if let Some(link) = fabric.link(LinkId::collectives(peer)).unwrap() {
            sent += link.send(&[&bytes[sent..]]).unwrap();
            link.flush().unwrap();
        }
        sent == bytes.len()
    });
}

/// Receives as many bytes from `peer` as `expected` has, which must be those.
pub fn collect(fabric: &mut dyn Fabric, peer: usize, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    let mut filled = 0;
    park_until(fabric, Some(Want { link: LinkId::collectives(peer), readable: true, writable: false }), |fabric| {
        if let Some(link) = fabric.link(LinkId::collectives(peer)).unwrap() {
            filled += link.receive(&mut got[filled..]).unwrap();
        }
        filled == expected.len()
    });
    assert_eq!(got, expected);
}

/// Every pair sends each other bytes that say who they are.
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
