//! The errors between ranks before a job runs: one enum. Its messages name rank, peer, address and a remedy.

use crate::config::{MAKE_TOKEN, TOKEN_BITS_MIN};
use ripieno_run::{JobFailure, LinkError};
use std::fmt;
use std::net::SocketAddr;

/// The reason why ranks could not connect to each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// A setting is invalid.
    #[error("{name}={value}: expected {expected}")]
    Config {
        /// The name of the setting.
        name: &'static str,
        /// The value of the setting.
        value: String,
        /// The accepted values.
        expected: String,
    },
    /// The secret of the job can be guessed.
    #[error(
        "{name} can be guessed: {reason}, expected {TOKEN_BITS_MIN} random bits or more: {MAKE_TOKEN}, once before the \
         ranks start"
    )]
    WeakToken {
        /// The name of the setting.
        name: String,
        /// The reason, without the secret.
        reason: String,
    },
    /// The rank found no port to listen on.
    #[error("rank {rank} cannot listen on {host} port {ports}: {cause}; ask for a range of free ports, or for port 0")]
    Bind {
        /// The rank that tried to listen.
        rank: usize,
        /// The requested host or address.
        host: String,
        /// The port or the range of ports.
        ports: String,
        /// The error of the operating system.
        cause: String,
    },
    /// This host has no address that peers can use.
    #[error("rank {rank} has no usable address on host {host}: {cause}")]
    Address {
        /// The rank without an address.
        rank: usize,
        /// The host name that was resolved.
        host: String,
        /// Every address, with the reason why it was rejected.
        cause: String,
    },
    /// The engine's exchange of strings failed.
    #[error("rank {rank}: the exchange of addresses failed after {elapsed_ms} ms: {cause}")]
    Exchange {
        /// The rank that detected the failure.
        rank: usize,
        /// The cause.
        cause: String,
        /// Time since the exchange began.
        elapsed_ms: u64,
    },
    /// Some ranks did not connect in time.
    #[error(
        "rank {rank} waited {elapsed_ms} ms for {}: {cause}; are they started, and can they reach this host?",
        RankList(.missing)
    )]
    Missing {
        /// The rank that waited.
        rank: usize,
        /// The missing ranks; empty if they are unknown.
        missing: Vec<usize>,
        /// Further details.
        cause: String,
        /// Time waited.
        elapsed_ms: u64,
    },
    /// Two ranks do not belong to one job.
    #[error("rank {rank} and rank {peer} do not belong to one job: {cause}")]
    Disagree {
        /// The rank that detected the difference.
        rank: usize,
        /// The rank that differs.
        peer: usize,
        /// The setting that differs.
        cause: String,
    },
    /// No address of a peer answered.
    #[error("rank {rank} cannot reach rank {peer} on host {host} after {elapsed_ms} ms: {}", Attempts(.tried))]
    Unreachable {
        /// The rank that tried to connect.
        rank: usize,
        /// The rank that it tried to reach.
        peer: usize,
        /// The host of the unreachable rank.
        host: String,
        /// Every address tried, with the cause of its failure.
        tried: Vec<Attempt>,
        /// Time since the first attempt.
        elapsed_ms: u64,
    },
    /// The job failed while the ranks connected.
    #[error(transparent)]
    Failed(#[from] JobFailure),
    /// The operating system refused a resource that every rank needs.
    #[error("rank {rank}: {action}: {cause}")]
    Os {
        /// The rank.
        rank: usize,
        /// The attempted action.
        action: &'static str,
        /// The error of the operating system.
        cause: String,
    },
}

/// Converts to the cause of a missing link: a resource that this process lacks, or an error of the other end.
impl From<NetError> for LinkError {
    fn from(error: NetError) -> LinkError {
        match error {
            NetError::Os { action, cause, .. } => {
                LinkError::MissingResource { cause: format!("it cannot {action}: {cause}") }
            }
            error => LinkError::Closed { cause: error.to_string() },
        }
    }
}

/// One attempt to reach an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The address.
    pub address: Address,
    /// The cause of the failure.
    pub cause: String,
}

/// An address of a worker.
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
