//! Event loop of a broadcast simulation: drives the nodes of all ranks, and injects faults.

use super::flows::{Arrival, Flows, NO_FLOW};
use super::{RankOutcome, SimulatedBroadcast, SimulatedFetch, SwarmError, SwarmOutcome, SwarmRequest, TrackerReport};
use crate::clock::Clock;
use crate::cluster::{Cluster, ConnectionKind};
use crate::plans::WireLoad;
use ripieno_plan::swarm::{Action, BlockManifest, SwarmEvent, SwarmMessage, SwarmNode};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Relative difference of times below which events are simultaneous.
const TIME_TOLERANCE: f64 = 1e-12;
/// Number of events between two interrupt checks.
const INTERRUPT_CHECK_EVENT_COUNT: usize = 256;
/// Delay added to each tick, so that rounding of seconds cannot make it early.
const TICK_DELAY_S: f64 = 1e-6;

/// A scheduled event.
#[derive(Clone, Debug)]
enum ScheduledEvent {
    Arrival(Arrival),
    Balance,
    Begin { broadcast: usize, rank: usize },
    Message { broadcast: usize, from: usize, to: usize, message: SwarmMessage },
    Lost { rank: usize, peer: usize },
    Tick { broadcast: usize, rank: usize },
    Death { node: usize },
    Stop { rank: usize },
    Cut { ends: [usize; 2] },
    Partition,
}

/// State of a simulated rank.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RankRunState {
    /// The rank joins later.
    Absent,
    /// The rank runs.
    Running,
    /// The rank is suspended: its connections stay open.
    Suspended,
    /// The rank has ended, and its connections are closed.
    Dead,
}

/// A node and its next tick.
struct TickingNode {
    node: SwarmNode,
    /// Time of its next scheduled tick.
    tick_s: f64,
}

/// State of a simulation.
pub(super) struct SwarmState<'a> {
    cluster: &'a Cluster,
    request: &'a SwarmRequest,
    manifests: Vec<BlockManifest>,
    clock: Clock<ScheduledEvent>,
    flows: Flows,
    /// Nodes by broadcast and rank.
    nodes: Vec<Vec<TickingNode>>,
    run_states: Vec<RankRunState>,
    /// Whether a node dies or a link is cut.
    has_faults: bool,
    /// For each rank, the ranks that exchanged a message with it. Empty without these faults.
    contacts: Vec<BTreeSet<usize>>,
    cut: BTreeSet<[usize; 2]>,
    /// Ranks that are silently disconnected from all others.
    separated: BTreeSet<usize>,
    corruptions: Vec<(usize, f64)>,
    outcomes: Vec<Vec<RankOutcome>>,
    settled: Vec<Option<TrackerReport>>,
    sent_bytes: Vec<f64>,
    fetches: Vec<SimulatedFetch>,
    unfinished_count: usize,
    message_count: usize,
    is_balance_scheduled: bool,
    /// Index of the latest rebalancing interval, if rates are rebalanced at intervals.
    interval: f64,
}

