//! Theory: what an algorithm states of its plans, and whether they keep it.
//!
//! Every entry of the catalogue states the bytes that each rank sends, hops, rounds and cost for any number of ranks,
//! any lengths and any root. [`Theory::check`], [`Theory::check_rounds`] and [`Theory::check_cost`] hold it against
//! plans.

use crate::check::{Report, check, promises};
use crate::choice::choose;
use crate::fault::PlanFault;
use crate::formula::{self, Terms};
use crate::plan::{Operation, Plan};
use crate::request::Request;
use crate::simulate::{Model, cost_s, segmented};
use crate::{Algorithm, Group};
use core::fmt;
use core::ops::RangeInclusive;

/// What an algorithm states of its plans, where ranks stand in the order of their numbers and each is a node of its
/// own.
#[derive(Clone, Copy, Debug)]
pub struct Theory {
    /// Bytes that a rank sends: exact, for chunks of any sizes.
    pub sent_bytes: fn(&TheoryCase, usize) -> usize,
    /// The longest chain of messages that wait for each other, where a rank may talk to all others at once and no
    /// message is empty.
    pub hops: fn(&TheoryCase) -> RangeInclusive<usize>,
    /// The same where a rank sends one message and receives one at a time.
    pub rounds: fn(&TheoryCase) -> RangeInclusive<usize>,
    /// Seconds.
    pub cost: Cost,
    /// Who described it, and where.
    pub source: &'static str,
}

/// How long a collective takes: a [formula](crate::formula), and how closely it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// To the last message, where chunks are equally long.
    Exactly(&'static str),
    /// The same if `p` is a power of two. Otherwise runs of chunks wrap around, which is one message more each time,
    /// and ranks that have one wait for those that have two: up to twice as long.
    ForPowersOfTwo(&'static str),
    /// Never more.
    AtMost(&'static str),
    /// From half of it to six fifths, in 16 segments or more among more than two ranks.
    About(&'static str),
    /// As that which is chosen for each of two levels.
    AsChosen,
}

/// One call, which a theory speaks of: what all ranks ask for.
#[derive(Clone, Copy, Debug)]
pub struct TheoryCase<'a> {
    /// How many ranks.
    pub p: usize,
    /// Bytes of the vector, of all chunks together where there are chunks, of what a rank gives away in an alltoall, a
    /// rotation or a neighbour exchange (the first rank, where ranks differ), of the token of a barrier.
    pub n: usize,
    /// The root, where there is one.
    pub root: usize,
    requests: &'a [Request<'a>],
}

/// Plans break their promise, or what is stated of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Untrue {
    /// The plans do not do what is asked for.
    Plans(PlanFault),
    /// They do, but otherwise than the theory says.
    Theory(Misstatement),
}

/// A statement that is not true of the plans.
#[derive(Clone, Debug, PartialEq)]
pub struct Misstatement {
    /// What is stated.
    pub claim: Claim,
    /// The least and the greatest value that would do.
    pub stated: RangeInclusive<f64>,
    /// What the plans do.
    pub found: f64,
    /// How many ranks.
    pub p: usize,
    /// How many bytes.
    pub n: usize,
    /// The root.
    pub root: usize,
}

/// What a theory states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Bytes that this rank sends.
    SentBytes(usize),
    /// Messages that wait for each other.
    Hops,
    /// Rounds.
    Rounds,
    /// Seconds, in so many segments.
    Cost(usize),
}

/// In how many segments a cost that speaks of them is held against the plans.
const SEGMENT_COUNTS: [usize; 4] = [1, 8, 16, 64];

/// A theory that states one value.
pub(crate) fn exactly(value: usize) -> RangeInclusive<usize> {
    value..=value
}

/// The least number of rounds in which one rank can reach `p`.
pub(crate) fn ceil_log2(p: usize) -> usize {
    p.next_power_of_two().ilog2() as usize
}

impl Theory {
    /// Holds plans of all ranks against the promises of `case`, and bytes and hops against the plans.
    pub fn check(&self, case: &TheoryCase, plans: &[Plan]) -> Result<Report, Untrue> {
        let report = check(plans, &promises(case.requests)).map_err(Untrue::Plans)?;
        for (rank, traffic) in report.ranks.iter().enumerate() {
            case.holds(Claim::SentBytes(rank), exactly((self.sent_bytes)(case, rank)), traffic.sent_bytes)?;
        }
        // The checker counts no message that is empty.
        let is_empty = |operation: &Operation| !operation.is_local() && operation.length_bytes() == 0;
        if !plans.iter().flat_map(Plan::operations).any(is_empty) {
            case.holds(Claim::Hops, (self.hops)(case), report.round_count)?;
        }
        Ok(report)
    }

