//! The card that a rank hands to all others: who it is and where it can be reached, as compact JSON, sealed with the
//! token so that a rank with another token is found out at once.

use crate::auth::{JobNonce, is_seal, seal};
use crate::config::{Config, fill_random};
use crate::error::NetError;
use crate::host::{HostIdentity, host_name};
use crate::listen::Doors;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Ranks of different versions do not work together.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Who a rank is and where it can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Card {
    pub version: String,
    pub nonce: String,
    pub rank: usize,
    pub world_size: usize,
    pub replicas: usize,
    pub host: String,
    pub identity: HostIdentity,
    pub rack: Option<String>,
    pub unix: Option<String>,
    pub addresses: Vec<IpAddr>,
    pub loopback: Vec<IpAddr>,
    pub port: u16,
    pub pid: u32,
    /// The token's seal over all of the above.
    proof: String,
}

/// What cards of every version have.
#[derive(Deserialize)]
struct AnyCard {
    version: String,
}

impl Card {
    /// This rank's card.
    pub fn new(config: &Config, doors: &Doors) -> Result<Card, NetError> {
        let mut nonce = [0; 16];
        fill_random(&mut nonce)?;
        let mut card = Card {
            version: VERSION.to_string(),
            nonce: hex(&nonce),
            rank: config.rank,
            world_size: config.world_size,
            replicas: config.replicas,
            host: host_name(),
            identity: HostIdentity::here(),
            rack: config.rack.clone(),
            unix: doors.unix.as_ref().map(|(_, name)| name.clone()),
            addresses: doors.addresses.usable.clone(),
            loopback: doors.addresses.loopback.clone(),
            port: doors.port,
            pid: std::process::id(),
            proof: String::new(),
        };
        card.proof = hex(&seal(&config.token, "card", &[card.encode().as_bytes()]));
        Ok(card)
    }

    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a card is plain data, which JSON always holds")
    }

    /// All ranks' cards from all ranks' strings, if they make one job.
    pub fn read_all(config: &Config, strings: &[String]) -> Result<Vec<Card>, NetError> {
        if strings.len() != config.world_size {
            let cause = format!("it gave {} strings for a world of {}", strings.len(), config.world_size);
            return Err(NetError::Exchange { rank: config.rank, cause, elapsed_ms: 0 });
        }
        strings.iter().enumerate().map(|(peer, text)| Card::read(config, peer, text)).collect()
    }

    fn read(config: &Config, peer: usize, text: &str) -> Result<Card, NetError> {
        let disagree = |cause: String| Err(NetError::Disagree { rank: config.rank, peer, cause });
        match serde_json::from_str::<AnyCard>(text) {
            Ok(any) if any.version != VERSION => {
                return disagree(format!("versions {VERSION} and {} do not work together", any.version));
            }
            _ => {}
        }
        let mut card: Card = match serde_json::from_str(text) {
            Ok(card) => card,
            Err(error) => return disagree(format!("rank {peer}'s string is no card: {error}")),
        };
        let proof = std::mem::take(&mut card.proof);
        let sealed = unhex(&proof).is_some_and(|it| is_seal(&it, &config.token, "card", &[card.encode().as_bytes()]));
        if !sealed {
            return disagree("their tokens differ; every rank of a job gets the same token".to_string());
        }
        card.proof = proof;
        if card.world_size != config.world_size {
            let (own, other) = (config.world_size, card.world_size);
            return disagree(format!("their world sizes differ: {own} and {other}"));
        }
        if card.replicas != config.replicas {
            let (own, other) = (config.replicas, card.replicas);
            return disagree(format!("their numbers of replicas differ: {own} and {other}"));
        }
        if card.rank != peer {
            return disagree(format!("the string in place {peer} is of rank {}", card.rank));
        }
        Ok(card)
    }

    /// The job's nonce, of which rank 0's card is the source.
    pub fn job_nonce(&self) -> JobNonce {
        let bytes = unhex(&self.nonce).unwrap_or_default();
        JobNonce(bytes.try_into().unwrap_or_default())
    }
}

/// Refuses a world of several hosts in which one offers nothing but loopback.
pub(crate) fn check_addresses(config: &Config, cards: &[Card]) -> Result<(), NetError> {
    let one_host = cards.iter().all(|card| card.identity == cards[0].identity);
    let hidden = cards.iter().find(|card| card.addresses.is_empty());
    match hidden {
        Some(card) if !one_host => Err(NetError::Address {
            rank: card.rank,
            host: card.host.clone(),
            cause: format!(
                "it offers only loopback ({}), which rank {}'s host cannot reach; give it the address of an interface \
                 that is up",
                card.loopback.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
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

    fn cards(tokens: &[&str]) -> (Vec<Config>, Vec<String>) {
        let config = |(rank, token): (usize, &&str)| Config::new(rank, tokens.len(), Token::from_secret(token));
        let configs: Vec<Config> = tokens.iter().enumerate().map(config).collect();
        let card = |config: &Config| Card::new(config, &Doors::open(config).unwrap()).unwrap().encode();
        let strings = configs.iter().map(card).collect();
        (configs, strings)
    }

    fn cause(result: Result<Vec<Card>, NetError>) -> (usize, String) {
        let Err(NetError::Disagree { peer, cause, .. }) = result else { panic!("{result:?}") };
        (peer, cause)
    }

    #[test]
    fn cards_come_back_as_they_left() {
        let (configs, strings) = cards(&["a", "a"]);
        let read = Card::read_all(&configs[1], &strings).unwrap();
        assert_eq!(read.iter().map(Card::encode).collect::<Vec<_>>(), strings);
        assert_ne!(read[0].job_nonce(), JobNonce::default());
    }

    #[test]
    fn another_token_another_version_and_another_order_are_told_on_every_rank() {
        let (configs, strings) = cards(&["a", "b", "a"]);
        let (peer, told) = cause(Card::read_all(&configs[2], &strings));
        assert!(peer == 1 && told.contains("tokens differ"), "{told}");

        let (configs, mut strings) = cards(&["a", "a", "a"]);
        strings.swap(1, 2);
        let (peer, told) = cause(Card::read_all(&configs[0], &strings));
        assert!(peer == 1 && told.contains("is of rank 2"), "{told}");

        let older = strings[0].replace(&format!("\"version\":\"{VERSION}\""), "\"version\":\"0.0.1\"");
        let (peer, told) = cause(Card::read_all(&configs[0], &[older, strings[2].clone(), strings[1].clone()]));
        assert!(peer == 0 && told.contains("0.0.1"), "{told}");
    }

    #[test]
    fn a_host_that_offers_only_loopback_is_named_when_there_are_others() {
        let (configs, strings) = cards(&["a", "a"]);
        let mut cards = Card::read_all(&configs[0], &strings).unwrap();
        cards[1].addresses.clear();
        assert_eq!(check_addresses(&configs[0], &cards), Ok(()));
        cards[1].identity.boot = "other".to_string();
        let told = check_addresses(&configs[0], &cards).unwrap_err().to_string();
        assert!(told.contains("rank 1") && told.contains("127.0.0.1"), "{told}");
    }
}
