//! Selection of an algorithm by name, and of an order for its ranks.
//!
//! A text `algorithm@order` names both. Either part is optional: `ring`, `chain@random:7`, `@given`. Precedence, from
//! high to low: the argument of a call; [`Overrides`]; the preference of a communicator, found by trials;
//! [`choose`](ripieno_plan::choose). The order is `racks` (the default), `given` or `random:SEED`. It applies to
//! chains, rings and trees, and to both levels of two-level algorithms.

use crate::error::Error;
use crate::preferred::Preferred;
use ripieno_plan::{Algorithm, Collective, Group, Order, choose, choose_in_rank_order};

/// The largest seed of a random order. Ranks compare orders by 32 bits.
const MAX_SEED: u64 = u32::MAX as u64 - 2;

/// An algorithm and the order of its ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlgorithmChoice {
    pub algorithm: &'static Algorithm,
    pub order: Order,
}

/// The user's choices for all calls that name no algorithm, from the environment variable `RIPIENO_ALGORITHM`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides {
    by_collective: [NamedAlgorithm; Collective::ALL.len()],
}

/// A parsed text; a missing part is `None`.
#[derive(Clone, Copy, Debug, Default)]
struct NamedAlgorithm {
    algorithm: Option<&'static Algorithm>,
    order: Option<Order>,
}

impl Overrides {
    /// Parse `ring` (for every collective with an algorithm of that name), `allreduce=ring,broadcast=chain@given`, or a
    /// mixture. Entries with a collective take precedence. An empty text gives no overrides.
    pub fn parse(text: &str) -> Result<Overrides, Error> {
        let mut overrides = Overrides::default();
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let (special, general): (Vec<&str>, Vec<&str>) = entries.partition(|entry| entry.contains('='));
        for entry in general {
            overrides.set_where_known(entry)?;
        }
        for entry in special {
            let (name, choice) = entry.split_once('=').unwrap_or((entry, ""));
            let collective = Collective::catalogued().find(|each| each.name() == name.trim().replace('_', "-"));
            let collective = collective.ok_or_else(|| {
                let names: Vec<&str> = Collective::catalogued().map(Collective::name).collect();
                invalid("collective", name.trim(), format!("one of {}", names.join(", ")))
            })?;
            overrides.by_collective[collective as usize].take(NamedAlgorithm::parse(collective, choice.trim())?);
        }
        Ok(overrides)
    }

    fn set_where_known(&mut self, entry: &str) -> Result<(), Error> {
        let (name, order) = split(entry)?;
        let mut is_known = name.is_empty();
        for (collective, named) in Collective::catalogued().zip(&mut self.by_collective) {
            let algorithm = Algorithm::by_name(collective, name);
            is_known |= algorithm.is_some();
            named.take(NamedAlgorithm { algorithm, order: order.filter(|_| name.is_empty() || algorithm.is_some()) });
        }
        if is_known { Ok(()) } else { Err(invalid("algorithm", name, format!("one of {}", all_names()))) }
    }

    /// Choose the algorithm for a call of `collective` with argument `requested` and `bytes` bytes.
    pub(crate) fn choice(
        &self,
        collective: Collective,
        requested: Option<&str>,
        group: &Group,
        preferred: &Preferred,
        bytes: usize,
    ) -> Result<AlgorithmChoice, Error> {
        let Some(requested) = requested else {
            return Ok(self.default_choice(collective, group, preferred, bytes));
        };
        let mut named = self.by_collective[collective as usize];
        named.take(NamedAlgorithm::parse(collective, requested)?);
        Ok(named.or_default(collective, group, preferred, bytes))
    }

    /// Choose the algorithm for a call that names none.
    pub(crate) fn default_choice(
        &self,
        collective: Collective,
        group: &Group,
        preferred: &Preferred,
        bytes: usize,
    ) -> AlgorithmChoice {
        self.by_collective[collective as usize].or_default(collective, group, preferred, bytes)
    }
}

