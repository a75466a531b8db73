//! Address record of a rank: its identity and its network addresses, sent to all other ranks.
//!
//! The record is compact JSON, sealed with the token, so a rank with another token is detected immediately.

use crate::auth::{JobNonce, is_seal, seal};
use crate::config::{Config, Encryption, fill_random};
use crate::error::NetError;
use crate::host::{CoreMask, HostIdentity, host_name, usable_cores};
use crate::listeners::Listeners;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Ranks with different versions cannot work together.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The identity of a rank and its network addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerAddress {
    pub version: String,
    pub nonce: String,
    pub rank: usize,
    pub world_size: usize,
    pub replicas: usize,
    pub host: String,
    pub identity: HostIdentity,
    pub rack: Option<String>,
    pub tls: Encryption,
    pub unix: Option<String>,
    pub usable: Vec<IpAddr>,
    pub loopback: Vec<IpAddr>,
    pub port: u16,
    pub pid: u32,
    pub cores: CoreMask,
    /// The token's seal over all fields above.
    proof: String,
}

/// The field that records of every version have.
#[derive(Deserialize)]
struct AnyAddress {
    version: String,
}

impl PeerAddress {
    /// Create the record of this rank.
    pub fn new(config: &Config, listeners: &Listeners) -> Result<PeerAddress, NetError> {
        let mut nonce = [0; 16];
        fill_random(&mut nonce)?;
        let mut address = PeerAddress {
            version: VERSION.to_string(),
            nonce: hex(&nonce),
            rank: config.rank,
            world_size: config.world_size,
            replicas: config.replicas,
            host: host_name(),
            identity: HostIdentity::here(),
            rack: config.rack.clone(),
            tls: config.tls,
            unix: listeners.unix.clone(),
            usable: listeners.addresses.usable.clone(),
            loopback: listeners.addresses.loopback.clone(),
            port: listeners.port,
            pid: std::process::id(),
            cores: usable_cores(),
            proof: String::new(),
        };
        address.proof = hex(&seal(&config.token, "peer address", &[address.encode().as_bytes()]));
        Ok(address)
    }

    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("an address is plain data, which JSON always holds")
    }

    /// Parse the records of all ranks, and check that they belong to one job.
    pub fn read_all(config: &Config, strings: &[String]) -> Result<Vec<PeerAddress>, NetError> {
        if strings.len() != config.world_size {
            let cause = format!("it returned {} strings for a world of {}", strings.len(), config.world_size);
            return Err(NetError::Exchange { rank: config.rank, cause, elapsed_ms: 0 });
        }
        strings.iter().enumerate().map(|(peer, text)| PeerAddress::read(config, peer, text)).collect()
    }

    /// Parse the record of rank `peer`, and check that it belongs to the job of `config`.
    pub fn read(config: &Config, peer: usize, text: &str) -> Result<PeerAddress, NetError> {
        let disagree = |cause: String| Err(NetError::Disagree { rank: config.rank, peer, cause });
        match serde_json::from_str::<AnyAddress>(text) {
            Ok(any) if any.version != VERSION => {
                return disagree(format!("versions {VERSION} and {} do not work together", any.version));
            }
            _ => {}
        }
        let mut address: PeerAddress = match serde_json::from_str(text) {
            Ok(address) => address,
            Err(error) => return disagree(format!("rank {peer}'s string is not the address of a rank: {error}")),
        };
        let proof = std::mem::take(&mut address.proof);
        let sealed =
            unhex(&proof).is_some_and(|it| is_seal(&it, &config.token, "peer address", &[address.encode().as_bytes()]));
        if !sealed {
            return disagree("their tokens differ; every rank of a job gets the same token".to_string());
        }
        address.proof = proof;
        if address.world_size != config.world_size {
            let (own, other) = (config.world_size, address.world_size);
            return disagree(format!("their world sizes differ: {own} and {other}"));
        }
        if address.replicas != config.replicas {
            let (own, other) = (config.replicas, address.replicas);
            return disagree(format!("their numbers of replicas differ: {own} and {other}"));
        }
        if address.tls != config.tls {
            let (rank, own, other) = (config.rank, config.tls, address.tls);
            return disagree(format!("rank {rank} {own} and rank {peer} {other}"));
        }
        if address.rank != peer {
            return disagree(format!("the string at position {peer} is of rank {}", address.rank));
        }
        Ok(address)
    }

    /// Return the same record with the rank and size of another world.
    pub fn in_world(self, rank: usize, world_size: usize) -> PeerAddress {
        PeerAddress { rank, world_size, ..self }
    }

    /// Return the nonce of this record. The job uses the nonce of rank 0.
    pub fn job_nonce(&self) -> JobNonce {
        let bytes = unhex(&self.nonce).unwrap_or_default();
        JobNonce(bytes.try_into().unwrap_or_default())
    }
}

