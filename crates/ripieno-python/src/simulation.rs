//! Simulated clusters for Python.

use crate::broadcasts;
use crate::communicator::parse_collective;
use crate::errors;
use crate::interruption::Interruption;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ripieno::simulation::swarm::{RankOutcome, SimulatedFetch, SwarmOutcome, SwarmRequest};
use ripieno::simulation::{
    self, Candidate, ClusterFaults, ConnectionKind, Discipline, Explanation, LinkCost, NotSimulated, PlanSimulation,
    SimulatedTransfer, SimulationCall,
};
use ripieno::{Collective, Topology};
use std::sync::Arc;

/// Add the class and the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let names: Vec<&str> = Collective::catalogued().map(Collective::name).collect();
    module.add("COLLECTIVES", names)?;
    module.add_class::<Cluster>()?;
    module.add("DISCIPLINES", Discipline::NAMES.to_vec())?;
    let is_streamed = |name: &&str| Discipline::named(name).is_some_and(Discipline::is_streamed);
    module.add("STREAMED", Discipline::NAMES.into_iter().filter(is_streamed).collect::<Vec<_>>())?;
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(simulate_sparse, module)?)?;
    module.add_function(wrap_pyfunction!(distribute, module)?)?;
    module.add_function(wrap_pyfunction!(search_block_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)
}

/// A cluster: the placement of its ranks, and the costs of its links.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Cluster(pub simulation::Cluster);

#[pymethods]
impl Cluster {
    /// Create a cluster. A link is (alpha in seconds, beta in seconds per byte). `slow_some` is (number of nodes,
    /// factor, seed); `slow` lists (node, factor); `dead` lists (node, time of death in seconds).
    #[new]
    #[pyo3(signature = (nodes, racks, *, memory, network_link, uplink, core_s_per_byte=0.0, gamma_s_per_byte=0.0,
        segment_bytes=None, relay_bytes=None, queue_bytes=None, packet_bytes=0, slow_some=None, slow=Vec::new(),
        dead=Vec::new()))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        nodes: Vec<usize>,
        racks: Vec<usize>,
        memory: (f64, f64),
        network_link: (f64, f64),
        uplink: (f64, f64),
        core_s_per_byte: f64,
        gamma_s_per_byte: f64,
        segment_bytes: Option<usize>,
        relay_bytes: Option<usize>,
        queue_bytes: Option<usize>,
        packet_bytes: usize,
        slow_some: Option<(usize, f64, u64)>,
        slow: Vec<(usize, f64)>,
        dead: Vec<(usize, f64)>,
    ) -> Cluster {
        let topology = Arc::new(Topology::new(nodes, racks));
        let faults = slow_some.iter().fold(ClusterFaults::default(), |faults, &(count, factor, seed)| {
            faults.slow_some(topology.node_count(), count, factor, seed)
        });
        let faults = slow.into_iter().fold(faults, |faults, (node, factor)| faults.slow(node, factor));
        let faults = dead.into_iter().fold(faults, |faults, (node, at_s)| faults.death(node, at_s));
        Cluster(simulation::Cluster {
            topology,
            memory: link(memory),
            network_link: link(network_link),
            uplink: link(uplink),
            core_s_per_byte,
            gamma_s_per_byte,
            segment_bytes,
            relay_bytes,
            queue_bytes,
            packet_bytes,
            faults,
        })
    }
}

/// Simulate a collective. If `transfers`, return every message as (sender, receiver, bytes, start, end, kind of link).
#[pyfunction]
#[pyo3(signature = (cluster, collective, algorithm, bytes, root=0, *, transfers=false))]
fn simulate<'py>(
    py: Python<'py>,
    cluster: &Cluster,
    collective: &str,
    algorithm: Option<&str>,
    bytes: usize,
    root: usize,
    transfers: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let collective = parse_collective(collective)?;
    let interruption = Interruption::default();
    let check = interruption.clone().check_calculation();
    let found = py.detach(|| simulation::simulate(&cluster.0, collective, algorithm, bytes, root, transfers, &check));
    simulation_dict(py, &cluster.0, &found.map_err(|error| interruption.exception(error))?, transfers)
}

/// Simulate a sparse reduction. Return its time in seconds, if it ends, and the bytes that each rank sends.
#[pyfunction]
fn simulate_sparse(
    py: Python<'_>,
    cluster: &Cluster,
    degrees: &str,
    features: u64,
    sets: Vec<Vec<u64>>,
    row_bytes: usize,
) -> PyResult<(Option<f64>, Vec<usize>)> {
    let interruption = Interruption::default();
    let check = interruption.clone().check_calculation();
    let found = py.detach(|| simulation::simulate_sparse(&cluster.0, degrees, features, &sets, row_bytes, &check));
    let simulated = found.map_err(|error| interruption.exception(error))?;
    Ok((simulated.time_s(), simulated.sent_bytes))
}