/// Choose the algorithm for a reduction by a function. The algorithm must keep operands in rank order.
///
/// [`Overrides`] do not apply, because they may reorder operands. An order of ranks is ignored.
pub(crate) fn in_rank_order(collective: Collective, requested: Option<&str>) -> Result<AlgorithmChoice, Error> {
    let named =
        requested.map(|requested| NamedAlgorithm::parse(collective, requested)).transpose()?.unwrap_or_default();
    let ordered = choose_in_rank_order(collective)
        .ok_or_else(|| invalid("collective", collective.name(), "one that combines".to_string()))?;
    match named.algorithm {
        Some(algorithm) if !algorithm.in_rank_order => {
            let expected = format!("{}, because a function need not be commutative", ordered.name);
            Err(invalid("algorithm", algorithm.name, expected))
        }
        _ => Ok(AlgorithmChoice { algorithm: ordered, order: Order::default() }),
    }
}

impl AlgorithmChoice {
    /// Return a number that identifies the order when ranks compare their calls; 0 for the default.
    #[inline]
    pub fn order_hash(&self) -> u32 {
        match self.order {
            Order::Racks => 0,
            Order::Given => 1,
            // At most `MAX_SEED`.
            Order::Random(seed) => 2 + seed as u32,
        }
    }

    /// Return the name of the order, or an empty string for the default.
    pub fn order_name(&self) -> String {
        match self.order {
            Order::Racks => String::new(),
            Order::Given => "order given".to_string(),
            Order::Random(seed) => format!("order random:{seed}"),
        }
    }
}

impl NamedAlgorithm {
    fn parse(collective: Collective, text: &str) -> Result<NamedAlgorithm, Error> {
        let (name, order) = split(text)?;
        let algorithm = Algorithm::by_name(collective, name);
        if algorithm.is_none() && !name.is_empty() {
            let names: Vec<&str> = Algorithm::of(collective).map(|algorithm| algorithm.name).collect();
            return Err(invalid("algorithm", name, format!("one of {} for {}", names.join(", "), collective.name())));
        }
        Ok(NamedAlgorithm { algorithm, order })
    }

    fn or_default(self, collective: Collective, group: &Group, preferred: &Preferred, bytes: usize) -> AlgorithmChoice {
        let default = || preferred.find(collective, bytes).unwrap_or_else(|| choose(collective, group, bytes));
        let algorithm = self.algorithm.unwrap_or_else(default);
        AlgorithmChoice { algorithm, order: self.order.unwrap_or_default() }
    }

    /// Replace each part that `stronger` contains.
    fn take(&mut self, stronger: NamedAlgorithm) {
        *self =
            NamedAlgorithm { algorithm: stronger.algorithm.or(self.algorithm), order: stronger.order.or(self.order) };
    }
}

/// Split a text into the algorithm name, which may be empty, and the order.
fn split(text: &str) -> Result<(&str, Option<Order>), Error> {
    let Some((name, order)) = text.split_once('@') else { return Ok((text, None)) };
    match Order::parse(order) {
        Some(Order::Random(seed)) if seed > MAX_SEED => {
            Err(invalid("order", order, format!("a seed of at most {MAX_SEED}")))
        }
        Some(order) => Ok((name, Some(order))),
        None => Err(invalid("order", order, "racks, given, random or random:SEED with a whole number".to_string())),
    }
}

