//! Derives the topology from the addresses: ranks that can share memory form a node, and racks have names.

use crate::config::Config;
use crate::error::NetError;
use crate::peer_address::PeerAddress;
use ripieno_run::Topology;
use std::collections::HashMap;
use std::hash::Hash;

/// Return the topology, equal on all ranks because they derive it from the same addresses.
pub(super) fn topology(config: &Config, addresses: &[PeerAddress]) -> Result<Topology, NetError> {
    let nodes = first_ranks(addresses, |address| &address.identity);
    let racks = first_ranks(addresses, |address| &address.rack);
    for address in addresses {
        let neighbour = &addresses[nodes[address.rank]];
        if neighbour.rack != address.rack {
            return Err(rack_error(config, neighbour, address));
        }
        if address.rack.is_some() != addresses[0].rack.is_some() {
            return Err(rack_error(config, &addresses[0], address));
        }
    }
    Ok(Topology::new(nodes, racks))
}

/// Return for every rank the first rank at the same place.
fn first_ranks<'a, T: Hash + Eq + 'a>(
    addresses: &'a [PeerAddress],
    place: impl Fn(&'a PeerAddress) -> &'a T,
) -> Vec<usize> {
    let mut first = HashMap::new();
    addresses.iter().map(|address| *first.entry(place(address)).or_insert(address.rank)).collect()
}

fn rack_error(config: &Config, first: &PeerAddress, second: &PeerAddress) -> NetError {
    let text = |address: &PeerAddress| match &address.rack {
        Some(rack) => format!("rank {} on host {} is in rack {rack}", address.rank, address.host),
        None => format!("rank {} on host {} names no rack", address.rank, address.host),
    };
    NetError::Config {
        name: "rack",
        value: config.rack.clone().unwrap_or_default(),
        expected: format!(
            "a rack for every rank or for none, the same for all ranks of a host, but {} and {}",
            text(first),
            text(second)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Token;
    use crate::listeners::Listeners;

    /// Return the addresses of ranks on hosts and in racks with these names.
    fn addresses(places: &[(&str, Option<&str>)]) -> (Config, Vec<PeerAddress>) {
        let address = |(rank, (host, rack)): (usize, &(&str, Option<&str>))| {
            let rack = rack.map(str::to_string);
            let config = Config { rack, ..Config::new(rank, places.len(), Token::from_secret("test")) };
            let mut address = PeerAddress::new(&config, &Listeners::open(&config).unwrap()).unwrap();
            address.identity.network = host.to_string();
            address
        };
        let config = Config::new(0, places.len(), Token::from_secret("test"));
        (config, places.iter().enumerate().map(address).collect())
    }

    #[test]
    fn ranks_of_one_network_namespace_are_a_node_and_equal_names_a_rack() {
        let (config, addresses) = addresses(&[("a", Some("x")), ("b", Some("y")), ("a", Some("x")), ("c", Some("x"))]);
        let found = topology(&config, &addresses).unwrap();
        assert_eq!((found.nodes(), found.racks()), (vec![0, 1, 0, 2], vec![0, 1, 0, 0]));
    }

    #[test]
    fn rack_names_are_optional() {
        let (config, addresses) = addresses(&[("a", None), ("b", None), ("b", None)]);
        let found = topology(&config, &addresses).unwrap();
        assert_eq!((found.nodes(), found.racks()), (vec![0, 1, 1], vec![0, 0, 0]));
    }

    #[test]
    fn a_rank_without_a_rack_and_a_host_in_two_racks_are_named() {
        for places in [[("a", Some("x")), ("b", None)], [("a", Some("x")), ("a", Some("y"))]] {
            let (config, addresses) = addresses(&places);
            let text = topology(&config, &addresses).unwrap_err().to_string();
            assert!(text.contains("rank 0 on host") && text.contains("in rack x") && text.contains("rank 1"), "{text}");
        }
    }
}
