//! The catalogue: all algorithms, each as its file says.
//!
//! The file of an algorithm has its plan and its [`Entry`]; [`algorithms`](crate::algorithms) lists the files. What
//! stands there is known to users by its name, to peers by its index, and to the laws in `tests/`, which hold plans and
//! theory against each other for every world size and root.

use crate::algorithms::ENTRIES;
use crate::ordered::{Stops, in_order};
use crate::request::{Collective, PlanFunction, Request};
use crate::theory::Theory;
use crate::{Group, Plan};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

/// Every algorithm, by collective, in the order of the list.
pub static ALGORITHMS: &[Algorithm] = &numbered::<{ ENTRIES.len() }>(ENTRIES);

/// What the file of an algorithm says of it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name that users know, unique within the collective.
    pub name: &'static str,
    /// How to make its plans.
    pub planner: PlanFunction,
    /// What its plans do.
    pub theory: Theory,
    /// What it makes of the places of its ranks.
    pub places: PlacementUse,
    /// What a request must have for it.
    pub needs: Needs,
    /// Whether its messages may be several chunks at once, which so must lie one after the other.
    pub joins_chunks: bool,
    /// Whether its plans run over links that hold nothing (see [`check_rendezvous`](crate::check::check_rendezvous)):
    /// no rank has to get rid of bytes before it can take others.
    pub rendezvous: bool,
    /// Whether every combination has its operands in the order of the ranks, so that the operation need not be
    /// commutative.
    pub in_rank_order: bool,
}

/// One algorithm: its entry, and its number.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// The number that travels between ranks: its place in the list of its collective.
    pub index: u8,
    /// What its file says.
    pub entry: Entry,
}

impl Deref for Algorithm {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

/// What an algorithm makes of the places of its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementUse {
    /// Nothing: ranks are their numbers.
    Ignored,
    /// Its ranks stand in the group's [`Order`](crate::Order): chains, rings, and trees over them.
    Ordered,
    /// It has a part for the ranks of each node, and one between the nodes.
    TwoLevels,
}

/// What a request must have for an algorithm. All ranks come to the same answer, if all ask for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Whatever is asked for.
    Nothing,
    /// An even number of ranks, or one.
    EvenWorld,
    /// Chunks that are equally long, on all ranks.
    EqualChunks,
    /// An operation whose operands may change places: what every algorithm needs that does not keep them in the order
    /// of the ranks.
    CommutativeOp,
}

/// An algorithm cannot do what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsuitable {
    /// Its name.
    pub algorithm: &'static str,
    /// What it needs.
    pub needs: Needs,
}

impl fmt::Display for Unsuitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} needs {}", self.algorithm, self.needs.text())
    }
}

impl core::error::Error for Unsuitable {}

impl Needs {
    /// What is needed, in words.
    pub fn text(self) -> &'static str {
        match self {
            Needs::Nothing => "nothing",
            Needs::EvenWorld => "an even number of ranks",
            Needs::EqualChunks => "equally long chunks on all ranks",
            Needs::CommutativeOp => "a commutative operation, and a function need not be one",
        }
    }
}

impl Algorithm {
    /// The algorithm of `collective` with this name.
    pub fn by_name(collective: Collective, name: &str) -> Option<&'static Algorithm> {
        Algorithm::of(collective).find(|algorithm| algorithm.name == name)
    }

    /// The algorithm of `collective` with this index.
    pub fn by_index(collective: Collective, index: u8) -> Option<&'static Algorithm> {
        Algorithm::of(collective).find(|algorithm| algorithm.index == index)
    }

    /// All algorithms of `collective`.
    pub fn of(collective: Collective) -> impl Iterator<Item = &'static Algorithm> {
        ALGORITHMS.iter().filter(move |algorithm| algorithm.collective() == collective)
    }
}

impl Entry {
    /// An algorithm that ignores places, needs nothing, and leaves chunks and links as they are.
    pub const fn new(name: &'static str, planner: PlanFunction, theory: Theory) -> Entry {
        let (places, needs) = (PlacementUse::Ignored, Needs::Nothing);
        Entry { name, planner, theory, places, needs, joins_chunks: false, rendezvous: true, in_rank_order: false }
    }

    /// The same algorithm, which combines in the order of the ranks.
    pub const fn in_rank_order(self) -> Entry {
        Entry { in_rank_order: true, ..self }
    }

    /// The same algorithm, planned for ranks that stand in the group's order. Where there are chunks, it must ask of
    /// them no more than that each rank has one.
    pub const fn ordered(self) -> Entry {
        Entry { places: PlacementUse::Ordered, ..self }
    }