/// Estimate and simulate the cost of every algorithm of a collective.
#[pyfunction]
#[pyo3(signature = (cluster, collective, bytes, order=None, root=0))]
fn explain<'py>(
    py: Python<'py>,
    cluster: &Cluster,
    collective: &str,
    bytes: usize,
    order: Option<&str>,
    root: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let collective = parse_collective(collective)?;
    let interruption = Interruption::default();
    let check = interruption.clone().check_calculation();
    let found = py.detach(|| simulation::explain(&cluster.0, collective, order, bytes, root, &check));
    explanation_dict(py, &found.map_err(|error| interruption.exception(error))?)
}

/// Simulate a dynamic broadcast. `late`, `stopped` and `corrupted` list (rank, time in seconds). If `fetches`, return
/// every block as (sender, receiver, block, bytes, start, end, kind of link).
#[pyfunction]
#[pyo3(signature = (cluster, algorithm, bytes, root=0, *, block_bytes=None, late=Vec::new(), stopped=Vec::new(),
    corrupted=Vec::new(), seed=0, fetches=false, order=None, degree=None))]
#[allow(clippy::too_many_arguments)]
fn distribute<'py>(
    py: Python<'py>,
    cluster: &Cluster,
    algorithm: &str,
    bytes: usize,
    root: usize,
    block_bytes: Option<usize>,
    late: Vec<(usize, f64)>,
    stopped: Vec<(usize, f64)>,
    corrupted: Vec<(usize, f64)>,
    seed: u64,
    fetches: bool,
    order: Option<Vec<usize>>,
    degree: Option<usize>,
) -> PyResult<Bound<'py, PyDict>> {
    let request = simulation::broadcast_request(&cluster.0, algorithm, bytes, root).map_err(errors::from_collective)?;
    let mut request = SwarmRequest {
        late_joins: late,
        suspensions: stopped,
        corruptions: corrupted,
        seed,
        records_fetches: fetches,
        ..request
    };
    request.broadcasts[0].block_bytes = block_bytes;
    request.broadcasts[0].discipline = broadcasts::discipline(algorithm, degree)?;
    request.broadcasts[0].order = order.or(request.broadcasts[0].order.take());
    let interruption = Interruption::default();
    let check = interruption.clone().check_calculation();
    let found = py.detach(|| simulation::distribute(&cluster.0, &request, &check));
    swarm_dict(py, &cluster.0, &found.map_err(|error| interruption.exception(error))?)
}

/// Return block sizes and the seconds that a dynamic broadcast takes with each.
#[pyfunction]
#[pyo3(signature = (cluster, algorithm, bytes, root=0))]
fn search_block_bytes(
    py: Python<'_>,
    cluster: &Cluster,
    algorithm: &str,
    bytes: usize,
    root: usize,
) -> PyResult<Vec<(usize, f64)>> {
    let request = simulation::broadcast_request(&cluster.0, algorithm, bytes, root).map_err(errors::from_collective)?;
    let interruption = Interruption::default();
    let check = interruption.clone().check_calculation();
    let found = py.detach(|| simulation::search_block_bytes(&cluster.0, &request, &check));
    found.map_err(|error| interruption.exception(error))
}

fn link((alpha_s, beta_s_per_byte): (f64, f64)) -> LinkCost {
    LinkCost { alpha_s, beta_s_per_byte }
}

fn kind_name(kind: ConnectionKind) -> &'static str {
    match kind {
        ConnectionKind::Memory => "memory",
        ConnectionKind::NetworkLink => "network_link",
        ConnectionKind::Uplink => "uplink",
    }
}

fn simulation_dict<'py>(
    py: Python<'py>,
    cluster: &simulation::Cluster,
    call: &SimulationCall,
    transfers: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = plan_simulation_dict(py, cluster, &call.simulated, transfers)?;
    dict.set_item("algorithm", call.algorithm)?;
    dict.set_item("left_out", &call.left_out)?;
    Ok(dict)
}

