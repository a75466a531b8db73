//! Simulated clusters for Python.

use crate::communicator::parse_collective;
use crate::errors;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ripieno::simulation::{self, Candidate, Explanation, Faults, Kind, Link, Simulation, Transfer};
use ripieno::{Collective, Topology};
use std::sync::Arc;

/// Adds the class and the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let names: Vec<&str> = Collective::catalogued().map(Collective::name).collect();
    module.add("COLLECTIVES", names)?;
    module.add_class::<Cluster>()?;
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)
}

/// A cluster: where its ranks stand, and what its links cost.
#[pyclass(frozen, module = "ripieno._native")]
pub struct Cluster(simulation::Cluster);

#[pymethods]
impl Cluster {
    /// Links are (alpha in seconds, beta in seconds per byte); `slow_some` is (count of nodes, factor,
    /// seed), and `dead` has (node, second).
    #[new]
    #[pyo3(signature = (nodes, racks, *, memory, cable, uplink, core_s_per_byte=0.0, gamma_s_per_byte=0.0,
        segment_bytes=None, queue_bytes=None, slow_some=None, dead=Vec::new()))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        nodes: Vec<usize>,
        racks: Vec<usize>,
        memory: (f64, f64),
        cable: (f64, f64),
        uplink: (f64, f64),
        core_s_per_byte: f64,
        gamma_s_per_byte: f64,
        segment_bytes: Option<usize>,
        queue_bytes: Option<usize>,
        slow_some: Option<(usize, f64, u64)>,
        dead: Vec<(usize, f64)>,
    ) -> Cluster {
        let topology = Arc::new(Topology::new(nodes, racks));
        let faults = slow_some.iter().fold(Faults::default(), |faults, &(count, factor, seed)| {
            faults.slow_some(topology.node_count(), count, factor, seed)
        });
        let faults = dead.into_iter().fold(faults, |faults, (node, at_s)| faults.death(node, at_s));
        Cluster(simulation::Cluster {
            topology,
            memory: link(memory),
            cable: link(cable),
            uplink: link(uplink),
            core_s_per_byte,
            gamma_s_per_byte,
            segment_bytes,
            queue_bytes,
            faults,
        })
    }
}

/// Plays a collective; `transfers` asks for every message as (sender, receiver, bytes, start, end, kind of link).
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
    let found = py.detach(|| simulation::simulate(&cluster.0, collective, algorithm, bytes, root));
    simulation_dict(py, &cluster.0, &found.map_err(errors::from_collective)?, transfers)
}

/// Prices and plays every algorithm of a collective.
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
    let found = py.detach(|| simulation::explain(&cluster.0, collective, order, bytes, root));
    explanation_dict(py, &found.map_err(errors::from_collective)?)
}

fn link((alpha_s, beta_s_per_byte): (f64, f64)) -> Link {
    Link { alpha_s, beta_s_per_byte }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Memory => "memory",
        Kind::Cable => "cable",
        Kind::Uplink => "uplink",
    }
}

fn simulation_dict<'py>(
    py: Python<'py>,
    cluster: &simulation::Cluster,
    found: &Simulation,
    transfers: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let (dict, played) = (PyDict::new(py), &found.played);
    dict.set_item("algorithm", found.algorithm)?;
    dict.set_item("seconds", played.time_s())?;
    dict.set_item("finish_s", &played.finish_s)?;
    dict.set_item("sent_bytes", &played.sent_bytes)?;
    dict.set_item("message_count", played.transfers.len())?;
    let by_kind = PyDict::new(py);
    for (kind, bytes) in played.bytes_by_kind(cluster) {
        by_kind.set_item(kind_name(kind), bytes)?;
    }
    dict.set_item("bytes", by_kind)?;
    let busiest = played.busiest().map(|load| (load.place.to_string(), load.bytes, load.busy_s));
    dict.set_item("busiest", busiest)?;
    if transfers {
        let row = |it: &Transfer| {
            let kind = kind_name(cluster.kind(it.sender, it.receiver));
            (it.sender, it.receiver, it.length_bytes, it.start_s, it.end_s, kind)
        };
        dict.set_item("transfers", played.transfers.iter().map(row).collect::<Vec<_>>())?;
    }
    Ok(dict)
}

fn explanation_dict<'py>(py: Python<'py>, found: &Explanation) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("chosen", found.chosen)?;
    dict.set_item("segment_count", found.segment_count)?;
    dict.set_item("alpha_s", found.model.alpha_s)?;
    dict.set_item("beta_s_per_byte", found.model.beta_s_per_byte)?;
    dict.set_item("gamma_s_per_byte", found.model.gamma_s_per_byte)?;
    let candidates = found.candidates.iter().map(|candidate| candidate_dict(py, candidate));
    dict.set_item("candidates", candidates.collect::<PyResult<Vec<_>>>()?)?;
    Ok(dict)
}

fn candidate_dict<'py>(py: Python<'py>, candidate: &Candidate) -> PyResult<Bound<'py, PyDict>> {
    let (dict, played) = (PyDict::new(py), candidate.played.as_ref());
    dict.set_item("algorithm", candidate.algorithm)?;
    dict.set_item("formula", &candidate.formula)?;
    dict.set_item("terms_s", candidate.terms_s)?;
    dict.set_item("seconds", played.ok().and_then(|outcome| outcome.time_s))?;
    dict.set_item("most_sent_bytes", played.ok().map(|outcome| outcome.most_sent_bytes))?;
    dict.set_item("uplink_bytes", played.ok().map(|outcome| outcome.uplink_bytes))?;
    dict.set_item("impossible", played.err().map(ToString::to_string))?;
    Ok(dict)
}
