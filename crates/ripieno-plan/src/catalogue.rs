//! Catalogue of all algorithms, built from the entries of their files.
//!
//! The file of an algorithm contains its plan and its [`Entry`]; [`algorithms`](crate::algorithms) lists the files.
//! Users select an algorithm by name, and peers refer to it by index. The tests compare plans and theory for every
//! world size and root.

use crate::algorithms::ENTRIES;
use crate::ordered::{RankOrder, in_order};
use crate::request::{Collective, PlanFunction, PlanRequest};
use crate::theory::Theory;
use crate::{Group, Plan};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

/// All algorithms, sorted by collective, in list order.
pub static ALGORITHMS: &[Algorithm] = &numbered::<{ ENTRIES.len() }>(ENTRIES);

/// Properties of an algorithm, declared in its file.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The public name, unique within the collective.
    pub name: &'static str,
    /// The function that creates its plans.
    pub planner: PlanFunction,
    /// The predicted cost of its plans.
    pub theory: Theory,
    /// Use of the placement of ranks.
    pub placement: PlacementUse,
    /// Requirement on the request.
    pub needs: Needs,
    /// Whether one message may contain several chunks, which must then be contiguous.
    pub joins_chunks: bool,
    /// Whether the plans finish over unbuffered links (see [`check_rendezvous`](crate::check::check_rendezvous)): no
    /// rank must complete a send before it can receive.
    pub rendezvous: bool,
    /// Whether every combination has its operands in rank order, so that the operation need not be commutative.
    pub in_rank_order: bool,
}

/// An algorithm: its entry and its index.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// Index that ranks exchange: the position in the list of the collective.
    pub index: u8,
    /// The entry declared in the algorithm's file.
    pub entry: Entry,
}

impl Deref for Algorithm {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

/// Use of the placement of ranks by an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementUse {
    /// Placement is ignored: only rank numbers count.
    Ignored,
    /// Ranks are arranged in the group's [`Order`](crate::Order). For chains, rings, and trees over them.
    Ordered,
    /// The algorithm has one part inside each node and one part between the nodes.
    TwoLevels,
}

/// Requirement of an algorithm on a request. It gives the same result on all ranks if their requests agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// No requirement.
    Nothing,
    /// An even number of ranks, or one rank.
    EvenWorld,
    /// Chunks of equal length on all ranks.
    EqualChunks,
    /// A commutative operation. Every algorithm that does not combine in rank order needs one.
    CommutativeOp,
}

/// Error: an algorithm does not support a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsuitable {
    /// Name of the algorithm.
    pub algorithm: &'static str,
    /// The requirement that the request does not meet.
    pub needs: Needs,
}

impl fmt::Display for Unsuitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} needs {}", self.algorithm, self.needs.text())
    }
}

impl core::error::Error for Unsuitable {}

impl Needs {
    /// Return the requirement as text.
    pub fn text(self) -> &'static str {
        match self {
            Needs::Nothing => "nothing",
            Needs::EvenWorld => "an even number of ranks",
            Needs::EqualChunks => "equally long chunks on all ranks",
            Needs::CommutativeOp => "a commutative operation; a user function may not be commutative",
        }
    }
}

impl Algorithm {
    /// Return the algorithm of `collective` with this name.
    pub fn by_name(collective: Collective, name: &str) -> Option<&'static Algorithm> {
        Algorithm::of(collective).find(|algorithm| algorithm.name == name)
    }

    /// Return the algorithm of `collective` with this index.
    pub fn by_index(collective: Collective, index: u8) -> Option<&'static Algorithm> {
        Algorithm::of(collective).find(|algorithm| algorithm.index == index)
    }

    /// Iterate over all algorithms of `collective`.
    pub fn of(collective: Collective) -> impl Iterator<Item = &'static Algorithm> {
        ALGORITHMS.iter().filter(move |algorithm| algorithm.collective() == collective)
    }
}

impl Entry {
    /// Create the entry of an algorithm without requirements: it ignores placement, sends chunks one by one, and needs
    /// no buffering links.
    pub const fn new(name: &'static str, planner: PlanFunction, theory: Theory) -> Entry {
        let (placement, needs) = (PlacementUse::Ignored, Needs::Nothing);
        Entry { name, planner, theory, placement, needs, joins_chunks: false, rendezvous: true, in_rank_order: false }
    }

    /// Mark the algorithm as combining in rank order.
    pub const fn in_rank_order(self) -> Entry {
        Entry { in_rank_order: true, ..self }
    }

    /// Plan the algorithm for ranks in the group's order. The algorithm may only rely on one chunk per rank, not on the
    /// order of the chunks.
    pub const fn ordered(self) -> Entry {
        Entry { placement: PlacementUse::Ordered, ..self }
    }