impl<'a> SwarmState<'a> {
    pub(super) fn ready(cluster: &'a Cluster, request: &'a SwarmRequest) -> Result<SwarmState<'a>, SwarmError> {
        let p = cluster.topology.size();
        let late: BTreeMap<usize, f64> = request.late_joins.iter().copied().collect();
        let initial_count = p - late.len();
        let manifest = |broadcast: &SimulatedBroadcast| {
            BlockManifest::new(broadcast.bytes, broadcast.block_bytes, broadcast.discipline, initial_count)
        };
        let manifests: Vec<BlockManifest> = request.broadcasts.iter().map(manifest).collect();
        let block_counts: Vec<usize> = manifests.iter().map(BlockManifest::block_count).collect();
        super::check(p, request, &block_counts)?;
        let mut clock = Clock::default();
        let mut nodes = Vec::new();
        let mut flows = Flows::new(cluster, &block_counts);
        for (number, (broadcast, manifest)) in request.broadcasts.iter().zip(&manifests).enumerate() {
            let order =
                broadcast.order.clone().unwrap_or_else(|| (1..p).map(|after| (broadcast.root + after) % p).collect());
            let order: Vec<usize> = order.into_iter().filter(|rank| !late.contains_key(rank)).collect();
            let node = |rank: usize| {
                let now = time(broadcast.start_s);
                let node = if rank == broadcast.root {
                    SwarmNode::root(
                        rank,
                        p,
                        *manifest,
                        order.clone(),
                        request.timing,
                        request.seed + number as u64,
                        now,
                    )
                } else {
                    SwarmNode::receiver(rank, broadcast.root, p, request.timing, now)
                };
                TickingNode { node, tick_s: f64::INFINITY }
            };
            nodes.push((0..p).map(node).collect());
            (0..manifest.block_count()).for_each(|block| {
                flows.copy(number, broadcast.root, block).is_complete = true;
            });
            for rank in 0..p {
                clock.schedule(
                    late.get(&rank).copied().unwrap_or(0.0).max(broadcast.start_s),
                    ScheduledEvent::Begin { broadcast: number, rank },
                );
            }
        }
        let faults = &cluster.faults;
        faults.deaths().iter().for_each(|&(node, at_s)| clock.schedule(at_s, ScheduledEvent::Death { node }));
        faults.cuts().iter().for_each(|&(ends, at_s)| clock.schedule(at_s, ScheduledEvent::Cut { ends }));
        request.suspensions.iter().for_each(|&(rank, at_s)| clock.schedule(at_s, ScheduledEvent::Stop { rank }));
        request.partition.iter().for_each(|&(_, at_s)| clock.schedule(at_s, ScheduledEvent::Partition));
        let run_states = (0..p)
            .map(|rank| if late.contains_key(&rank) { RankRunState::Absent } else { RankRunState::Running })
            .collect();
        Ok(SwarmState {
            cluster,
            request,
            clock,
            flows,
            nodes,
            run_states,
            has_faults: !cluster.faults.deaths().is_empty() || !cluster.faults.cuts().is_empty(),
            contacts: vec![BTreeSet::new(); p],
            cut: BTreeSet::new(),
            separated: BTreeSet::new(),
            corruptions: request.corruptions.clone(),
            outcomes: vec![vec![RankOutcome::Waiting; p]; manifests.len()],
            settled: vec![None; manifests.len()],
            manifests,
            sent_bytes: vec![0.0; p],
            fetches: Vec::new(),
            unfinished_count: request.broadcasts.len() * p,
            message_count: 0,
            is_balance_scheduled: false,
            interval: 0.0,
        })
    }

    /// Run until all ranks have an outcome or the time limit is reached.
    pub(super) fn run(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<(), SwarmError> {
        let mut event_count = 0;
        while !self.is_over() && self.clock.now_s() <= self.request.time_limit_s {
            let mut next = self.clock.advance();
            if next.is_none() {
                break;
            }
            // Thousands of events are simultaneous if all ranks start at once.
            while let Some(event) = next {
                event_count += 1;
                if event_count % INTERRUPT_CHECK_EVENT_COUNT == 0 && is_interrupted() {
                    return Err(SwarmError::Interrupted);
                }
                self.process(event);
                next = self.clock.advance_if_simultaneous(TIME_TOLERANCE * self.clock.now_s());
            }
            self.balance();
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let is_settled = |(broadcast, settled): (&SimulatedBroadcast, &Option<TrackerReport>)| {
            settled.is_some() || self.run_states[broadcast.root] != RankRunState::Running
        };
        self.unfinished_count == 0 && self.request.broadcasts.iter().zip(&self.settled).all(is_settled)
    }

    /// Assign rates to the flows, or schedule this for the end of the current interval.
    fn balance(&mut self) {
        if self.request.rebalance_interval_s == 0.0 {
            self.flows.settle(&mut self.clock, f64::INFINITY, ScheduledEvent::Arrival);
        } else if !self.is_balance_scheduled && !self.flows.is_settled() {
            self.is_balance_scheduled = true;
            self.interval = self.next_interval();
            self.clock.schedule(self.interval * self.request.rebalance_interval_s, ScheduledEvent::Balance);
        }
    }

    fn next_interval(&self) -> f64 {
        ((self.clock.now_s() / self.request.rebalance_interval_s).floor() + 1.0).max(self.interval + 1.0)
    }

    fn process(&mut self, event: ScheduledEvent) {
        let now_s = self.clock.now_s();
        match event {
            ScheduledEvent::Arrival(arrival) => {
                if self.flows.has_ended(arrival, now_s) {
                    self.arrive(arrival);
                }
            }
            ScheduledEvent::Balance => {
                self.is_balance_scheduled = false;
                let until_s = self.next_interval() * self.request.rebalance_interval_s;
                self.flows.settle(&mut self.clock, until_s, ScheduledEvent::Arrival);
            }
            ScheduledEvent::Begin { broadcast, rank } => {
                if self.run_states[rank] == RankRunState::Absent {
                    self.run_states[rank] = RankRunState::Running;
                }
                if rank == self.request.broadcasts[broadcast].root {
                    self.finish(broadcast, rank, RankOutcome::Done { at_s: now_s, is_valid: true });
                }
                self.handle(broadcast, rank, SwarmEvent::Start);
            }
            ScheduledEvent::Message { broadcast, from, to, message } => {
                if !self.is_reachable(from, to) {
                    return;
                }
                let event = SwarmEvent::Received { from, message };
                // The reaction to these messages does not depend on received bytes.
                let is_independent_of_progress = matches!(
                    event,
                    SwarmEvent::Received {
                        message: SwarmMessage::Have { .. } | SwarmMessage::Request { .. } | SwarmMessage::Offer { .. },
                        ..
                    }
                );
                if !is_independent_of_progress {
                    self.report_progress(broadcast, to);
                }
                self.handle(broadcast, to, event);
            }
            ScheduledEvent::Lost { rank, peer } => {
                for broadcast in 0..self.nodes.len() {
                    self.report_progress(broadcast, rank);
                    self.handle(broadcast, rank, SwarmEvent::Lost { peer });
                }
            }
            ScheduledEvent::Tick { broadcast, rank } => {
                // Rounding may have moved the tick slightly past the event that is processed now.
                if self.nodes[broadcast][rank].tick_s <= now_s * (1.0 + 2.0 * TIME_TOLERANCE) {
                    self.nodes[broadcast][rank].tick_s = f64::INFINITY;
                    self.report_progress(broadcast, rank);
                    self.handle(broadcast, rank, SwarmEvent::Tick);
                }
            }
            ScheduledEvent::Death { node } => {
                let at = self.cluster.topology.clone();
                (0..at.size()).filter(|&rank| at.node(rank) == node).for_each(|rank| self.kill(rank));
            }
            ScheduledEvent::Stop { rank } => self.stop(rank),
            ScheduledEvent::Cut { ends } => self.cut_connection(ends),
            ScheduledEvent::Partition => self.partition(),
        }
    }

    /// Process the arrival of a block.
    fn arrive(&mut self, arrival: Arrival) {
        let flow = self.flows.end(arrival.flow, self.clock.now_s());
        self.record_fetch(&flow);
        let is_valid = self.flows.check(&flow);
        let (broadcast, block) = (flow.broadcast, flow.block);
        self.handle(broadcast, flow.sender, SwarmEvent::Sent { to: flow.receiver, block });
        self.handle(broadcast, flow.receiver, SwarmEvent::Checked { block, from: flow.sender, is_valid });
    }

    fn record_fetch(&mut self, flow: &super::flows::BlockFlow) {
        let passed = self.flows.passed(flow);
        self.sent_bytes[flow.sender] += passed;
        if self.request.records_fetches && passed > 0.0 {
            self.fetches.push(SimulatedFetch {
                broadcast: flow.broadcast,
                sender: flow.sender,
                receiver: flow.receiver,
                block: flow.block,
                bytes: passed.round() as usize,
                start_s: flow.began_s,
                end_s: self.clock.now_s(),
            });
        }
    }

    fn is_reachable(&self, one: usize, other: usize) -> bool {
        self.run_states[other] == RankRunState::Running
            && !self.cut.contains(&[one.min(other), one.max(other)])
            && self.separated.contains(&one) == self.separated.contains(&other)
    }

    /// Report the progress of a node's fetches to the node.
    fn report_progress(&mut self, broadcast: usize, rank: usize) {
        let now_s = self.clock.now_s();
        for index in 0..self.flows.ins[rank].len() {
            let number = self.flows.ins[rank][index];
            let flow = self.flows.flow(number);
            if flow.broadcast == broadcast {
                let (block, until_bytes) = (flow.block, self.flows.position(number, now_s) as usize);
                self.nodes[broadcast][rank].node.handle(time(now_s), SwarmEvent::Arrived { block, until_bytes });
            }
        }
    }

    fn handle(&mut self, broadcast: usize, rank: usize, event: SwarmEvent) {
        if self.run_states[rank] != RankRunState::Running {
            return;
        }
        let now_s = self.clock.now_s();
        let node = &mut self.nodes[broadcast][rank];
        let actions = node.node.handle(time(now_s), event);
        let wake_s = node.node.next_tick().map_or(f64::INFINITY, |wake| wake.as_secs_f64() + TICK_DELAY_S);
        if wake_s < node.tick_s {
            node.tick_s = wake_s;
            self.clock.schedule(wake_s, ScheduledEvent::Tick { broadcast, rank });
        }
        actions.into_iter().for_each(|action| self.perform(broadcast, rank, action));
    }

    fn perform(&mut self, broadcast: usize, rank: usize, action: Action) {
        let now_s = self.clock.now_s();
        match action {
            Action::SendMessage { to, message } => self.send_message(broadcast, rank, to, message),
            Action::Send { to, block, .. } => self.send(broadcast, rank, to, block),
            Action::Stop { to, block } => self.stop_flow(broadcast, rank, to, block),
            Action::Done => {
                let is_valid =
                    self.flows.copies(broadcast, rank).iter().all(|copy| copy.is_complete && !copy.is_corrupt);
                self.finish(broadcast, rank, RankOutcome::Done { at_s: now_s, is_valid });
            }
            Action::Failed(failure) => self.finish(broadcast, rank, RankOutcome::Failed { at_s: now_s, failure }),
            // The report of a part without the root says nothing about the others.
            Action::Settled { .. } if self.separated.contains(&rank) => {}
            Action::Settled { acknowledged, lost, corruptions } => {
                self.settled[broadcast] =
                    Some(TrackerReport { tracker: rank, at_s: now_s, acknowledged, lost, corruptions });
            }
        }
    }

    fn send_message(&mut self, broadcast: usize, from: usize, to: usize, message: SwarmMessage) {
        if let SwarmMessage::Cancel { block } = message {
            // The receiver discards the remaining bytes.
            self.stop_flow(broadcast, to, from, block);
        }
        self.message_count += 1;
        let alpha_s = match self.cluster.kind(from, to) {
            ConnectionKind::Memory => self.cluster.memory.alpha_s,
            ConnectionKind::NetworkLink => self.cluster.network_link.alpha_s,
            ConnectionKind::Uplink => self.cluster.uplink.alpha_s,
        };
        let at_s = self.clock.now_s() + alpha_s;
        let is_cut = self.cut.contains(&[from.min(to), from.max(to)]);
        if is_cut || matches!(self.run_states[to], RankRunState::Dead | RankRunState::Absent) {
            return self.clock.schedule(at_s, ScheduledEvent::Lost { rank: from, peer: to });
        }
        if self.has_faults {
            self.contacts[from].insert(to);
            self.contacts[to].insert(from);
        }
        self.clock.schedule(at_s, ScheduledEvent::Message { broadcast, from, to, message });
    }

    fn send(&mut self, broadcast: usize, sender: usize, receiver: usize, block: usize) {
        let is_wanted = self.nodes[broadcast][receiver].node.source_of(block) == Some(sender);
        if !is_wanted || !self.is_reachable(sender, receiver) || self.flows.copy(broadcast, receiver, block).is_complete
        {
            return;
        }
        let inflow = self.flows.copy(broadcast, receiver, block).inflow;
        if inflow != NO_FLOW {
            self.end_flow(inflow);
        }
        let now_s = self.clock.now_s();
        let corruption = self.corruptions.iter().position(|&(rank, at_s)| rank == sender && at_s <= now_s);
        corruption.map(|index| self.corruptions.remove(index));
        let length_bytes = self.manifests[broadcast].block_length(block);
        let key = [broadcast, sender, receiver, block];
        self.flows.begin(self.cluster, now_s, key, length_bytes, corruption.is_some());
    }

    fn stop_flow(&mut self, broadcast: usize, sender: usize, receiver: usize, block: usize) {
        let inflow = self.flows.copy(broadcast, receiver, block).inflow;
        if inflow != NO_FLOW && self.flows.flow(inflow).sender == sender {
            self.report_progress(broadcast, receiver);
            self.end_flow(inflow);
        }
    }

    fn end_flow(&mut self, number: u32) {
        let flow = self.flows.end(number, self.clock.now_s());
        self.record_fetch(&flow);
    }

    fn flows_of(&self, rank: usize) -> Vec<u32> {
        self.flows.outs[rank].iter().chain(&self.flows.ins[rank]).copied().collect()
    }

    fn kill(&mut self, rank: usize) {
        if self.run_states[rank] == RankRunState::Dead {
            return;
        }
        self.run_states[rank] = RankRunState::Dead;
        for number in self.flows_of(rank) {
            self.end_flow(number);
        }
        self.end_all(rank);
        let at_s = self.clock.now_s() + self.request.detection_delay_s;
        let contacts = std::mem::take(&mut self.contacts[rank]);
        contacts
            .into_iter()
            .for_each(|other| self.clock.schedule(at_s, ScheduledEvent::Lost { rank: other, peer: rank }));
    }

    /// Suspend a rank. No rank is notified.
    fn stop(&mut self, rank: usize) {
        if self.run_states[rank] == RankRunState::Dead {
            return;
        }
        self.run_states[rank] = RankRunState::Suspended;
        let now_s = self.clock.now_s();
        self.flows_of(rank).into_iter().for_each(|number| self.flows.freeze(number, now_s));
        self.end_all(rank);
    }

    fn end_all(&mut self, rank: usize) {
        let at_s = self.clock.now_s();
        (0..self.nodes.len()).for_each(|broadcast| self.finish(broadcast, rank, RankOutcome::Lost { at_s }));
    }

    /// Cut the connection between two ranks.
    fn cut_connection(&mut self, [one, other]: [usize; 2]) {
        self.cut.insert([one.min(other), one.max(other)]);
        let is_between = |number: &u32| {
            let flow = self.flows.flow(*number);
            [flow.sender, flow.receiver] == [one, other] || [flow.sender, flow.receiver] == [other, one]
        };
        let between: Vec<u32> = self.flows_of(one).into_iter().filter(is_between).collect();
        between.into_iter().for_each(|number| self.end_flow(number));
        if self.contacts[one].contains(&other) {
            let at_s = self.clock.now_s() + self.request.detection_delay_s;
            self.clock.schedule(at_s, ScheduledEvent::Lost { rank: one, peer: other });
            self.clock.schedule(at_s, ScheduledEvent::Lost { rank: other, peer: one });
        }
    }

    /// Separate ranks from the others. No rank is notified.
    fn partition(&mut self) {
        let Some((ranks, _)) = &self.request.partition else { return };
        self.separated = ranks.iter().copied().collect();
        let now_s = self.clock.now_s();
        let flows: Vec<u32> = ranks.iter().flat_map(|&rank| self.flows_of(rank)).collect();
        for number in flows {
            let flow = self.flows.flow(number);
            if self.separated.contains(&flow.sender) != self.separated.contains(&flow.receiver) {
                self.flows.freeze(number, now_s);
            }
        }
    }

    /// Record the first outcome of a rank. A rank that is lost after it received the value keeps its success.
    fn finish(&mut self, broadcast: usize, rank: usize, outcome: RankOutcome) {
        if self.outcomes[broadcast][rank] == RankOutcome::Waiting {
            self.outcomes[broadcast][rank] = outcome;
            self.unfinished_count -= 1;
            // The broadcast is unsettled until the tracker knows this outcome. It cannot know those of separated ranks.
            if !self.separated.contains(&rank) {
                self.settled[broadcast] = None;
            }
        }
    }

    pub(super) fn outcome(mut self) -> SwarmOutcome {
        let end_s = self.clock.now_s();
        let open: Vec<u32> = (0..self.run_states.len()).flat_map(|rank| self.flows.ins[rank].clone()).collect();
        open.into_iter().for_each(|number| self.end_flow(number));
        let load = |(wire, &(bytes, busy_s)): (usize, &(f64, f64))| WireLoad {
            wire: self.cluster.name(wire),
            bytes: bytes.round() as usize,
            busy_s,
        };
        let trackers = |nodes: &Vec<TickingNode>| {
            nodes.iter().filter(|it| it.node.is_tracker()).map(|it| it.node.rank()).collect()
        };
        SwarmOutcome {
            trackers: self.nodes.iter().map(trackers).collect(),
            loads: self.flows.wire_bytes.iter().enumerate().filter(|(_, carried)| carried.0 > 0.0).map(load).collect(),
            manifests: self.manifests,
            outcomes: self.outcomes,
            settled: self.settled,
            sent_bytes: self.sent_bytes.into_iter().map(|bytes| bytes.round() as usize).collect(),
            fetches: self.fetches,
            message_count: self.message_count,
            end_s,
        }
    }
}

fn time(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
