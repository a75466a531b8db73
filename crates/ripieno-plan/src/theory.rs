//! Theory: the predicted cost of an algorithm's plans, and checks of the plans against it.
//!
//! Every entry of the catalogue states the bytes sent by each rank, hops, rounds and time for any number of ranks, any
//! lengths and any root. [`Theory::check`], [`Theory::check_rounds`] and [`Theory::check_cost`] compare these with
//! actual plans.

use crate::check::{Report, check, promises};
use crate::choice::choose;
use crate::fault::PlanFault;
use crate::formula::{self, Terms};
use crate::plan::{Operation, Plan};
use crate::request::PlanRequest;
use crate::simulate::{Model, cost_s, segmented};
use crate::{Algorithm, Group};
use core::fmt;
use core::ops::RangeInclusive;

/// Predictions for the plans of an algorithm, for ranks in numerical order on separate nodes.
#[derive(Clone, Copy, Debug)]
pub struct Theory {
    /// Bytes that a rank sends: exact, for chunks of any sizes.
    pub sent_bytes: fn(&TheoryCase, usize) -> usize,
    /// The longest chain of messages that wait for each other. A rank may communicate with all others at once, and no
    /// message is empty.
    pub hops: fn(&TheoryCase) -> RangeInclusive<usize>,
    /// Number of rounds. A rank sends at most one message and receives at most one per round.
    pub rounds: fn(&TheoryCase) -> RangeInclusive<usize>,
    /// Time in seconds.
    pub cost: Cost,
    /// The publication that describes the algorithm.
    pub source: &'static str,
}

/// Time of a collective: a [formula](crate::formula) with its accuracy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Exact time until the last message, for equally long chunks.
    Exactly(&'static str),
    /// Exact if `p` is a power of two. Otherwise runs of chunks wrap around and need a second message. Ranks with one
    /// message then wait for ranks with two: up to twice the time.
    ForPowersOfTwo(&'static str),
    /// Upper bound.
    AtMost(&'static str),
    /// Approximation: between 0.5 and 1.2 times the formula for 16 or more segments and more than two ranks.
    About(&'static str),
    /// The time of the algorithm that the default choice selects for each of the two levels.
    AsChosen,
}

/// One call with its predictions: the requests of all ranks.
#[derive(Clone, Copy, Debug)]
pub struct TheoryCase<'a> {
    /// Number of ranks.
    pub p: usize,
    /// Number of bytes of the vector, of all chunks together, or of a barrier's token. In an alltoall, a rotation or a
    /// neighbor exchange, the bytes that the first rank sends.
    pub n: usize,
    /// The root, or 0 if the collective has no root.
    pub root: usize,
    requests: &'a [PlanRequest<'a>],
}

/// Error: plans violate their promise or their theory.
#[derive(Clone, Debug, PartialEq)]
pub enum TheoryError {
    /// The plans do not perform the request.
    Plans(PlanFault),
    /// The plans perform the request, but not as the theory predicts.
    Theory(WrongPrediction),
}

/// A prediction that the plans do not fulfill.
#[derive(Clone, Debug, PartialEq)]
pub struct WrongPrediction {
    /// The kind of prediction.
    pub quantity: Quantity,
    /// The smallest and the largest allowed value.
    pub predicted: RangeInclusive<f64>,
    /// The value of the plans.
    pub found: f64,
    /// Number of ranks.
    pub p: usize,
    /// Number of bytes.
    pub n: usize,
    /// The root.
    pub root: usize,
}

/// Predictions of a theory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes sent by this rank.
    SentBytes(usize),
    /// Length of the longest chain of dependent messages.
    Hops,
    /// Number of rounds.
    Rounds,
    /// Time in seconds, for this number of segments.
    Cost(usize),
}

/// Numbers of segments used to compare a segmented cost formula with the plans.
const SEGMENT_COUNTS: [usize; 4] = [1, 8, 16, 64];

/// Return the range that contains only `value`.
pub(crate) fn exactly(value: usize) -> RangeInclusive<usize> {
    value..=value
}

/// Return the least number of rounds in which one rank can reach `p` ranks.
pub(crate) fn ceil_log2(p: usize) -> usize {
    p.next_power_of_two().ilog2() as usize
}

