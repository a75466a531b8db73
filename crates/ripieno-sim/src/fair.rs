//! Fair sharing: rates of flows that share wires.
//!
//! All rates rise together (max-min fairness). When a wire is full, the rates of its flows are fixed. If a flow may not
//! be faster than a leader, its rate is fixed together with the rate of the leader.
//!
//! Source: Bertsekas and Gallager, "Data networks", 1992, section 6.5.2.

use crate::cluster::WireIndex;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

/// Rate limit of a flow that no wire limits, in bytes per second.
pub(crate) const UNLIMITED_BYTES_PER_S: f64 = 1e30;

/// A flow that requests a rate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demand<'a> {
    /// Wires used by the flow, each with its seconds per byte.
    pub(crate) wires: &'a [(WireIndex, f64)],
    /// Upper limit of the rate, in bytes per second.
    pub(crate) limit: f64,
    /// Demands with rates that are further upper limits.
    pub(crate) leaders: Vec<usize>,
}

/// Return the rate of each demand in bytes per second. No other flows use their wires.
pub(crate) fn rates(demands: &[Demand<'_>]) -> Vec<f64> {
    if let [demand] = demands {
        let slowest = |limit: f64, &(_, s_per_byte): &(WireIndex, f64)| limit.min(1.0 / s_per_byte);
        return vec![demand.wires.iter().fold(demand.limit, slowest)];
    }
    let mut filling = RateFilling::of(demands);
    while let Some(Reverse(LimitReached { level, target })) = filling.queue.pop() {
        match target {
            LimitTarget::Demand(index) => filling.fix_rate(index, level),
            LimitTarget::Wire(wire) => filling.fill(wire, level),
        }
    }
    filling.rates.into_iter().map(|rate| rate.unwrap_or(0.0)).collect()
}

struct RateFilling<'a> {
    demands: &'a [Demand<'a>],
    /// For each demand: the demands that may not be faster.
    followers: Vec<Vec<usize>>,
    wires: Vec<WireShare>,
    /// Demands of each wire in consecutive ranges, and the starts of the ranges.
    users: Vec<usize>,
    users_from: Vec<usize>,
    /// Wires of each demand in consecutive ranges, and the starts of the ranges.
    uses: Vec<(usize, f64)>,
    uses_from: Vec<usize>,
    rates: Vec<Option<f64>>,
    queue: BinaryHeap<Reverse<LimitReached>>,
}

#[derive(Default)]
struct WireShare {
    /// Share of the wire that the flows with fixed rates do not use.
    free_share: f64,
    /// Total seconds per byte of the flows with rising rates, and their number.
    rising_s_per_byte: f64,
    rising_count: usize,
}

impl WireShare {
    fn level(&self) -> f64 {
        self.free_share.max(0.0) / self.rising_s_per_byte
    }
}

/// Assigns consecutive numbers to wires on first use. A table serves demands that use a large part of all wires.
struct WireNumbers {
    table: Vec<usize>,
    others: BTreeMap<usize, usize>,
}

impl WireNumbers {
    const NONE: usize = usize::MAX;
    /// Maximum number of table entries per demand.
    const TABLE_ENTRY_COUNT_MAX: usize = 8;

    fn of(demands: &[Demand<'_>]) -> WireNumbers {
        let wires = demands.iter().flat_map(|demand| demand.wires);
        let entry_count = wires.map(|&(wire, _)| wire as usize + 1).max().unwrap_or(0);
        let has_table = entry_count <= WireNumbers::TABLE_ENTRY_COUNT_MAX * demands.len();
        WireNumbers { table: vec![WireNumbers::NONE; if has_table { entry_count } else { 0 }], others: BTreeMap::new() }
    }

    /// Return the number of a wire, or assign `next` if it has none.
    fn number(&mut self, wire: usize, next: usize) -> usize {
        match self.table.get_mut(wire) {
            Some(number) if *number == WireNumbers::NONE => {
                *number = next;
                next
            }
            Some(number) => *number,
            None => *self.others.entry(wire).or_insert(next),
        }
    }
}

/// A wire or a demand reaches its limit at `level`.
#[derive(PartialEq)]
struct LimitReached {
    level: f64,
    target: LimitTarget,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum LimitTarget {
    Demand(usize),
    Wire(usize),
}

impl Eq for LimitReached {}

impl Ord for LimitReached {
    fn cmp(&self, other: &LimitReached) -> Ordering {
        self.level.total_cmp(&other.level).then_with(|| self.target.cmp(&other.target))
    }
}

impl PartialOrd for LimitReached {
    fn partial_cmp(&self, other: &LimitReached) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> RateFilling<'a> {
    fn of(demands: &'a [Demand<'a>]) -> RateFilling<'a> {
        let mut numbers = WireNumbers::of(demands);
        let mut wires: Vec<WireShare> = Vec::new();
        let mut followers = vec![Vec::new(); demands.len()];
        let (mut uses, mut uses_from) = (Vec::with_capacity(2 * demands.len()), Vec::with_capacity(demands.len() + 1));
        for (index, demand) in demands.iter().enumerate() {
            demand.leaders.iter().for_each(|&leader| followers[leader].push(index));
            uses_from.push(uses.len());
            for &(wire, s_per_byte) in demand.wires {
                let number = numbers.number(wire as usize, wires.len());
                if number == wires.len() {
                    wires.push(WireShare { free_share: 1.0, ..WireShare::default() });
                }
                wires[number].rising_s_per_byte += s_per_byte;
                wires[number].rising_count += 1;
                uses.push((number, s_per_byte));
            }
        }
        uses_from.push(uses.len());
        let (users, users_from) = users(&uses, &uses_from, wires.len());
        // A limit has no effect if the wires alone keep the demand below it.
        let is_limiting =
            |demand: &Demand<'_>| demand.wires.iter().all(|(_, s_per_byte)| demand.limit * s_per_byte <= 1.0);
        let limits = demands.iter().enumerate().filter(|(_, demand)| is_limiting(demand));
        let limits = limits.map(|(index, demand)| (demand.limit, LimitTarget::Demand(index)));
        let levels = wires.iter().enumerate().map(|(number, wire)| (wire.level(), LimitTarget::Wire(number)));
        let queue = limits.chain(levels).map(|(level, target)| Reverse(LimitReached { level, target })).collect();
        let rates = vec![None; demands.len()];
        RateFilling { demands, followers, users, users_from, uses, uses_from, rates, queue, wires }
    }

