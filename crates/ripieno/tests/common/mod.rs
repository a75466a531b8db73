//! Worlds whose ranks are threads, and conversions of values, for the tests of this directory.
#![allow(dead_code)] // Not every test uses every item.

pub mod keyed;
pub mod regroups;
pub mod sets;

use ripieno::net::exchange::ThreadExchange;
use ripieno::net::{Config, Endpoint, LinkPolicy, ThreadFabric, Token};
use ripieno::{Communicator, Error, JobFailure};
use std::time::Duration;

/// Run `program` on each rank of a world. Return the results by rank.
pub fn world<R: Send>(p: usize, program: impl Fn(&mut Communicator) -> R + Sync) -> Vec<R> {
    let fabrics = ThreadFabric::group(p).unwrap();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = fabrics
            .into_iter()
            .map(|fabric| scope.spawn(|| program(&mut Communicator::new(Box::new(fabric)))))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Run `program` on each rank of a world of endpoints, which monitor each other and communicate over `links`. The
/// endpoints close after the last rank has finished.
pub fn endpoint_world<R: Send>(p: usize, links: LinkPolicy, program: impl Fn(&mut Communicator) -> R + Sync) -> Vec<R> {
    replicated_world(p, 1, links, program)
}

/// Run `program` like `endpoint_world`, with `replicas` replicas of each rank.
pub fn replicated_world<R: Send>(
    p: usize,
    replicas: usize,
    links: LinkPolicy,
    program: impl Fn(&mut Communicator) -> R + Sync,
) -> Vec<R> {
    // No rank starts the program before all are connected: an early failure would fail the rendezvous of a slow rank.
    let connected = std::sync::Barrier::new(p);
    let finished: Vec<(R, Communicator)> = std::thread::scope(|scope| {
        let ranks: Vec<_> = ThreadExchange::group(p, Duration::from_secs(20))
            .into_iter()
            .enumerate()
            .map(|(rank, mut exchange)| {
                let (program, connected) = (&program, &connected);
                scope.spawn(move || {
                    let mut config = Config::new(rank, p, Token::from_secret("test"));
                    config.replicas = replicas;
                    (config.links, config.linger) = (links, Duration::from_millis(100));
                    let mut comm = Communicator::new(Box::new(Endpoint::connect(config, &mut exchange).unwrap()));
                    connected.wait();
                    (program(&mut comm), comm)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    finished.into_iter().map(|(result, _)| result).collect()
}

pub fn bytes(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

pub fn values(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|value| i64::from_ne_bytes(value.try_into().unwrap())).collect()
}

/// Return the description of a mismatch. Panics on any other result.
pub fn mismatch(result: Result<(), Error>) -> String {
    match result {
        Err(Error::Failed(JobFailure::Mismatch { description })) => description,
        other => panic!("expected a mismatch, got {other:?}"),
    }
}