impl Theory {
    /// Check the plans of all ranks against the promises of `case`, and their bytes and hops against the theory.
    pub fn check(&self, case: &TheoryCase, plans: &[Plan]) -> Result<Report, TheoryError> {
        let report = check(plans, &promises(case.requests)).map_err(TheoryError::Plans)?;
        for (rank, traffic) in report.ranks.iter().enumerate() {
            case.check_range(Quantity::SentBytes(rank), exactly((self.sent_bytes)(case, rank)), traffic.sent_bytes)?;
        }
        // The checker does not count empty messages.
        let is_empty = |operation: &Operation| !operation.is_local() && operation.length_bytes() == 0;
        if !plans.iter().flat_map(Plan::operations).any(is_empty) {
            case.check_range(Quantity::Hops, (self.hops)(case), report.round_count)?;
        }
        Ok(report)
    }

    /// Check the rounds of the plans of all ranks for `case`.
    pub fn check_rounds(&self, case: &TheoryCase, plans: &[Plan]) -> Result<(), TheoryError> {
        let round_count = cost_s(plans, &Model::ROUNDS).map_err(TheoryError::Plans)?;
        case.check_range(Quantity::Rounds, (self.rounds)(case), round_count as usize)
    }

    /// Check the time of the plans of all ranks for `case`, which must have equally long chunks.
    pub fn check_cost(&self, case: &TheoryCase, plans: &[Plan], model: &Model) -> Result<(), TheoryError> {
        let Some(formula) = self.cost.formula() else {
            return case.default_algorithm().theory.check_cost(case, plans, model);
        };
        let segment_counts = if formula::has_segments(formula) { &SEGMENT_COUNTS[..] } else { &[1] };
        for &k in segment_counts {
            let found_s = match k {
                1 => cost_s(plans, model),
                _ => cost_s(&segmented(plans, case.n / k), model),
            };
            let stated_s = formula::value(formula, &case.terms(k, model));
            let Some((least, greatest)) = self.cost.factors(case.p, k) else { continue };
            case.within(
                Quantity::Cost(k),
                least * stated_s..=greatest * stated_s,
                found_s.map_err(TheoryError::Plans)?,
            )?;
        }
        Ok(())
    }
}

