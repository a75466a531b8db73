//! The configuration that a rank needs to connect to the other ranks.

use crate::error::NetError;
use ripieno_run::Replicas;
use ripieno_run::membership::MembershipTiming;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// The number of characters of an alphabet, and the test for its characters.
type Alphabet = (usize, fn(char) -> bool);
/// The common alphabets of random text, the smallest first. Other text counts as printable ASCII.
const ALPHABETS: [Alphabet; 5] = [
    (10, |c| c.is_ascii_digit()),
    (16, |c| matches!(c, '0'..='9' | 'a'..='f')),
    (26, |c| c.is_ascii_lowercase()),
    (36, |c| c.is_ascii_lowercase() || c.is_ascii_digit()),
    (62, |c| c.is_ascii_alphanumeric()),
];
const PRINTABLE_COUNT: usize = 100;
/// The minimum entropy of a token as text, computed for random characters of its alphabet.
pub(crate) const TOKEN_BITS_MIN: f64 = 128.0;
/// Minimum number of distinct characters. One in a billion random tokens has fewer.
const DISTINCT_MIN: usize = 6;
/// Shell command that generates a token, for error messages.
pub const MAKE_TOKEN: &str = "export RIPIENO_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')";

/// Bytes of a job token.
pub const TOKEN_BYTES: usize = 32;

/// The secret of a job: a process that knows it belongs to the job. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; TOKEN_BYTES]);

impl Token {
    /// Create a token from its bytes.
    pub fn new(bytes: [u8; TOKEN_BYTES]) -> Token {
        Token(bytes)
    }

    /// Derive a token from text that a user has chosen, such as the environment variable `RIPIENO_TOKEN`.
    ///
    /// Fails like [`Token::check_text`].
    pub fn from_text(name: &str, text: &str) -> Result<Token, NetError> {
        Token::check_text(name, text).map(|()| Token::from_secret(text))
    }

    /// Return [`NetError::WeakToken`] if a token can be guessed: an unauthenticated peer can test guesses against
    /// messages of ranks. `name` is the setting, for the error.
    pub fn check_text(name: &str, text: &str) -> Result<(), NetError> {
        let has_alphabet = |(_, contains): &&Alphabet| text.chars().all(contains);
        let alphabet_count = ALPHABETS.iter().find(has_alphabet).map_or(PRINTABLE_COUNT, |(count, _)| *count);
        let character_count = text.chars().count();
        let bits = character_count as f64 * (alphabet_count as f64).log2();
        // The error must not contain the secret.
        let reason = match text.chars().collect::<BTreeSet<_>>().len() {
            _ if bits < TOKEN_BITS_MIN => format!("{character_count} characters are {bits:.0} bits"),
            DISTINCT_MIN.. => return Ok(()),
            _ => "it repeats few characters".to_string(),
        };
        Err(NetError::WeakToken { name: name.to_string(), reason })
    }

    /// Derive a token from a secret of any length. Use [`Token::from_text`] for text that a user has chosen.
    pub fn from_secret(secret: impl AsRef<[u8]>) -> Token {
        Token(Sha256::new().chain_update(b"ripieno token 1\0").chain_update(secret).finalize().into())
    }

    /// Return a new random secret as text, to distribute to every rank.
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

/// The set of TCP connections of a job that are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encryption {
    /// No connection.
    Off,
    /// Connections between hosts.
    #[default]
    BetweenHosts,
    /// All connections.
    Everywhere,
}

impl Encryption {
    /// Convert a user's setting: on, off, or unset.
    pub fn from_setting(tls: Option<bool>) -> Encryption {
        match tls {
            None => Encryption::BetweenHosts,
            Some(true) => Encryption::Everywhere,
            Some(false) => Encryption::Off,
        }
    }

    /// Return whether a TCP connection is encrypted. `stays_on_host`: both ends are on one host.
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

/// The settings that authenticate and protect the connections of a job.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The job's secret.
    pub token: Token,
    /// The TCP connections to encrypt.
    pub tls: Encryption,
}

/// Fill `bytes` with random bytes of the operating system.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), NetError> {
    getrandom::fill(bytes).map_err(|e| NetError::Os { rank: 0, action: "draw random bytes", cause: e.to_string() })
}

/// The kind of links between ranks of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkPolicy {
    /// Shared memory where it works, TCP otherwise.
    #[default]
    Auto,
    /// TCP, also between ranks of one host.
    Tcp,
    /// Shared memory only; failure to set it up is an error.
    SharedMemory,
}

/// The range of ports that a worker may listen on; port 0 selects any free port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ports {
    /// The first port.
    pub first: u16,
    /// The last port, inclusive.
    pub last: u16,
}