    /// Fix the rates on a wire that is full at `level`, unless flows with lower fixed rates leave more capacity.
    fn fill(&mut self, wire: usize, level: f64) {
        if self.wires[wire].rising_count == 0 {
            return;
        }
        let now = self.wires[wire].level();
        if now > level * (1.0 + 1e-12) {
            self.queue.push(Reverse(LimitReached { level: now, target: LimitTarget::Wire(wire) }));
            return;
        }
        for index in self.users_from[wire]..self.users_from[wire + 1] {
            self.fix_rate(self.users[index], level);
        }
    }

    /// Fix the rate of a demand and of all its followers.
    fn fix_rate(&mut self, index: usize, rate: f64) {
        let mut pending = vec![index];
        while let Some(index) = pending.pop() {
            if self.rates[index].is_some() {
                continue;
            }
            let rate = rate.min(self.demands[index].limit);
            self.rates[index] = Some(rate);
            for &(wire, s_per_byte) in &self.uses[self.uses_from[index]..self.uses_from[index + 1]] {
                let wire = &mut self.wires[wire];
                wire.free_share -= rate * s_per_byte;
                wire.rising_s_per_byte -= s_per_byte;
                wire.rising_count -= 1;
            }
            pending.extend(&self.followers[index]);
        }
    }
}

/// Return the demands of each wire in consecutive ranges, and the starts of the ranges.
fn users(uses: &[(usize, f64)], uses_from: &[usize], wire_count: usize) -> (Vec<usize>, Vec<usize>) {
    let mut from = vec![0; wire_count + 1];
    uses.iter().for_each(|&(wire, _)| from[wire + 1] += 1);
    (0..wire_count).for_each(|wire| from[wire + 1] += from[wire]);
    let mut next = from.clone();
    let mut users = vec![0; uses.len()];
    for (demand, range) in uses_from.windows(2).enumerate() {
        for &(wire, _) in &uses[range[0]..range[1]] {
            users[next[wire]] = demand;
            next[wire] += 1;
        }
    }
    (users, from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand<'a>(wires: &'a [(WireIndex, f64)], limit: f64, leaders: &[usize]) -> Demand<'a> {
        Demand { wires, limit, leaders: leaders.to_vec() }
    }

    #[test]
    fn unused_capacity_is_shared_by_the_other_flows() {
        let shared = [demand(&[(7, 0.25)], 0.5, &[]), demand(&[(7, 0.25)], 9.0, &[]), demand(&[(7, 0.25)], 9.0, &[])];
        assert_eq!(rates(&shared), [0.5, 1.75, 1.75]);
    }

    #[test]
    fn a_flow_is_limited_by_the_slowest_of_its_wires() {
        let flows = [demand(&[(0, 1.0), (1, 0.5)], 9.0, &[]), demand(&[(1, 0.5)], 9.0, &[])];
        assert_eq!(rates(&flows), [1.0, 1.0]);
        let flows = [demand(&[(0, 2.0), (1, 0.5)], 9.0, &[]), demand(&[(1, 0.5)], 9.0, &[])];
        assert_eq!(rates(&flows), [0.5, 1.5]);
    }

    #[test]
    fn a_follower_is_no_faster_than_its_leader() {
        let flows = [demand(&[(0, 2.0)], 9.0, &[]), demand(&[(1, 0.5)], 9.0, &[0]), demand(&[(1, 0.5)], 9.0, &[])];
        assert_eq!(rates(&flows), [0.5, 0.5, 1.5]);
    }
}
