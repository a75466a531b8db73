//! Tests of the rendezvous: rank processes connect through each kind of exchange, or get the reason why they cannot.

use crate::common::TIMEOUT;
use crate::common::process::{ChildOptions, RankProcess, expect_verdict, free_port};
use ripieno_net::exchange::TcpStore;
use ripieno_net::{Config, Endpoint, NetError, Ports, Token};
use rustix::process::Signal;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

fn tcp() -> String {
    format!("tcp 127.0.0.1 {}", free_port("127.0.0.1"))
}

fn entries(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

struct Directory(std::path::PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("ripieno-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn exchange(&self) -> String {
        format!("directory {}", self.0.display())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn ranks_connect_by_every_exchange_and_leave() {
    let directory = Directory::new("connect");
    for world_size in [1, 2, 3, 5] {
        let v6 = format!("tcp ::1 {}", free_port("::1"));
        for exchange in [tcp(), v6, directory.exchange(), "pipe".to_string()] {
            ChildOptions::new(world_size, &exchange).connect_all().into_iter().rev().for_each(RankProcess::close);
        }
    }
    assert_eq!(entries(&directory.0), [""; 0], "nothing is left behind");
}

#[test]
fn a_rank_killed_before_it_connects_is_named_to_all() {
    let directory = Directory::new("killed");
    for exchange in [tcp(), directory.exchange()] {
        let options = ChildOptions::new(3, &exchange);
        let mut ranks = vec![options.start(0), options.start(1)];
        let mut victim = ChildOptions { hangs_after_exchange: true, ..options }.start(2);
        victim.expect("exchanged", TIMEOUT);
        let since = Instant::now();
        victim.signal(Signal::KILL);
        expect_verdict(&mut ranks, 2, "its process ended", since, Duration::from_secs(2));
    }
}

#[test]
fn a_rank_killed_in_the_exchange_is_named_to_all() {
    let directory = Directory::new("waiting");
    let options = ChildOptions::new(4, &directory.exchange());
    let mut ranks = vec![options.start(0), options.start(1), options.start(2)];
    let has_joined = || {
        let folder = entries(&directory.0).pop().map(|folder| directory.0.join(folder));
        folder.is_some_and(|folder| (0..3).all(|rank| folder.join(format!("rank-{rank}")).exists()))
    };
    let deadline = Instant::now() + TIMEOUT;
    while !has_joined() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    let victim = ranks.pop().unwrap();
    let since = Instant::now();
    victim.signal(Signal::KILL);
    expect_verdict(&mut ranks, 2, "its process ended while the ranks connected", since, Duration::from_secs(2));
}

#[test]
fn a_job_killed_in_the_exchange_does_not_disturb_the_next_in_the_same_directory() {
    let directory = Directory::new("stale");
    let options = ChildOptions::new(2, &directory.exchange());
    let killed = options.start(0);
    let deadline = Instant::now() + TIMEOUT;
    while !entries(&directory.0).first().is_some_and(|folder| directory.0.join(folder).join("rank-0").exists()) {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    drop(killed);
    options.connect_all().into_iter().rev().for_each(RankProcess::close);
    assert_eq!(entries(&directory.0), [""; 0]);
}

#[test]
fn a_rank_with_another_token_is_reported_to_all() {
    let options = ChildOptions::new(2, "pipe");
    let mut ranks = vec![options.start(0), ChildOptions { token: "other".to_string(), ..options }.start(1)];
    crate::common::process::pass_addresses(&mut ranks);
    for rank in &mut ranks {
        let error = rank.expect("error", TIMEOUT);
        assert!(error.contains("tokens differ"), "{error}");
    }
}

#[test]
fn a_rank_with_another_token_cannot_join_a_store_but_is_reported() {
    let options = ChildOptions { rendezvous_ms: 1500, ..ChildOptions::new(2, &tcp()) };
    let mut correct_rank = options.start(0);
    let error = ChildOptions { token: "other".to_string(), ..options }.start(1).expect("error", TIMEOUT);
    assert!(error.contains("tokens differ"), "{error}");
    let error = correct_rank.expect("error", TIMEOUT);
    assert!(error.contains("rank 1") && error.contains("calls came with another token"), "{error}");
}

#[test]
fn a_wrong_world_size_and_a_duplicate_rank_are_reported_to_all() {
    let options = ChildOptions::new(3, &tcp());
    let other = ChildOptions { world_size: 4, ..options.clone() };
    for mut ranks in [vec![options.start(0), options.start(1), other.start(2)]] {
        for rank in &mut ranks {
            let error = rank.expect("error", TIMEOUT);
            assert!(error.contains("world sizes differ: "), "{error}");
        }
    }
    let options = ChildOptions::new(3, &tcp());
    for rank in &mut [options.start(0), options.start(1), options.start(1)] {
        let error = rank.expect("error", TIMEOUT);
        assert!(error.contains("rank 1"), "{error}");
    }
}

#[test]
fn a_rank_that_never_starts_is_named_when_time_is_over() {
    let directory = Directory::new("missing");
    for exchange in [tcp(), directory.exchange()] {
        let options = ChildOptions { rendezvous_ms: 500, ..ChildOptions::new(3, &exchange) };
        let mut ranks = [options.start(0), options.start(1)];
        let failures = ranks[0].expect("error", TIMEOUT);
        assert!(failures.contains("rank 2"), "{failures}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let mut config = Config::new(0, 1, Token::from_secret("test"));
    config.ports = Ports::single(port);
    config.host = Some("127.0.0.1".to_string());
    let error = Endpoint::connect(config.clone(), &mut |_: &str| panic!("no exchange without a port")).err().unwrap();
    assert!(matches!(&error, NetError::Bind { ports, .. } if *ports == port.to_string()), "{error}");

    config.world_size = 2;
    let mut store = TcpStore::new(&config, "127.0.0.1", port);
    config.ports = Ports::default();
    let error = Endpoint::connect(config, &mut store).err().unwrap();
    assert!(error.to_string().contains(&port.to_string()), "{error}");
}
