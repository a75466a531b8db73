//! Block flows: the position and rate of each block transfer of a simulated broadcast.
//!
//! A flow transfers one block from one rank to another. The flows on a wire get fair shares of its rate. If the sender
//! is still receiving the block, the flow stays one forwarding step behind the position of the sender.

use crate::clock::Clock;
use crate::cluster::{Cluster, WireIndex, WireUses};
use crate::fair::{Demand, UNLIMITED_BYTES_PER_S, rates};
use crate::number_set::NumberSet;
use ripieno_plan::swarm::step_bytes;

/// Tolerance below which two positions (in bytes) or two rates (relative) are equal.
const POSITION_TOLERANCE_BYTES: f64 = 1e-3;
const RATE_TOLERANCE: f64 = 1e-9;
/// After this number of rounds, each round also balances the flows of all earlier rounds, so that balancing ends.
const SEPARATE_ROUND_COUNT: usize = 8;

/// Number of a flow. `NO_FLOW` marks a missing flow.
pub(super) type FlowNumber = u32;
pub(super) const NO_FLOW: FlowNumber = u32::MAX;

/// A transfer of a block.
#[derive(Clone, Debug)]
pub(super) struct BlockFlow {
    pub(super) broadcast: usize,
    pub(super) sender: usize,
    pub(super) receiver: usize,
    pub(super) block: usize,
    pub(super) from_bytes: f64,
    pub(super) began_s: f64,
    /// Whether some of its bytes are corrupt.
    pub(super) is_corrupt: bool,
    is_active: bool,
    is_frozen: bool,
    /// Whether the sender does not have the whole block yet.
    is_sender_incomplete: bool,
    end_bytes: f64,
    position: f64,
    since_s: f64,
    rate: f64,
    version: u32,
    wires: Vec<(WireIndex, f64)>,
}

/// A rank's copy of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockCopy {
    pub(super) prefix: f64,
    pub(super) inflow: FlowNumber,
    pub(super) is_complete: bool,
    pub(super) is_corrupt: bool,
}

impl BlockCopy {
    pub(super) const NONE: BlockCopy =
        BlockCopy { prefix: 0.0, inflow: NO_FLOW, is_complete: false, is_corrupt: false };
}

/// An event that the flows add to the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrival {
    pub(super) flow: FlowNumber,
    version: u32,
}

/// All block flows, and the copies of the blocks.
pub(super) struct Flows {
    segment_bytes: Option<usize>,
    all: Vec<BlockFlow>,
    free: Vec<FlowNumber>,
    /// Active flows by wire.
    users: Vec<Vec<FlowNumber>>,
    /// Outgoing flows by rank.
    pub(super) outs: Vec<Vec<FlowNumber>>,
    /// Incoming flows by rank.
    pub(super) ins: Vec<Vec<FlowNumber>>,
    /// Copies by broadcast, rank and block.
    copies: Vec<Vec<Vec<BlockCopy>>>,
    /// Number of flows with a sender that does not have the whole block yet.
    incomplete_sender_count: usize,
    /// Flows with a rate that may change.
    unbalanced: NumberSet,
    /// Flows with an unscheduled next event.
    unscheduled: NumberSet,
    /// Scratch sets for flows that share wires and for these wires. Empty except during a search.
    affected: NumberSet,
    seen: NumberSet,
    /// Bytes and busy seconds of each wire.
    pub(super) wire_bytes: Vec<(f64, f64)>,
}

impl Flows {
    /// Create the state without flows, with the given number of blocks of each broadcast.
    pub(super) fn new(cluster: &Cluster, block_counts: &[usize]) -> Flows {
        let p = cluster.topology.size();
        Flows {
            segment_bytes: cluster.segment_bytes,
            all: Vec::new(),
            free: Vec::new(),
            users: vec![Vec::new(); cluster.wire_count()],
            outs: vec![Vec::new(); p],
            ins: vec![Vec::new(); p],
            copies: block_counts.iter().map(|&count| vec![vec![BlockCopy::NONE; count]; p]).collect(),
            incomplete_sender_count: 0,
            unbalanced: NumberSet::default(),
            unscheduled: NumberSet::default(),
            affected: NumberSet::default(),
            seen: NumberSet::default(),
            wire_bytes: vec![(0.0, 0.0); cluster.wire_count()],
        }
    }

    pub(super) fn flow(&self, number: FlowNumber) -> &BlockFlow {
        &self.all[number as usize]
    }

    pub(super) fn copy(&mut self, broadcast: usize, rank: usize, block: usize) -> &mut BlockCopy {
        &mut self.copies[broadcast][rank][block]
    }

