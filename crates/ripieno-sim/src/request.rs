//! Simulation requests: a collective, a number of bytes, and the resulting plans of an algorithm.
//!
//! The number of bytes is the size of the vector. For allgather, gather and scatter it is the size of a rank's block.
//! For alltoall it is the total that a rank sends. All ranks make the same request.

use crate::Cluster;
use crate::plans::{OPERATIONS_MAX, PlanSimulation, Representative, STEPS_MAX, SimulationError, simulate_steps};
use ripieno_plan::{
    Algorithm, Buffer, Collective, Group, Op, Order, PeerSpan, PlacementUse, Plan, PlanRequest, Span, TheoryCase,
    Unsuitable, next_random,
};
use std::fmt;

/// A collective and the sizes of its data.
#[derive(Clone, Debug)]
pub struct SimulationRequest {
    collective: Collective,
    root: usize,
    vector: Span,
    op: Op,
    /// One chunk per rank, of the input and of the output.
    chunks: Vec<Span>,
    in_chunks: Vec<Span>,
    /// Peers of each rank in a neighbor exchange: itself and the adjacent ranks.
    out_neighbors: Vec<Vec<PeerSpan>>,
    in_neighbors: Vec<Vec<PeerSpan>>,
}

/// Smallest and largest number of sampled ranks besides the root in an estimate of the plan sizes.
const SAMPLED_RANKS: (usize, usize) = (4, 16);

/// Number of operations after which an estimate samples no further ranks.
const SAMPLED_OPERATION_COUNT: usize = 4096;

/// Maximum number of operations and of steps of the simulation that estimates the steps per operation. It takes about
/// 0.2 s.
const TRIAL_OPERATIONS_MAX: usize = 1 << 15;
const TRIAL_STEPS_MAX: u64 = 500_000;

/// Numbers of ranks whose plans are compared first to find symmetry among more ranks: a power of two, and another.
const SYMMETRY_TRIAL_RANK_COUNTS: (usize, usize) = (64, 96);

/// Number of ranks that a rank considers per step, while it plans both levels of a [`PlacementUse::TwoLevels`].
const PLANNED_RANKS_PER_STEP: u64 = 8;

/// Number of random ranks whose plans a simulation by symmetry compares with the plan of rank 0, besides ranks 1, `p/2`
/// and `p-1`.
const COMPARED_RANKS: usize = 3;

/// The reason why a request cannot be simulated.
#[derive(Clone, Debug, PartialEq)]
pub enum NotSimulable {
    /// The algorithm cannot serve the request.
    Unsuitable(Unsuitable),
    /// The plans cannot be simulated.
    SimulationError(SimulationError),
}

