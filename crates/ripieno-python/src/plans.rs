//! Plans of Python programs: written step by step, checked for all ranks, simulated, and run by a communicator.

use crate::communicator::{parse_collective, parse_op};
use crate::errors;
use crate::interruption::Interruption;
use crate::simulation::{Cluster, plan_simulation_dict};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ripieno::plans::{self, Buffer, Constant, Operation, PlanFault, RankTraffic, SimulationRequest};
use ripieno::{Algorithm, Error, Op, simulation};

/// A span: number of the buffer, first byte, length in bytes, and size of an element.
type SpanFields = (u16, usize, usize, usize);

/// A step: kind, peer, span, source of a local step, and operation. A fill with zeros has no operation.
type StepFields = (&'static str, Option<usize>, SpanFields, Option<SpanFields>, Option<&'static str>);

/// Names of the buffers, by number.
const BUFFERS: [&str; 3] = ["main", "output", "scratch"];

/// Add the classes and the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Plan>()?;
    module.add_class::<CheckedPlans>()?;
    module.add_function(wrap_pyfunction!(check_plans, module)?)?;
    module.add_function(wrap_pyfunction!(catalogued_plans, module)?)?;
    module.add_function(wrap_pyfunction!(simulate_plans, module)?)?;
    module.add_function(wrap_pyfunction!(plan_table, module)?)
}

/// The steps of one rank.
#[pyclass(module = "ripieno._native")]
#[derive(Default)]
pub struct Plan(plans::Plan);

#[pymethods]
impl Plan {
    #[new]
    fn new() -> Plan {
        Plan::default()
    }

    fn send(&mut self, to: usize, span: SpanFields) {
        self.0.send(to, span_of(span));
    }

    fn receive(&mut self, source: usize, span: SpanFields) {
        self.0.receive(source, span_of(span));
    }

    fn reduce(&mut self, source: usize, span: SpanFields, op: &str) -> PyResult<()> {
        self.0.reduce(source, span_of(span), parse_op(op)?);
        Ok(())
    }

    // Unlike the methods of a plan, these accept lengths that differ: the check reports the step.

    fn copy(&mut self, source: SpanFields, to: SpanFields) {
        self.0.push(Operation::Copy { from: span_of(source), to: span_of(to), rows: None });
    }

    fn combine(&mut self, source: SpanFields, to: SpanFields, op: &str) -> PyResult<()> {
        self.0.push(Operation::Combine { from: span_of(source), to: span_of(to), rows: None, op: parse_op(op)? });
        Ok(())
    }

    #[pyo3(signature = (span, op=None))]
    fn fill(&mut self, span: SpanFields, op: Option<&str>) -> PyResult<()> {
        self.0.fill(span_of(span), op.map(parse_op).transpose()?.map_or(Constant::Zero, Constant::Identity));
        Ok(())
    }

    /// Append the steps of another plan.
    fn extend(&mut self, other: PyRef<'_, Plan>) {
        other.0.operations().iter().for_each(|operation| self.0.push(operation.clone()));
    }

    /// Return a copy.
    fn copied(&self) -> Plan {
        Plan(self.0.clone())
    }

    fn steps(&self) -> Vec<StepFields> {
        self.0.operations().iter().map(step_fields).collect()
    }

    fn step_text(&self, index: usize) -> String {
        step_text(&self.0.operations()[index])
    }

    fn __len__(&self) -> usize {
        self.0.operations().len()
    }

    fn __eq__(&self, other: PyRef<'_, Plan>) -> bool {
        self.0 == other.0
    }
}

/// The plans of all ranks, which have passed the check.
#[pyclass(frozen, module = "ripieno._native")]
pub struct CheckedPlans(pub plans::CheckedPlans);

#[pymethods]
impl CheckedPlans {
    #[getter]
    fn fingerprint(&self) -> u64 {
        self.0.fingerprint()
    }

    #[getter]
    fn round_count(&self) -> usize {
        self.0.report().round_count
    }

    #[getter]
    fn op(&self) -> Option<&'static str> {
        self.0.common().op.map(Op::name)
    }

    #[getter]
    fn element_bytes(&self) -> Option<usize> {
        self.0.common().element_bytes
    }

    /// Sizes of the first buffer and of the second in bytes.
    #[getter]
    fn lengths_bytes(&self) -> [usize; 2] {
        self.0.lengths_bytes()
    }

    /// Bytes sent, received and combined, messages sent and received, by rank.
    #[getter]
    fn traffic(&self) -> Vec<(usize, usize, usize, usize, usize)> {
        let row =
            |it: &RankTraffic| (it.sent_bytes, it.received_bytes, it.reduced_bytes, it.sent_count, it.received_count);
        self.0.report().ranks.iter().map(row).collect()
    }

    fn has_result(&self, rank: usize) -> bool {
        self.0.has_result(rank)
    }

    fn only_reads(&self, rank: usize) -> bool {
        self.0.only_reads(rank)
    }
}

/// A collective on a vector: its name, the vector, the operation and the root.
type Requested = (String, SpanFields, String, usize);

/// Check the plans of all ranks, and that they perform the collective, if one is given.
#[pyfunction]
#[pyo3(signature = (plans, requested=None))]
fn check_plans(py: Python<'_>, plans: Vec<PyRef<'_, Plan>>, requested: Option<Requested>) -> PyResult<CheckedPlans> {
    let plans = inner(&plans);
    let request = requested.map(|requested| request(&requested, plans.len())).transpose()?;
    let interruption = Interruption::default();
    let check = interruption.clone().check_calculation();
    let checked = py.detach(|| plans::CheckedPlans::check(plans.clone(), request.as_ref(), &check));
    match checked {
        Ok(Some(checked)) => Ok(CheckedPlans(checked)),
        Ok(None) => Err(interruption.exception(Error::Interrupted)),
        Err(fault) => Err(plan_error(&plans, &fault)),
    }
}

