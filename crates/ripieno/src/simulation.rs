//! Simulations of collectives and explanations of their costs. Algorithms are named as in calls: `chain@random:7`.

use crate::choice::Overrides;
use crate::error::{Error, argument};
use crate::preferred::Preferred;
pub use ripieno_plan::simulate::SimulatedTransfer;
use ripieno_plan::sparse::{Degrees, InvalidDegrees};
pub use ripieno_plan::swarm::{Discipline, MemberFailure};
use ripieno_plan::{Algorithm, Collective, Group, Order, Plan};
use ripieno_sim::simulate as simulate_any_plans;
pub use ripieno_sim::swarm;
pub use ripieno_sim::{
    Candidate, Cluster, ClusterFaults, ConnectionKind, ESTIMATED_STEPS_MAX, Explanation, LinkCost, NotSimulated,
    OPERATIONS_MAX, PlanCost, PlanSimulation, WireLoad,
};
use ripieno_sim::{NotSimulable, SimulationError, SimulationRequest, priced, simulate_sparse_plans};
use swarm::{SwarmError, SwarmOutcome, SwarmRequest};

/// Number of operations above which rank 0 represents all ranks, if all do the same, and above which the duration of a
/// simulation is estimated first.
const OPERATIONS_WITHOUT_ESTIMATE_MAX: usize = 50_000;

/// Result of a simulated collective.
pub struct SimulationCall {
    /// The requested or chosen algorithm.
    pub algorithm: &'static str,
    /// Preferable algorithms that were skipped, each with the reason.
    pub left_out: Vec<(&'static str, String)>,
    /// Result of the simulation.
    pub simulated: PlanSimulation,
}

/// Simulate `collective` on `cluster`, unless it is interrupted.
///
/// `algorithm` is the argument of a call. `bytes` is the size of the vector. For allgather, gather and scatter, it is
/// the size of a rank's block; for alltoall, the number of bytes that a rank sends. An algorithm whose simulation takes
/// too long by an estimate is an error if it is named; otherwise the cheapest algorithm that does not is simulated.
/// Unless all `transfers` are requested, rank 0 represents all ranks of large plans if all do the same.
pub fn simulate(
    cluster: &Cluster,
    collective: Collective,
    algorithm: Option<&str>,
    bytes: usize,
    root: usize,
    transfers: bool,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<SimulationCall, Error> {
    let (request, group) = request(cluster, collective, bytes, root)?;
    let (nbytes, preferred) = (request.request(0).length_bytes(), Preferred::default());
    let choice = Overrides::default().choice(collective, algorithm, &group, &preferred, nbytes)?;
    let is_named = algorithm.is_some_and(|text| !text.is_empty() && !text.starts_with('@'));
    let candidates = if is_named { vec![choice.algorithm] } else { default_first(&request, choice.algorithm, cluster) };
    let mut left_out = Vec::new();
    let mut failure = None;
    for algorithm in candidates {
        let simulable = Simulable { request: &request, algorithm, order: choice.order, cluster, transfers };
        match simulable.simulate(is_interrupted) {
            Ok(simulated) => return Ok(SimulationCall { algorithm: algorithm.name, left_out, simulated }),
            Err(NotSimulable::SimulationError(SimulationError::Interrupted)) => return Err(Error::Interrupted),
            Err(error) => {
                if let NotSimulable::SimulationError(error) = &error {
                    left_out.push((algorithm.name, error.to_string()));
                }
                failure.get_or_insert((simulable, error));
            }
        }
    }
    let (simulable, error) = failure.expect("every collective has an algorithm");
    let name = simulable.algorithm.name;
    match error {
        NotSimulable::Unsuitable(unsuitable) => Err(argument("algorithm", name, unsuitable.needs.text())),
        NotSimulable::SimulationError(error) => {
            let largest = simulable.largest_rank_count(bytes, &error, is_interrupted);
            let largest = largest.map_err(|_| Error::Interrupted)?.max(1);
            let others = if is_named { simulable.other_names(is_interrupted)? } else { Vec::new() };
            let others = if others.is_empty() { String::new() } else { format!("; or {}", others.join(", ")) };
            Err(argument("ranks", group.size(), &format!("at most about {largest} for {name}: {error}{others}")))
        }
    }
}

/// Simulate plans of the caller, one per rank, on `cluster`, unless it is interrupted.
pub fn simulate_plans(
    cluster: &Cluster,
    plans: &[Plan],
    is_interrupted: &dyn Fn() -> bool,
) -> Result<PlanSimulation, Error> {
    let p = cluster.topology.size();
    if plans.len() != p {
        return Err(argument("plans", plans.len(), &format!("{p} plans, one per rank of the cluster")));
    }
    simulate_any_plans(cluster, plans.iter().cloned(), is_interrupted).map_err(|error| match error {
        SimulationError::Interrupted => Error::Interrupted,
        _ => argument("plans", plans.len(), &format!("plans that can be simulated: {error}")),
    })
}

/// Return the algorithms to try if none is named: the default, then the others, cheapest first.
fn default_first(
    request: &SimulationRequest,
    default: &'static Algorithm,
    cluster: &Cluster,
) -> Vec<&'static Algorithm> {
    let others = priced(request, cluster).into_iter().map(|(algorithm, _)| algorithm);
    std::iter::once(default).chain(others.filter(|algorithm| algorithm.name != default.name)).collect()
}

/// An algorithm for a request on a cluster.
#[derive(Clone, Copy)]
struct Simulable<'a> {
    request: &'a SimulationRequest,
    algorithm: &'static Algorithm,
    order: Order,
    cluster: &'a Cluster,
    /// Whether all transfers are needed, so that one rank cannot represent all.
    transfers: bool,
}

