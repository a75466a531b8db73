//! Fair sharing: rates of flows that share wires.
//!
//! All rates rise together (max-min fairness). When a wire is full, its flows keep their rates. A flow also keeps its
//! rate when it may go no faster than another flow that has stopped rising.
//!
//! Source: Bertsekas and Gallager, "Data networks", 1992, section 6.5.2.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

/// A flow that requests a rate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demand {
    /// PeerLinks used by the flow, each with its seconds per byte.
    pub(crate) wires: Vec<(usize, f64)>,
    /// Upper limit of the rate, in bytes per second.
    pub(crate) limit: f64,
    /// The rates of these demands are further upper limits.
    pub(crate) behind: Vec<usize>,
}

/// Return the rate of each demand in bytes per second. No other flows use their wires.
pub(crate) fn rates(demands: &[Demand]) -> Vec<f64> {
    if let [demand] = demands {
        let least = |limit: f64, &(_, s_per_byte): &(usize, f64)| limit.min(1.0 / s_per_byte);
        return vec![demand.wires.iter().fold(demand.limit, least)];
    }
    let mut filling = Filling::of(demands);
    while let Some(Reverse(Full { level, what })) = filling.queue.pop() {
        match what {
            FillTarget::Demand(index) => filling.keep(index, level),
            FillTarget::Wire(wire) => filling.fill(wire, level),
        }
    }
    filling.rates.into_iter().map(|rate| rate.unwrap_or(0.0)).collect()
}

struct Filling<'a> {
    demands: &'a [Demand],
    /// For each demand: the demands that may go no faster.
    followers: Vec<Vec<usize>>,
    wires: Vec<WireShare>,
    /// PeerLinks of each demand in consecutive ranges, and the starts of the ranges.
    uses: Vec<(usize, f64)>,
    uses_from: Vec<usize>,
    rates: Vec<Option<f64>>,
    queue: BinaryHeap<Reverse<Full>>,
}

#[derive(Default)]
struct WireShare {
    /// Share of the wire that the flows with fixed rates leave free.
    left: f64,
    /// Total seconds per byte of the flows with rising rates, and the flows that use the wire.
    rising_s_per_byte: f64,
    rising_count: usize,
    users: Vec<usize>,
}

impl WireShare {
    fn level(&self) -> f64 {
        self.left.max(0.0) / self.rising_s_per_byte
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
    const PLACES_MAX: usize = 8;

    fn of(demands: &[Demand]) -> WireNumbers {
        let wires = demands.iter().flat_map(|demand| &demand.wires);
        let place_count = wires.map(|&(wire, _)| wire + 1).max().unwrap_or(0);
        let has_table = place_count <= WireNumbers::PLACES_MAX * demands.len();
        WireNumbers { table: vec![WireNumbers::NONE; if has_table { place_count } else { 0 }], others: BTreeMap::new() }
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
struct Full {
    level: f64,
    what: FillTarget,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum FillTarget {
    Demand(usize),
    Wire(usize),
}

impl Eq for Full {}

impl Ord for Full {
    fn cmp(&self, other: &Full) -> Ordering {
        self.level.total_cmp(&other.level).then_with(|| self.what.cmp(&other.what))
    }
}

impl PartialOrd for Full {
    fn partial_cmp(&self, other: &Full) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> Filling<'a> {
    fn of(demands: &'a [Demand]) -> Filling<'a> {
        let mut numbers = WireNumbers::of(demands);
        let mut wires: Vec<WireShare> = Vec::new();
        let mut followers = vec![Vec::new(); demands.len()];
        let (mut uses, mut uses_from) = (Vec::with_capacity(2 * demands.len()), Vec::with_capacity(demands.len() + 1));
        for (index, demand) in demands.iter().enumerate() {
            demand.behind.iter().for_each(|&ahead| followers[ahead].push(index));
            uses_from.push(uses.len());
            for &(wire, s_per_byte) in &demand.wires {
                let number = numbers.number(wire, wires.len());
                if number == wires.len() {
                    wires.push(WireShare { left: 1.0, ..WireShare::default() });
                }
                wires[number].rising_s_per_byte += s_per_byte;
                wires[number].rising_count += 1;
                wires[number].users.push(index);
                uses.push((number, s_per_byte));
            }
        }
        uses_from.push(uses.len());
        // A limit has no effect if the wires alone keep the demand below it.
        let is_limiting = |demand: &Demand| demand.wires.iter().all(|(_, s_per_byte)| demand.limit * s_per_byte <= 1.0);
        let limits = demands.iter().enumerate().filter(|(_, demand)| is_limiting(demand));
        let limits = limits.map(|(index, demand)| (demand.limit, FillTarget::Demand(index)));
        let levels = wires.iter().enumerate().map(|(number, wire)| (wire.level(), FillTarget::Wire(number)));
        let queue = limits.chain(levels).map(|(level, what)| Reverse(Full { level, what })).collect();
        Filling { demands, followers, uses, uses_from, rates: vec![None; demands.len()], queue, wires }
    }

    /// Fix the rates on a wire that is full at `level`, unless flows with lower fixed rates leave more capacity.
    fn fill(&mut self, wire: usize, level: f64) {
        if self.wires[wire].rising_count == 0 {
            return;
        }
        let now = self.wires[wire].level();
        if now > level * (1.0 + 1e-12) {
            self.queue.push(Reverse(Full { level: now, what: FillTarget::Wire(wire) }));
            return;
        }
        for user in std::mem::take(&mut self.wires[wire].users) {
            self.keep(user, level);
        }
    }

    /// Fix the rate of a demand and of all demands behind it.
    fn keep(&mut self, index: usize, rate: f64) {
        let mut kept = vec![index];
        while let Some(index) = kept.pop() {
            if self.rates[index].is_some() {
                continue;
            }
            let rate = rate.min(self.demands[index].limit);
            self.rates[index] = Some(rate);
            for &(wire, s_per_byte) in &self.uses[self.uses_from[index]..self.uses_from[index + 1]] {
                let wire = &mut self.wires[wire];
                wire.left -= rate * s_per_byte;
                wire.rising_s_per_byte -= s_per_byte;
                wire.rising_count -= 1;
            }
            kept.extend(&self.followers[index]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(wires: &[(usize, f64)], limit: f64, behind: &[usize]) -> Demand {
        Demand { wires: wires.to_vec(), limit, behind: behind.to_vec() }
    }

    #[test]
    fn unused_rate_is_shared_by_the_others() {
        let shared = [demand(&[(7, 0.25)], 0.5, &[]), demand(&[(7, 0.25)], 9.0, &[]), demand(&[(7, 0.25)], 9.0, &[])];
        assert_eq!(rates(&shared), [0.5, 1.75, 1.75]);
    }

    #[test]
    fn a_flow_is_bound_by_the_narrowest_of_its_wires() {
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
