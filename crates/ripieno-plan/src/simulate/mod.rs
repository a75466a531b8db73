//! Cost simulation: the predicted time of a collective, derived from the plans of all ranks.
//!
//! A message of `m` bytes takes `alpha + m·beta`; a reduce occupies its receiver for another `m·gamma`. A rank sends
//! one message and receives one message at a time, both at once (one port, full duplex). If several messages are ready,
//! the links take turns. Links do not disturb each other, and they buffer messages for a busy receiver. A message
//! leaves when all its bytes have arrived; [`segmented`] plans forward earlier. A combination inside a rank takes
//! `m·gamma` and occupies no port; copies are free.
//!
//! Source: Hockney, "The communication challenge for MPP", Parallel Computing 1994; as used by Zhang and Qiu,
//! "Clustering social images with MapReduce and high performance collective communication" (Twister), eqs. 1–3.

mod network;

use crate::fault::PlanFault;
use crate::matching::{Matching, all_done};
use crate::plan::{Operation, Plan};
use crate::rows::Rows;
use crate::span::Span;
use alloc::vec::Vec;
use network::{NetworkEvent, NetworkSimulation};

/// The three constants of a network of equal links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Seconds per message.
    pub alpha_s: f64,
    /// Seconds per byte.
    pub beta_s_per_byte: f64,
    /// Seconds to combine a byte.
    pub gamma_s_per_byte: f64,
}

impl Model {
    /// Every message takes one unit regardless of its size, so the time equals the number of rounds.
    pub const ROUNDS: Model = Model { alpha_s: 1.0, beta_s_per_byte: 0.0, gamma_s_per_byte: 0.0 };

    /// Return the time that a message occupies its sender.
    pub fn sending_s(&self, bytes: usize) -> f64 {
        self.alpha_s + bytes as f64 * self.beta_s_per_byte
    }

    /// Return the duration of an operation inside a rank.
    pub(crate) fn local_s(&self, operation: &Operation) -> f64 {
        match operation {
            Operation::Combine { .. } => operation.length_bytes() as f64 * self.gamma_s_per_byte,
            _ => 0.0,
        }
    }
}

/// One message of a collective with its simulated times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedTransfer {
    /// The sending rank.
    pub sender: usize,
    /// Index of the operation in the sender's plan.
    pub send: usize,
    /// The receiving rank.
    pub receiver: usize,
    /// Index of the operation in the receiver's plan.
    pub receive: usize,
    /// Length of the message in bytes.
    pub length_bytes: usize,
    /// Time at which the sender starts.
    pub start_s: f64,
    /// Time at which the receiver has the message, including its combination for a reduce.
    pub end_s: f64,
}

/// Return the duration of the collective: the time at which its last message has been received.
pub fn cost_s(plans: &[Plan], model: &Model) -> Result<f64, PlanFault> {
    Ok(timeline(plans, model)?.iter().fold(0.0, |latest, transfer| transfer.end_s.max(latest)))
}

/// Return all messages of a collective in the order of their receipt.
pub fn timeline(plans: &[Plan], model: &Model) -> Result<Vec<SimulatedTransfer>, PlanFault> {
    let matching = Matching::new(plans, core::iter::empty())?;
    let mut network = NetworkSimulation::new(plans, &matching, model);
    let mut transfers = Vec::new();
    loop {
        match network.next_event() {
            Some(NetworkEvent::Send { link, at }) => network.send(link, at),
            Some(NetworkEvent::Receive { link, at }) => transfers.push(network.receive(link, at)),
            None => return all_done(plans, network.unfinished()).map(|()| transfers),
        }
    }
}

/// Cut every operation of the plans into segments of at most `segment_bytes`, at least one element each. A rank then
/// forwards one segment while it receives the next.
pub fn segmented(plans: &[Plan], segment_bytes: usize) -> Vec<Plan> {
    plans.iter().map(|plan| segmented_plan(plan, segment_bytes)).collect()
}

fn segmented_plan(plan: &Plan, segment_bytes: usize) -> Plan {
    let segments = |span: Span| {
        let element_count = (segment_bytes / span.element_bytes).max(1);
        let firsts = (0..span.element_count().max(1)).step_by(element_count);
        firsts.map(move |first| span.elements(first, element_count.min(span.element_count() - first)))
    };
    // Both ends of a message are cut at the same byte offsets, so rows are cut between elements.
    let parts = |rows: &Rows, span: Span| {
        let (rows, element_count) = (rows.elements(span.element_bytes), (segment_bytes / span.element_bytes).max(1));
        let firsts = (0..rows.numbers().len().max(1)).step_by(element_count);
        firsts.map(move |first| {
            let numbers = rows.numbers()[first..].iter().copied().take(element_count);
            Rows::new(numbers.collect(), span.element_bytes)
        })
    };
    let mut cut = Plan::new();
    for operation in plan.operations() {
        match operation.clone() {
            Operation::Send { to, span, rows: None } => segments(span).for_each(|segment| cut.send(to, segment)),
            Operation::Send { to, span, rows: Some(rows) } => {
                parts(&rows, span).for_each(|part| cut.send_rows(to, span, part));
            }
            Operation::Receive { from, span } => segments(span).for_each(|segment| cut.receive(from, segment)),
            Operation::Reduce { from, span, rows: None, op } => {
                segments(span).for_each(|segment| cut.reduce(from, segment, op));
            }
            Operation::Reduce { from, span, rows: Some(rows), op } => {
                parts(&rows, span).for_each(|part| cut.reduce_rows(from, span, part, op));
            }
            Operation::Copy { from, to, rows: None } => {
                segments(from).for_each(|segment| cut.copy(segment, opposite(segment, from, to)));
            }
            Operation::Copy { from, to, rows: Some(rows) } => {
                parts(&rows, from).zip(segments(to)).for_each(|(part, segment)| cut.copy_rows(from, part, segment));
            }
            Operation::Combine { from, to, rows: None, op } => {
                segments(from).for_each(|segment| cut.combine(segment, opposite(segment, from, to), op));
            }
            Operation::Combine { from, to, rows: Some(rows), op } => {
                segments(from)
                    .zip(parts(&rows, to))
                    .for_each(|(segment, part)| cut.combine_rows(segment, to, part, op));
            }
            Operation::Fill { span, rows: None, with } => segments(span).for_each(|segment| cut.fill(segment, with)),
            Operation::Fill { span, rows: Some(rows), with } => {
                parts(&rows, span).for_each(|part| cut.fill_rows(span, part, with));
            }
        }
    }
    cut
}

/// Return the bytes of `to` at the position of `part` in `from`.
fn opposite(part: Span, from: Span, to: Span) -> Span {
    let start_bytes = to.start_bytes + part.start_bytes - from.start_bytes;
    Span { start_bytes, length_bytes: part.length_bytes, ..to }
}