    /// Holds rounds against plans of all ranks for `case`.
    pub fn check_rounds(&self, case: &TheoryCase, plans: &[Plan]) -> Result<(), Untrue> {
        let round_count = cost_s(plans, &Model::ROUNDS).map_err(Untrue::Plans)?;
        case.holds(Claim::Rounds, (self.rounds)(case), round_count as usize)
    }

    /// Holds the cost against plans of all ranks for `case`, whose chunks are equally long.
    pub fn check_cost(&self, case: &TheoryCase, plans: &[Plan], model: &Model) -> Result<(), Untrue> {
        let Some(formula) = self.cost.formula() else {
            return case.chosen().theory.check_cost(case, plans, model);
        };
        let segment_counts = if formula::has_segments(formula) { &SEGMENT_COUNTS[..] } else { &[1] };
        for &k in segment_counts {
            let found_s = match k {
                1 => cost_s(plans, model),
                _ => cost_s(&segmented(plans, case.n / k), model),
            };
            let stated_s = formula::value(formula, &case.terms(k, model));
            let Some((least, greatest)) = self.cost.factors(case.p, k) else { continue };
            case.within(Claim::Cost(k), least * stated_s..=greatest * stated_s, found_s.map_err(Untrue::Plans)?)?;
        }
        Ok(())
    }
}

impl Cost {
    /// The formula, where there is one.
    pub fn formula(&self) -> Option<&'static str> {
        match *self {
            Cost::Exactly(text) | Cost::ForPowersOfTwo(text) | Cost::AtMost(text) | Cost::About(text) => Some(text),
            Cost::AsChosen => None,
        }
    }

    /// Between which multiples of the formula the cost lies; nothing where none is stated.
    fn factors(&self, p: usize, k: usize) -> Option<(f64, f64)> {
        /// Sums of the same terms in another order.
        const ROUNDING: f64 = 1e-9;
        let exactly = (1.0 - ROUNDING, 1.0 + ROUNDING);
        match self {
            Cost::Exactly(_) => Some(exactly),
            Cost::ForPowersOfTwo(_) if p.is_power_of_two() => Some(exactly),
            Cost::ForPowersOfTwo(_) => Some((exactly.0, 2.0)),
            Cost::AtMost(_) => Some((0.0, exactly.1)),
            Cost::About(_) => (p > 2 && k >= 16).then_some((0.5, 1.2)),
            Cost::AsChosen => None,
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Cost::Exactly(formula) => write!(f, "{formula}")?,
            Cost::ForPowersOfTwo(formula) => write!(f, "{formula} if p is a power of two, else up to twice that")?,
            Cost::AtMost(formula) => write!(f, "{formula} at most")?,
            Cost::About(formula) => write!(f, "about {formula}")?,
            Cost::AsChosen => write!(f, "inside a node + between nodes, each as chosen")?,
        }
        let has_segments = self.formula().is_some_and(formula::has_segments);
        if has_segments { write!(f, ", k segments") } else { Ok(()) }
    }
}