impl Ports {
    /// Return the range that contains only this port.
    pub fn single(port: u16) -> Ports {
        Ports { first: port, last: port }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

/// The configuration that a rank needs to connect to the other ranks.
#[derive(Clone, Debug)]
pub struct Config {
    /// This rank.
    pub rank: usize,
    /// Number of ranks.
    pub world_size: usize,
    /// Number of replicas of each logical rank; ranks `i`, `i + world_size / replicas` … are replicas.
    pub replicas: usize,
    /// The job's secret.
    pub token: Token,
    /// The host name or address to listen on; `None` listens on all interfaces that are up.
    pub host: Option<String>,
    /// The rack of this rank's host. Either all ranks set it or none does.
    pub rack: Option<String>,
    /// The ports to listen on.
    pub ports: Ports,
    /// The kind of links between ranks of one host.
    pub links: LinkPolicy,
    /// The TCP connections to encrypt; equal on all ranks.
    pub tls: Encryption,
    /// Limit of the time that ranks wait for each other to start.
    pub rendezvous_timeout: Duration,
    /// Time without a message after which a rank counts as failed.
    pub heartbeat_timeout: Duration,
    /// Time for which rank 0, after it has left, still watches the working ranks.
    pub linger: Duration,
}

impl Config {
    /// Return the timeouts of the membership protocol.
    pub(crate) fn timing(&self) -> MembershipTiming {
        MembershipTiming { join_timeout: self.rendezvous_timeout, heartbeat_timeout: self.heartbeat_timeout }
    }

    /// Return the default settings: any port on all interfaces, encryption between hosts, a rendezvous timeout of 60 s
    /// and a heartbeat timeout of 10 s.
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

    /// Return the credentials for connections of the job.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials { token: self.token.clone(), tls: self.tls }
    }

    /// Return the groups of ranks that are replicas of each other.
    pub fn replicas_of_ranks(&self) -> Replicas {
        Replicas::new(self.world_size, self.replicas)
    }

    /// Return an error for the first invalid setting.
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
        for (name, timeout) in
            [("rendezvous_timeout", self.rendezvous_timeout), ("heartbeat_timeout", self.heartbeat_timeout)]
        {
            if timeout > LONGEST_TIMEOUT {
                return wrong(name, format!("{timeout:?}"), &format!("at most {LONGEST_TIMEOUT:?}"));
            }
        }
        if self.heartbeat_timeout < SHORTEST_HEARTBEAT_TIMEOUT {
            return wrong("heartbeat_timeout", format!("{:?}", self.heartbeat_timeout), "0.1 seconds or more");
        }
        Ok(())
    }
}

/// Limit of the world size.
pub const MAX_WORLD_SIZE: usize = 1_000_000;
const SHORTEST_HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(100);
/// Limit of all timeouts. The clock of the system holds no sums of much longer times.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(1_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_can_be_guessed_is_no_token() {
        let digits = "1234567890".repeat(3);
        for text in ["", "a", "correct horse", &"0".repeat(64), &"abcabc".repeat(20), &"f3".repeat(15), &digits] {
            let error = Token::from_text("RIPIENO_TOKEN", text).unwrap_err().to_string();
            assert!(error.starts_with("RIPIENO_TOKEN can be guessed: ") && error.contains(MAKE_TOKEN), "{error}");
            assert!(text.len() < 2 || !error.contains(text), "{error} contains the secret");
        }
    }

    #[test]
    fn timeouts_that_a_clock_cannot_add_are_rejected() {
        let config = Config::new(0, 1, Token::from_secret("secret"));
        let change: [fn(&mut Config); 2] = [
            |config| config.rendezvous_timeout = Duration::from_secs(1 << 63),
            |config| config.heartbeat_timeout = Duration::MAX,
        ];
        for change in change {
            let mut changed = config.clone();
            change(&mut changed);
            let error = changed.check().unwrap_err().to_string();
            assert!(error.contains("_timeout=") && error.contains("at most 1000000000s"), "{error}");
        }
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn a_world_has_one_to_a_million_ranks_and_a_rank_is_below_its_size() {
        let check = |rank, world_size| Config::new(rank, world_size, Token::from_secret("secret")).check();
        for (rank, world_size) in [(0, 1), (MAX_WORLD_SIZE - 1, MAX_WORLD_SIZE)] {
            assert_eq!(check(rank, world_size), Ok(()));
        }
        let refused = [
            (0, 0, "world_size=0: expected 1 to 1000000"),
            (0, MAX_WORLD_SIZE + 1, "world_size=1000001: expected 1 to 1000000"),
            (3, 3, "rank=3: expected 0 to 2"),
        ];
        for (rank, world_size, says) in refused {
            let error = check(rank, world_size).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn random_text_is_a_token() {
        for _ in 0..200 {
            let text = Token::random_text().unwrap();
            assert_eq!(Token::from_text("token", &text), Ok(Token::from_secret(&text)));
            assert!(Token::from_text("token", &text[..32]).is_ok());
        }
    }
}
