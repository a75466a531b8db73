//! Where the ranks stand, from their cards: ranks that can share memory are one node, racks have names.

use crate::card::Card;
use crate::config::Config;
use crate::error::NetError;
use ripieno_run::Topology;
use std::collections::HashMap;
use std::hash::Hash;

/// The topology that all ranks read from the same cards.
pub(super) fn topology(config: &Config, cards: &[Card]) -> Result<Topology, NetError> {
    let nodes = firsts(cards, |card| &card.identity);
    let racks = firsts(cards, |card| &card.rack);
    for card in cards {
        let neighbour = &cards[nodes[card.rank]];
        if neighbour.rack != card.rack {
            return Err(unclear(config, neighbour, card));
        }
        if card.rack.is_some() != cards[0].rack.is_some() {
            return Err(unclear(config, &cards[0], card));
        }
    }
    Ok(Topology::new(nodes, racks))
}

/// For every rank the first that stands at the same place.
fn firsts<'a, T: Hash + Eq + 'a>(cards: &'a [Card], place: impl Fn(&'a Card) -> &'a T) -> Vec<usize> {
    let mut first = HashMap::new();
    cards.iter().map(|card| *first.entry(place(card)).or_insert(card.rank)).collect()
}

fn unclear(config: &Config, first: &Card, second: &Card) -> NetError {
    let told = |card: &Card| match &card.rack {
        Some(rack) => format!("rank {} on host {} stands in rack {rack}", card.rank, card.host),
        None => format!("rank {} on host {} names no rack", card.rank, card.host),
    };
    NetError::Config {
        name: "rack",
        value: config.rack.clone().unwrap_or_default(),
        expected: format!(
            "a rack for every rank or for none, the same for all ranks of a host, but {} and {}",
            told(first),
            told(second)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Token;
    use crate::listen::Doors;

    /// Cards of ranks on hosts and in racks of these names.
    fn cards(places: &[(&str, Option<&str>)]) -> (Config, Vec<Card>) {
        let card = |(rank, (host, rack)): (usize, &(&str, Option<&str>))| {
            let rack = rack.map(str::to_string);
            let config = Config { rack, ..Config::new(rank, places.len(), Token::from_secret("test")) };
            let mut card = Card::new(&config, &Doors::open(&config).unwrap()).unwrap();
            card.identity.network = host.to_string();
            card
        };
        let config = Config::new(0, places.len(), Token::from_secret("test"));
        (config, places.iter().enumerate().map(card).collect())
    }

    #[test]
    fn ranks_of_one_network_namespace_are_a_node_and_equal_names_a_rack() {
        let (config, cards) = cards(&[("a", Some("x")), ("b", Some("y")), ("a", Some("x")), ("c", Some("x"))]);
        let found = topology(&config, &cards).unwrap();
        assert_eq!((found.nodes(), found.racks()), (vec![0, 1, 0, 2], vec![0, 1, 0, 0]));
    }

    #[test]
    fn nobody_needs_to_name_a_rack() {
        let (config, cards) = cards(&[("a", None), ("b", None), ("b", None)]);
        let found = topology(&config, &cards).unwrap();
        assert_eq!((found.nodes(), found.racks()), (vec![0, 1, 1], vec![0, 0, 0]));
    }

    #[test]
    fn a_rank_without_a_rack_and_a_host_in_two_racks_are_named() {
        for places in [[("a", Some("x")), ("b", None)], [("a", Some("x")), ("a", Some("y"))]] {
            let (config, cards) = cards(&places);
            let told = topology(&config, &cards).unwrap_err().to_string();
            assert!(told.contains("rank 0 on host") && told.contains("in rack x") && told.contains("rank 1"), "{told}");
        }
    }
}