impl<'a> TheoryCase<'a> {
    /// What `requests`, one per rank, ask for.
    pub fn of(requests: &'a [Request<'a>]) -> TheoryCase<'a> {
        let first = requests[0];
        let case = TheoryCase { p: requests.len(), n: first.length_bytes(), root: first.root().unwrap_or(0), requests };
        match first {
            // What stays where it is is not given away.
            Request::NeighbourExchange { .. } => TheoryCase { n: case.given_bytes(0), ..case },
            _ => case,
        }
    }

    /// How far `rank` stands behind the root, around the ring.
    pub fn distance(&self, rank: usize) -> usize {
        (rank + self.p - self.root) % self.p
    }

    /// Bytes of part `index` of the vector in `count` parts as equal as may be.
    pub fn part(&self, index: usize, count: usize) -> usize {
        match self.requests[0] {
            Request::Broadcast { vector, .. } | Request::Reduce { vector, .. } | Request::Allreduce { vector, .. } => {
                vector.chunk(index, count).length_bytes
            }
            _ => panic!("{} has no vector that is cut", self.requests[0].collective().name()),
        }
    }

    /// Bytes of chunk `index`, counted around the ring; a vector without chunks has `p` that are as equal as may be.
    pub fn chunk(&self, index: usize) -> usize {
        match self.requests[0] {
            Request::Allgather { chunks }
            | Request::ReduceScatter { chunks, .. }
            | Request::Gather { chunks, .. }
            | Request::Scatter { chunks, .. } => chunks[index % self.p].length_bytes,
            _ => self.part(index % self.p, self.p),
        }
    }

    /// Bytes of `count` chunks from chunk `first` on, around the ring.
    pub fn chunks(&self, first: usize, count: usize) -> usize {
        (first..first + count).map(|index| self.chunk(index)).sum()
    }

    /// Bytes that `rank` has for others, where every rank has something of its own for some of them.
    pub fn given_bytes(&self, rank: usize) -> usize {
        let to_others = |spans: &mut dyn Iterator<Item = (usize, usize)>| {
            spans.filter(|(to, _)| *to != rank).map(|(_, length_bytes)| length_bytes).sum()
        };
        match self.requests[rank] {
            Request::Alltoall { out_chunks, .. } => {
                to_others(&mut out_chunks.iter().map(|chunk| chunk.length_bytes).enumerate())
            }
            Request::NeighbourExchange { out, .. } => {
                to_others(&mut out.iter().map(|&(to, span)| (to, span.length_bytes)))
            }
            Request::Rotate { out, .. } => out.length_bytes * self.peer_count(),
            Request::PointToPoint { from, vector, .. } if from == rank => vector.length_bytes * self.peer_count(),
            _ => 0,
        }
    }

    /// How many peers a rank has something for: `d` in formulae. The most of all ranks, where ranks differ.
    pub fn peer_count(&self) -> usize {
        let of_rank = |(rank, request): (usize, &Request)| match *request {
            Request::NeighbourExchange { out, .. } => out.iter().filter(|(to, _)| *to != rank).count(),
            Request::Rotate { distance, .. } => usize::from(!distance.is_multiple_of(self.p)),
            Request::PointToPoint { from, to, .. } => usize::from(from != to),
            _ => self.p - 1,
        };
        self.requests.iter().enumerate().map(of_rank).max().unwrap_or(0)
    }

    /// What the choice takes for this call.
    pub(crate) fn chosen(&self) -> &'static Algorithm {
        let request = &self.requests[0];
        choose(request.collective(), &Group::new(0, self.p), request.length_bytes())
    }

    fn terms(&self, k: usize, model: &Model) -> Terms {
        Terms { p: self.p, n: self.n, k, d: self.peer_count(), model: *model }
    }

    fn holds(&self, claim: Claim, stated: RangeInclusive<usize>, found: usize) -> Result<(), Untrue> {
        self.within(claim, *stated.start() as f64..=*stated.end() as f64, found as f64)
    }

    fn within(&self, claim: Claim, stated: RangeInclusive<f64>, found: f64) -> Result<(), Untrue> {
        if stated.contains(&found) {
            return Ok(());
        }
        let TheoryCase { p, n, root, .. } = *self;
        Err(Untrue::Theory(Misstatement { claim, stated, found, p, n, root }))
    }
}

impl fmt::Display for Untrue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Untrue::Plans(fault) => write!(f, "{fault}"),
            Untrue::Theory(misstatement) => write!(f, "{misstatement}"),
        }
    }
}

impl fmt::Display for Misstatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misstatement { claim, stated, found, p, n, root } = self;
        match (stated.start(), stated.end()) {
            (least, greatest) if least == greatest => write!(f, "you state {least} ")?,
            (least, greatest) => write!(f, "you state {least} to {greatest} ")?,
        }
        match claim {
            Claim::SentBytes(rank) => write!(f, "bytes, the plans send {found} (rank {rank}, ")?,
            Claim::Hops => write!(f, "hops, the plans take {found} (")?,
            Claim::Rounds => write!(f, "rounds, the plans take {found} (")?,
            Claim::Cost(k) => write!(f, "s, the plans take {found} (k {k}, ")?,
        }
        write!(f, "p {p}, n {n}, root {root})")
    }
}

impl core::error::Error for Untrue {}
