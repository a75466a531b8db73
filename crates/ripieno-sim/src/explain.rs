//! The explanation: every algorithm of a collective, its price term by term, and what it takes on a cluster.
//!
//! A price is the algorithm's formula on equal links, those between nodes if there are several. It knows no racks; what
//! the plans take on the cluster itself is played.

use crate::cluster::{Cluster, ConnectionKind};
use crate::request::{NotSimulable, SimulationRequest};
use ripieno_plan::formula::{self, Terms};
use ripieno_plan::simulate::Model;
use ripieno_plan::{Algorithm, Group, Order, Request, TheoryCase, choose};

/// All candidates for what is asked.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Every algorithm, the fastest first, those that cannot last.
    pub candidates: Vec<Candidate>,
    /// What runs when nobody names an algorithm.
    pub chosen: &'static str,
    /// The constants of the prices.
    pub model: Model,
    /// In how many segments a vector goes.
    pub segment_count: usize,
}

/// One algorithm.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name.
    pub algorithm: &'static str,
    /// Its cost, as its file says.
    pub formula: String,
    /// The formula's terms in alpha, beta and gamma, in seconds; none, where it has no formula.
    pub terms_s: Option<[f64; 3]>,
    /// What its plans take on the cluster, or why they cannot.
    pub played: Result<PlanCost, NotSimulable>,
}

/// What plans take on a cluster.
#[derive(Clone, Copy, Debug)]
pub struct PlanCost {
    /// Seconds; none, if it never ends.
    pub time_s: Option<f64>,
    /// The most that a rank sends.
    pub most_sent_bytes: usize,
    /// What crosses between racks.
    pub uplink_bytes: usize,
}

impl Explanation {
    /// Prices and plays every algorithm for what is asked.
    pub fn of(asked: &SimulationRequest, order: Order, cluster: &Cluster) -> Explanation {
        let p = cluster.topology.size();
        let group = Group::with_topology(0, cluster.topology.clone());
        let requests: Vec<Request> = (0..p).map(|rank| asked.request(rank)).collect();
        let case = TheoryCase::of(&requests);
        let model = model(cluster);
        let segment_count = cluster.segment_count(case.n).max(1);
        let terms = Terms { p, n: case.n, k: segment_count, d: case.peer_count(), model };
        let candidate = |algorithm: &'static Algorithm| {
            let played = asked.play(algorithm, order, cluster).map(|played| PlanCost {
                time_s: played.time_s(),
                most_sent_bytes: played.sent_bytes.iter().copied().max().unwrap_or(0),
                uplink_bytes: played.bytes_by_kind(cluster)[ConnectionKind::Uplink as usize].1,
            });
            Candidate {
                algorithm: algorithm.name,
                formula: algorithm.theory.cost.to_string(),
                terms_s: algorithm.theory.cost.formula().filter(|_| p > 1).map(|text| by_term(text, &terms)),
                played,
            }
        };
        let mut candidates: Vec<Candidate> = Algorithm::of(asked.collective()).map(candidate).collect();
        candidates.sort_by(|one, other| one.time_s().total_cmp(&other.time_s()));
        let chosen = choose(asked.collective(), &group, asked.request(0).length_bytes()).name;
        Explanation { candidates, chosen, model, segment_count }
    }
}

impl Candidate {
    /// Seconds; infinite, where it cannot.
    fn time_s(&self) -> f64 {
        self.played.as_ref().ok().and_then(|outcome| outcome.time_s).unwrap_or(f64::INFINITY)
    }
}

/// The constants of the links between the nodes of a cluster, or in the one that there is.
fn model(cluster: &Cluster) -> Model {
    let link = if cluster.topology.node_count() > 1 { cluster.cable } else { cluster.memory };
    let (alpha_s, beta_s_per_byte) = (link.alpha_s, link.beta_s_per_byte);
    Model { alpha_s, beta_s_per_byte, gamma_s_per_byte: cluster.gamma_s_per_byte }
}

/// A formula is a sum of terms in alpha, beta and gamma: what each comes to where the others are nothing.
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
    fn the_terms_of_a_price_add_up_to_what_plays_on_equal_links() {
        let model = Model { alpha_s: 4.0, beta_s_per_byte: 0.25, gamma_s_per_byte: 0.125 };
        let cluster = Cluster::uniform(8, &model);
        let asked = SimulationRequest::new(Collective::Allreduce, 8, 4096, 0);

        let explained = Explanation::of(&asked, Order::Racks, &cluster);

        let ring = explained.candidates.iter().find(|each| each.algorithm == "ring").unwrap();
        let terms_s = ring.terms_s.unwrap();
        assert_eq!(terms_s, [56.0, 1792.0, 448.0]);
        assert_eq!(ring.played.as_ref().unwrap().time_s, Some(terms_s.iter().sum()));
        assert_eq!(ring.played.as_ref().unwrap().most_sent_bytes, 7168);
    }

    #[test]
    fn the_fastest_comes_first_and_what_cannot_last() {
        let model = Model { alpha_s: 4.0, beta_s_per_byte: 0.25, gamma_s_per_byte: 0.0 };
        let explained = Explanation::of(
            &SimulationRequest::new(Collective::Allgather, 5, 10, 0),
            Order::Racks,
            &Cluster::uniform(5, &model),
        );

        let times: Vec<f64> = explained.candidates.iter().map(Candidate::time_s).collect();
        assert!(times.is_sorted(), "{times:?}");
        let last = explained.candidates.last().unwrap();
        let told = last.played.as_ref().unwrap_err().to_string();
        assert_eq!(told, "neighbour-exchange needs an even number of ranks");
    }
}