    /// Mark the algorithm as two-level.
    pub const fn two_levels(self) -> Entry {
        Entry { placement: PlacementUse::TwoLevels, ..self }
    }

    /// Set the requirement on requests.
    pub const fn needing(self, needs: Needs) -> Entry {
        Entry { needs, ..self }
    }

    /// Mark the algorithm as sending several chunks in one message.
    pub const fn joining(self) -> Entry {
        Entry { joins_chunks: true, ..self }
    }

    /// Mark the algorithm as requiring links that buffer data.
    pub const fn buffered(self) -> Entry {
        Entry { rendezvous: false, ..self }
    }

    /// Return the collective that the algorithm performs.
    pub const fn collective(&self) -> Collective {
        self.planner.collective()
    }

    /// Whether the algorithm supports the request.
    pub fn applies(&self, group: &Group, request: &PlanRequest) -> bool {
        self.unmet_need(group, request).is_none()
    }

    /// Return the requirement that the request does not meet, if any.
    fn unmet_need(&self, group: &Group, request: &PlanRequest) -> Option<Needs> {
        if !self.in_rank_order && request.op().is_some_and(|op| !op.is_commutative()) {
            return Some(Needs::CommutativeOp);
        }
        (!self.meets_needs(group, request)).then_some(self.needs)
    }

    fn meets_needs(&self, group: &Group, request: &PlanRequest) -> bool {
        match (self.needs, request) {
            (Needs::Nothing | Needs::CommutativeOp, _) => true,
            (Needs::EvenWorld, _) => group.size() == 1 || group.size().is_multiple_of(2),
            (Needs::EqualChunks, PlanRequest::Alltoall { out_chunks, in_chunks }) => {
                let chunks = || out_chunks.iter().chain(*in_chunks).map(|chunk| chunk.length_bytes);
                chunks().all(|length_bytes| length_bytes == out_chunks[0].length_bytes)
            }
            (Needs::EqualChunks, _) => true,
        }
    }

    /// Return the plans of all ranks; `requests` contains one request per rank.
    pub fn plans(&self, requests: &[PlanRequest]) -> Result<Vec<Plan>, Unsuitable> {
        let plan = |(rank, request)| self.plan(&Group::new(rank, requests.len()), request);
        requests.iter().enumerate().map(plan).collect()
    }

    /// Iterate over the plans of all ranks of `group`; `request` returns the request of a rank.
    ///
    /// The result does not depend on the rank that `group` represents. The order of the ranks is computed once.
    pub fn plans_of<'a>(
        &'a self,
        group: &'a Group,
        request: impl Fn(usize) -> PlanRequest<'a> + 'a,
    ) -> impl Iterator<Item = Result<Plan, Unsuitable>> + 'a {
        let rank_order = match self.placement {
            PlacementUse::Ordered => RankOrder::of(group, request(0).root()),
            PlacementUse::Ignored | PlacementUse::TwoLevels => None,
        };
        group.ranks().map(move |rank| {
            let (group, request) = (group.for_rank(rank), request(rank));
            match &rank_order {
                Some(rank_order) if self.applies(&group, &request) => {
                    Ok(rank_order.plan(rank, &request, |group, request| self.plan_by_rank(group, request)))
                }
                _ => self.plan(&group, &request),
            }
        })
    }

    /// Return this rank's plan for `request`, which must be for this algorithm's collective.
    pub fn plan(&self, group: &Group, request: &PlanRequest) -> Result<Plan, Unsuitable> {
        if let Some(needs) = self.unmet_need(group, request) {
            return Err(Unsuitable { algorithm: self.name, needs });
        }
        Ok(match self.placement {
            PlacementUse::Ordered => in_order(group, request, |group, request| self.plan_by_rank(group, request)),
            PlacementUse::Ignored | PlacementUse::TwoLevels => self.plan_by_rank(group, request),
        })
    }

    fn plan_by_rank(&self, group: &Group, request: &PlanRequest) -> Plan {
        let plan = self.planner.plan(group, request);
        plan.unwrap_or_else(|| panic!("{} is an algorithm for {}", self.name, self.collective().name()))
    }
}

/// Assign each entry its index within the list of its collective.
const fn numbered<const N: usize>(entries: &[Entry]) -> [Algorithm; N] {
    let mut algorithms = [Algorithm { index: 0, entry: entries[0] }; N];
    let mut index = 1;
    while index < N {
        let (before, entry) = (algorithms[index - 1], entries[index]);
        let is_first = entry.collective() as u8 != before.entry.collective() as u8;
        algorithms[index] = Algorithm { index: if is_first { 0 } else { before.index + 1 }, entry };
        index += 1;
    }
    algorithms
}
