//! Explanation: all algorithms of a collective with the terms of their cost formulas and their simulated time on a
//! cluster.
//!
//! A price is the value of the algorithm's formula for equal links: the links between nodes, or the node's memory on a
//! single node. It ignores racks. The simulation covers the actual cluster. Algorithms are simulated in the order of
//! their prices, as long as their plans have at most [`EXPLAINED_OPERATIONS_MAX`] operations in total. For the other
//! algorithms the price replaces the simulated time.

use crate::cluster::{Cluster, ConnectionKind};
use crate::plans::SimulationError;
use crate::request::{NotSimulable, SimulationRequest};
use ripieno_plan::formula::{self, Terms};
use ripieno_plan::simulate::Model;
use ripieno_plan::{Algorithm, Group, Order, PlanRequest, TheoryCase, choose};
use std::fmt;

/// Maximum number of operations that one explanation simulates over all algorithms: about one second of work.
pub const EXPLAINED_OPERATIONS_MAX: usize = 400_000;

/// Maximum of operations times ranks, because an operation takes longer among many ranks.
const EXPLAINED_OPERATION_RANKS_MAX: usize = 100_000_000;

/// All candidates for a request.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// All algorithms, fastest first. Algorithms that cannot serve the request come last.
    pub candidates: Vec<Candidate>,
    /// The algorithm that runs by default.
    pub chosen: &'static str,
    /// Constants of the prices.
    pub model: Model,
    /// Number of segments of a vector.
    pub segment_count: usize,
}

/// One algorithm.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Name of the algorithm.
    pub algorithm: &'static str,
    /// Cost formula of the algorithm.
    pub formula: String,
    /// Terms of the formula in alpha, beta and gamma, in seconds. `None` without a formula.
    pub terms_s: Option<[f64; 3]>,
    /// Simulated cost on the cluster, or the reason why it is unknown.
    pub simulated: Result<PlanCost, NotSimulated>,
}

/// The reason why the simulated cost of an algorithm is unknown.
#[derive(Clone, Debug, PartialEq)]
pub enum NotSimulated {
    /// Its plans are too large for an explanation.
    TooLarge {
        /// Estimated number of operations of all plans.
        operation_count: usize,
    },
    /// The algorithm cannot serve the request.
    Impossible(NotSimulable),
}

/// Cost of plans on a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanCost {
    /// Time in seconds, or `None` if the plans never complete.
    pub time_s: Option<f64>,
    /// Maximum number of bytes that one rank sends.
    pub max_sent_bytes: usize,
    /// Number of bytes that cross between racks.
    pub uplink_bytes: usize,
}

impl fmt::Display for NotSimulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSimulated::TooLarge { operation_count } => {
                write!(f, "about {operation_count} operations: too many to simulate")
            }
            NotSimulated::Impossible(error) => error.fmt(f),
        }
    }
}

