//! Ranks as real processes. The test binary starts itself with parameters in the environment; parent and child exchange
//! lines of text.
//!
//! A child runs the test `child_rank` of its binary, connects, reports it, and then executes commands from its standard
//! input.

use super::{TIMEOUT, collect, deliver, next_failure, park_until, send_and_receive, under_load};
use ripieno_net::exchange::{DirectoryExchange, TcpStore};
use ripieno_net::{Config, Endpoint, Exchange, NetError, Token};
use ripieno_run::{Fabric, JobFailure, LinkId, LinkInterest};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Prefix of a child's own lines, which distinguishes them from the output of the test harness.
const MARK: &str = "@@ ";
/// The test that a child runs.
const CHILD_TEST: &str = "common::process::child_rank";

/// A child process that is a rank.
pub struct RankProcess {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    pub rank: usize,
}

/// The parameters of a child.
#[derive(Clone)]
pub struct ChildOptions {
    pub world_size: usize,
    pub replicas: usize,
    /// `tcp HOST PORT`, `directory PATH` or `pipe`.
    pub exchange: String,
    pub token: String,
    pub links: &'static str,
    pub rendezvous_ms: u64,
    pub heartbeat_ms: u64,
    pub linger_ms: u64,
    /// Whether the rank prints `exchanged` and hangs before it connects.
    pub hangs_after_exchange: bool,
}

impl ChildOptions {
    pub fn new(world_size: usize, exchange: &str) -> ChildOptions {
        ChildOptions {
            world_size,
            replicas: 1,
            exchange: exchange.to_string(),
            token: "test".to_string(),
            links: "\"auto\"",
            rendezvous_ms: 20_000,
            heartbeat_ms: 10_000,
            linger_ms: 10_000,
            hangs_after_exchange: false,
        }
    }

    pub fn start(&self, rank: usize) -> RankProcess {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([CHILD_TEST, "--exact", "--nocapture", "--test-threads=1"])
            .env("TEST_RANK", rank.to_string())
            .env("TEST_WORLD_SIZE", self.world_size.to_string())
            .env("TEST_REPLICAS", self.replicas.to_string())
            .env("TEST_EXCHANGE", &self.exchange)
            .env("TEST_TOKEN", &self.token)
            .env("TEST_LINKS", self.links)
            .env("TEST_RENDEZVOUS_MS", self.rendezvous_ms.to_string())
            .env("TEST_HEARTBEAT_MS", self.heartbeat_ms.to_string())
            .env("TEST_LINGER_MS", self.linger_ms.to_string())
            .env("TEST_HANGS", self.hangs_after_exchange.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The harness prints the test's name first, without a line break.
                if let Some(at) = line.find(MARK) {
                    let _ = sender.send(line[at + MARK.len()..].to_string());
                }
            }
        });
        RankProcess { stdin: child.stdin.take().unwrap(), child, lines, rank }
    }

    pub fn start_all(&self) -> Vec<RankProcess> {
        let mut ranks: Vec<RankProcess> = (0..self.world_size).map(|rank| self.start(rank)).collect();
        if self.exchange == "pipe" {
            pass_addresses(&mut ranks);
        }
        ranks
    }

    /// Start all ranks and wait until they have connected.
    pub fn connect_all(&self) -> Vec<RankProcess> {
        let mut ranks = self.start_all();
        ranks.iter_mut().for_each(|rank| drop(rank.expect("connected", TIMEOUT)));
        ranks
    }
}

/// Act as the launcher: collect the address of each rank and send all addresses to each.
pub fn pass_addresses(ranks: &mut [RankProcess]) {
    let addresses: Vec<String> = ranks.iter_mut().map(|rank| rank.expect("address", TIMEOUT)).collect();
    let all = serde_json::to_string(&addresses).unwrap();
    ranks.iter_mut().for_each(|rank| rank.send_line(&all));
}

