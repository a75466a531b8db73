//! What can go wrong between ranks, before a job runs: one enum, whose texts name rank, peer, address and what to do.

use ripieno_run::{JobFailure, LinkError};
use std::fmt;
use std::net::SocketAddr;

/// Why ranks could not meet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// The configuration cannot be right.
    #[error("{name}={value}: expected {expected}")]
    Config {
        /// Which setting.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        expected: String,
    },
    /// No port to listen on.
    #[error("rank {rank} cannot listen on {host} port {ports}: {cause}; ask for a range of free ports, or for port 0")]
    Bind {
        /// The rank that wanted to listen.
        rank: usize,
        /// The host or address asked for.
        host: String,
        /// The port or the range of ports.
        ports: String,
        /// What the operating system said.
        cause: String,
    },
    /// This host has no address that peers could use.
    #[error("rank {rank} has no usable address on host {host}: {cause}")]
    Address {
        /// The rank without an address.
        rank: usize,
        /// The host name that was looked at.
        host: String,
        /// Every address, and why it was rejected.
        cause: String,
    },
    /// The engine's exchange of strings failed.
    #[error("rank {rank}: the exchange of addresses failed after {elapsed_ms} ms: {cause}")]
    Exchange {
        /// The rank that noticed.
        rank: usize,
        /// What happened.
        cause: String,
        /// Time since the exchange began.
        elapsed_ms: u64,
    },
    /// Some ranks did not come in time.
    #[error(
        "rank {rank} waited {elapsed_ms} ms for {}: {cause}; are they started, and can they reach this host?",
        RankList(.missing)
    )]
    Missing {
        /// The rank that waited.
        rank: usize,
        /// Who did not come; empty when it cannot be known.
        missing: Vec<usize>,
        /// What is known besides.
        cause: String,
        /// Time waited.
        elapsed_ms: u64,
    },
    /// Two ranks do not belong to one job.
    #[error("rank {rank} and rank {peer} do not belong to one job: {cause}")]
    Disagree {
        /// The rank that noticed.
        rank: usize,
        /// The rank that differs.
        peer: usize,
        /// In what.
        cause: String,
    },
    /// No address of a peer answered.
    #[error("rank {rank} cannot reach rank {peer} on host {host} after {elapsed_ms} ms: {}", Attempts(.tried))]
    Unreachable {
        /// The rank that tried.
        rank: usize,
        /// The rank it tried to reach.
        peer: usize,
        /// The host of that rank.
        host: String,
        /// Every address tried, and why it failed.
        tried: Vec<Attempt>,
        /// Time since the first try.
        elapsed_ms: u64,
    },
    /// The job failed while the ranks met.
    #[error(transparent)]
    Failed(#[from] JobFailure),
    /// The operating system refused something that every rank needs.
    #[error("rank {rank}: {what}: {cause}")]
    Os {
        /// The rank.
        rank: usize,
        /// What it tried.
        what: &'static str,
        /// What the operating system said.
        cause: String,
    },
}

/// Why there is no link: what this process lacks, or else what is told of the other end.
impl From<NetError> for LinkError {
    fn from(error: NetError) -> LinkError {
        match error {
            NetError::Os { what, cause, .. } => LinkError::Lacking { what: format!("it cannot {what}: {cause}") },
            error => LinkError::Closed { cause: error.to_string() },
        }
    }
}

/// One try to reach an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Where.
    pub address: Address,
    /// Why it failed.
    pub cause: String,
}

/// Where a worker can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket of this host, by its abstract name.
    Unix(String),
    /// A TCP socket.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(name) => write!(f, "unix:@{name}"),
            Address::Tcp(address) => write!(f, "{address}"),
        }
    }
}

struct RankList<'a>(&'a [usize]);

impl fmt::Display for RankList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => write!(f, "other ranks"),
            [one] => write!(f, "rank {one}"),
            many => write!(f, "ranks {}", many.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
        }
    }
}

struct Attempts<'a>(&'a [Attempt]);

impl fmt::Display for Attempts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("it has no address that could be tried");
        }
        for (i, attempt) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{} ({})", attempt.address, attempt.cause)?;
        }
        Ok(())
    }
}
