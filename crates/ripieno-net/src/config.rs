//! What a rank must know before it can meet the others.

use crate::error::NetError;
use ripieno_run::Replicas;
use sha2::{Digest, Sha256};
use std::fmt;
use std::time::Duration;

/// Bytes of a job token.
pub const TOKEN_BYTES: usize = 32;

/// The secret of a job: who knows it, belongs to it. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; TOKEN_BYTES]);

impl Token {
    /// The token made of these bytes.
    pub fn new(bytes: [u8; TOKEN_BYTES]) -> Token {
        Token(bytes)
    }

    /// The token that a secret of any length stands for (e.g. the environment's `RIPIENO_TOKEN`).
    pub fn from_secret(secret: impl AsRef<[u8]>) -> Token {
        Token(Sha256::new().chain_update(b"ripieno token 1\0").chain_update(secret).finalize().into())
    }

    /// A new random token, as a text to hand to every rank.
    pub fn random_text() -> Result<String, NetError> {
        let mut bytes = [0; TOKEN_BYTES];
        fill_random(&mut bytes)?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub(crate) fn bytes(&self) -> &[u8; TOKEN_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Which TCP connections of a job are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encryption {
    /// None.
    Off,
    /// Those that leave their host.
    #[default]
    BetweenHosts,
    /// All.
    Everywhere,
}

impl Encryption {
    /// What somebody means who says yes, no, or nothing.
    pub fn meant_by(tls: Option<bool>) -> Encryption {
        match tls {
            None => Encryption::BetweenHosts,
            Some(true) => Encryption::Everywhere,
            Some(false) => Encryption::Off,
        }
    }

    /// Whether a TCP connection is encrypted of which both ends are, or are not, on one host.
    pub(crate) fn covers(self, stays_on_host: bool) -> bool {
        match self {
            Encryption::Off => false,
            Encryption::BetweenHosts => !stays_on_host,
            Encryption::Everywhere => true,
        }
    }
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Encryption::Off => "does not encrypt its connections (tls=False)",
            Encryption::BetweenHosts => "encrypts its connections to other hosts (tls is not set)",
            Encryption::Everywhere => "encrypts all its connections (tls=True)",
        })
    }
}

/// What a connection needs to be one of a job.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The job's secret.
    pub token: Token,
    /// Which TCP connections are encrypted.
    pub tls: Encryption,
}

/// Random bytes of the operating system.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), NetError> {
    getrandom::fill(bytes).map_err(|e| NetError::Os { rank: 0, what: "draw random bytes", cause: e.to_string() })
}

/// Which links carry data between ranks of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkPolicy {
    /// Shared memory where it works, else TCP.
    #[default]
    Auto,
    /// TCP, also between ranks of one host.
    Tcp,
    /// Shared memory; a peer that cannot be reached by it is an error.
    SharedMemory,
}

/// The ports a worker may listen on; port 0 is any free one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ports {
    /// The first port.
    pub first: u16,
    /// The last port, included.
    pub last: u16,
}

impl Ports {
    /// Just this port.
    pub fn one(port: u16) -> Ports {
        Ports { first: port, last: port }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

/// What a rank must know before it can meet the others.
#[derive(Clone, Debug)]
pub struct Config {
    /// This rank.
    pub rank: usize,
    /// How many ranks.
    pub world_size: usize,
    /// How many replicas there are of each logical rank; ranks `i`, `i + world_size / replicas` … are replicas.
    pub replicas: usize,
    /// The job's secret.
    pub token: Token,
    /// The host name or address to listen on; all up interfaces when `None`.
    pub host: Option<String>,
    /// The rack that this rank's host stands in; all ranks name theirs or none does.
    pub rack: Option<String>,
    /// The ports to listen on.
    pub ports: Ports,
    /// Which links carry data between ranks of one host.
    pub links: LinkPolicy,
    /// Which TCP connections are encrypted; all ranks say the same.
    pub tls: Encryption,
    /// How long ranks wait for each other to start.
    pub rendezvous_timeout: Duration,
    /// A rank silent for this long has failed.
    pub heartbeat_timeout: Duration,
    /// How long rank 0, on leaving, stays to watch over the ranks that still work.
    pub linger: Duration,
}

impl Config {
    /// The usual settings: any port on all interfaces, encryption between hosts, 60 s to meet, 10 s of silence.
    pub fn new(rank: usize, world_size: usize, token: Token) -> Config {
        Config {
            rank,
            world_size,
            replicas: 1,
            token,
            host: None,
            rack: None,
            ports: Ports::default(),
            links: LinkPolicy::Auto,
            tls: Encryption::default(),
            rendezvous_timeout: Duration::from_secs(60),
            heartbeat_timeout: Duration::from_secs(10),
            linger: Duration::from_secs(10),
        }
    }

    /// What connections of the job need.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials { token: self.token.clone(), tls: self.tls }
    }

    /// Which ranks are replicas of each other.
    pub fn replicas_of_ranks(&self) -> Replicas {
        Replicas::new(self.world_size, self.replicas)
    }

    /// The first setting that cannot be right, as an error.
    pub fn check(&self) -> Result<(), NetError> {
        let wrong =
            |name, value: String, expected: &str| Err(NetError::Config { name, value, expected: expected.to_string() });
        if self.world_size == 0 || self.world_size > MAX_WORLD_SIZE {
            return wrong("world_size", self.world_size.to_string(), &format!("1 to {MAX_WORLD_SIZE}"));
        }
        if self.rank >= self.world_size {
            return wrong("rank", self.rank.to_string(), &format!("0 to {}", self.world_size - 1));
        }
        if self.replicas == 0 || !self.world_size.is_multiple_of(self.replicas) {
            let expected = format!("a divisor of the world size, {}", self.world_size);
            return wrong("replicas", self.replicas.to_string(), &expected);
        }
        if self.ports.first > self.ports.last || (self.ports.first == 0 && self.ports.last != 0) {
            return wrong("ports", self.ports.to_string(), "a port, or first-last with 1 <= first <= last");
        }
        if self.rendezvous_timeout.is_zero() {
            return wrong("rendezvous_timeout", "0".to_string(), "more than 0 seconds");
        }
        if self.heartbeat_timeout < SHORTEST_HEARTBEAT_TIMEOUT {
            return wrong("heartbeat_timeout", format!("{:?}", self.heartbeat_timeout), "0.1 seconds or more");
        }
        Ok(())
    }
}

/// Ranks of the largest job.
pub const MAX_WORLD_SIZE: usize = 1_000_000;
const SHORTEST_HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(100);
