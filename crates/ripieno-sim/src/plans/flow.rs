//! Flows: operations of plans during a simulation.

use crate::cluster::{Cluster, WireUses};
use crate::fair::UNLIMITED_BYTES_PER_S;
use ripieno_plan::Operation;

/// State of a flow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowState {
    Waiting,
    Active,
    Done,
    Dead,
}

/// An operation and its progress.
pub(super) struct OperationFlow {
    pub(super) rank: u32,
    pub(super) operation: u32,
    /// Number of preceding messages on its link.
    pub(super) turn: u32,
    pub(super) port: Option<u32>,
    pub(super) is_one_segment: bool,
    pub(super) uses: WireUses,
    pub(super) limit: f64,
    pub(super) length: f64,
    pub(super) state: FlowState,
    /// Position at `since_s`, and the rate since then.
    pub(super) position: f64,
    pub(super) since_s: f64,
    pub(super) rate: f64,
    /// Number of waits that still prevent the start.
    pub(super) pending: u32,
    /// Position of the next event, or the wait that limits the flow.
    pub(super) target: f64,
    pub(super) limiting_wait: Option<u32>,
    /// Time of the next event, and of the earliest event in the clock. Most rate changes postpone the next event, and
    /// the clock then keeps the earlier event.
    pub(super) due_s: f64,
    pub(super) scheduled_s: f64,
}

/// One end of a message.
pub(super) struct FlowMessage {
    pub(super) sender: u32,
    pub(super) receiver: u32,
    pub(super) is_receive: bool,
    pub(super) flow: u32,
}

/// Start order of ready flows: links take turns, then the order of the plans decides.
pub(super) type StartOrder = (u32, u32, u32, u32);

/// Return the start order of a flow.
pub(super) fn start_order(flows: &[OperationFlow], flow: u32) -> StartOrder {
    let OperationFlow { turn, operation, rank, .. } = flows[flow as usize];
    (turn, operation, rank, flow)
}

/// Return an operation in its initial state.
pub(super) fn flow(cluster: &Cluster, rank: usize, index: usize, operation: &Operation) -> OperationFlow {
    let is_combined = matches!(operation, Operation::Combine { .. }) && cluster.gamma_s_per_byte > 0.0;
    let length_bytes = operation.length_bytes();
    let port = match operation {
        Operation::Send { .. } => Some(2 * rank as u32),
        Operation::Receive { .. } | Operation::Reduce { .. } => Some(2 * rank as u32 + 1),
        Operation::Copy { .. } | Operation::Combine { .. } | Operation::Fill { .. } => None,
    };
    OperationFlow {
        rank: rank as u32,
        operation: index as u32,
        turn: 0,
        port,
        is_one_segment: cluster.segment_count(length_bytes) == 1,
        uses: match *operation {
            Operation::Send { to, .. } => cluster.sending(rank, to, length_bytes),
            Operation::Receive { from, .. } => cluster.receiving(from, rank, length_bytes, false),
            Operation::Reduce { from, .. } => cluster.receiving(from, rank, length_bytes, true),
            Operation::Copy { .. } | Operation::Combine { .. } | Operation::Fill { .. } => WireUses::default(),
        },
        limit: if is_combined { 1.0 / cluster.gamma_s_per_byte } else { UNLIMITED_BYTES_PER_S },
        length: length_bytes as f64,
        state: FlowState::Waiting,
        position: 0.0,
        since_s: 0.0,
        rate: 0.0,
        pending: 0,
        target: 0.0,
        limiting_wait: None,
        due_s: f64::INFINITY,
        scheduled_s: f64::INFINITY,
    }
}

/// Return the message end of an operation, if it sends or receives.
pub(super) fn end_of(rank: usize, operation: &Operation, flow: u32) -> Option<FlowMessage> {
    let (sender, receiver, is_receive) = match *operation {
        Operation::Send { to, .. } => (rank, to, false),
        Operation::Receive { from, .. } | Operation::Reduce { from, .. } => (from, rank, true),
        Operation::Copy { .. } | Operation::Combine { .. } | Operation::Fill { .. } => return None,
    };
    Some(FlowMessage { sender: sender as u32, receiver: receiver as u32, is_receive, flow })
}
