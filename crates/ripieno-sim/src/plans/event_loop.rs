//! Event loop of a simulation: processes the events on a cluster one by one.

use super::flow::{FlowState, OperationFlow, StartOrder, start_order};
use super::flow_graph::FlowGraph;
use super::meter::{StepMeter, Stop};
use super::{PlanSimulation, SimulationError, WireLoad};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::number_set::NumberSet;
use crate::waits::OperationWait;
use ripieno_plan::simulate::SimulatedTransfer;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Relative tolerance below which times and positions are equal.
pub(super) const RELATIVE_TOLERANCE: f64 = 1e-11;

/// Positions of a wait that the other flow has reached.
#[derive(Clone, Copy, Default)]
pub(super) struct SimulatedWait {
    pub(super) threshold: bool,
    pub(super) release: bool,
}

/// A scheduled event.
pub(super) enum SimulationEvent {
    Flow { flow: u32 },
    Death { node: usize },
    Cut { ends: [usize; 2] },
}

/// State of a simulation.
pub(super) struct SimulationState<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) rank_count: usize,
    pub(super) flows: Vec<OperationFlow>,
    /// For each message: the flows at its two ends.
    pub(super) pairs: Vec<[u32; 2]>,
    /// For each flow: its message, if it is an end of one.
    pub(super) pair_of: Vec<Option<u32>>,
    pub(super) starts_s: Vec<f64>,
    pub(super) waits: Vec<OperationWait>,
    pub(super) wait_states: Vec<SimulatedWait>,
    /// For each flow: its own waits, and the waits of other flows for it.
    pub(super) waits_of: IndexLists,
    pub(super) waits_for: IndexLists,
    /// For each wire: the active flows, the carried bytes and their busy time.
    pub(super) users: Vec<Vec<u32>>,
    pub(super) carried: Vec<(f64, f64)>,
    /// For each port: whether a one-segment message occupies it, and the flows that queue for it.
    pub(super) is_occupied: Vec<bool>,
    pub(super) queued: Vec<BinaryHeap<Reverse<StartOrder>>>,
    pub(super) candidates: BinaryHeap<Reverse<StartOrder>>,
    pub(super) clock: Clock<SimulationEvent>,
    /// Flows with outdated rates, and flows with an outdated next event.
    pub(super) unbalanced: NumberSet,
    pub(super) unscheduled: NumberSet,
    /// Scratch sets for flows that share wires and for these wires. Empty except during a search.
    pub(super) affected: NumberSet,
    pub(super) seen: NumberSet,
    pub(super) transfers: Vec<SimulatedTransfer>,
    pub(super) finish_s: Vec<f64>,
}

/// Lists of indices, by index.
pub(super) struct IndexLists {
    pub(super) starts: Vec<u32>,
    pub(super) entries: Vec<u32>,
}

impl IndexLists {
    pub(super) fn of(count: usize, keys: impl Iterator<Item = u32> + Clone) -> IndexLists {
        let mut starts = vec![0u32; count + 1];
        keys.clone().for_each(|key| starts[key as usize + 1] += 1);
        (0..count).for_each(|key| starts[key + 1] += starts[key]);
        let mut next = starts.clone();
        let mut entries = vec![0; starts[count] as usize];
        for (entry, key) in keys.enumerate() {
            entries[next[key as usize] as usize] = entry as u32;
            next[key as usize] += 1;
        }
        IndexLists { starts, entries }
    }

    pub(super) fn range(&self, key: usize) -> std::ops::Range<usize> {
        self.starts[key] as usize..self.starts[key + 1] as usize
    }

    pub(super) fn at(&self, key: usize) -> &[u32] {
        &self.entries[self.range(key)]
    }
}