impl Explanation {
    /// Price every algorithm for the request and simulate the plans that fit the limits, unless interrupted.
    pub fn of(
        request: &SimulationRequest,
        order: Order,
        cluster: &Cluster,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Explanation, SimulationError> {
        let group = Group::with_topology(0, cluster.topology.clone());
        let terms = terms(request, cluster);
        let mut budget = EXPLAINED_OPERATIONS_MAX.min(EXPLAINED_OPERATION_RANKS_MAX / terms.p);
        let mut candidates = Vec::new();
        for (algorithm, terms_s) in by_price(request, &terms) {
            if is_interrupted() {
                return Err(SimulationError::Interrupted);
            }
            let simulated = simulate_within_budget(request, algorithm, order, cluster, &mut budget, is_interrupted);
            if simulated == Err(NotSimulated::Impossible(NotSimulable::SimulationError(SimulationError::Interrupted))) {
                return Err(SimulationError::Interrupted);
            }
            let formula = algorithm.theory.cost.to_string();
            candidates.push(Candidate { algorithm: algorithm.name, formula, terms_s, simulated });
        }
        candidates.sort_by(|a, b| a.time_s().total_cmp(&b.time_s()));
        let chosen = choose(request.collective(), &group, request.request(0).length_bytes()).name;
        Ok(Explanation { candidates, chosen, model: terms.model, segment_count: terms.k })
    }
}

impl Candidate {
    /// Return the time in seconds: the price if the plans are too large to simulate, and infinity if the algorithm is
    /// unsuitable.
    pub fn time_s(&self) -> f64 {
        match &self.simulated {
            Ok(outcome) => outcome.time_s.unwrap_or(f64::INFINITY),
            Err(NotSimulated::TooLarge { .. }) => price_s(self.terms_s),
            Err(NotSimulated::Impossible(_)) => f64::INFINITY,
        }
    }
}

/// Return the algorithms for a request with the terms of their prices, cheapest first. Algorithms without a formula
/// come last.
pub fn priced(request: &SimulationRequest, cluster: &Cluster) -> Vec<(&'static Algorithm, Option<[f64; 3]>)> {
    by_price(request, &terms(request, cluster))
}

fn by_price(request: &SimulationRequest, terms: &Terms) -> Vec<(&'static Algorithm, Option<[f64; 3]>)> {
    let terms_s = |algorithm: &Algorithm| {
        let formula = algorithm.theory.cost.formula().filter(|_| terms.p > 1);
        formula.map(|text| by_term(text, terms))
    };
    let mut found: Vec<_> =
        Algorithm::of(request.collective()).map(|algorithm| (algorithm, terms_s(algorithm))).collect();
    found.sort_by(|(_, a), (_, b)| price_s(*a).total_cmp(&price_s(*b)));
    found
}

fn price_s(terms_s: Option<[f64; 3]>) -> f64 {
    terms_s.map_or(f64::INFINITY, |terms_s| terms_s.iter().sum())
}

/// Simulate an algorithm if its plans have at most `budget` operations, and reduce the budget accordingly.
fn simulate_within_budget(
    request: &SimulationRequest,
    algorithm: &Algorithm,
    order: Order,
    cluster: &Cluster,
    budget: &mut usize,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<PlanCost, NotSimulated> {
    let impossible = |error| NotSimulated::Impossible(error);
    let operation_count = request
        .operation_count(algorithm, order, cluster)
        .map_err(|unsuitable| impossible(NotSimulable::Unsuitable(unsuitable)))?;
    if operation_count > *budget {
        return Err(NotSimulated::TooLarge { operation_count });
    }
    *budget -= operation_count;
    let simulated = request.simulate(algorithm, order, cluster, is_interrupted).map_err(impossible)?;
    Ok(PlanCost {
        time_s: simulated.time_s(),
        max_sent_bytes: simulated.sent_bytes.iter().copied().max().unwrap_or(0),
        uplink_bytes: simulated.bytes_by_kind(cluster)[ConnectionKind::Uplink as usize].1,
    })
}

/// Return the variables of the formulas for a request.
fn terms(request: &SimulationRequest, cluster: &Cluster) -> Terms {
    let p = cluster.topology.size();
    let requests: Vec<PlanRequest> = (0..p).map(|rank| request.request(rank)).collect();
    let case = TheoryCase::of(&requests);
    let k = cluster.segment_count(case.n).max(1);
    Terms { p, n: case.n, k, d: case.peer_count(), model: model(cluster) }
}

/// Return the constants of the links between nodes, or of the memory on a single node.
fn model(cluster: &Cluster) -> Model {
    let link = if cluster.topology.node_count() > 1 { cluster.network_link } else { cluster.memory };
    let (alpha_s, beta_s_per_byte) = (link.alpha_s, link.beta_s_per_byte);
    Model { alpha_s, beta_s_per_byte, gamma_s_per_byte: cluster.gamma_s_per_byte }
}

/// Return the values of the formula's terms in alpha, beta and gamma, each with the other two constants set to 0.
fn by_term(text: &str, terms: &Terms) -> [f64; 3] {
    let none = Model { alpha_s: 0.0, beta_s_per_byte: 0.0, gamma_s_per_byte: 0.0 };
    let Model { alpha_s, beta_s_per_byte, gamma_s_per_byte } = terms.model;
    let only = [Model { alpha_s, ..none }, Model { beta_s_per_byte, ..none }, Model { gamma_s_per_byte, ..none }];
    only.map(|model| formula::value(text, &Terms { model, ..*terms }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripieno_plan::Collective;

    #[test]
    fn the_terms_of_a_price_add_up_to_the_simulated_time_on_equal_links() {
        let model = Model { alpha_s: 4.0, beta_s_per_byte: 0.25, gamma_s_per_byte: 0.125 };
        let cluster = Cluster::uniform(8, &model);
        let request = SimulationRequest::new(Collective::Allreduce, 8, 4096, 0);

        let explained = Explanation::of(&request, Order::Racks, &cluster, &|| false).unwrap();

        let ring = explained.candidates.iter().find(|candidate| candidate.algorithm == "ring").unwrap();
        let terms_s = ring.terms_s.unwrap();
        assert_eq!(terms_s, [56.0, 1792.0, 448.0]);
        assert_eq!(ring.simulated.as_ref().unwrap().time_s, Some(terms_s.iter().sum()));
        assert_eq!(ring.simulated.as_ref().unwrap().max_sent_bytes, 7168);
    }

    #[test]
    fn candidates_are_sorted_by_time_and_impossible_ones_are_last() {
        let model = Model { alpha_s: 4.0, beta_s_per_byte: 0.25, gamma_s_per_byte: 0.0 };
        let request = SimulationRequest::new(Collective::Allgather, 5, 10, 0);
        let explained = Explanation::of(&request, Order::Racks, &Cluster::uniform(5, &model), &|| false).unwrap();

        let times: Vec<f64> = explained.candidates.iter().map(Candidate::time_s).collect();
        assert!(times.is_sorted(), "{times:?}");
        let last = explained.candidates.last().unwrap();
        let reported = last.simulated.as_ref().unwrap_err().to_string();
        assert_eq!(reported, "neighbour-exchange needs an even number of ranks");
    }

    #[test]
    fn plans_that_are_too_large_get_the_time_of_their_formulas() {
        let model = Model { alpha_s: 4e-6, beta_s_per_byte: 1e-9, gamma_s_per_byte: 0.0 };
        let request = SimulationRequest::new(Collective::Allreduce, 20_000, 1 << 20, 0);

        let explained = Explanation::of(&request, Order::Racks, &Cluster::uniform(20_000, &model), &|| false).unwrap();

        let ring = explained.candidates.iter().find(|candidate| candidate.algorithm == "ring").unwrap();
        assert!(
            matches!(ring.simulated, Err(NotSimulated::TooLarge { operation_count }) if operation_count > 100_000_000)
        );
        assert_eq!(ring.time_s(), ring.terms_s.unwrap().iter().sum::<f64>());
    }

    #[test]
    fn an_explanation_ends_when_it_is_interrupted() {
        let model = Model { alpha_s: 4e-6, beta_s_per_byte: 1e-9, gamma_s_per_byte: 0.0 };
        let request = SimulationRequest::new(Collective::Allreduce, 256, 1 << 20, 0);

        let explained = Explanation::of(&request, Order::Racks, &Cluster::uniform(256, &model), &|| true);

        assert_eq!(explained.err(), Some(SimulationError::Interrupted));
    }
}
