//! An exchange through rank 0: it listens at an address that all ranks were given (`MASTER_ADDR`, `MASTER_PORT`).
//!
//! Every rank holds its connection until the meeting is over, so a rank that dies meanwhile is known at once. Each
//! connection is authenticated before anything else is read. Cost: one connection per rank, all strings to each.

mod join;
mod letter;
mod serve;

use super::Exchange;
use crate::config::Config;
use crate::error::NetError;
use crate::stream::Stream;
use ripieno_run::Failure;
use serve::Server;
use std::time::Instant;

/// An exchange through a TCP store at rank 0.
pub struct TcpStore {
    config: Config,
    host: String,
    port: u16,
    kept: Kept,
}

/// What is held until the meeting is over.
enum Kept {
    Nothing,
    Server(Box<Server>),
    Connection(Stream),
}

impl TcpStore {
    /// The part of `config.rank` in an exchange through rank 0's port `port` on `host`.
    pub fn new(config: &Config, host: &str, port: u16) -> TcpStore {
        TcpStore { config: config.clone(), host: host.to_string(), port, kept: Kept::Nothing }
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
            let mut server = Server::listen(&self.config, &self.host, self.port)?;
            let strings = server.serve(mine, deadline)?;
            self.kept = Kept::Server(Box::new(server));
            return Ok(strings);
        }
        let (strings, stream) = join::join(&self.config, &self.host, self.port, mine, deadline)?;
        self.kept = Kept::Connection(stream);
        Ok(strings)
    }

    fn lost(&mut self) -> Option<Failure> {
        match &mut self.kept {
            Kept::Nothing => None,
            Kept::Server(server) => server.lost(),
            Kept::Connection(stream) => join::lost(stream, &self.host),
        }
    }
}