impl<'a> SimulationState<'a> {
    /// Return the state of all ranks before their first operation.
    pub(super) fn ready(cluster: &'a Cluster, flow_graph: FlowGraph) -> SimulationState<'a> {
        let FlowGraph { rank_count, mut flows, pairs, waits } = flow_graph;
        let count = flows.len();
        waits.iter().filter(|wait| wait.at == 0.0).for_each(|wait| flows[wait.by as usize].pending += 1);
        let mut pair_of = vec![None; count];
        for (number, ends) in pairs.iter().enumerate() {
            ends.iter().for_each(|&end| pair_of[end as usize] = Some(number as u32));
        }
        let mut clock = Clock::default();
        cluster.faults.deaths().iter().for_each(|&(node, at_s)| clock.schedule(at_s, SimulationEvent::Death { node }));
        cluster.faults.cuts().iter().for_each(|&(ends, at_s)| clock.schedule(at_s, SimulationEvent::Cut { ends }));
        SimulationState {
            cluster,
            rank_count,
            starts_s: vec![0.0; pairs.len()],
            pair_of,
            pairs,
            wait_states: vec![SimulatedWait::default(); waits.len()],
            waits_of: IndexLists::of(count, waits.iter().map(|wait| wait.by)),
            waits_for: IndexLists::of(count, waits.iter().map(|wait| wait.on)),
            waits,
            users: vec![Vec::new(); cluster.wire_count()],
            carried: vec![(0.0, 0.0); cluster.wire_count()],
            is_occupied: vec![false; 2 * rank_count],
            queued: (0..2 * rank_count).map(|_| BinaryHeap::new()).collect(),
            candidates: (0..count as u32)
                .filter(|&flow| flows[flow as usize].pending == 0)
                .map(|flow| Reverse(start_order(&flows, flow)))
                .collect(),
            clock,
            unbalanced: NumberSet::default(),
            unscheduled: NumberSet::default(),
            affected: NumberSet::default(),
            seen: NumberSet::default(),
            transfers: Vec::new(),
            finish_s: vec![0.0; rank_count],
            flows,
        }
    }

    /// Process all events. Fails if the simulation is interrupted or takes too many steps.
    pub(super) fn run(&mut self, meter: &mut StepMeter<'_>) -> Result<(), SimulationError> {
        self.run_all(meter).map_err(|stop| match stop {
            Stop::Interrupted => SimulationError::Interrupted,
            Stop::TooLong => SimulationError::TooLong { passed_share: self.passed_share() },
        })
    }

    fn run_all(&mut self, meter: &mut StepMeter<'_>) -> Result<(), Stop> {
        self.settle(meter)?;
        while let Some(event) = self.clock.advance() {
            self.process(event);
            meter.add(1)?;
            while let Some(event) = self.clock.advance_if_simultaneous(RELATIVE_TOLERANCE * self.clock.now_s()) {
                self.process(event);
                meter.add(1)?;
            }
            self.settle(meter)?;
        }
        Ok(())
    }

    /// Start all ready flows and assign all rates.
    fn settle(&mut self, meter: &mut StepMeter<'_>) -> Result<(), Stop> {
        while let Some(Reverse(order)) = self.candidates.pop() {
            self.begin(order);
            meter.add(1)?;
        }
        self.balance(meter)?;
        for flow in self.unscheduled.take() {
            self.schedule(flow);
            meter.add(1)?;
        }
        Ok(())
    }

    /// Return the share of all bytes that have passed.
    fn passed_share(&self) -> f64 {
        let total: f64 = self.flows.iter().map(|flow| flow.length).sum();
        (0..self.flows.len() as u32).map(|flow| self.position(flow)).sum::<f64>() / total
    }

    fn process(&mut self, event: SimulationEvent) {
        match event {
            SimulationEvent::Flow { flow } => {
                let latest_s = self.clock.now_s() * (1.0 + RELATIVE_TOLERANCE);
                let operation = &mut self.flows[flow as usize];
                if operation.scheduled_s > latest_s {
                    // An earlier event has replaced this one.
                    return;
                }
                operation.scheduled_s = f64::INFINITY;
                if operation.state != FlowState::Active {
                    return;
                }
                if operation.due_s > latest_s {
                    self.schedule_event(flow);
                } else {
                    self.arrive(flow);
                }
            }
            SimulationEvent::Death { node } => {
                let at = self.cluster.topology.clone();
                let dying = (0..self.flows.len()).filter(|&flow| at.node(self.flows[flow].rank as usize) == node);
                dying.collect::<Vec<_>>().into_iter().for_each(|flow| self.kill_flow(flow as u32));
            }
            SimulationEvent::Cut { ends: [one, other] } => {
                let is_between = |pair: &[u32; 2]| {
                    let ranks = pair.map(|end| self.flows[end as usize].rank as usize);
                    ranks == [one, other] || ranks == [other, one]
                };
                let cut: Vec<u32> = self.pairs.iter().filter(|pair| is_between(pair)).flatten().copied().collect();
                cut.into_iter().for_each(|flow| self.kill_flow(flow));
            }
        }
    }

    /// Process the arrival of a flow at its target position.
    fn arrive(&mut self, flow: u32) {
        let operation = &self.flows[flow as usize];
        let position = match operation.limiting_wait {
            Some(wait) => self.bound(wait as usize).0,
            None => operation.target,
        };
        let is_limited = operation.limiting_wait.is_some();
        self.set_position(flow, position);
        if is_limited {
            self.unbalanced.insert(flow);
        }
        self.unscheduled.insert(flow);
        self.notify_waiting_flows(flow);
        let operation = &self.flows[flow as usize];
        if operation.position >= operation.length * (1.0 - RELATIVE_TOLERANCE) {
            self.end(flow);
        }
    }

    /// Report the position of a flow to the flows that wait for it.
    fn notify_waiting_flows(&mut self, flow: u32) {
        let (position, slack) = {
            let operation = &self.flows[flow as usize];
            (operation.position, operation.length * RELATIVE_TOLERANCE)
        };
        for index in self.waits_for.range(flow as usize) {
            let number = self.waits_for.entries[index] as usize;
            let (wait, state) = (self.waits[number], self.wait_states[number]);
            let threshold = position + slack >= wait.threshold;
            let release = position + slack >= wait.release;
            if (threshold, release) == (state.threshold, state.release) {
                continue;
            }
            self.wait_states[number] = SimulatedWait { threshold, release };
            let waiting = &mut self.flows[wait.by as usize];
            match waiting.state {
                FlowState::Active => {
                    self.unbalanced.insert(wait.by);
                }
                FlowState::Waiting if threshold && !state.threshold && wait.at == 0.0 => {
                    waiting.pending -= 1;
                    if waiting.pending == 0 {
                        self.candidates.push(Reverse(start_order(&self.flows, wait.by)));
                    }
                }
                _ => {}
            }
        }
    }

    fn begin(&mut self, order: StartOrder) {
        let flow = order.3;
        let operation = &self.flows[flow as usize];
        if operation.state != FlowState::Waiting {
            return;
        }
        if let Some(port) = operation.port.filter(|_| operation.is_one_segment) {
            if self.is_occupied[port as usize] {
                self.queued[port as usize].push(Reverse(order));
                return;
            }
            self.is_occupied[port as usize] = true;
        }
        let now_s = self.clock.now_s();
        let operation = &mut self.flows[flow as usize];
        (operation.state, operation.since_s) = (FlowState::Active, now_s);
        let uses = operation.uses;
        uses.iter().for_each(|(wire, _)| self.users[wire].push(flow));
        if let Some(pair) = self.pair_of[flow as usize]
            && self.pairs[pair as usize][0] == flow
        {
            self.starts_s[pair as usize] = now_s;
        }
        self.unbalanced.insert(flow);
        self.unscheduled.insert(flow);
        self.notify_waiting_flows(flow);
    }

    fn end(&mut self, flow: u32) {
        let now_s = self.clock.now_s();
        self.release_wires(flow, FlowState::Done);
        let operation = &self.flows[flow as usize];
        self.finish_s[operation.rank as usize] = now_s;
        let Some(pair) = self.pair_of[flow as usize] else { return };
        let [send, receive] = self.pairs[pair as usize].map(|end| &self.flows[end as usize]);
        if self.pairs[pair as usize][1] == flow {
            self.transfers.push(SimulatedTransfer {
                sender: send.rank as usize,
                send: send.operation as usize,
                receiver: receive.rank as usize,
                receive: receive.operation as usize,
                length_bytes: receive.length as usize,
                start_s: self.starts_s[pair as usize],
                end_s: now_s,
            });
        }
    }

    fn kill_flow(&mut self, flow: u32) {
        match self.flows[flow as usize].state {
            FlowState::Waiting => self.flows[flow as usize].state = FlowState::Dead,
            FlowState::Active => {
                let position = self.position(flow);
                self.set_position(flow, position);
                self.release_wires(flow, FlowState::Dead);
                for &wait in self.waits_for.at(flow as usize) {
                    let by = self.waits[wait as usize].by;
                    if self.flows[by as usize].state == FlowState::Active {
                        self.unbalanced.insert(by);
                    }
                }
            }
            FlowState::Done | FlowState::Dead => {}
        }
    }

    /// Release the wires and the port of a flow.
    fn release_wires(&mut self, flow: u32, state: FlowState) {
        let operation = &mut self.flows[flow as usize];
        (operation.state, operation.rate) = (state, 0.0);
        let (uses, position, port) =
            (operation.uses, operation.position, operation.port.filter(|_| operation.is_one_segment));
        for (wire, s_per_byte) in uses.iter() {
            let users = &mut self.users[wire];
            users.retain(|&user| user != flow);
            users.iter().for_each(|&user| self.unbalanced.insert(user));
            self.carried[wire].0 += position;
            self.carried[wire].1 += position * s_per_byte;
        }
        if let Some(port) = port {
            self.is_occupied[port as usize] = false;
            self.candidates.extend(self.queued[port as usize].pop());
        }
    }

    /// Return the current position of a flow.
    pub(super) fn position(&self, flow: u32) -> f64 {
        let operation = &self.flows[flow as usize];
        let passed_s = self.clock.now_s() - operation.since_s;
        if passed_s > 0.0 {
            (operation.position + operation.rate * passed_s).min(operation.length)
        } else {
            operation.position
        }
    }

    pub(super) fn set_position(&mut self, flow: u32, position: f64) {
        let now_s = self.clock.now_s();
        let operation = &mut self.flows[flow as usize];
        (operation.position, operation.since_s) = (position, now_s);
    }

    /// Return the position limit that a wait sets for its flow, and the growth rate of the limit.
    pub(super) fn bound(&self, wait: usize) -> (f64, f64) {
        let OperationWait { on, at, threshold, .. } = self.waits[wait];
        if !self.wait_states[wait].threshold {
            return (at, 0.0);
        }
        (at + (self.position(on) - threshold).max(0.0), self.flows[on as usize].rate)
    }

    pub(super) fn simulated(self) -> PlanSimulation {
        let mut is_done = vec![true; self.rank_count];
        let mut sent_bytes = vec![0.0; self.rank_count];
        for flow in &self.flows {
            is_done[flow.rank as usize] &= flow.state == FlowState::Done;
        }
        for [send, _] in &self.pairs {
            let send = &self.flows[*send as usize];
            sent_bytes[send.rank as usize] += send.position;
        }
        let finish_s = self.finish_s.iter().zip(is_done).map(|(&finish_s, is_done)| is_done.then_some(finish_s));
        let load = |(wire, &(bytes, busy_s)): (usize, &(f64, f64))| WireLoad {
            wire: self.cluster.name(wire),
            bytes: bytes.round() as usize,
            busy_s,
        };
        PlanSimulation {
            finish_s: finish_s.collect(),
            sent_bytes: sent_bytes.into_iter().map(|bytes: f64| bytes.round() as usize).collect(),
            loads: self.carried.iter().enumerate().filter(|(_, carried)| carried.0 > 0.0).map(load).collect(),
            transfers: self.transfers,
            transfer_weight: 1,
            step_count: 0,
        }
    }
}
