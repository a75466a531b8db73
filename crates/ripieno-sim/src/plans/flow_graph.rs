//! Flow graph: all flows of a simulation, the pairs that form a message, and the waits of each flow.

use super::flow::{FlowMessage, OperationFlow, end_of, flow};
use super::{OPERATIONS_MAX, SimulationError};
use crate::cluster::Cluster;
use crate::waits::{OperationWait, of_plan};
use ripieno_plan::Plan;

/// The connected plans of all ranks.
pub(super) struct FlowGraph {
    pub(super) rank_count: usize,
    pub(super) flows: Vec<OperationFlow>,
    /// For each message: the flows at its two ends.
    pub(super) pairs: Vec<[u32; 2]>,
    pub(super) waits: Vec<OperationWait>,
}

impl FlowGraph {
    /// Build the flow graph of one plan per rank.
    pub(super) fn of(
        cluster: &Cluster,
        plans: impl Iterator<Item = Plan>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<FlowGraph, SimulationError> {
        let (mut flows, mut waits, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        let mut rank_count = 0;
        for (rank, plan) in plans.enumerate() {
            rank_count += 1;
            if is_interrupted() {
                return Err(SimulationError::Interrupted);
            }
            let mut numbers = vec![None; plan.operations().len()];
            for (index, operation) in plan.operations().iter().enumerate() {
                if operation.length_bytes() == 0 {
                    continue;
                }
                numbers[index] = Some(flows.len() as u32);
                messages.extend(end_of(rank, operation, flows.len() as u32));
                flows.push(flow(cluster, rank, index, operation));
            }
            if flows.len() > OPERATIONS_MAX {
                return Err(SimulationError::TooLarge { operation_count: flows.len() });
            }
            waits.extend(of_plan(&plan, cluster.relayed_bytes(), |index| numbers[index]));
        }
        let pairs = matched(cluster, messages, &mut flows, &mut waits, is_interrupted)?;
        Ok(FlowGraph { rank_count, flows, pairs, waits })
    }

    /// Return the flow graph of one rank that represents all ranks of a symmetric plan. Each message from rank `s` to
    /// rank `r` becomes a message from rank 0 to rank `receiver(s, r)`.
    pub(super) fn of_representative(
        cluster: &Cluster,
        plan: &Plan,
        receiver: impl Fn(usize, usize) -> usize,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<FlowGraph, SimulationError> {
        let (mut flows, mut messages, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (index, operation) in plan.operations().iter().enumerate() {
            let is_empty = operation.length_bytes() == 0;
            numbers.push((!is_empty).then_some(flows.len() as u32));
            if is_empty {
                continue;
            }
            messages.extend(end_of(0, operation, flows.len() as u32).map(|message| FlowMessage {
                sender: 0,
                receiver: receiver(message.sender as usize, message.receiver as usize) as u32,
                ..message
            }));
            flows.push(flow(cluster, 0, index, operation));
        }
        let mut waits = of_plan(plan, cluster.relayed_bytes(), |index| numbers[index]);
        let pairs = matched(cluster, messages, &mut flows, &mut waits, is_interrupted)?;
        Ok(FlowGraph { rank_count: 1, flows, pairs, waits })
    }
}

/// Match each send with its receive. Messages of a link follow each other, and receives follow their sends.
fn matched(
    cluster: &Cluster,
    mut messages: Vec<FlowMessage>,
    flows: &mut [OperationFlow],
    waits: &mut Vec<OperationWait>,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Vec<[u32; 2]>, SimulationError> {
    messages.sort_by_key(|message| (message.sender, message.receiver, message.is_receive, message.flow));
    let mut pairs = Vec::with_capacity(messages.len() / 2);
    for link in messages.chunk_by(|one, next| (one.sender, one.receiver) == (next.sender, next.receiver)) {
        if is_interrupted() {
            return Err(SimulationError::Interrupted);
        }
        let (sends, receives) = link.split_at(link.partition_point(|message| !message.is_receive));
        let ends = || sends.iter().zip(receives).map(|(send, receive)| [send.flow, receive.flow]);
        let has_equal_lengths =
            |[send, receive]: [u32; 2]| flows[send as usize].length == flows[receive as usize].length;
        if sends.len() != receives.len() || !ends().all(has_equal_lengths) {
            let (sender, receiver) = (link[0].sender as usize, link[0].receiver as usize);
            return Err(SimulationError::Unmatched { sender, receiver });
        }
        let stored = cluster.stored_bytes(link[0].sender as usize, link[0].receiver as usize) as f64;
        let mut before: Option<[u32; 2]> = None;
        for (number, pair) in ends().enumerate() {
            let [send, receive] = pair;
            let length = flows[send as usize].length;
            pair.iter().for_each(|&end| flows[end as usize].turn = number as u32);
            waits.push(OperationWait {
                on: send,
                by: receive,
                at: 0.0,
                threshold: stored.min(length),
                release: length,
            });
            let queue = cluster.queue_bytes.map(|bytes| stored.max(bytes as f64));
            if let Some(queue) = queue.filter(|&queue| queue < length) {
                waits.push(OperationWait { on: receive, by: send, at: queue, threshold: 0.0, release: length });
            }
            for (earlier, end) in before.into_iter().flatten().zip(pair) {
                let length = flows[earlier as usize].length;
                waits.push(OperationWait { on: earlier, by: end, at: 0.0, threshold: length, release: length });
            }
            before = Some(pair);
            pairs.push(pair);
        }
    }
    Ok(pairs)
}
