//! Checks of the local host for `ripieno doctor`: listening, reachability, shared memory.

use crate::config::Config;
use crate::host::{Addresses, HostIdentity, core_count, host_name};
use crate::links::{Doorbell, shared_memory};
use crate::listeners::Listeners;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::net::UnixStream;

/// The result of all checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// The name of this host.
    pub host: String,
    /// The identity that distinguishes this host from other hosts.
    pub identity: HostIdentity,
    /// Number of cores that this process may use, under its affinity and container quota.
    pub core_count: usize,
    /// The addresses of all interfaces.
    pub addresses: Addresses,
    /// The addresses that this host's own name resolves to.
    pub host_name_addresses: Addresses,
    /// The result of each check.
    pub checks: Vec<Check>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The subject of the check, in a few words.
    pub name: String,
    /// The outcome.
    pub outcome: ProbeOutcome,
    /// The finding, in one sentence.
    pub found: String,
    /// A recommended action; empty if none is needed.
    pub advice: String,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeOutcome {
    /// The check passed.
    Good,
    /// It works, but not as well as it could.
    Warning,
    /// Ranks cannot work under this condition.
    Bad,
}

impl Findings {
    /// Return the worst outcome.
    pub fn worst(&self) -> ProbeOutcome {
        let outcomes = || self.checks.iter().map(|check| check.outcome);
        match () {
            () if outcomes().any(|outcome| outcome == ProbeOutcome::Bad) => ProbeOutcome::Bad,
            () if outcomes().any(|outcome| outcome == ProbeOutcome::Warning) => ProbeOutcome::Warning,
            () => ProbeOutcome::Good,
        }
    }
}

/// Run all checks that apply to a rank with `config`.
pub fn probe(config: &Config) -> Findings {
    let addresses = Addresses::of_interfaces().unwrap_or_default();
    let host = host_name();
    let named = Addresses::of_name(&host);
    let checks = vec![
        check_settings(config),
        check_listening(config),
        check_addresses(&addresses),
        check_host_name(&host, &named),
        check_unix_sockets(config),
        check_shared_memory(),
        check_cores(config),
        check_descriptors(config),
    ];
    Findings {
        host,
        identity: HostIdentity::here(),
        core_count: core_count(),
        addresses,
        host_name_addresses: named.unwrap_or_default(),
        checks,
    }
}

fn check(name: &str, outcome: ProbeOutcome, found: impl ToString, advice: &str) -> Check {
    let advice = if outcome == ProbeOutcome::Good { String::new() } else { advice.to_string() };
    Check { name: name.to_string(), outcome, found: found.to_string(), advice }
}

fn check_settings(config: &Config) -> Check {
    let name = "settings";
    match config.check() {
        Ok(()) => check(name, ProbeOutcome::Good, format!("rank {} of {}", config.rank, config.world_size), ""),
        Err(error) => check(name, ProbeOutcome::Bad, error, "correct the setting"),
    }
}

fn check_listening(config: &Config) -> Check {
    let advice = "ask for port 0 or for a range of free ports, on a host name or address of this machine";
    match Listeners::open(config) {
        Ok(listeners) => {
            check("listening", ProbeOutcome::Good, format!("TCP port {} is available", listeners.port), "")
        }
        Err(error) => check("listening", ProbeOutcome::Bad, error, advice),
    }
}

fn check_addresses(addresses: &Addresses) -> Check {
    let advice = "this host works alone; to work with others it needs an interface that is up and has an address";
    let usable: Vec<String> = addresses.usable.iter().map(ToString::to_string).collect();
    match usable.is_empty() {
        false => check("addresses", ProbeOutcome::Good, format!("other hosts may reach {}", usable.join(", ")), ""),
        true => check("addresses", ProbeOutcome::Warning, addresses.explain(), advice),
    }
}

fn check_host_name(host: &str, named: &io::Result<Addresses>) -> Check {
    let advice = "nothing to do while addresses are offered; do not listen on this name";
    match named {
        Ok(named) if !named.usable.is_empty() => {
            let usable: Vec<String> = named.usable.iter().map(ToString::to_string).collect();
            check("host name", ProbeOutcome::Good, format!("{host} is {}", usable.join(", ")), "")
        }
        Ok(named) => check("host name", ProbeOutcome::Warning, format!("{host}: {}", named.explain()), advice),
        Err(error) => check("host name", ProbeOutcome::Warning, format!("{host} cannot be resolved: {error}"), advice),
    }
}

fn check_unix_sockets(config: &Config) -> Check {
    let advice = "ranks of this host will use TCP";
    let any_port = Config { ports: Default::default(), host: None, ..config.clone() };
    match Listeners::open(&any_port) {
        Ok(Listeners { unix: Some(_), .. }) => {
            check("Unix sockets", ProbeOutcome::Good, "abstract names are available", "")
        }
        Ok(_) => check("Unix sockets", ProbeOutcome::Warning, "abstract names are not available", advice),
        Err(error) => check("Unix sockets", ProbeOutcome::Warning, error, advice),
    }
}

fn check_shared_memory() -> Check {
    let advice = "ranks of this host will use TCP; a sandbox may forbid memfd_create, eventfd or passing descriptors";
    match share_memory() {
        Ok(()) => check("shared memory", ProbeOutcome::Good, "memory can be created, passed and mapped", ""),
        Err(error) => check("shared memory", ProbeOutcome::Warning, error, advice),
    }
}

/// Create a link as two processes would.
fn share_memory() -> io::Result<()> {
    let (first, second) = UnixStream::pair()?;
    let (here, there) = (Doorbell::new()?, Doorbell::new()?);
    let offer = shared_memory::offer(&first, &here.waker(), 1 << 16)?;
    shared_memory::accept(&second, &there.waker())?;
    offer.finish(&first).map(drop)
}

fn check_cores(config: &Config) -> Check {
    let cores = core_count();
    let found = format!("{cores} cores may be used");
    match config.world_size > cores {
        true => check("cores", ProbeOutcome::Warning, found, "if all ranks run on this host, they share its cores"),
        false => check("cores", ProbeOutcome::Good, found, ""),
    }
}

fn check_descriptors(config: &Config) -> Check {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let needed = DESCRIPTORS_PER_PEER * config.world_size as u64 + OTHER_DESCRIPTOR_COUNT;
    let found = format!("{limit} files may be open, {needed} may be needed by {} ranks", config.world_size);
    match limit < needed {
        true => check("open files", ProbeOutcome::Warning, found, "raise it with `ulimit -n`"),
        false => check("open files", ProbeOutcome::Good, found, ""),
    }
}

/// A shared-memory link holds the peer's waker (2 descriptors) and a socket; rank 0 also holds a control connection.
const DESCRIPTORS_PER_PEER: u64 = 4;
/// Listeners, event descriptors, the process's own waker, and files of the program.
const OTHER_DESCRIPTOR_COUNT: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Ports, Token};

    #[test]
    fn a_working_host_passes_and_a_port_in_use_is_reported() {
        let mut config = Config::new(0, 1, Token::from_secret("test"));
        let report = probe(&config);
        assert_ne!(report.worst(), ProbeOutcome::Bad, "{report:?}");

        let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = holder.local_addr().unwrap().port();
        config.host = Some("127.0.0.1".to_string());
        config.ports = Ports::single(port);
        let report = probe(&config);
        let bad: Vec<&Check> = report.checks.iter().filter(|check| check.outcome == ProbeOutcome::Bad).collect();
        assert!(bad.len() == 1 && bad[0].found.contains(&port.to_string()), "{report:?}");
    }
}