impl Simulable<'_> {
    /// Simulate rank 0 in place of all ranks if they are alike and many, else all ranks if this does not take too long.
    fn simulate(&self, is_interrupted: &dyn Fn() -> bool) -> Result<PlanSimulation, NotSimulable> {
        let Simulable { request, algorithm, order, cluster, transfers } = *self;
        let operation_count = self.operation_count()?;
        if !transfers && operation_count > OPERATIONS_WITHOUT_ESTIMATE_MAX {
            let simulated = request.simulate_by_symmetry(algorithm, order, cluster, is_interrupted)?;
            if let Some(simulated) = simulated {
                return Ok(simulated);
            }
        }
        self.check_size(operation_count, is_interrupted)?;
        request.simulate(algorithm, order, cluster, is_interrupted)
    }

    fn operation_count(&self) -> Result<usize, NotSimulable> {
        let Simulable { request, algorithm, order, cluster, .. } = *self;
        request.operation_count(algorithm, order, cluster).map_err(NotSimulable::Unsuitable)
    }

    /// Return an error if the simulation of all ranks takes too much memory or time, by estimates.
    fn check_size(&self, operation_count: usize, is_interrupted: &dyn Fn() -> bool) -> Result<(), NotSimulable> {
        let Simulable { request, algorithm, order, cluster, .. } = *self;
        if operation_count > OPERATIONS_MAX {
            return Err(NotSimulable::SimulationError(SimulationError::TooLarge { operation_count }));
        }
        if operation_count > OPERATIONS_WITHOUT_ESTIMATE_MAX {
            let step_count = request.step_count(algorithm, order, cluster, operation_count, is_interrupted)?;
            if step_count > ESTIMATED_STEPS_MAX {
                return Err(NotSimulable::SimulationError(SimulationError::TooManySteps { step_count }));
            }
        }
        Ok(())
    }

    /// Return an error if the algorithm cannot be simulated, by estimates.
    fn check(&self, is_interrupted: &dyn Fn() -> bool) -> Result<(), NotSimulable> {
        let Simulable { request, algorithm, order, cluster, transfers } = *self;
        if !transfers && request.is_symmetric(algorithm, order, cluster, is_interrupted)? {
            return Ok(());
        }
        self.check_size(self.operation_count()?, is_interrupted)
    }

    /// Return the names of the other algorithms of the collective that can be simulated.
    fn other_names(&self, is_interrupted: &dyn Fn() -> bool) -> Result<Vec<&'static str>, Error> {
        let mut names = Vec::new();
        let others = priced(self.request, self.cluster).into_iter().map(|(algorithm, _)| algorithm);
        for algorithm in others.filter(|algorithm| algorithm.name != self.algorithm.name) {
            match (Simulable { algorithm, ..*self }).check(is_interrupted) {
                Err(NotSimulable::SimulationError(SimulationError::Interrupted)) => return Err(Error::Interrupted),
                Err(_) => {}
                Ok(()) => names.push(algorithm.name),
            }
        }
        Ok(names)
    }

    /// Return the largest number of ranks whose plans can be simulated, by estimates. `error` is the reason why these
    /// cannot.
    fn largest_rank_count(
        &self,
        bytes: usize,
        error: &SimulationError,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<usize, NotSimulable> {
        let Simulable { request, algorithm, order, cluster, .. } = *self;
        let p = cluster.topology.size();
        if let SimulationError::TooLong { passed_share } = error {
            return Ok((p as f64 * passed_share) as usize);
        }
        let operation_count = self.operation_count()?;
        let step_count = request.step_count(algorithm, order, cluster, operation_count, is_interrupted)?;
        let permitted_share = ESTIMATED_STEPS_MAX as f64 / step_count.max(1) as f64;
        let operation_count_max = OPERATIONS_MAX.min((operation_count as f64 * permitted_share) as usize);
        let fits = |p: usize| {
            let request = SimulationRequest::new(request.collective(), p, bytes, 0);
            let operation_count = request.operation_count(algorithm, order, &cluster.part(p));
            operation_count.is_ok_and(|operation_count| operation_count <= operation_count_max)
        };
        // Some algorithms need an even number of ranks.
        let (mut fitting, mut too_large) = (1, p / 2 + 1);
        while too_large - fitting > 1 {
            let half_count = fitting.midpoint(too_large);
            *(if fits(2 * half_count) { &mut fitting } else { &mut too_large }) = half_count;
        }
        Ok(2 * fitting)
    }
}