impl Cost {
    /// Return the formula, if the variant has one.
    pub fn formula(&self) -> Option<&'static str> {
        match *self {
            Cost::Exactly(text) | Cost::ForPowersOfTwo(text) | Cost::AtMost(text) | Cost::About(text) => Some(text),
            Cost::AsChosen => None,
        }
    }

    /// Return the allowed range of the time in multiples of the formula, or `None` without a prediction.
    fn factors(&self, p: usize, k: usize) -> Option<(f64, f64)> {
        /// Tolerance for sums of the same terms in another order.
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
    /// Create the case of `requests`, one per rank.
    pub fn of(requests: &'a [PlanRequest<'a>]) -> TheoryCase<'a> {
        let first = requests[0];
        let case = TheoryCase { p: requests.len(), n: first.length_bytes(), root: first.root().unwrap_or(0), requests };
        match first {
            // Data that a rank keeps for itself does not count as sent.
            PlanRequest::NeighbourExchange { .. } => TheoryCase { n: case.out_bytes(0), ..case },
            _ => case,
        }
    }

    /// Return the ring distance from the root to `rank`.
    pub fn distance(&self, rank: usize) -> usize {
        (rank + self.p - self.root) % self.p
    }

    /// Return the bytes of part `index` of the vector, divided into `count` parts as evenly as possible.
    pub fn part(&self, index: usize, count: usize) -> usize {
        match self.requests[0] {
            PlanRequest::Broadcast { vector, .. }
            | PlanRequest::Reduce { vector, .. }
            | PlanRequest::Allreduce { vector, .. } => vector.chunk(index, count).length_bytes,
            _ => panic!("{} has no vector that is cut", self.requests[0].collective().name()),
        }
    }

    /// Return the bytes of chunk `index`, counted around the ring. A vector without chunks has `p` parts of nearly
    /// equal size.
    pub fn chunk(&self, index: usize) -> usize {
        match self.requests[0] {
            PlanRequest::Allgather { chunks }
            | PlanRequest::ReduceScatter { chunks, .. }
            | PlanRequest::Gather { chunks, .. }
            | PlanRequest::Scatter { chunks, .. } => chunks[index % self.p].length_bytes,
            _ => self.part(index % self.p, self.p),
        }
    }

    /// Return the bytes of `count` chunks, starting with chunk `first`, around the ring.
    pub fn chunks(&self, first: usize, count: usize) -> usize {
        (first..first + count).map(|index| self.chunk(index)).sum()
    }

    /// Return the bytes that `rank` sends to others in collectives where ranks have separate data for each peer.
    pub fn out_bytes(&self, rank: usize) -> usize {
        let to_others = |spans: &mut dyn Iterator<Item = (usize, usize)>| {
            spans.filter(|(to, _)| *to != rank).map(|(_, length_bytes)| length_bytes).sum()
        };
        match self.requests[rank] {
            PlanRequest::Alltoall { out_chunks, .. } => {
                to_others(&mut out_chunks.iter().map(|chunk| chunk.length_bytes).enumerate())
            }
            PlanRequest::NeighbourExchange { out, .. } => {
                to_others(&mut out.iter().map(|&(to, span)| (to, span.length_bytes)))
            }
            PlanRequest::Rotate { out, .. } => out.length_bytes * self.peer_count(),
            PlanRequest::PointToPoint { from, vector, .. } if from == rank => vector.length_bytes * self.peer_count(),
            _ => 0,
        }
    }

    /// Return the number of peers that a rank sends to, `d` in formulas: the maximum over all ranks.
    pub fn peer_count(&self) -> usize {
        let of_rank = |(rank, request): (usize, &PlanRequest)| match *request {
            PlanRequest::NeighbourExchange { out, .. } => out.iter().filter(|(to, _)| *to != rank).count(),
            PlanRequest::Rotate { distance, .. } => usize::from(!distance.is_multiple_of(self.p)),
            PlanRequest::PointToPoint { from, to, .. } => usize::from(from != to),
            _ => self.p - 1,
        };
        self.requests.iter().enumerate().map(of_rank).max().unwrap_or(0)
    }

    /// Return the algorithm that the default choice selects for this call.
    pub(crate) fn default_algorithm(&self) -> &'static Algorithm {
        let request = &self.requests[0];
        choose(request.collective(), &Group::new(0, self.p), request.length_bytes())
    }

    fn terms(&self, k: usize, model: &Model) -> Terms {
        Terms { p: self.p, n: self.n, k, d: self.peer_count(), model: *model }
    }

    fn check_range(
        &self,
        quantity: Quantity,
        predicted: RangeInclusive<usize>,
        found: usize,
    ) -> Result<(), TheoryError> {
        self.within(quantity, *predicted.start() as f64..=*predicted.end() as f64, found as f64)
    }

    fn within(&self, quantity: Quantity, predicted: RangeInclusive<f64>, found: f64) -> Result<(), TheoryError> {
        if predicted.contains(&found) {
            return Ok(());
        }
        let TheoryCase { p, n, root, .. } = *self;
        Err(TheoryError::Theory(WrongPrediction { quantity, predicted, found, p, n, root }))
    }
}

impl fmt::Display for TheoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TheoryError::Plans(fault) => write!(f, "{fault}"),
            TheoryError::Theory(prediction) => write!(f, "{prediction}"),
        }
    }
}

impl fmt::Display for WrongPrediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongPrediction { quantity, predicted, found, p, n, root } = self;
        match (predicted.start(), predicted.end()) {
            (least, greatest) if least == greatest => write!(f, "expected {least} ")?,
            (least, greatest) => write!(f, "expected {least} to {greatest} ")?,
        }
        match quantity {
            Quantity::SentBytes(rank) => write!(f, "bytes, the plans send {found} (rank {rank}, ")?,
            Quantity::Hops => write!(f, "hops, the plans take {found} (")?,
            Quantity::Rounds => write!(f, "rounds, the plans take {found} (")?,
            Quantity::Cost(k) => write!(f, "s, the plans take {found} (k {k}, ")?,
        }
        write!(f, "p {p}, n {n}, root {root})")
    }
}

impl core::error::Error for TheoryError {}