/// Refuse a world with several hosts if a rank offers only loopback addresses.
pub(crate) fn check_addresses(config: &Config, addresses: &[PeerAddress]) -> Result<(), NetError> {
    let one_host = addresses.iter().all(|address| address.identity == addresses[0].identity);
    let hidden = addresses.iter().find(|address| address.usable.is_empty());
    match hidden {
        Some(address) if !one_host => Err(NetError::Address {
            rank: address.rank,
            host: address.host.clone(),
            cause: format!(
                "it offers only loopback ({}), which rank {}'s host cannot reach; give it the address of an interface \
                 that is up",
                address.loopback.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
                config.rank
            ),
        }),
        _ => Ok(()),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    digits.map(|digits| digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Token;

    fn addresses(tokens: &[&str]) -> (Vec<Config>, Vec<String>) {
        let config = |(rank, token): (usize, &&str)| Config::new(rank, tokens.len(), Token::from_secret(token));
        let configs: Vec<Config> = tokens.iter().enumerate().map(config).collect();
        let address = |config: &Config| PeerAddress::new(config, &Listeners::open(config).unwrap()).unwrap().encode();
        let strings = configs.iter().map(address).collect();
        (configs, strings)
    }

    fn cause(result: Result<Vec<PeerAddress>, NetError>) -> (usize, String) {
        let Err(NetError::Disagree { peer, cause, .. }) = result else { panic!("{result:?}") };
        (peer, cause)
    }

    #[test]
    fn addresses_round_trip_unchanged() {
        let (configs, strings) = addresses(&["a", "a"]);
        let read = PeerAddress::read_all(&configs[1], &strings).unwrap();
        assert_eq!(read.iter().map(PeerAddress::encode).collect::<Vec<_>>(), strings);
        assert_ne!(read[0].job_nonce(), JobNonce::default());
    }

    #[test]
    fn a_wrong_token_version_or_order_is_reported() {
        let (configs, strings) = addresses(&["a", "b", "a"]);
        let (peer, text) = cause(PeerAddress::read_all(&configs[2], &strings));
        assert!(peer == 1 && text.contains("tokens differ"), "{text}");

        let (configs, mut strings) = addresses(&["a", "a", "a"]);
        strings.swap(1, 2);
        let (peer, text) = cause(PeerAddress::read_all(&configs[0], &strings));
        assert!(peer == 1 && text.contains("is of rank 2"), "{text}");

        let older = strings[0].replace(&format!("\"version\":\"{VERSION}\""), "\"version\":\"0.0.1\"");
        let (peer, text) = cause(PeerAddress::read_all(&configs[0], &[older, strings[2].clone(), strings[1].clone()]));
        assert!(peer == 0 && text.contains("0.0.1"), "{text}");
    }

    #[test]
    fn a_host_that_offers_only_loopback_is_reported_if_other_hosts_exist() {
        let (configs, strings) = addresses(&["a", "a"]);
        let mut addresses = PeerAddress::read_all(&configs[0], &strings).unwrap();
        addresses[1].usable.clear();
        assert_eq!(check_addresses(&configs[0], &addresses), Ok(()));
        addresses[1].identity.boot = "other".to_string();
        let text = check_addresses(&configs[0], &addresses).unwrap_err().to_string();
        assert!(text.contains("rank 1") && text.contains("127.0.0.1"), "{text}");
    }
}