/// Estimate the cost of every algorithm of `collective`, and simulate it on `cluster` if its plans are small enough.
/// `order` is the argument of a call, such as `@given`.
pub fn explain(
    cluster: &Cluster,
    collective: Collective,
    order: Option<&str>,
    bytes: usize,
    root: usize,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Explanation, Error> {
    let (request, group) = request(cluster, collective, bytes, root)?;
    let order = Overrides::default().choice(collective, order, &group, &Preferred::default(), bytes)?.order;
    Explanation::of(&request, order, cluster, is_interrupted).map_err(|_| Error::Interrupted)
}

/// Simulate a reduction of rows by a butterfly of `degrees` on `cluster`. Every rank contributes and requests the
/// features of its set, which must ascend and be below `features`.
pub fn simulate_sparse(
    cluster: &Cluster,
    degrees: &str,
    features: u64,
    sets: &[Vec<u64>],
    row_bytes: usize,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<PlanSimulation, Error> {
    let p = cluster.topology.size();
    let request: Degrees = degrees.parse().map_err(|error: InvalidDegrees| Error::Argument {
        name: "degrees",
        value: degrees.to_string(),
        expected: error.to_string(),
    })?;
    if request.world_size() != p {
        return Err(argument("degrees", degrees, &format!("factors whose product is {p}")));
    }
    if sets.len() != p {
        return Err(argument("sets", sets.len(), &format!("one for each of {p} ranks")));
    }
    if row_bytes == 0 {
        return Err(argument("row_bytes", row_bytes, "at least 1"));
    }
    let is_valid = |keys: &Vec<u64>| keys.is_sorted_by(|a, b| a < b) && keys.last().is_none_or(|&last| last < features);
    if let Some(rank) = sets.iter().position(|keys| !is_valid(keys)) {
        return Err(argument(
            "sets",
            format!("the set of rank {rank}"),
            &format!("ascending features below {features}"),
        ));
    }
    simulate_sparse_plans(cluster, &request, features, sets, row_bytes, is_interrupted).map_err(|error| match error {
        SimulationError::Interrupted => Error::Interrupted,
        _ => argument("degrees", degrees, &format!("fewer messages: {error}")),
    })
}

/// Above this number of ranks, the simulation does not rebalance the rates of flows at each event, because each event
/// changes the rates of all flows. It rebalances them a thousand times within the transfer time of the value.
const EXACT_RANK_COUNT_MAX: usize = 128;

/// Create the request to simulate a dynamic broadcast of `bytes` from `root` to all ranks of `cluster`. `algorithm` is
/// the name of a discipline. A chain is ordered by rack.
pub fn broadcast_request(cluster: &Cluster, algorithm: &str, bytes: usize, root: usize) -> Result<SwarmRequest, Error> {
    let p = cluster.topology.size();
    request(cluster, Collective::Broadcast, bytes, root)?;
    let discipline = Discipline::named(algorithm)
        .ok_or_else(|| argument("algorithm", algorithm, &format!("one of {}", Discipline::NAMES.join(", "))))?;
    let topology = &cluster.topology;
    let racks_after =
        |rank: usize| (topology.rack(rank) + topology.rack_count() - topology.rack(root)) % topology.rack_count();
    let mut order: Vec<usize> = (1..p).map(|after| (root + after) % p).collect();
    order.sort_by_key(|&rank| (racks_after(rank), topology.node(rank) != topology.node(root)));
    let mut request = SwarmRequest::of(root, bytes, discipline);
    request.broadcasts[0].order = Some(order);
    if p > EXACT_RANK_COUNT_MAX && !discipline.is_streamed() {
        request.rebalance_interval_s = bytes as f64 * cluster.network_link.beta_s_per_byte / 1000.0;
    }
    Ok(request)
}

/// Simulate a dynamic broadcast on `cluster`, unless it is interrupted. `is_interrupted` is called periodically.
pub fn distribute(
    cluster: &Cluster,
    request: &SwarmRequest,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<SwarmOutcome, Error> {
    swarm::swarm_interruptible(cluster, request, is_interrupted).map_err(|error| swarm_error(cluster, &error))
}

/// Return the time on `cluster` for each block size tried (4 MiB and its halves), unless it is interrupted.
pub fn search_block_bytes(
    cluster: &Cluster,
    request: &SwarmRequest,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Vec<(usize, f64)>, Error> {
    swarm::search_block_bytes(cluster, request, is_interrupted).map_err(|error| swarm_error(cluster, &error))
}

fn swarm_error(cluster: &Cluster, error: &SwarmError) -> Error {
    match error {
        SwarmError::Interrupted => Error::Interrupted,
        _ => argument("ranks", cluster.topology.size(), &error.to_string()),
    }
}

fn request(
    cluster: &Cluster,
    collective: Collective,
    bytes: usize,
    root: usize,
) -> Result<(SimulationRequest, Group), Error> {
    let p = cluster.topology.size();
    if p == 0 {
        return Err(argument("ranks", p, "at least 1"));
    }
    if root >= p {
        return Err(argument("root", root, &format!("a rank, 0 … {}", p - 1)));
    }
    Ok((SimulationRequest::new(collective, p, bytes, root), Group::with_topology(0, cluster.topology.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripieno_plan::Topology;
    use ripieno_plan::simulate::Model;
    use std::sync::Arc;

    fn error_text(algorithm: &str, root: usize) -> String {
        let model = Model { alpha_s: 1.0, beta_s_per_byte: 1.0, gamma_s_per_byte: 0.0 };
        let found =
            simulate(&Cluster::uniform(5, &model), Collective::Allgather, Some(algorithm), 8, root, false, &|| false);
        found.map(|found| found.algorithm.to_string()).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn an_unsuitable_algorithm_is_reported_with_the_suitable_ones() {
        assert_eq!(
            error_text("neighbour-exchange", 0),
            "algorithm=neighbour-exchange: expected an even number of ranks"
        );
        assert!(error_text("chain", 0).starts_with("algorithm=chain: expected one of ring"));
        assert_eq!(error_text("ring", 5), "root=5: expected a rank, 0 … 4");
        assert_eq!(error_text("ring@random:7", 0), "ring");
    }

    #[test]
    fn a_smaller_plan_replaces_a_default_that_is_too_large() {
        let model = Model { alpha_s: 1e-6, beta_s_per_byte: 1e-9, gamma_s_per_byte: 0.0 };
        let racks = Topology::new((0..2400).collect(), (0..2400).map(|node| node / 1200).collect());
        let cluster = Cluster { topology: Arc::new(racks), ..Cluster::uniform(2400, &model) };
        let found = simulate(&cluster, Collective::Allgather, None, 8, 0, false, &|| false).unwrap();
        assert_eq!((found.algorithm, found.left_out[0].0), ("recursive-doubling", "ring"));
        let named = simulate(&cluster, Collective::Allgather, Some("ring"), 8, 0, false, &|| false);
        let text = named.err().unwrap().to_string();
        assert!(
            text.starts_with("ranks=2400: expected at most about ")
                && text.contains(" for ring: about 11515200 operations"),
            "{text}"
        );
        let interrupted = simulate(&cluster, Collective::Allgather, None, 8, 0, false, &|| true);
        assert_eq!(interrupted.err(), Some(Error::Interrupted));
    }

    #[test]
    fn a_named_algorithm_that_takes_too_long_is_refused_with_the_others() {
        let model = Model { alpha_s: 1e-6, beta_s_per_byte: 1e-9, gamma_s_per_byte: 0.0 };
        let cluster = Cluster { segment_bytes: Some(1 << 16), ..Cluster::uniform(30_000, &model) };
        let found =
            simulate(&cluster, Collective::Allreduce, Some("halving-doubling"), 100_000_000, 0, false, &|| false);
        let text = found.err().unwrap().to_string();
        assert!(text.starts_with("ranks=30000: expected at most about "), "{text}");
        assert!(text.contains(&format!(" steps, the maximum is {ESTIMATED_STEPS_MAX}; or ")), "{text}");
        assert!(text.contains("double-tree") && text.contains("ring"), "{text}");
    }

    #[test]
    fn one_rank_represents_all_unless_all_transfers_are_requested() {
        let model = Model { alpha_s: 1e-6, beta_s_per_byte: 1e-9, gamma_s_per_byte: 0.0 };
        let ring = |transfers: bool| {
            let cluster = Cluster::uniform(2400, &model);
            simulate(&cluster, Collective::Allgather, Some("ring"), 1000, 0, transfers, &|| false)
        };
        let found = ring(false).unwrap().simulated;
        let expected_s = 2399.0 * (1e-6 + 1000.0 * 1e-9);
        assert!((found.time_s().unwrap() / expected_s - 1.0).abs() < 1e-9);
        assert_eq!(found.message_count(), 2400 * 2399);
        assert!(ring(true).err().unwrap().to_string().contains(" for ring: about 11515200 operations"));
    }

    #[test]
    fn impossible_sparse_reductions_are_reported() {
        let model = Model { alpha_s: 1.0, beta_s_per_byte: 1.0, gamma_s_per_byte: 0.0 };
        let error_text = |degrees: &str, sets: &[Vec<u64>], row_bytes: usize| {
            simulate_sparse(&Cluster::uniform(4, &model), degrees, 10, sets, row_bytes, &|| false)
                .unwrap_err()
                .to_string()
        };
        let sets = vec![vec![3, 9]; 4];
        assert_eq!(error_text("3x2", &sets, 4), "degrees=3x2: expected factors whose product is 4");
        assert!(error_text("0x4", &sets, 4).starts_with("degrees=0x4: expected "));
        assert_eq!(error_text("2x2", &sets[1..], 4), "sets=3: expected one for each of 4 ranks");
        assert_eq!(error_text("2x2", &sets, 0), "row_bytes=0: expected at least 1");
        for wrong in [vec![3, 3], vec![9, 3], vec![3, 10]] {
            let sets = [sets[0].clone(), wrong, sets[0].clone(), sets[0].clone()];
            assert_eq!(error_text("2x2", &sets, 4), "sets=the set of rank 1: expected ascending features below 10");
        }
    }
}
