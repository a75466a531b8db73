//! Rate balancing: the rates of flows, and the times of their next events.

use super::event_loop::{EQUAL, SimulationEvent, SimulationState};
use super::flow::FlowState;
use crate::fair::{Demand, rates};
use std::collections::BTreeSet;

/// After this number of rounds, flows that were balanced once stay in the balanced set.
const ROUNDS_APART: usize = 8;

impl SimulationState<'_> {
    /// Assign fair rates to the unbalanced flows and all flows that they affect.
    pub(super) fn balance(&mut self) {
        let mut all: BTreeSet<u32> = BTreeSet::new();
        for round in 0.. {
            let mut concerned = std::mem::take(&mut self.unbalanced);
            if concerned.is_empty() {
                return;
            }
            if round >= ROUNDS_APART {
                all.append(&mut concerned);
                concerned = all.clone();
            }
            let concerned = self.sharing(concerned);
            self.share(&concerned);
            if round >= ROUNDS_APART {
                all.extend(concerned);
            }
        }
    }

    /// Return the active flows among `some`, and all flows that share a wire with one of them, transitively.
    fn sharing(&self, some: BTreeSet<u32>) -> BTreeSet<u32> {
        let mut found: BTreeSet<u32> =
            some.into_iter().filter(|&flow| self.flows[flow as usize].state == FlowState::Active).collect();
        let mut open: Vec<u32> = found.iter().copied().collect();
        let mut seen = BTreeSet::new();
        while let Some(flow) = open.pop() {
            for (wire, _) in self.flows[flow as usize].uses.iter() {
                if self.users[wire].len() > 1 && seen.insert(wire) {
                    open.extend(self.users[wire].iter().filter(|&&user| found.insert(user)));
                }
            }
        }
        found
    }

    fn share(&mut self, concerned: &BTreeSet<u32>) {
        let members: Vec<u32> = concerned.iter().copied().collect();
        let demands: Vec<Demand> = members.iter().map(|&flow| self.demand(flow, &members)).collect();
        for (&flow, rate) in members.iter().zip(rates(&demands)) {
            let old = self.flows[flow as usize].rate;
            if (rate - old).abs() <= EQUAL * rate.max(old) {
                continue;
            }
            let position = self.position(flow);
            self.put(flow, position);
            self.flows[flow as usize].rate = rate;
            self.unscheduled.insert(flow);
            for index in self.waits_for.range(flow as usize) {
                let number = self.waits_for.entries[index] as usize;
                let by = self.waits[number].by;
                let is_bound = self.met[number].threshold && !self.met[number].release;
                if !is_bound || self.flows[by as usize].state != FlowState::Active {
                    continue;
                }
                self.unscheduled.insert(by);
                if !concerned.contains(&by) && self.is_tight(number) {
                    self.unbalanced.insert(by);
                }
            }
        }
    }

    /// Return the demand of a flow. `members` are the flows that receive their rates together.
    fn demand(&self, flow: u32, members: &[u32]) -> Demand {
        let it = &self.flows[flow as usize];
        let mut demand = Demand { wires: it.uses.iter().collect(), limit: it.limit, behind: Vec::new() };
        for &wait in self.waits_of.at(flow as usize) {
            let wait = wait as usize;
            if self.met[wait].release || !self.is_tight(wait) {
                continue;
            }
            let on = self.waits[wait].on;
            match members.binary_search(&on) {
                Ok(ahead) if self.met[wait].threshold => demand.behind.push(ahead),
                _ => demand.limit = demand.limit.min(self.bound(wait).1),
            }
        }
        demand
    }

    /// Return whether a flow has reached the limit of a wait.
    fn is_tight(&self, wait: usize) -> bool {
        let by = self.waits[wait].by;
        self.position(by) >= self.bound(wait).0 - self.flows[by as usize].length * EQUAL
    }

    /// Schedule the next event of a flow: another flow waits for its position, it ends, or it must wait itself.
    pub(super) fn schedule(&mut self, flow: u32) {
        let it = &self.flows[flow as usize];
        if it.state != FlowState::Active {
            return;
        }
        let (position, now_s, slack) = (self.position(flow), self.clock.now_s(), it.length * EQUAL);
        let mut target = it.length;
        for &wait in self.waits_for.at(flow as usize) {
            let (wait, met) = (&self.waits[wait as usize], self.met[wait as usize]);
            let awaited = [(met.threshold, wait.threshold), (met.release, wait.release)];
            let open = awaited.into_iter().filter(|(is_met, _)| !is_met).map(|(_, at)| at);
            // The flow may already be at the target except for rounding. Then the event is scheduled immediately.
            target = open.map(|at| if at > position + slack { at } else { position }).fold(target, f64::min);
        }
        let mut at_s = match it.rate {
            _ if target <= position => now_s,
            rate if rate > 0.0 => now_s + (target - position) / rate,
            _ => f64::INFINITY,
        };
        let mut chased = None;
        for &wait in self.waits_of.at(flow as usize) {
            let (bound, slope) = self.bound(wait as usize);
            let is_behind = !self.met[wait as usize].release && bound > position + slack;
            if is_behind && it.rate > slope * (1.0 + EQUAL) {
                let caught_s = now_s + (bound - position) / (it.rate - slope);
                if caught_s < at_s {
                    (at_s, chased) = (caught_s, Some(wait));
                }
            }
        }
        let it = &mut self.flows[flow as usize];
        it.version += 1;
        (it.target, it.chased) = (target, chased);
        let version = it.version;
        if at_s < f64::INFINITY {
            self.clock.schedule(at_s, SimulationEvent::Flow { flow, version });
        }
    }
}