impl RankProcess {
    pub fn send_line(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// Return the rest of the next line, which must start with `word`.
    #[track_caller]
    pub fn expect(&mut self, word: &str, timeout: Duration) -> String {
        let line = self.lines.recv_timeout(timeout);
        let line = line.unwrap_or_else(|error| panic!("rank {} did not print {word}: {error}", self.rank));
        let rest = line.strip_prefix(word).unwrap_or_else(|| panic!("rank {}: {line}, expected {word}", self.rank));
        rest.trim_start().to_string()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Close the rank in an orderly way.
    pub fn close(mut self) {
        self.send_line("close");
        self.expect("closed", TIMEOUT);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn print_line(text: &str) {
    println!("{MARK}{}", text.replace('\n', " "));
}

fn read_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_string()
}

/// The program of a child. Does nothing in the parent.
#[test]
fn child_rank() {
    let Ok(rank) = std::env::var("TEST_RANK") else { return };
    let variable = |name: &str| std::env::var(format!("TEST_{name}")).unwrap();
    let number = |name: &str| variable(name).parse::<u64>().unwrap();
    let token = Token::from_secret(variable("TOKEN"));
    let mut config = Config::new(rank.parse().unwrap(), number("WORLD_SIZE") as usize, token);
    config.replicas = number("REPLICAS") as usize;
    config.links = serde_json::from_str(&variable("LINKS")).unwrap();
    config.rendezvous_timeout = Duration::from_millis(number("RENDEZVOUS_MS"));
    config.heartbeat_timeout = Duration::from_millis(number("HEARTBEAT_MS"));
    config.linger = Duration::from_millis(number("LINGER_MS"));

    let words = variable("EXCHANGE");
    let words: Vec<&str> = words.split(' ').collect();
    let pipe = |mine: &str| -> Result<Vec<String>, NetError> {
        print_line(&format!("address {mine}"));
        Ok(serde_json::from_str(&read_line()).unwrap())
    };
    let exchange: Box<dyn Exchange> = match words[..] {
        ["tcp", host, port] => Box::new(TcpStore::new(&config, host, port.parse().unwrap())),
        ["directory", path] => Box::new(DirectoryExchange::new(&config, path)),
        _ => Box::new(pipe),
    };
    let mut exchange = Pausing { exchange, hangs: variable("HANGS") == "true" };
    let connected = Endpoint::connect(config, &mut exchange);
    drop(exchange);
    run_command(connected);
}

/// An exchange that may hang afterwards.
struct Pausing {
    exchange: Box<dyn Exchange>,
    hangs: bool,
}

impl Exchange for Pausing {
    fn exchange(&mut self, mine: &str) -> Result<Vec<String>, NetError> {
        let strings = self.exchange.exchange(mine)?;
        if self.hangs {
            print_line("exchanged");
            read_line();
        }
        Ok(strings)
    }

    fn lost(&mut self) -> Option<JobFailure> {
        self.exchange.lost()
    }
}

fn run_command(connected: Result<Endpoint, NetError>) {
    let mut endpoint = match connected {
        Ok(endpoint) => endpoint,
        Err(NetError::Failed(failure)) => return print_line(&format!("failure {failure}")),
        Err(error) => return print_line(&format!("error {error}")),
    };
    send_and_receive(&mut endpoint);
    print_line("connected");
    loop {
        let line = read_line();
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["close"] => {
                endpoint.close();
                return print_line("closed");
            }
            ["watch"] => {
                print_line("watching");
                print_failure(next_failure(&mut endpoint, TIMEOUT));
            }
            ["collect", peer] => {
                print_line("watching");
                let peer = peer.parse().unwrap();
                let interest = LinkInterest { link: LinkId::collectives(peer), readable: true, writable: false };
                park_until(&mut endpoint, Some(interest), |fabric| fabric.has_failed());
                print_failure(endpoint.failure());
            }
            ["lose", count] => {
                print_line("watching");
                let count: usize = count.parse().unwrap();
                park_until(&mut endpoint, None, |fabric| fabric.losses().len() == count || fabric.has_failed());
                print_line(&format!("lost {}", name_lost(&endpoint)));
            }
            ["deliver", peer] => deliver(&mut endpoint, peer.parse().unwrap(), b"late"),
            ["receive", peer] => {
                collect(&mut endpoint, peer.parse().unwrap(), b"late");
                print_line("received");
            }
            // Exit without leaving the job.
            _ => std::process::exit(3),
        }
    }
}

/// Return the dead ranks with a live replica.
fn name_lost(endpoint: &Endpoint) -> String {
    let rank = |failure: &JobFailure| match failure {
        JobFailure::RankFailed { rank, .. } => rank.to_string(),
        other => panic!("{other}"),
    };
    endpoint.losses().iter().map(rank).collect::<Vec<_>>().join(" ")
}

fn print_failure(failure: Option<JobFailure>) {
    print_line(&failure.map_or("nothing".to_string(), |failure| format!("failure {failure}")));
}

/// Return a port that is free now.
pub fn free_port(host: &str) -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Not an ephemeral port: a connection of another process could take it before it is used.
    let next = || 10_000 + std::process::id().wrapping_mul(97).wrapping_add(COUNT.fetch_add(1, Relaxed)) % 20_000;
    let is_free = |&port: &u16| std::net::TcpListener::bind((host, port)).is_ok();
    std::iter::repeat_with(|| next() as u16).find(is_free).expect("some port is free")
}

/// Check that each rank reports the same failure of `culprit` within `timeout` after `since`.
#[track_caller]
pub fn expect_verdict(ranks: &mut [RankProcess], culprit: usize, cause: &str, since: Instant, timeout: Duration) {
    let host = ripieno_net::host::host_name();
    for rank in ranks.iter_mut() {
        let failure = rank.expect("failure", TIMEOUT);
        let elapsed = since.elapsed();
        assert!(failure.starts_with(&format!("rank {culprit} on host {host} failed: ")), "{failure}");
        assert!(failure.contains(cause), "{failure}");
        assert!(elapsed < under_load(timeout), "rank {} took {elapsed:?}", rank.rank);
    }
}
