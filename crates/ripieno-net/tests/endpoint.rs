//! Tests of endpoints in one process, with the calls that the executor makes.

use crate::common::{TIMEOUT, connect_threads, deliver, header, next_failure, send_and_receive, under_load};
use ripieno_net::endpoint::LinkKind;
use ripieno_net::exchange::ThreadExchange;
use ripieno_net::{Config, Encryption, Endpoint, LinkPolicy, Token};
use ripieno_plan::Collective;
use ripieno_run::{Blocking, Fabric, JobFailure};
use std::time::{Duration, Instant};

#[test]
fn every_pair_exchanges_bytes_over_every_kind_of_link() {
    let encrypted = (LinkPolicy::Tcp, true, LinkKind::Tls);
    let kinds = [(LinkPolicy::Auto, false, LinkKind::SharedMemory), (LinkPolicy::Tcp, false, LinkKind::Tcp), encrypted];
    // Ranks with encryption still share memory on the same host.
    for (links, tls, kind) in kinds.into_iter().chain([(LinkPolicy::Auto, true, LinkKind::SharedMemory)]) {
        for world_size in [1, 2, 3, 5] {
            let endpoints = connect_threads(world_size, |config| Config {
                links,
                tls: Encryption::from_setting(Some(tls)),
                ..config
            });
            std::thread::scope(|scope| {
                for mut endpoint in endpoints {
                    scope.spawn(move || {
                        send_and_receive(&mut endpoint);
                        let described = endpoint.describe();
                        assert!(described.peers.iter().all(|peer| peer.kind == kind), "{described:?}");
                    });
                }
            });
        }
    }
}

#[test]
fn ranks_with_different_tls_settings_do_not_connect_and_report_it() {
    let exchanges = ThreadExchange::group(2, TIMEOUT).into_iter().enumerate();
    let threads = exchanges.map(|(rank, mut exchange)| {
        let config = Config {
            tls: Encryption::from_setting((rank == 1).then_some(true)),
            ..Config::new(rank, 2, Token::from_secret("test"))
        };
        std::thread::spawn(move || Endpoint::connect(config, &mut exchange).map(drop))
    });
    for thread in threads.collect::<Vec<_>>() {
        let error = thread.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("rank 1 encrypts all its connections (tls=True)"), "{error}");
    }
}

#[test]
fn a_rank_bound_to_an_ipv6_address_is_reachable_there() {
    for host in ["::1", "127.0.0.1", "localhost"] {
        let endpoints =
            connect_threads(3, |config| Config { links: LinkPolicy::Tcp, host: Some(host.to_string()), ..config });
        std::thread::scope(|scope| {
            endpoints.into_iter().for_each(|mut endpoint| drop(scope.spawn(move || send_and_receive(&mut endpoint))));
        });
    }
}

#[test]
fn a_reported_failure_wakes_every_parked_rank() {
    let mut endpoints = connect_threads(3, |config| config);
    let failure = JobFailure::RankFailed {
        rank: 2,
        host: endpoints[0].host(2).to_string(),
        cause: "ValueError: no".to_string(),
        traceback: "Traceback: …".to_string(),
    };
    let reporter = endpoints.pop().unwrap();
    std::thread::scope(|scope| {
        for mut endpoint in endpoints {
            let failure = failure.clone();
            scope.spawn(move || assert_eq!(next_failure(&mut endpoint, Duration::from_secs(2)), Some(failure)));
        }
        reporter.failure_handle().report(failure.clone());
        // The rank may leave at once; its report remains the cause.
        drop(reporter);
    });
}

#[test]
fn a_mismatch_is_reported_to_all_and_names_all() {
    let mut endpoints = connect_threads(3, |config| config);
    for (endpoint, kind) in endpoints.iter_mut().zip([Collective::Barrier, Collective::Barrier, Collective::Allgather])
    {
        endpoint.enter(0, &header(7, kind).encode());
    }
    endpoints[0].stalled(header(7, Collective::Barrier), &[1, 2], Blocking::All);
    for endpoint in &mut endpoints {
        let Some(JobFailure::Mismatch { description }) = next_failure(endpoint, Duration::from_secs(2)) else {
            panic!()
        };
        assert!(description.starts_with("collective 7: ranks 0-1 called barrier; rank 2 called allgather"));
    }
}

#[test]
fn a_rank_that_left_while_others_need_it_is_named() {
    let mut endpoints = connect_threads(3, |config| config);
    for endpoint in &mut endpoints {
        endpoint.enter(0, &header(4, Collective::Barrier).encode());
    }
    endpoints.pop().unwrap().close();
    endpoints[1].stalled(header(5, Collective::Barrier), &[2], Blocking::All);
    for endpoint in &mut endpoints {
        let failure = next_failure(endpoint, Duration::from_secs(2)).unwrap().to_string();
        assert!(failure.contains("rank 2") && failure.contains("left the job before collective 5"), "{failure}");
    }
}

#[test]
fn leaving_in_any_order_is_fast_and_no_failure() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let endpoints = connect_threads(3, |config| config);
        let started = Instant::now();
        std::thread::scope(|scope| {
            let (turns, waits): (Vec<_>, Vec<_>) = (0..3).map(|_| std::sync::mpsc::channel::<()>()).unzip();
            let mut turns: Vec<_> = turns.into_iter().map(Some).collect();
            let mut waits: Vec<_> = waits.into_iter().map(Some).collect();
            for (rank, mut endpoint) in endpoints.into_iter().enumerate() {
                let position = order.iter().position(|&r| r == rank).unwrap();
                let wait = waits[position].take().unwrap();
                let next = turns.get_mut(position + 1).and_then(Option::take);
                scope.spawn(move || {
                    let _ = (position > 0).then(|| wait.recv());
                    next.map(|next| next.send(()));
                    assert_eq!(endpoint.failure(), None);
                    endpoint.close();
                    assert_eq!(endpoint.failure(), None);
                });
            }
        });
        assert!(started.elapsed() < under_load(Duration::from_secs(2)));
    }
}

#[test]
fn a_peer_that_ended_is_reported_within_the_bound() {
    let mut endpoints = connect_threads(2, |config| config);
    std::thread::scope(|scope| {
        let mut first = endpoints.remove(0);
        let mut second = endpoints.remove(0);
        let other = scope.spawn(move || {
            deliver(&mut second, 0, b"last words");
            second.close();
        });
        crate::common::collect(&mut first, 1, b"last words");
        other.join().unwrap();
        let started = Instant::now();
        let failure = first.peer_failure(1, "closed").to_string();
        assert!(failure.contains("rank 1") && failure.contains("left the job"), "{failure}");
        assert!(started.elapsed() < under_load(Duration::from_secs(2)));
    });
}
