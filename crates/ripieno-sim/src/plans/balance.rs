//! Rate balancing: the rates of flows, and the times of their next events.

use super::event_loop::{RELATIVE_TOLERANCE, SimulationEvent, SimulationState};
use super::flow::FlowState;
use super::meter::{StepMeter, Stop};
use crate::fair::{Demand, rates};

/// After this number of rounds, each round also balances the flows of all earlier rounds, so that balancing ends.
const SEPARATE_ROUND_COUNT: usize = 8;

impl SimulationState<'_> {
    /// Assign fair rates to the unbalanced flows and all flows that they affect.
    pub(super) fn balance(&mut self, meter: &mut StepMeter<'_>) -> Result<(), Stop> {
        let mut all: Vec<u32> = Vec::new();
        let mut round = 0;
        loop {
            let mut affected = self.unbalanced.take();
            if affected.is_empty() {
                return Ok(());
            }
            if round >= SEPARATE_ROUND_COUNT {
                affected.append(&mut all);
            }
            let affected = self.sharing(affected);
            meter.add(affected.len())?;
            self.share(&affected);
            if round >= SEPARATE_ROUND_COUNT {
                all = affected;
            }
            round += 1;
        }
    }

    /// Return the active flows among `candidates`, and all flows that share a wire with one of them, transitively, in
    /// ascending order.
    fn sharing(&mut self, candidates: Vec<u32>) -> Vec<u32> {
        let (mut found, mut seen) = (std::mem::take(&mut self.affected), std::mem::take(&mut self.seen));
        let is_active = |flow: &u32| self.flows[*flow as usize].state == FlowState::Active;
        candidates.into_iter().filter(is_active).for_each(|flow| found.insert(flow));
        // Visit each flow found. A visit may add further flows.
        let mut index = 0;
        while let Some(&flow) = found.list.get(index) {
            index += 1;
            for (wire, _) in self.flows[flow as usize].uses.iter() {
                if self.users[wire].len() > 1 && !seen.contains(wire as u32) {
                    seen.insert(wire as u32);
                    self.users[wire].iter().for_each(|&user| found.insert(user));
                }
            }
        }
        let members = found.take();
        seen.take();
        (self.affected, self.seen) = (found, seen);
        members
    }

    fn share(&mut self, members: &[u32]) {
        let demands: Vec<Demand<'_>> = members.iter().map(|&flow| self.demand(flow, members)).collect();
        let rates = rates(&demands);
        drop(demands);
        for (&flow, rate) in members.iter().zip(rates) {
            let old = self.flows[flow as usize].rate;
            if (rate - old).abs() <= RELATIVE_TOLERANCE * rate.max(old) {
                continue;
            }
            let position = self.position(flow);
            self.set_position(flow, position);
            self.flows[flow as usize].rate = rate;
            self.unscheduled.insert(flow);
            for index in self.waits_for.range(flow as usize) {
                let number = self.waits_for.entries[index] as usize;
                let by = self.waits[number].by;
                let is_bound = self.wait_states[number].threshold && !self.wait_states[number].release;
                if !is_bound || self.flows[by as usize].state != FlowState::Active {
                    continue;
                }
                self.unscheduled.insert(by);
                if members.binary_search(&by).is_err() && self.has_reached_bound(number) {
                    self.unbalanced.insert(by);
                }
            }
        }
    }

    /// Return the demand of a flow. `members` are the flows that receive their rates together.
    fn demand(&self, flow: u32, members: &[u32]) -> Demand<'_> {
        let operation = &self.flows[flow as usize];
        let mut demand = Demand { wires: operation.uses.as_slice(), limit: operation.limit, leaders: Vec::new() };
        for &wait in self.waits_of.at(flow as usize) {
            let wait = wait as usize;
            if self.wait_states[wait].release || !self.has_reached_bound(wait) {
                continue;
            }
            let on = self.waits[wait].on;
            match members.binary_search(&on) {
                Ok(leader) if self.wait_states[wait].threshold => demand.leaders.push(leader),
                _ => demand.limit = demand.limit.min(self.bound(wait).1),
            }
        }
        demand
    }

    /// Return whether a flow has reached the limit of a wait.
    fn has_reached_bound(&self, wait: usize) -> bool {
        let by = self.waits[wait].by;
        self.position(by) >= self.bound(wait).0 - self.flows[by as usize].length * RELATIVE_TOLERANCE
    }

    /// Schedule the next event of a flow: it reaches a position that another flow waits for, it ends, or it must wait.
    pub(super) fn schedule(&mut self, flow: u32) {
        let operation = &self.flows[flow as usize];
        if operation.state != FlowState::Active {
            return;
        }
        let (position, now_s, slack) = (self.position(flow), self.clock.now_s(), operation.length * RELATIVE_TOLERANCE);
        let mut target = operation.length;
        for &wait in self.waits_for.at(flow as usize) {
            let (wait, state) = (&self.waits[wait as usize], self.wait_states[wait as usize]);
            let awaited = [(state.threshold, wait.threshold), (state.release, wait.release)];
            let open = awaited.into_iter().filter(|(is_met, _)| !is_met).map(|(_, at)| at);
            // The flow may have reached the target except for rounding. Then schedule the event immediately.
            target = open.map(|at| if at > position + slack { at } else { position }).fold(target, f64::min);
        }
        let mut at_s = match operation.rate {
            _ if target <= position => now_s,
            rate if rate > 0.0 => now_s + (target - position) / rate,
            _ => f64::INFINITY,
        };
        let mut limiting_wait = None;
        for &wait in self.waits_of.at(flow as usize) {
            let (bound, slope) = self.bound(wait as usize);
            let is_below = !self.wait_states[wait as usize].release && bound > position + slack;
            if is_below && operation.rate > slope * (1.0 + RELATIVE_TOLERANCE) {
                let caught_s = now_s + (bound - position) / (operation.rate - slope);
                if caught_s < at_s {
                    (at_s, limiting_wait) = (caught_s, Some(wait));
                }
            }
        }
        let operation = &mut self.flows[flow as usize];
        (operation.target, operation.limiting_wait, operation.due_s) = (target, limiting_wait, at_s);
        self.schedule_event(flow);
    }

    /// Add the next event of a flow to the clock, unless the clock has an earlier event of the flow.
    pub(super) fn schedule_event(&mut self, flow: u32) {
        let operation = &mut self.flows[flow as usize];
        if operation.due_s < operation.scheduled_s {
            operation.scheduled_s = operation.due_s;
            self.clock.schedule(operation.due_s, SimulationEvent::Flow { flow });
        }
    }
}