    pub(super) fn copies(&self, broadcast: usize, rank: usize) -> &[BlockCopy] {
        &self.copies[broadcast][rank]
    }

    /// Return whether all rates and all scheduled events are up to date.
    pub(super) fn is_settled(&self) -> bool {
        self.unbalanced.is_empty() && self.unscheduled.is_empty()
    }

    /// Return the position of a flow.
    pub(super) fn position(&self, number: FlowNumber, now_s: f64) -> f64 {
        let transfer = self.flow(number);
        (transfer.position + transfer.rate * (now_s - transfer.since_s).max(0.0)).min(transfer.end_bytes)
    }

    /// Start to transfer a block from the first byte that the receiver misses.
    pub(super) fn begin(
        &mut self,
        cluster: &Cluster,
        now_s: f64,
        [broadcast, sender, receiver, block]: [usize; 4],
        length_bytes: usize,
        is_corrupt: bool,
    ) -> FlowNumber {
        let uses =
            [cluster.sending(sender, receiver, length_bytes), cluster.receiving(sender, receiver, length_bytes, false)];
        let prefix = self.copies[broadcast][receiver][block].prefix;
        let version = self.free.last().map_or(0, |&free| self.flow(free).version + 1);
        let flow = BlockFlow {
            broadcast,
            sender,
            receiver,
            block,
            from_bytes: prefix,
            began_s: now_s,
            is_corrupt,
            is_active: true,
            is_frozen: false,
            is_sender_incomplete: !self.copies[broadcast][sender][block].is_complete,
            end_bytes: length_bytes as f64,
            position: prefix,
            since_s: now_s,
            rate: 0.0,
            version,
            wires: uses.iter().flat_map(WireUses::as_slice).copied().collect(),
        };
        flow.wires
            .iter()
            .for_each(|&(wire, _)| assert!((wire as usize) < self.users.len(), "the wire belongs to the cluster"));
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.all.push(flow.clone());
                self.all.len() as FlowNumber - 1
            }
        };
        flow.wires.iter().for_each(|&(wire, _)| self.users[wire as usize].push(number));
        self.outs[sender].push(number);
        self.ins[receiver].push(number);
        self.incomplete_sender_count += usize::from(flow.is_sender_incomplete);
        self.all[number as usize] = flow;
        self.copies[broadcast][receiver][block].inflow = number;
        self.unbalanced.insert(number);
        self.unscheduled.insert(number);
        self.invalidate_followers(number);
        number
    }

    /// Stop a flow at its position. The receiver keeps the received bytes.
    pub(super) fn end(&mut self, number: FlowNumber, now_s: f64) -> BlockFlow {
        let position = self.position(number, now_s);
        let is_corrupt = self.is_corrupt(number);
        let transfer = &mut self.all[number as usize];
        (transfer.position, transfer.since_s, transfer.rate, transfer.is_active) = (position, now_s, 0.0, false);
        (transfer.is_corrupt, transfer.version) = (is_corrupt, transfer.version + 1);
        let flow = transfer.clone();
        for &(wire, s_per_byte) in &flow.wires {
            let wire = wire as usize;
            self.users[wire].retain(|&user| user != number);
            self.users[wire].iter().for_each(|&user| self.unbalanced.insert(user));
            let passed = position - flow.from_bytes;
            self.wire_bytes[wire].0 += passed;
            self.wire_bytes[wire].1 += passed * s_per_byte;
        }
        self.outs[flow.sender].retain(|&out| out != number);
        self.ins[flow.receiver].retain(|&into| into != number);
        self.invalidate_followers(number);
        let copy = self.copy(flow.broadcast, flow.receiver, flow.block);
        if copy.inflow == number {
            (copy.inflow, copy.prefix) = (NO_FLOW, position);
            copy.is_corrupt |= is_corrupt && position > flow.from_bytes;
        }
        self.unbalanced.remove(number);
        self.unscheduled.remove(number);
        self.incomplete_sender_count -= usize::from(flow.is_sender_incomplete);
        self.free.push(number);
        flow
    }

    /// Return the number of bytes that a flow has transferred.
    pub(super) fn passed(&self, flow: &BlockFlow) -> f64 {
        flow.position - flow.from_bytes
    }

    /// Verify a complete block and return whether it is valid. Flows that forward a corrupt block become corrupt.
    pub(super) fn check(&mut self, flow: &BlockFlow) -> bool {
        let copy = self.copy(flow.broadcast, flow.receiver, flow.block);
        let is_valid = !copy.is_corrupt;
        *copy = if is_valid { BlockCopy { is_complete: true, ..*copy } } else { BlockCopy::NONE };
        for follower in self.followers(flow) {
            let transfer = &mut self.all[follower as usize];
            transfer.is_corrupt |= !is_valid;
            if is_valid && transfer.is_sender_incomplete {
                transfer.is_sender_incomplete = false;
                self.incomplete_sender_count -= 1;
            }
            self.unbalanced.insert(follower);
            self.unscheduled.insert(follower);
        }
        is_valid
    }

    /// Freeze a flow, because one of its ends is suspended.
    pub(super) fn freeze(&mut self, number: FlowNumber, now_s: f64) {
        self.update_position(number, now_s);
        self.all[number as usize].is_frozen = true;
        self.unbalanced.insert(number);
    }

    /// Return whether the event is still valid and the flow has reached its end.
    pub(super) fn has_ended(&mut self, arrival: Arrival, now_s: f64) -> bool {
        let transfer = self.flow(arrival.flow);
        if !transfer.is_active || transfer.version != arrival.version {
            return false;
        }
        self.update_position(arrival.flow, now_s);
        self.unscheduled.insert(arrival.flow);
        let transfer = self.flow(arrival.flow);
        let has_ended = transfer.position >= transfer.end_bytes - POSITION_TOLERANCE_BYTES;
        if !has_ended {
            self.unbalanced.insert(arrival.flow);
        }
        has_ended
    }

    /// Assign fair rates, and schedule the next event of each flow. The next call schedules events after `until_s`.
    pub(super) fn settle<E>(&mut self, clock: &mut Clock<E>, until_s: f64, to_event: impl Fn(Arrival) -> E) {
        let mut all: Vec<FlowNumber> = Vec::new();
        for round in 0.. {
            let mut affected = self.unbalanced.take();
            if affected.is_empty() {
                break;
            }
            if round >= SEPARATE_ROUND_COUNT {
                affected.append(&mut all);
            }
            let affected = self.sharing(affected);
            self.assign_rates(&affected, clock.now_s());
            if round >= SEPARATE_ROUND_COUNT {
                all = affected;
            }
        }
        for number in self.unscheduled.take() {
            match self.next(number, clock.now_s()) {
                Some((at_s, arrival)) if at_s <= until_s => clock.schedule(at_s, to_event(arrival)),
                Some(_) => self.unscheduled.insert(number),
                None => {}
            }
        }
    }

    /// Return whether a flow transfers corrupt bytes, its own or bytes that its sender still receives.
    fn is_corrupt(&self, number: FlowNumber) -> bool {
        let mut number = number;
        loop {
            let transfer = self.flow(number);
            let copy = self.copies[transfer.broadcast][transfer.sender][transfer.block];
            if transfer.is_corrupt || copy.is_corrupt {
                return true;
            }
            if copy.inflow == NO_FLOW {
                return false;
            }
            number = copy.inflow;
        }
    }

    /// Store the current position of a flow, before its rate changes.
    fn update_position(&mut self, number: FlowNumber, now_s: f64) {
        let position = self.position(number, now_s);
        let transfer = &mut self.all[number as usize];
        (transfer.position, transfer.since_s) = (position, now_s);
    }

    /// Return the flows that forward the same block from the receiver of a flow.
    fn followers(&self, flow: &BlockFlow) -> Vec<FlowNumber> {
        if self.incomplete_sender_count == 0 {
            return Vec::new();
        }
        let is_same =
            |&&out: &&FlowNumber| (self.flow(out).broadcast, self.flow(out).block) == (flow.broadcast, flow.block);
        self.outs[flow.receiver].iter().filter(is_same).copied().collect()
    }

    /// Rebalance and reschedule the flows that forward the block of a flow.
    fn invalidate_followers(&mut self, number: FlowNumber) {
        let followers = self.followers(&self.all[number as usize]);
        for follower in followers {
            self.unbalanced.insert(follower);
            self.unscheduled.insert(follower);
        }
    }

    /// Return the limit that the sender sets for a flow, the growth rate of the limit, and the flow that causes the
    /// growth.
    fn bound(&self, number: FlowNumber, now_s: f64) -> (f64, f64, FlowNumber) {
        let transfer = self.flow(number);
        if !transfer.is_sender_incomplete {
            return (f64::INFINITY, 0.0, NO_FLOW);
        }
        let copy = self.copies[transfer.broadcast][transfer.sender][transfer.block];
        match copy.inflow {
            _ if copy.is_complete => (f64::INFINITY, 0.0, NO_FLOW),
            NO_FLOW => (copy.prefix, 0.0, NO_FLOW),
            inflow => {
                let block_bytes = self.flow(inflow).end_bytes;
                let behind_bytes = self.segment_bytes.map_or(block_bytes, |segment_bytes| {
                    segment_bytes.min(step_bytes(block_bytes as usize)).min(block_bytes as usize) as f64
                });
                (self.position(inflow, now_s) - behind_bytes, self.flow(inflow).rate, inflow)
            }
        }
    }

    /// Return the active flows among `candidates`, and all flows that share a wire with one of them, transitively.
    fn sharing(&mut self, candidates: Vec<FlowNumber>) -> Vec<FlowNumber> {
        let (mut found, mut seen) = (std::mem::take(&mut self.affected), std::mem::take(&mut self.seen));
        candidates.into_iter().filter(|&number| self.flow(number).is_active).for_each(|number| found.insert(number));
        // Visit each flow found. A visit may add further flows.
        let mut index = 0;
        while let Some(&number) = found.list.get(index) {
            index += 1;
            for &(wire, _) in &self.flow(number).wires {
                if self.users[wire as usize].len() > 1 && !seen.contains(wire) {
                    seen.insert(wire);
                    self.users[wire as usize].iter().for_each(|&user| found.insert(user));
                }
            }
        }
        let members = found.take();
        seen.take();
        (self.affected, self.seen) = (found, seen);
        members
    }

    /// Assign fair rates to `members`.
    fn assign_rates(&mut self, members: &[FlowNumber], now_s: f64) {
        let demands: Vec<Demand<'_>> = members.iter().map(|&number| self.demand(number, members, now_s)).collect();
        let rates = rates(&demands);
        drop(demands);
        for (&number, rate) in members.iter().zip(rates) {
            let old = self.flow(number).rate;
            if (rate - old).abs() <= RATE_TOLERANCE * rate.max(old) {
                continue;
            }
            self.update_position(number, now_s);
            self.all[number as usize].rate = rate;
            self.unscheduled.insert(number);
            for follower in self.followers(&self.all[number as usize]) {
                self.unscheduled.insert(follower);
                let is_separate = members.binary_search(&follower).is_err();
                if is_separate
                    && self.position(follower, now_s) >= self.bound(follower, now_s).0 - POSITION_TOLERANCE_BYTES
                {
                    self.unbalanced.insert(follower);
                }
            }
        }
    }

    /// Return the demand of a flow. `members` are the flows that receive their rates together.
    fn demand(&self, number: FlowNumber, members: &[FlowNumber], now_s: f64) -> Demand<'_> {
        let transfer = self.flow(number);
        let mut demand = Demand { wires: &transfer.wires, limit: UNLIMITED_BYTES_PER_S, leaders: Vec::new() };
        let (bound, slope, ahead) = self.bound(number, now_s);
        let position = self.position(number, now_s);
        if transfer.is_frozen || position > bound + POSITION_TOLERANCE_BYTES {
            demand.limit = 0.0;
        } else if position >= bound - POSITION_TOLERANCE_BYTES {
            match members.binary_search(&ahead) {
                Ok(ahead) => demand.leaders.push(ahead),
                Err(_) => demand.limit = slope,
            }
        }
        demand
    }

    /// Return the next event of a flow: it ends, reaches the position of the sender, or may start.
    fn next(&mut self, number: FlowNumber, now_s: f64) -> Option<(f64, Arrival)> {
        let transfer = self.flow(number);
        if !transfer.is_active || transfer.is_frozen {
            return None;
        }
        let position = self.position(number, now_s);
        let (bound, slope, _) = self.bound(number, now_s);
        let passes_s =
            if transfer.rate > 0.0 { (transfer.end_bytes - position) / transfer.rate } else { f64::INFINITY };
        let in_s = if bound >= transfer.end_bytes {
            passes_s
        } else if position > bound + POSITION_TOLERANCE_BYTES {
            (position - bound) / slope
        } else if position < bound - POSITION_TOLERANCE_BYTES && transfer.rate > slope * (1.0 + RATE_TOLERANCE) {
            (bound - position) / (transfer.rate - slope)
        } else {
            f64::INFINITY
        };
        let transfer = &mut self.all[number as usize];
        transfer.version += 1;
        let arrival = Arrival { flow: number, version: transfer.version };
        (in_s < f64::INFINITY).then_some((now_s + in_s, arrival))
    }
}