    /// The same algorithm, in two levels.
    pub const fn two_levels(self) -> Entry {
        Entry { places: PlacementUse::TwoLevels, ..self }
    }

    /// The same algorithm, for requests that have what it needs.
    pub const fn needing(self, needs: Needs) -> Entry {
        Entry { needs, ..self }
    }

    /// The same algorithm, which sends several chunks at once.
    pub const fn joining(self) -> Entry {
        Entry { joins_chunks: true, ..self }
    }

    /// The same algorithm, whose links have to hold something.
    pub const fn buffered(self) -> Entry {
        Entry { rendezvous: false, ..self }
    }

    /// Which collective it performs.
    pub const fn collective(&self) -> Collective {
        self.planner.collective()
    }

    /// Whether the algorithm can do what is asked for.
    pub fn applies(&self, group: &Group, request: &Request) -> bool {
        self.lacking(group, request).is_none()
    }

    /// What the request lacks of the needs.
    fn lacking(&self, group: &Group, request: &Request) -> Option<Needs> {
        if !self.in_rank_order && request.op().is_some_and(|op| !op.is_commutative()) {
            return Some(Needs::CommutativeOp);
        }
        (!self.has_needs(group, request)).then_some(self.needs)
    }

    fn has_needs(&self, group: &Group, request: &Request) -> bool {
        match (self.needs, request) {
            (Needs::Nothing | Needs::CommutativeOp, _) => true,
            (Needs::EvenWorld, _) => group.size() == 1 || group.size().is_multiple_of(2),
            (Needs::EqualChunks, Request::Alltoall { out_chunks, in_chunks }) => {
                let chunks = || out_chunks.iter().chain(*in_chunks).map(|chunk| chunk.length_bytes);
                chunks().all(|length_bytes| length_bytes == out_chunks[0].length_bytes)
            }
            (Needs::EqualChunks, _) => true,
        }
    }

    /// All ranks' plans; `requests` has what each rank asks for.
    pub fn plans(&self, requests: &[Request]) -> Result<Vec<Plan>, Unsuitable> {
        let plan = |(rank, request)| self.plan(&Group::new(rank, requests.len()), request);
        requests.iter().enumerate().map(plan).collect()
    }

    /// The plans of all ranks of `group`, whichever of them it is, one after the other; `request` says what each rank
    /// asks for. The order of the ranks is worked out once.
    pub fn plans_of<'a>(
        &'a self,
        group: &'a Group,
        request: impl Fn(usize) -> Request<'a> + 'a,
    ) -> impl Iterator<Item = Result<Plan, Unsuitable>> + 'a {
        let stops = match self.places {
            PlacementUse::Ordered => Stops::of(group, request(0).root()),
            PlacementUse::Ignored | PlacementUse::TwoLevels => None,
        };
        group.ranks().map(move |rank| {
            let (group, request) = (group.seen_by(rank), request(rank));
            match &stops {
                Some(stops) if self.applies(&group, &request) => {
                    Ok(stops.planned(rank, &request, |group, request| self.plan_by_rank(group, request)))
                }
                _ => self.plan(&group, &request),
            }
        })
    }

    /// This rank's plan for `request`, which asks for this algorithm's collective.
    pub fn plan(&self, group: &Group, request: &Request) -> Result<Plan, Unsuitable> {
        if let Some(needs) = self.lacking(group, request) {
            return Err(Unsuitable { algorithm: self.name, needs });
        }
        Ok(match self.places {
            PlacementUse::Ordered => in_order(group, request, |group, request| self.plan_by_rank(group, request)),
            PlacementUse::Ignored | PlacementUse::TwoLevels => self.plan_by_rank(group, request),
        })
    }

    fn plan_by_rank(&self, group: &Group, request: &Request) -> Plan {
        let plan = self.planner.plan(group, request);
        plan.unwrap_or_else(|| panic!("{} is an algorithm for {}", self.name, self.collective().name()))
    }
}

/// Entries with their places in the lists of their collectives.
const fn numbered<const N: usize>(entries: &[Entry]) -> [Algorithm; N] {
    let mut algorithms = [Algorithm { index: 0, entry: entries[0] }; N];
    let mut place = 1;
    while place < N {
        let (before, entry) = (algorithms[place - 1], entries[place]);
        let is_first = entry.collective() as u8 != before.entry.collective() as u8;
        algorithms[place] = Algorithm { index: if is_first { 0 } else { before.index + 1 }, entry };
        place += 1;
    }
    algorithms
}
