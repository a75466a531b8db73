//! Design of sparse reductions for Python: packets, densities, degrees and their predicted cost.

use crate::communicator::{Communicator, seconds};
use crate::errors;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ripieno::density::{Curve, Empirical, PowerLaw};
use ripieno::design::{self, Design, DirectionSets, LayerEstimate, LayerFlow};
use ripieno::{Degrees, packets};

/// Add the classes and functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("PACKET_SIZES_BYTES", packets::SIZES_BYTES)?;
    module.add("EFFICIENT_SHARE", design::EFFICIENT_SHARE)?;
    module.add_class::<PacketCurve>()?;
    module.add_class::<DensityCurve>()?;
    module.add_function(wrap_pyfunction!(measure_packets, module)?)?;
    module.add_function(wrap_pyfunction!(packet_curve, module)?)?;
    module.add_function(wrap_pyfunction!(design_by_packet, module)?)?;
    module.add_function(wrap_pyfunction!(design_candidates, module)?)?;
    module.add_function(wrap_pyfunction!(design_estimate, module)?)
}

/// Seconds per packet by packet size.
#[pyclass(frozen, module = "ripieno._native")]
pub struct PacketCurve(design::PacketCurve);

#[pymethods]
impl PacketCurve {
    #[new]
    #[pyo3(signature = (points, latency_s, contention_s=0.0))]
    fn new(points: Vec<(f64, f64)>, latency_s: f64, contention_s: f64) -> PyResult<PacketCurve> {
        let expected = "expected points (bytes, seconds) of ascending bytes, all positive, and seconds of 0 or more";
        let message = format!("points={points:?}, latency_s={latency_s}, contention_s={contention_s}: {expected}");
        let is_valid = contention_s >= 0.0 && contention_s.is_finite();
        let curve = design::PacketCurve::through(points, latency_s).filter(|_| is_valid);
        let curve = curve.map(|curve| curve.with_contention(contention_s));
        curve.map(PacketCurve).ok_or_else(|| errors::input(message))
    }

    /// Return the default curve for the memory of one node.
    #[staticmethod]
    fn memory() -> PacketCurve {
        PacketCurve(design::PacketCurve::memory())
    }

    /// Return the default curve for links between nodes.
    #[staticmethod]
    fn network() -> PacketCurve {
        PacketCurve(design::PacketCurve::network())
    }

    #[getter]
    fn points(&self) -> Vec<(f64, f64)> {
        self.0.points().to_vec()
    }

    #[getter]
    fn latency_s(&self) -> f64 {
        self.0.latency_s()
    }

    #[getter]
    fn contention_s(&self) -> f64 {
        self.0.contention_s()
    }

    #[getter]
    fn alpha_s(&self) -> f64 {
        self.0.model().alpha_s
    }

    #[getter]
    fn beta_s_per_byte(&self) -> f64 {
        self.0.model().beta_s_per_byte
    }

    #[getter]
    fn best_throughput(&self) -> f64 {
        self.0.best_throughput()
    }

    #[getter]
    fn efficient_bytes(&self) -> f64 {
        self.0.efficient_bytes()
    }

    fn seconds(&self, packet_bytes: f64) -> f64 {
        self.0.seconds(packet_bytes)
    }
}

/// Densities of unions of sets.
#[pyclass(frozen, module = "ripieno._native")]
pub struct DensityCurve(Curve);

#[pymethods]
impl DensityCurve {
    /// Return the curve of power-law data with the given density of one set.
    #[staticmethod]
    fn power_law(features: u64, alpha: f64, density: f64) -> PyResult<DensityCurve> {
        check_law(features, alpha)?;
        let curve = Curve::power_law(features, alpha, density);
        curve
            .map(DensityCurve)
            .ok_or_else(|| errors::input(format!("density={density}: expected 0 or more, less than 1")))
    }

    /// Return the curve through the densities of unions. Each point is a number of sets and a density; the first point
    /// is for one set.
    #[staticmethod]
    fn through(points: Vec<(f64, f64)>) -> PyResult<DensityCurve> {
        if points.first().is_none_or(|first| first.0 != 1.0) || !points.windows(2).all(|pair| pair[0].0 < pair[1].0) {
            return Err(errors::input(format!("points={points:?}: expected (sets, density), ascending from 1 set on")));
        }
        Ok(DensityCurve(Curve::Empirical(Empirical::through(points))))
    }

    /// Fit a power law to densities of unions, by number of sets. Return the curve and the deviation of the points.
    #[staticmethod]
    fn fit(features: u64, points: Vec<(f64, f64)>) -> PyResult<(DensityCurve, f64)> {
        check_law(features, 0.0)?;
        let fit = PowerLaw::fit(features, &points).ok_or_else(|| {
            errors::input(format!("points={points:?}: expected two or more (sets, density) between 0 and 1"))
        })?;
        Ok((DensityCurve(Curve::PowerLaw { law: fit.law, lambda: fit.lambda }), fit.deviation))
    }

    #[getter]
    fn alpha(&self) -> Option<f64> {
        match &self.0 {
            Curve::PowerLaw { law, .. } => Some(law.alpha()),
            Curve::Empirical(_) => None,
        }
    }