impl fmt::Display for NotSimulable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSimulable::Unsuitable(unsuitable) => unsuitable.fmt(f),
            NotSimulable::SimulationError(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NotSimulable {}

impl SimulationRequest {
    /// Return the request for `collective` over `p` ranks and the given number of bytes. `root` is the sender of a
    /// point-to-point message.
    ///
    /// # Panics
    ///
    /// Panics if no algorithm of the catalogue performs the collective.
    pub fn new(collective: Collective, p: usize, bytes: usize, root: usize) -> SimulationRequest {
        let length_bytes = match collective {
            Collective::Allgather | Collective::Gather | Collective::Scatter => bytes * p,
            Collective::Alltoall => bytes.div_ceil(p) * p,
            Collective::Barrier => 1,
            _ => bytes,
        };
        SimulationRequest::of_vector(collective, p, Span::whole(Buffer::MAIN, length_bytes, 1), Op::Sum, root)
    }

    /// Return the request for `collective` over `p` ranks, each with this vector or with all its chunks, one per rank.
    /// In a neighbor exchange, a rank has such a vector for each of its neighbors in the ring.
    ///
    /// # Panics
    ///
    /// Panics if no algorithm of the catalogue performs the collective.
    pub fn of_vector(collective: Collective, p: usize, vector: Span, op: Op, root: usize) -> SimulationRequest {
        let chunks = match collective {
            Collective::Allgather
            | Collective::Gather
            | Collective::Scatter
            | Collective::Alltoall
            | Collective::ReduceScatter => vector.chunks(p),
            Collective::SparseReduce | Collective::Regroup | Collective::Plan => {
                panic!("no algorithm of the catalogue performs it")
            }
            _ => Vec::new(),
        };
        let in_chunks = chunks.iter().map(|chunk| chunk.placed(Buffer::OUTPUT, chunk.start_bytes)).collect();
        let (mut out_neighbors, mut in_neighbors) = (Vec::new(), Vec::new());
        if collective == Collective::NeighbourExchange {
            (out_neighbors, in_neighbors) = (0..p).map(|rank| neighbors(rank, p, vector)).unzip();
        }
        SimulationRequest { collective, root, vector, op, chunks, in_chunks, out_neighbors, in_neighbors }
    }

    /// Return the collective.
    pub fn collective(&self) -> Collective {
        self.collective
    }

    /// Return the request of `rank`.
    pub fn request(&self, rank: usize) -> PlanRequest<'_> {
        let (root, vector, chunks, op) = (self.root, self.vector, &self.chunks[..], self.op);
        match self.collective {
            Collective::Broadcast => PlanRequest::Broadcast { root, vector },
            Collective::Reduce => PlanRequest::Reduce { root, vector, op },
            Collective::Allreduce => PlanRequest::Allreduce { vector, op },
            Collective::Allgather => PlanRequest::Allgather { chunks },
            Collective::ReduceScatter => PlanRequest::ReduceScatter { chunks, op },
            Collective::Gather => PlanRequest::Gather { root, chunks },
            Collective::Scatter => PlanRequest::Scatter { root, chunks },
            Collective::Alltoall => PlanRequest::Alltoall { out_chunks: chunks, in_chunks: &self.in_chunks },
            Collective::Barrier => PlanRequest::Barrier { token: vector },
            Collective::PointToPoint => PlanRequest::PointToPoint { from: root, to: usize::from(root == 0), vector },
            Collective::Scan => PlanRequest::Scan { vector, op },
            Collective::Exscan => PlanRequest::Exscan { vector, op },
            Collective::Rotate => {
                PlanRequest::Rotate { distance: 1, out: vector, into: vector.placed(Buffer::OUTPUT, 0) }
            }
            Collective::NeighbourExchange => {
                PlanRequest::NeighbourExchange { out: &self.out_neighbors[rank], into: &self.in_neighbors[rank] }
            }
            Collective::SparseReduce | Collective::Regroup | Collective::Plan => unreachable!("rejected by new"),
        }
    }

    /// Estimate the number of operations of all plans from the plan of the root and of a few other ranks.
    pub fn operation_count(&self, algorithm: &Algorithm, order: Order, cluster: &Cluster) -> Result<usize, Unsuitable> {
        let p = cluster.topology.size();
        let count_at = |rank: usize| -> Result<usize, Unsuitable> {
            let group = Group::with_topology(rank, cluster.topology.clone()).in_order(order);
            Ok(algorithm.plan(&group, &self.request(rank))?.operations().len())
        };
        let root_count = count_at(self.root)?;
        if p == 1 {
            return Ok(root_count);
        }
        let (mut seed, mut sample_count, mut sampled_count) = (0, 0, 0);
        while sample_count < SAMPLED_RANKS.1
            && (sample_count < SAMPLED_RANKS.0 || sampled_count < SAMPLED_OPERATION_COUNT)
        {
            // A regular distance would find special ranks of trees too often.
            let distance = 1 + next_random(&mut seed) as usize % (p - 1);
            sampled_count += count_at((self.root + distance) % p)?;
            sample_count += 1;
        }
        Ok(root_count + sampled_count * (p - 1) / sample_count)
    }

    /// Simulate the plans of an algorithm on a cluster. `is_interrupted` is called from time to time and stops
    /// the simulation if it returns true.
    pub fn simulate(
        &self,
        algorithm: &Algorithm,
        order: Order,
        cluster: &Cluster,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<PlanSimulation, NotSimulable> {
        self.simulate_steps(algorithm, order, cluster, STEPS_MAX, is_interrupted)
    }

    fn simulate_steps(
        &self,
        algorithm: &Algorithm,
        order: Order,
        cluster: &Cluster,
        step_count_max: u64,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<PlanSimulation, NotSimulable> {
        let group = Group::with_topology(0, cluster.topology.clone()).in_order(order);
        // An unsuitable algorithm is only detected while planning. All ranks get the same result.
        algorithm.plan(&group, &self.request(0)).map_err(NotSimulable::Unsuitable)?;
        let plans = algorithm.plans_of(&group, |rank| self.request(rank));
        let plans = plans.map(|plan| plan.expect("an algorithm that supports the request of rank 0 supports all"));
        simulate_steps(cluster, plans, step_count_max, is_interrupted).map_err(NotSimulable::SimulationError)
    }

    /// Estimate the number of steps that the simulation of `operation_count` operations takes, by a simulation of
    /// fewer ranks: every 2nd, 4th and so on, until their plans have at most [`TRIAL_OPERATIONS_MAX`] operations.
    pub fn step_count(
        &self,
        algorithm: &Algorithm,
        order: Order,
        cluster: &Cluster,
        operation_count: usize,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<u64, NotSimulable> {
        let mut rank_count = cluster.topology.size();
        let (trial, part, trial_operation_count) = loop {
            // Some algorithms need an even number of ranks.
            rank_count = (rank_count / 2).next_multiple_of(2);
            let (trial, part) = (self.among(rank_count, cluster.topology.size()), cluster.part(rank_count));
            let trial_operation_count = trial.operation_count(algorithm, order, &part);
            let trial_operation_count = trial_operation_count.map_err(NotSimulable::Unsuitable)?;
            if trial_operation_count <= TRIAL_OPERATIONS_MAX || rank_count == 2 {
                break (trial, part, trial_operation_count);
            }
        };
        let trial_step_count = match trial.simulate_steps(algorithm, order, &part, TRIAL_STEPS_MAX, is_interrupted) {
            Ok(simulated) => simulated.step_count as f64,
            Err(NotSimulable::SimulationError(SimulationError::TooLong { passed_share })) => {
                TRIAL_STEPS_MAX as f64 / passed_share
            }
            Err(error) => return Err(error),
        };
        let step_count = (trial_step_count * operation_count as f64 / trial_operation_count.max(1) as f64) as u64;
        let p = cluster.topology.size() as u64;
        let is_planned_by_levels = algorithm.placement == PlacementUse::TwoLevels;
        Ok(step_count.saturating_add(if is_planned_by_levels { p * p / PLANNED_RANKS_PER_STEP } else { 0 }))
    }

    /// Return the request among `rank_count` of `p` ranks. Chunks keep their lengths.
    fn among(&self, rank_count: usize, p: usize) -> SimulationRequest {
        let length_bytes = match self.chunks.is_empty() {
            true => self.vector.length_bytes,
            false => self.vector.length_bytes / p * rank_count,
        };
        let vector = Span { length_bytes, ..self.vector };
        SimulationRequest::of_vector(self.collective, rank_count, vector, self.op, self.root.min(rank_count - 1))
    }

    /// Return whether rank 0 can probably represent all ranks in a simulation, because the plans of fewer ranks are
    /// alike.
    pub fn is_symmetric(
        &self,
        algorithm: &Algorithm,
        order: Order,
        cluster: &Cluster,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, NotSimulable> {
        let p = cluster.topology.size();
        let (power_of_two, other) = SYMMETRY_TRIAL_RANK_COUNTS;
        let rank_count = if p.is_power_of_two() { power_of_two } else { other };
        if !cluster.has_equal_links() || rank_count >= p {
            return Ok(cluster.has_equal_links());
        }
        // The algorithms of both levels depend on the number of ranks.
        if algorithm.placement == PlacementUse::TwoLevels {
            return Ok(false);
        }
        let trial = self.among(rank_count, p);
        Ok(trial.representative(algorithm, order, &cluster.part(rank_count), is_interrupted)?.is_some())
    }

    /// Simulate rank 0 in place of all ranks, if the plans of all ranks are alike on this cluster. Return `None` if
    /// they are not.
    ///
    /// Only some ranks are planned and compared. A vector that does not divide into equal chunks is rounded up: the
    /// time is the time of its largest chunks, the bytes that ranks send are exact.
    pub fn simulate_by_symmetry(
        &self,
        algorithm: &Algorithm,
        order: Order,
        cluster: &Cluster,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<PlanSimulation>, NotSimulable> {
        if !self.is_symmetric(algorithm, order, cluster, is_interrupted)? {
            return Ok(None);
        }
        let Some((representative, is_exact)) = self.representative(algorithm, order, cluster, is_interrupted)? else {
            return Ok(None);
        };
        let simulated = representative.simulate(cluster, is_interrupted).map_err(NotSimulable::SimulationError)?;
        let sent_bytes = if is_exact { simulated.sent_bytes } else { self.stated_bytes(algorithm, cluster) };
        Ok(Some(PlanSimulation { sent_bytes, ..simulated }))
    }

    /// Return the plan that represents the plans of all ranks, if they are alike, and whether its vector is exact or
    /// rounded up to equal chunks.
    fn representative(
        &self,
        algorithm: &Algorithm,
        order: Order,
        cluster: &Cluster,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<(Representative, bool)>, NotSimulable> {
        for request in [Some(self), self.with_equal_chunks(cluster).as_ref()].into_iter().flatten() {
            let plans = request.compared_plans(algorithm, order, cluster, is_interrupted)?;
            let found = Representative::of(cluster, &plans, is_interrupted);
            if let Some(representative) = found.map_err(NotSimulable::SimulationError)? {
                return Ok(Some((representative, request.vector == self.vector)));
            }
        }
        Ok(None)
    }

    /// Return the request with the vector rounded up to `p` equal chunks, or `None` if the collective has no such
    /// chunks.
    fn with_equal_chunks(&self, cluster: &Cluster) -> Option<SimulationRequest> {
        let p = cluster.topology.size();
        let Span { length_bytes, element_bytes, .. } = self.vector;
        let is_divided = matches!(self.collective, Collective::Allreduce | Collective::ReduceScatter);
        (is_divided && length_bytes > 0).then(|| {
            let length_bytes = length_bytes.next_multiple_of(p * element_bytes);
            SimulationRequest::of_vector(self.collective, p, Span { length_bytes, ..self.vector }, self.op, self.root)
        })
    }

    /// Return the plans of some ranks, rank 0 first.
    fn compared_plans(
        &self,
        algorithm: &Algorithm,
        order: Order,
        cluster: &Cluster,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<(usize, Plan)>, NotSimulable> {
        let p = cluster.topology.size();
        let mut seed = 0;
        let random = (0..COMPARED_RANKS).map(|_| next_random(&mut seed) as usize % p);
        let ranks: Vec<usize> = [0, 1 % p, p / 2, p - 1].into_iter().chain(random).collect();
        let mut plans = Vec::new();
        for rank in ranks {
            let group = Group::with_topology(rank, cluster.topology.clone()).in_order(order);
            let plan = algorithm.plan(&group, &self.request(rank)).map_err(NotSimulable::Unsuitable)?;
            let operation_count = plan.operations().len();
            if operation_count > OPERATIONS_MAX {
                return Err(NotSimulable::SimulationError(SimulationError::TooLarge { operation_count }));
            }
            plans.push((rank, plan));
            if is_interrupted() {
                return Err(NotSimulable::SimulationError(SimulationError::Interrupted));
            }
        }
        Ok(plans)
    }

    /// Return the bytes that each rank sends by the theory of an algorithm.
    fn stated_bytes(&self, algorithm: &Algorithm, cluster: &Cluster) -> Vec<usize> {
        let requests: Vec<PlanRequest> = (0..cluster.topology.size()).map(|rank| self.request(rank)).collect();
        let case = TheoryCase::of(&requests);
        (0..requests.len()).map(|rank| (algorithm.theory.sent_bytes)(&case, rank)).collect()
    }
}

/// Return the spans that `rank` sends to and receives from its ring neighbors.
fn neighbors(rank: usize, p: usize, vector: Span) -> (Vec<PeerSpan>, Vec<PeerSpan>) {
    let mut peers = vec![(rank + p - 1) % p, (rank + 1) % p];
    peers.dedup();
    let spans = |buffer: Buffer| {
        let span = |(index, &peer): (usize, &usize)| (peer, vector.placed(buffer, index * vector.length_bytes));
        peers.iter().enumerate().map(span).collect()
    };
    (spans(Buffer::MAIN), spans(Buffer::OUTPUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripieno_plan::simulate::Model;

    /// Flat trees have almost all operations at the root, binomial trees at few ranks.
    #[test]
    fn estimates_of_operation_counts_weigh_the_root_by_one() {
        let cluster = Cluster::uniform(1000, &Model::ROUNDS);
        for (collective, name) in
            [(Collective::Broadcast, "flat"), (Collective::Gather, "direct"), (Collective::Broadcast, "binomial")]
        {
            let request = SimulationRequest::new(collective, 1000, 1 << 20, 3);
            let algorithm = Algorithm::by_name(collective, name).unwrap();

            let estimated = request.operation_count(algorithm, Order::Racks, &cluster).unwrap();

            assert!((1000..4000).contains(&estimated), "{name}: {estimated} of 1998");
        }
    }
}
