//! Exchange of strings through a TCP store at rank 0. All ranks know its address (`MASTER_ADDR`, `MASTER_PORT`).
//!
//! Every rank holds its connection until the exchange is over, so rank 0 detects immediately when a rank dies. Each
//! connection is authenticated before anything else is read.
//! Cost: one connection per rank; rank 0 sends all strings to each rank.

#[cfg(test)]
mod fuzz;
mod join;
mod member;
mod message;
mod serve;

use super::Exchange;
use crate::config::Config;
use crate::error::NetError;
use crate::stream::Stream;
use ripieno_run::JobFailure;
use serve::StoreServer;
use std::time::Instant;

/// An exchange through a TCP store at rank 0.
pub struct TcpStore {
    config: Config,
    host: String,
    port: u16,
    state: StoreState,
}

/// The server or connection that stays open until the exchange is over.
enum StoreState {
    Nothing,
    Server(Box<StoreServer>),
    Connection(Stream),
}

impl TcpStore {
    /// Create the exchange for `config.rank` through rank 0's port `port` on `host`.
    pub fn new(config: &Config, host: &str, port: u16) -> TcpStore {
        TcpStore { config: config.clone(), host: host.to_string(), port, state: StoreState::Nothing }
    }
}

impl Exchange for TcpStore {
    fn exchange(&mut self, mine: &str) -> Result<Vec<String>, NetError> {
        self.config.check()?;
        let deadline = Instant::now() + self.config.rendezvous_timeout;
        if self.config.world_size == 1 {
            return Ok(vec![mine.to_string()]);
        }
        if self.config.rank == 0 {
            let mut server = StoreServer::listen(&self.config, &self.host, self.port)?;
            let strings = server.serve(mine, deadline)?;
            self.state = StoreState::Server(Box::new(server));
            return Ok(strings);
        }
        let (strings, stream) = join::join(&self.config, &self.host, self.port, mine, deadline)?;
        self.state = StoreState::Connection(stream);
        Ok(strings)
    }

    fn lost(&mut self) -> Option<JobFailure> {
        match &mut self.state {
            StoreState::Nothing => None,
            StoreState::Server(server) => server.lost(),
            StoreState::Connection(stream) => join::lost(stream, &self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::send_wrong_token;
    use crate::config::{Encryption, Token};
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    fn store(rank: usize, world_size: usize, port: u16) -> TcpStore {
        let mut config = Config::new(rank, world_size, Token::from_secret("test"));
        config.rendezvous_timeout = Duration::from_secs(20);
        TcpStore::new(&config, "127.0.0.1", port)
    }

    fn free_port() -> u16 {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn a_rank_that_dies_while_others_are_awaited_is_named_to_all_at_once() {
        let port = free_port();
        let waiting = [0, 1].map(|rank| std::thread::spawn(move || store(rank, 4, port).exchange("x")));
        // The connection of this rank ends like the connection of a killed process.
        let config = store(2, 4, port).config;
        let stream = join::connect(&config, "127.0.0.1", port, Instant::now() + Duration::from_secs(20)).unwrap();
        let since = Instant::now();
        drop(stream);
        for thread in waiting {
            let error = thread.join().unwrap().unwrap_err();
            assert!(matches!(error, NetError::Failed(JobFailure::RankFailed { rank: 2, .. })), "{error}");
        }
        assert!(since.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn waiting_ranks_are_notified_when_the_store_dies() {
        let port = free_port();
        let config = store(0, 3, port).config;
        let mut server = StoreServer::listen(&config, "127.0.0.1", port).unwrap();
        let waiting = std::thread::spawn(move || store(1, 3, port).exchange("x"));
        while server.is_empty() {
            server.turn(Instant::now() + Duration::from_secs(20));
        }
        drop(server);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, NetError::Failed(JobFailure::RankFailed { rank: 0, .. })), "{error}");
    }

    #[test]
    fn strings_arrive_completely_and_in_order() {
        [Encryption::Off, Encryption::Everywhere].into_iter().for_each(assert_strings_arrive);
    }

    fn assert_strings_arrive(tls: Encryption) {
        let port = free_port();
        let long = "ä\"".repeat(10_000);
        let part = |rank| {
            let text = format!("{rank}{long}");
            std::thread::spawn(move || {
                let mut store = store(rank, 3, port);
                store.config.tls = tls;
                (store.exchange(&text), store)
            })
        };
        let expected: Vec<String> = (0..3).map(|rank| format!("{rank}{long}")).collect();
        let done: Vec<_> = [0, 1, 2].map(part).into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(done.iter().all(|(strings, _)| strings.as_ref() == Ok(&expected)));
    }

    #[test]
    fn ranks_with_different_tls_settings_name_each_other() {
        for tls in [0, 1] {
            let port = free_port();
            let results = [0, 1].map(|rank| {
                let mut store = store(rank, 2, port);
                store.config.tls = Encryption::from_setting(Some(rank == tls));
                std::thread::spawn(move || store.exchange("x").map(drop))
            });
            for rank in results {
                let error = rank.join().unwrap().unwrap_err().to_string();
                assert!(error.contains("encrypt") && error.contains("(tls)"), "{error}");
            }
        }
    }

    #[test]
    fn a_flood_of_unauthenticated_peers_does_not_keep_ranks_from_connecting() {
        let port = free_port();
        let is_over = AtomicBool::new(false);
        let flood_connections = || {
            let mut connections = VecDeque::new();
            while !is_over.load(Ordering::Relaxed) {
                connections.extend(std::net::TcpStream::connect(("127.0.0.1", port)));
                if connections.len() > 150 {
                    connections.pop_front();
                }
            }
        };
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(flood_connections)));
            let ranks = [0, 1, 2, 3].map(|rank| scope.spawn(move || store(rank, 4, port).exchange(&rank.to_string())));
            let results = ranks.map(|rank| rank.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
            assert!(
                results.iter().all(|strings| strings.as_ref().is_ok_and(|strings| strings == &["0", "1", "2", "3"]))
            );
        });
    }

    #[test]
    fn a_single_wrong_token_report_is_not_trusted() {
        let port = free_port();
        let impostor = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
        let rank = std::thread::spawn(move || store(1, 2, port).exchange("1"));
        for _ in 0..3 {
            let (stream, _) = impostor.accept().unwrap();
            send_wrong_token(&mut Stream::Tcp(stream));
        }
        drop(impostor);
        assert_eq!(store(0, 2, port).exchange("0"), Ok(vec!["0".to_string(), "1".to_string()]));
        assert_eq!(rank.join().unwrap(), Ok(vec!["0".to_string(), "1".to_string()]));
    }
}
