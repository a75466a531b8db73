//! Side of the ranks other than rank 0: connect until rank 0 answers, send the string, receive all strings.

use super::message::{STRING_BYTES_MAX, StoreMessage, decode, encode};
use crate::auth::{ConnectionPurpose, Denied, Greeting, JobNonce, Refusal, call};
use crate::config::Config;
use crate::error::NetError;
use crate::host::host_name;
use crate::stream::{Stream, is_would_block};
use ripieno_run::JobFailure;
use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const PROOF_TIMEOUT: Duration = Duration::from_secs(5);
/// Shortest and longest pause between connection attempts while rank 0 is not listening yet.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(300);
/// Any peer can report a wrong token. The report counts once no other answer has arrived for this long.
const WRONG_TOKEN_TIMEOUT: Duration = Duration::from_secs(3);
/// Additional time that a rank waits beyond rank 0's deadline, so that rank 0's verdict arrives.
const VERDICT_MARGIN: Duration = Duration::from_secs(2);

/// Return all strings, and the connection, which the caller holds until the exchange is over.
pub fn join(
    config: &Config,
    host: &str,
    port: u16,
    mine: &str,
    deadline: Instant,
) -> Result<(Vec<String>, Stream), NetError> {
    let started = Instant::now();
    let rank = config.rank;
    let mut stream = connect(config, host, port, deadline)?;
    let elapsed_ms = || started.elapsed().as_millis() as u64;
    if mine.len() > STRING_BYTES_MAX {
        let cause = format!("its string has {} bytes, more than {STRING_BYTES_MAX}", mine.len());
        return Err(NetError::Exchange { rank, cause, elapsed_ms: elapsed_ms() });
    }
    let message = encode(&StoreMessage::Mine { host: host_name(), text: mine.to_string() });
    let bytes_max = config.world_size.saturating_mul(2 * STRING_BYTES_MAX);
    let answer =
        stream.write_all(&message).and_then(|()| read_message(&mut stream, bytes_max, deadline + VERDICT_MARGIN));
    match answer {
        Ok(StoreMessage::All(strings)) => Ok((strings, stream)),
        Ok(StoreMessage::Verdict(verdict)) => Err(verdict.error(rank)),
        Ok(StoreMessage::Mine { .. }) => {
            let cause = "rank 0 answered with a string of its own".to_string();
            Err(NetError::Exchange { rank, cause, elapsed_ms: elapsed_ms() })
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(NetError::Missing {
            rank,
            missing: vec![0],
            cause: format!("the store at {host} port {port} did not answer"),
            elapsed_ms: elapsed_ms(),
        }),
        Err(error) => Err(NetError::Failed(hub_failed(host, &error.to_string()))),
    }
}

/// Return the failure of rank 0 if its end of a held connection has closed.
pub fn lost(stream: &mut Stream, host: &str) -> Option<JobFailure> {
    stream.set_nonblocking(true).ok()?;
    match stream.read(&mut [0; 64]) {
        Ok(0) => Some(hub_failed(host, "its process ended")),
        Ok(_) => None,
        Err(error) if is_would_block(&error) => None,
        Err(error) => Some(hub_failed(host, &error.to_string())),
    }
}

fn hub_failed(host: &str, cause: &str) -> JobFailure {
    let cause = format!("the store it holds at {host} closed while the ranks connected: {cause}");
    JobFailure::RankFailed { rank: 0, host: host.to_string(), cause, traceback: String::new() }
}

/// Return an authenticated connection to the store.
pub fn connect(config: &Config, host: &str, port: u16, deadline: Instant) -> Result<Stream, NetError> {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut wrong_token_since = None;
    loop {
        let cause = match try_connect(config, host, port, deadline) {
            Ok(stream) => return Ok(stream),
            Err(JoinError::OtherToken) => {
                let since = *wrong_token_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= WRONG_TOKEN_TIMEOUT {
                    return Err(other_token(config));
                }
                Denied::OtherToken.to_string()
            }
            Err(JoinError::Refused(refusal)) => return Err(refused(config, refusal)),
            Err(JoinError::NotYet(cause)) => {
                wrong_token_since = None;
                cause
            }
        };
        if Instant::now() + pause >= deadline {
            if wrong_token_since.is_some() {
                return Err(other_token(config));
            }
            return Err(NetError::Missing {
                rank: config.rank,
                missing: vec![0],
                cause: format!("the store at {host} port {port} cannot be reached: {cause}"),
                elapsed_ms: started.elapsed().as_millis() as u64,
            });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

enum JoinError {
    /// The refusal is final.
    Refused(Refusal),
    /// The answer is unproven: another service may listen at the address.
    OtherToken,
    /// Rank 0 may not have started, or its host name may not resolve yet.
    NotYet(String),
}

fn try_connect(config: &Config, host: &str, port: u16, deadline: Instant) -> Result<Stream, JoinError> {
    let mut cause = format!("{host} has no address");
    for address in (host, port).to_socket_addrs().map_err(|error| JoinError::NotYet(error.to_string()))? {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let stream = match Stream::connect_tcp(address, CONNECT_TIMEOUT.min(left)) {
            Ok(stream) => stream,
            Err(error) => {
                cause = format!("{address}: {error}");
                continue;
            }
        };
        let greeting = Greeting {
            purpose: ConnectionPurpose::Rendezvous,
            from: config.rank as u32,
            to: 0,
            world_size: config.world_size as u32,
            // The nonce arrives with rank 0's string.
            nonce: JobNonce::default(),
        };
        let proof_deadline = deadline.min(Instant::now() + PROOF_TIMEOUT);
        match call(stream, &config.credentials(), &greeting, proof_deadline) {
            Ok(stream) => return Ok(stream),
            Err(Denied::Refused(refusal)) => return Err(JoinError::Refused(refusal)),
            Err(Denied::OtherToken) => return Err(JoinError::OtherToken),
            Err(denied) => cause = format!("{address}: {denied}"),
        }
    }
    Err(JoinError::NotYet(cause))
}

fn refused(config: &Config, refusal: Refusal) -> NetError {
    let (rank, own) = (config.rank, config.world_size);
    let cause = match refusal {
        Refusal::WorldSize(other) => format!("their world sizes differ: {own} and {other}"),
        Refusal::Taken => format!("another process runs as rank {rank}"),
        other => other.to_string(),
    };
    NetError::Disagree { rank, peer: 0, cause }
}

fn other_token(config: &Config) -> NetError {
    let cause = "their tokens differ; every rank of a job gets the same token".to_string();
    NetError::Disagree { rank: config.rank, peer: 0, cause }
}

fn read_message(stream: &mut Stream, bytes_max: usize, deadline: Instant) -> io::Result<StoreMessage> {
    let mut bytes = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_timeout(left)?;
        match stream.read(&mut part) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its process ended")),
            Ok(count) => bytes.extend(&part[..count]),
            Err(error) if is_would_block(&error) => {}
            Err(error) => return Err(error),
        }
        if let Some(message) = decode(&bytes, bytes_max).map_err(io::Error::other)? {
            return Ok(message);
        }
    }
}