fn all_names() -> String {
    let mut names: Vec<&str> = Collective::catalogued().flat_map(Algorithm::of).map(|each| each.name).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

fn invalid(name: &'static str, value: &str, expected: String) -> Error {
    Error::Argument { name, value: value.to_string(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(overrides: &str, collective: Collective, requested: Option<&str>) -> (&'static str, Order) {
        let group = Group::new(0, 16);
        let overrides = Overrides::parse(overrides).unwrap();
        let choice = overrides.choice(collective, requested, &group, &Preferred::default(), 8).unwrap();
        (choice.algorithm.name, choice.order)
    }

    fn parse_error(overrides: &str) -> String {
        Overrides::parse(overrides).unwrap_err().to_string()
    }

    #[test]
    fn a_bare_name_applies_to_every_collective_that_has_it() {
        assert_eq!(chosen("ring", Collective::Allreduce, None).0, "ring");
        assert_eq!(chosen("ring", Collective::Allgather, None).0, "ring");
        assert_eq!(
            chosen("ring", Collective::Broadcast, None).0,
            choose(Collective::Broadcast, &Group::new(0, 16), 8).name
        );
    }

    #[test]
    fn an_argument_overrides_an_entry_with_a_collective_and_that_a_bare_name() {
        let overrides = " reduce_scatter = direct , ring, broadcast=chain@given";
        assert_eq!(chosen(overrides, Collective::ReduceScatter, None).0, "direct");
        assert_eq!(chosen(overrides, Collective::Broadcast, None), ("chain", Order::Given));
        assert_eq!(chosen(overrides, Collective::Broadcast, Some("flat")), ("flat", Order::Given));
        assert_eq!(chosen(overrides, Collective::Broadcast, Some("@random:7")), ("chain", Order::Random(7)));
        assert_eq!(chosen("", Collective::Broadcast, Some("chain")), ("chain", Order::Racks));
    }

    #[test]
    fn a_named_algorithm_overrides_the_preference_of_a_communicator() {
        let (group, mut preferred) = (Group::new(0, 16), Preferred::default());
        preferred.set(Collective::Allreduce, &group, &[(1 << 20, "one-round".to_string())]).unwrap();
        let chosen = |overrides: &str, requested| {
            let overrides = Overrides::parse(overrides).unwrap();
            overrides.choice(Collective::Allreduce, requested, &group, &preferred, 8).unwrap().algorithm.name
        };
        assert_eq!(chosen("", None), "one-round");
        assert_eq!(chosen("broadcast=chain", Some("@given")), "one-round");
        assert_eq!(chosen("allreduce=ring", None), "ring");
        assert_eq!(chosen("", Some("tree")), "tree");
    }

    #[test]
    fn an_order_without_a_name_applies_to_every_collective() {
        assert_eq!(chosen("@given,ring", Collective::Allreduce, None), ("ring", Order::Given));
        for collective in Collective::catalogued() {
            assert_eq!(chosen("@random:3", collective, None).1, Order::Random(3));
        }
    }

    #[test]
    fn unknown_names_are_reported_with_the_known_ones() {
        assert!(
            parse_error("rng").contains("algorithm=rng: expected one of")
                && parse_error("rng").contains("dissemination")
        );
        assert!(parse_error("allreduce=chain").contains("algorithm=chain: expected one of bidirectional-exchange"));
        assert!(parse_error("allreduse=ring").contains("collective=allreduse: expected one of broadcast"));
        assert!(parse_error("ring@sideways").contains("order=sideways: expected racks, given"));
        assert!(parse_error("broadcast=chain@random:x").contains("order=random:x"));
        assert!(
            parse_error("@random:4294967294")
                .ends_with("order=random:4294967294: expected a seed of at most 4294967293")
        );
    }

    #[test]
    fn different_orders_have_different_hashes() {
        let hash = |requested| {
            let (group, preferred) = (Group::new(0, 9), Preferred::default());
            let choice = Overrides::default().choice(Collective::Broadcast, Some(requested), &group, &preferred, 8);
            choice.unwrap().order_hash()
        };
        let hashes = ["@racks", "@given", "@random:0", "@random:1", "@random:4294967293"].map(hash);
        assert_eq!(hashes[0], 0);
        assert!((0..5).all(|i| (0..i).all(|j| hashes[i] != hashes[j])), "{hashes:?}");
    }
}