pub fn plan_simulation_dict<'py>(
    py: Python<'py>,
    cluster: &simulation::Cluster,
    simulated: &PlanSimulation,
    transfers: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("seconds", simulated.time_s())?;
    dict.set_item("finish_s", &simulated.finish_s)?;
    dict.set_item("sent_bytes", &simulated.sent_bytes)?;
    dict.set_item("message_count", simulated.message_count())?;
    let by_kind = PyDict::new(py);
    for (kind, bytes) in simulated.bytes_by_kind(cluster) {
        by_kind.set_item(kind_name(kind), bytes)?;
    }
    dict.set_item("bytes", by_kind)?;
    let busiest = simulated.busiest().map(|load| (load.wire.to_string(), load.bytes, load.busy_s));
    dict.set_item("busiest", busiest)?;
    if transfers {
        let row = |it: &SimulatedTransfer| {
            let kind = kind_name(cluster.kind(it.sender, it.receiver));
            (it.sender, it.receiver, it.length_bytes, it.start_s, it.end_s, kind)
        };
        dict.set_item("transfers", simulated.transfers.iter().map(row).collect::<Vec<_>>())?;
    }
    Ok(dict)
}

fn swarm_dict<'py>(
    py: Python<'py>,
    cluster: &simulation::Cluster,
    swarm: &SwarmOutcome,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("block_bytes", swarm.manifests[0].block_bytes)?;
    dict.set_item("stripe_count", swarm.manifests[0].stripe_count)?;
    let outcomes = swarm.outcomes[0].iter().map(|outcome| match outcome {
        RankOutcome::Done { at_s, is_valid } => {
            ("done", Some(*at_s), if *is_valid { "" } else { "wrong bytes" }.to_string())
        }
        RankOutcome::Failed { at_s, failure } => ("failed", Some(*at_s), failure.to_string()),
        RankOutcome::Lost { at_s } => ("lost", Some(*at_s), String::new()),
        RankOutcome::Waiting => ("waiting", None, String::new()),
    });
    dict.set_item("outcomes", outcomes.collect::<Vec<_>>())?;
    let settled = swarm.settled[0].as_ref();
    dict.set_item("settled_s", settled.map(|settled| settled.at_s))?;
    dict.set_item("reported_lost", settled.map(|settled| settled.lost.clone()).unwrap_or_default())?;
    let corruptions = settled.iter().flat_map(|settled| &settled.corruptions);
    let corruptions = corruptions.map(|it| (it.block, it.source, it.receiver)).collect::<Vec<_>>();
    dict.set_item("corruptions", corruptions)?;
    dict.set_item("sent_bytes", &swarm.sent_bytes)?;
    dict.set_item("message_count", swarm.message_count)?;
    let busiest = swarm.loads.iter().max_by(|a, b| a.busy_s.total_cmp(&b.busy_s));
    dict.set_item("busiest", busiest.map(|load| (load.wire.to_string(), load.bytes, load.busy_s)))?;
    let row = |it: &SimulatedFetch| {
        let kind = kind_name(cluster.kind(it.sender, it.receiver));
        (it.sender, it.receiver, it.block, it.bytes, it.start_s, it.end_s, kind)
    };
    dict.set_item("fetches", swarm.fetches.iter().map(row).collect::<Vec<_>>())?;
    Ok(dict)
}

fn explanation_dict<'py>(py: Python<'py>, explanation: &Explanation) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("chosen", explanation.chosen)?;
    dict.set_item("segment_count", explanation.segment_count)?;
    dict.set_item("alpha_s", explanation.model.alpha_s)?;
    dict.set_item("beta_s_per_byte", explanation.model.beta_s_per_byte)?;
    dict.set_item("gamma_s_per_byte", explanation.model.gamma_s_per_byte)?;
    let candidates = explanation.candidates.iter().map(|candidate| candidate_dict(py, candidate));
    dict.set_item("candidates", candidates.collect::<PyResult<Vec<_>>>()?)?;
    Ok(dict)
}

fn candidate_dict<'py>(py: Python<'py>, candidate: &Candidate) -> PyResult<Bound<'py, PyDict>> {
    let (dict, simulated) = (PyDict::new(py), candidate.simulated.as_ref());
    dict.set_item("algorithm", candidate.algorithm)?;
    dict.set_item("formula", &candidate.formula)?;
    dict.set_item("terms_s", candidate.terms_s)?;
    let time_s = candidate.time_s();
    dict.set_item("seconds", time_s.is_finite().then_some(time_s))?;
    dict.set_item("max_sent_bytes", simulated.ok().map(|outcome| outcome.max_sent_bytes))?;
    dict.set_item("uplink_bytes", simulated.ok().map(|outcome| outcome.uplink_bytes))?;
    let (impossible, operation_count) = match simulated.err() {
        Some(NotSimulated::Impossible(error)) => (Some(error.to_string()), None),
        Some(&NotSimulated::TooLarge { operation_count }) => (None, Some(operation_count)),
        None => (None, None),
    };
    dict.set_item("impossible", impossible)?;
    dict.set_item("unsimulated_operations", operation_count)?;
    Ok(dict)
}