/// Return the plans of an algorithm of the catalogue for `ranks` ranks.
#[pyfunction]
fn catalogued_plans(requested: Requested, algorithm: &str, ranks: usize) -> PyResult<Vec<Plan>> {
    let collective = parse_collective(&requested.0)?;
    let algorithm = Algorithm::by_name(collective, algorithm).ok_or_else(|| {
        let names: Vec<&str> = Algorithm::of(collective).map(|algorithm| algorithm.name).collect();
        errors::input(format!("algorithm={algorithm:?}: expected one of {}", names.join(", ")))
    })?;
    let request = request(&requested, ranks)?;
    let plans = plans::catalogued(&request, algorithm, ranks).map_err(errors::from_collective)?;
    Ok(plans.into_iter().map(Plan).collect())
}

/// Simulate plans, one per rank. If `transfers`, return every message as `simulate` does.
#[pyfunction]
#[pyo3(signature = (cluster, plans, *, transfers=false))]
fn simulate_plans<'py>(
    py: Python<'py>,
    cluster: &Cluster,
    plans: Vec<PyRef<'_, Plan>>,
    transfers: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let plans = inner(&plans);
    let interruption = Interruption::default();
    let check = interruption.clone().check_calculation();
    let found = py.detach(|| simulation::simulate_plans(&cluster.0, &plans, &check));
    plan_simulation_dict(py, &cluster.0, &found.map_err(|error| interruption.exception(error))?, transfers)
}

/// Return the messages of each round as text.
#[pyfunction]
fn plan_table(py: Python<'_>, plans: Vec<PyRef<'_, Plan>>) -> PyResult<String> {
    let plans = inner(&plans);
    py.detach(|| plans::table(&plans)).map_err(|fault| plan_error(&plans, &fault))
}

fn inner(plans: &[PyRef<'_, Plan>]) -> Vec<plans::Plan> {
    plans.iter().map(|plan| plan.0.clone()).collect()
}

fn request((collective, vector, op, root): &Requested, p: usize) -> PyResult<SimulationRequest> {
    Ok(SimulationRequest::of_vector(parse_collective(collective)?, p, span_of(*vector), parse_op(op)?, *root))
}

fn span_of((buffer, start_bytes, length_bytes, element_bytes): SpanFields) -> plans::Span {
    plans::Span { buffer: Buffer(buffer), start_bytes, length_bytes, element_bytes }
}

fn fields_of(span: plans::Span) -> SpanFields {
    (span.buffer.0, span.start_bytes, span.length_bytes, span.element_bytes)
}

fn step_fields(operation: &Operation) -> StepFields {
    match *operation {
        Operation::Send { to, span, .. } => ("send", Some(to), fields_of(span), None, None),
        Operation::Receive { from, span } => ("receive", Some(from), fields_of(span), None, None),
        Operation::Reduce { from, span, op, .. } => ("reduce", Some(from), fields_of(span), None, Some(op.name())),
        Operation::Copy { from, to, .. } => ("copy", None, fields_of(to), Some(fields_of(from)), None),
        Operation::Combine { from, to, op, .. } => {
            ("combine", None, fields_of(to), Some(fields_of(from)), Some(op.name()))
        }
        Operation::Fill { span, with, .. } => {
            let op = if let Constant::Identity(op) = with { Some(op.name()) } else { None };
            ("fill", None, fields_of(span), None, op)
        }
    }
}

/// Return a step as the call that adds it to a plan.
fn step_text(operation: &Operation) -> String {
    let (kind, peer, span, source, op) = step_fields(operation);
    let arguments = peer.map(|peer| peer.to_string()).into_iter().chain(source.map(span_text));
    let arguments = arguments.chain([span_text(span)]).chain(op.map(|op| format!("{op:?}")));
    format!("{kind}({})", arguments.collect::<Vec<_>>().join(", "))
}

/// Return a span as a slice of elements.
fn span_text((buffer, start_bytes, length_bytes, element_bytes): SpanFields) -> String {
    let first = start_bytes / element_bytes;
    format!("{}[{first}:{}]", BUFFERS[usize::from(buffer)], first + length_bytes / element_bytes)
}

fn plan_error(plans: &[plans::Plan], fault: &PlanFault) -> PyErr {
    let step = fault.operation.map(|index| step_text(&plans[fault.rank].operations()[index]));
    // The checker reports pieces of spans as bytes.
    let spans = plans.iter().flat_map(plans::Plan::operations).find_map(|it| it.reads().or(it.writes()));
    let element_bytes = fault.span.element_bytes.max(spans.map_or(1, |span| span.element_bytes));
    let span = plans::Span { element_bytes, ..fault.span };
    let waiting = fault
        .waiting()
        .iter()
        .map(|&(rank, index)| format!("rank {rank}, step {index} {}", step_text(&plans[rank].operations()[index])));
    let arguments = (
        fault.rank,
        fault.operation,
        step.unwrap_or_default(),
        span_text(fields_of(span)),
        fault.kind.to_string(),
        fault.kind.advice(),
        waiting.collect::<Vec<_>>(),
    );
    errors::plan(arguments)
}