    /// Return the scaling factor of one set.
    #[getter]
    fn lambda_0(&self) -> Option<f64> {
        match &self.0 {
            Curve::PowerLaw { lambda, .. } => Some(*lambda),
            Curve::Empirical(_) => None,
        }
    }

    fn density(&self, set_count: f64) -> f64 {
        self.0.density(set_count)
    }
}

fn check_law(features: u64, alpha: f64) -> PyResult<()> {
    match () {
        () if features == 0 => Err(errors::input("features=0: expected at least 1".to_string())),
        () if !(alpha >= 0.0 && alpha.is_finite()) => Err(errors::input(format!("alpha={alpha}: expected 0 or more"))),
        () => Ok(()),
    }
}

/// Measure packets between all ranks, and set the curve on the communicator.
#[pyfunction]
fn measure_packets(
    py: Python<'_>,
    communicator: &Communicator,
    sizes_bytes: Vec<usize>,
    budget_s: f64,
) -> PyResult<PacketCurve> {
    let budget = seconds("budget_s", budget_s)?;
    communicator.call(py, |comm| {
        let curve = packets::measure(comm, &sizes_bytes, budget)?;
        comm.keep_packets(curve.clone());
        Ok(PacketCurve(curve))
    })
}

/// Return the packet costs between the ranks of a communicator, measured or default.
#[pyfunction]
fn packet_curve(py: Python<'_>, communicator: &Communicator) -> PyResult<PacketCurve> {
    communicator.call(py, |comm| Ok(PacketCurve(comm.packets())))
}

/// Return the layer degrees that follow from the minimum packet size (Zhao and Canny, Kylix, section IV).
#[pyfunction]
fn design_by_packet(p: usize, curve: &DensityCurve, rows: f64, row_bytes: usize, min_bytes: f64) -> PyResult<String> {
    check_ranks(p)?;
    Ok(design::by_packet(p, DirectionSets { curve: &curve.0, rows }, row_bytes, min_bytes).to_string())
}

/// Return all degrees for `p` ranks, cheapest first. `out_sets` and `in_sets` are a curve and the rows of a rank each.
#[pyfunction]
fn design_candidates<'py>(
    py: Python<'py>,
    p: usize,
    out_sets: (PyRef<'py, DensityCurve>, f64),
    in_sets: (PyRef<'py, DensityCurve>, f64),
    row_bytes: usize,
    packets: &PacketCurve,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    check_ranks(p)?;
    let designs = design::candidates(p, sets(&out_sets), sets(&in_sets), row_bytes, &packets.0);
    designs.iter().map(|design| design_dict(py, design)).collect()
}

/// Return the predicted cost of degrees: `direct`, `binary` or factors.
#[pyfunction]
fn design_estimate<'py>(
    py: Python<'py>,
    p: usize,
    degrees: &str,
    out_sets: (PyRef<'py, DensityCurve>, f64),
    in_sets: (PyRef<'py, DensityCurve>, f64),
    row_bytes: usize,
    packets: &PacketCurve,
) -> PyResult<Bound<'py, PyDict>> {
    check_ranks(p)?;
    let degrees = Degrees::named(degrees, p).map_err(|error| errors::input(format!("{p} ranks: {error}")))?;
    design_dict(py, &design::estimate(degrees, sets(&out_sets), sets(&in_sets), row_bytes, &packets.0))
}

fn check_ranks(p: usize) -> PyResult<()> {
    if p == 0 { Err(errors::input("ranks=0: expected at least 1".to_string())) } else { Ok(()) }
}

fn sets<'a>(of: &'a (PyRef<'_, DensityCurve>, f64)) -> DirectionSets<'a> {
    DirectionSets { curve: &of.0.0, rows: of.1 }
}

fn design_dict<'py>(py: Python<'py>, design: &Design) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("degrees", design.degrees.to_string())?;
    dict.set_item("seconds", design.seconds())?;
    dict.set_item("sent_bytes", design.sent_bytes())?;
    dict.set_item("fold", design.fold.as_ref().map(|layer| layer_dict(py, layer)).transpose()?)?;
    let layers: Vec<_> = design.layers.iter().map(|layer| layer_dict(py, layer)).collect::<PyResult<_>>()?;
    dict.set_item("layers", layers)?;
    dict.set_item("bottom", layer_dict(py, &design.bottom)?)?;
    Ok(dict)
}

fn layer_dict<'py>(py: Python<'py>, layer: &LayerEstimate) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("degree", layer.degree)?;
    dict.set_item("set_count", layer.set_count)?;
    dict.set_item("part_count", layer.part_count)?;
    dict.set_item("holder_count", layer.holder_count)?;
    dict.set_item("packet_count", layer.packet_count)?;
    dict.set_item("down", flow_dict(py, layer.down)?)?;
    dict.set_item("up", flow_dict(py, layer.up)?)?;
    Ok(dict)
}

fn flow_dict(py: Python<'_>, flow: LayerFlow) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("density", flow.density)?;
    dict.set_item("rows", flow.rows)?;
    dict.set_item("packet_bytes", flow.packet_bytes)?;
    dict.set_item("seconds", flow.seconds)?;
    Ok(dict)
}
