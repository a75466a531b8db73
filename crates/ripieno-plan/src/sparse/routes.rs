//! Routes: where the values of a configured sparse reduction go, as plans.
//!
//! Down the layers, a rank sends each member of its group the rows of that one's range, which follow each other, and
//! combines what comes into its own rows by a map; up the same layers in reverse, it gathers for each member the rows
//! that this one wants, which arrive where they belong.
//! Cost: per layer of degree `d` that holds `r` rows of `b` bytes, `2(d-1)·alpha + 2(d-1)/d·r·b·beta + r·b·gamma`.
//! Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section III.B.

use super::butterfly::Layer;
use super::key_set::{KeySet, length};
use super::planner::PlanBuilder;
use super::row_map::{ROW_OPERATIONS, RowMap};
use super::team::{WorkTeam, each};
use crate::plan::{Op, Plan};
use crate::span::Buffer;
use alloc::vec::Vec;
use core::ops::Range;

/// The routes of one rank.
#[derive(Clone, Debug)]
pub struct Routes {
    pub(super) steps: Vec<RouteLayer>,
    pub(super) out_count: usize,
    pub(super) in_count: usize,
    pub(super) landing: Landing,
    volumes: Vec<Volume>,
}

/// How much a rank holds between two layers, and before and after all. What it holds it exchanges in the next layer,
/// its own part included; Fig. 5 of the paper counts so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// How many keys its range has.
    pub range: u64,
    /// Rows that go down: for the keys that somebody above contributes, or for all of a dense range.
    pub out_rows: usize,
    /// Rows that come up: for the keys that somebody above wants, or for all of a dense range.
    pub in_rows: usize,
}

impl Volume {
    pub(super) fn of(range: &Range<u64>, out_keys: &KeySet, in_keys: &KeySet) -> Volume {
        Volume { range: length(range), out_rows: out_keys.row_count(), in_rows: in_keys.row_count() }
    }
}

/// One layer of the routes.
#[derive(Clone, Debug)]
pub(super) struct RouteLayer {
    pub(super) layer: Layer,
    pub(super) outs: LayerSide,
    pub(super) ins: LayerSide,
}

/// The rows of one direction above and below a layer.
#[derive(Clone, Debug)]
pub(super) struct LayerSide {
    /// Per position: the rows above that lie in the range of the member.
    pub(super) rows: Vec<Range<usize>>,
    /// Per position: the row below of each row that the member has above in this rank's range.
    pub(super) maps: Vec<RowMap>,
    /// How many rows there are below.
    pub(super) row_count: usize,
}

impl LayerSide {
    /// One direction of `layer`, and the keys below, from those above and the parts that the members have of this
    /// rank's range.
    pub(super) fn of(
        layer: &Layer,
        above: &KeySet,
        mut parts: Vec<KeySet>,
        dense_above: f64,
        team: &dyn WorkTeam,
    ) -> (LayerSide, KeySet) {
        let rows = layer.ranges.iter().map(|range| above.rows_in(range)).collect();
        let (below, maps) = match (parts.pop(), parts.is_empty()) {
            // The rank is alone in the layer and passes it with the rows that it has.
            (Some(own), true) => {
                let all = RowMap::Run(0..own.row_count());
                (own, [all].into())
            }
            (last, _) => {
                parts.extend(last);
                KeySet::union(layer.range(), &parts.iter().collect::<Vec<_>>(), dense_above, team)
            }
        };
        (LayerSide { rows, maps, row_count: below.row_count() }, below)
    }
}

/// From what is contributed to what is wanted, below the last layer.
#[derive(Clone, Debug)]
pub(super) struct Landing {
    /// The row of each contributed row among those that are contributed or wanted.
    pub(super) out_map: RowMap,
    /// How many there are of those.
    pub(super) row_count: usize,
    /// The row there of each wanted row; none after a layer, whose maps lead there.
    pub(super) in_map: RowMap,
    /// The rows there that nobody contributes.
    pub(super) missing: RowMap,
}

impl Landing {
    fn new(out_keys: &KeySet, in_keys: &KeySet, missing: &[u64], team: &dyn WorkTeam) -> Landing {
        let row_count = out_keys.row_count();
        if out_keys == in_keys && missing.is_empty() {
            let [out_map, in_map] = [0..row_count, 0..row_count].map(RowMap::Run);
            return Landing { out_map, row_count, in_map, missing: RowMap::Run(0..0) };
        }
        let (all, maps) = KeySet::union(&out_keys.range, &[out_keys, in_keys], f64::INFINITY, team);
        let [out_map, in_map] = <[RowMap; 2]>::try_from(maps).expect("a map of each set");
        let row = |&key: &u64| all.row(key).expect("the union has the keys of both") as u32;
        Landing { out_map, row_count: all.row_count(), in_map, missing: RowMap::of(missing.iter().map(row).collect()) }
    }
}

impl Routes {
    pub(super) fn new(
        mut steps: Vec<RouteLayer>,
        out_keys: &KeySet,
        in_keys: &KeySet,
        missing: &[u64],
        volumes: Vec<Volume>,
        team: &dyn WorkTeam,
    ) -> Routes {
        // A rank alone in a layer has nothing to do there.
        steps.retain(|step| step.layer.members.len() > 1);
        let mut landing = Landing::new(out_keys, in_keys, missing, team);
        if let Some(last) = steps.last_mut() {
            // Members get their rows straight from where the values landed.
            let in_map = core::mem::replace(&mut landing.in_map, RowMap::Run(0..0));
            let operations = ROW_OPERATIONS * last.ins.maps.iter().map(RowMap::len).sum::<usize>();
            let maps = core::mem::take(&mut last.ins.maps);
            last.ins.maps = each(team, operations, maps, |map| map.then(&in_map));
        }
        let (out_count, in_count) = (volumes[0].out_rows, volumes[0].in_rows);
        Routes { steps, out_count, in_count, landing, volumes }
    }

    /// How much this rank holds before the first layer and after each.
    pub fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    /// This rank's part in a reduction of rows of `row_bytes`, made of elements of `element_bytes`. [`Buffer::MAIN`]
    /// holds a row per contributed key and is only read, [`Buffer::OUTPUT`] gets one per wanted key; the layers between
    /// are in [`Buffer::SCRATCH`]. A wanted key that nobody contributes gets zeros, whatever the operation.
    pub fn plan(&self, row_bytes: usize, element_bytes: usize, op: Op) -> Plan {
        let mut planner = PlanBuilder::new(row_bytes, element_bytes, op);
        let landed = planner.down(self, Buffer::MAIN);
        planner.up(self, landed, Buffer::OUTPUT);
        planner.plan
    }

    /// Only the way up: [`Buffer::SCRATCH`] begins with the values of the last layer, [`Routes::landed_count`] rows;
    /// the rest is as in [`Routes::plan`].
    pub fn up_plan(&self, row_bytes: usize, element_bytes: usize, op: Op) -> Plan {
        let mut planner = PlanBuilder::new(row_bytes, element_bytes, op);
        let landed = planner.scratch(self.landed_count());
        planner.up(self, landed, Buffer::OUTPUT);
        planner.plan
    }

    /// How many rows this rank holds when all values have come down.
    pub fn landed_count(&self) -> usize {
        self.landing.out_map.len()
    }
}
