//! Routes: the paths of the values in a configured sparse reduction, and their plans.
//!
//! On the way down the layers, a rank sends each member of its group the rows of the member's range, which are
//! contiguous. It combines received rows into its own rows by a map. On the way up, in reverse order, it gathers for
//! each member the requested rows, which arrive in place.
//!
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
    pub(super) bottom: BottomLayer,
    volumes: Vec<Volume>,
}

/// Rows that a rank holds between two layers, before the first, or after the last. They are exchanged in the next
/// layer, including the rank's own part, as in Fig. 5 of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Number of keys in the rank's range.
    pub range: u64,
    /// Rows that move down: for the keys that ranks above contribute, or for all keys of a dense range.
    pub out_rows: usize,
    /// Rows that move up: for the keys that ranks above request, or for all keys of a dense range.
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
    /// Per position: the rows above that lie in the member's range.
    pub(super) rows: Vec<Range<usize>>,
    /// Per position: the row below for each row of the member above in this rank's range.
    pub(super) maps: Vec<RowMap>,
    /// Number of rows below.
    pub(super) row_count: usize,
}

impl LayerSide {
    /// Compute one direction of `layer` and the keys below it. The inputs are the keys above and the members' keys in
    /// this rank's range.
    pub(super) fn of(
        layer: &Layer,
        above: &KeySet,
        mut parts: Vec<KeySet>,
        dense_above: f64,
        team: &dyn WorkTeam,
    ) -> (LayerSide, KeySet) {
        let rows = layer.ranges.iter().map(|range| above.rows_in(range)).collect();
        let (below, maps) = match (parts.pop(), parts.is_empty()) {
            // A rank alone in the layer keeps its rows unchanged.
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

/// Maps from contributed to requested rows, below the last layer.
#[derive(Clone, Debug)]
pub(super) struct BottomLayer {
    /// For each contributed row its position among the rows that are contributed or requested.
    pub(super) out_map: RowMap,
    /// Number of rows that are contributed or requested.
    pub(super) row_count: usize,
    /// For each requested row its position among these rows. Empty if there is a layer, because the maps of the last
    /// layer are composed with it.
    pub(super) in_map: RowMap,
    /// Positions of the rows that no rank contributes.
    pub(super) missing: RowMap,
}

impl BottomLayer {
    fn new(out_keys: &KeySet, in_keys: &KeySet, missing: &[u64], team: &dyn WorkTeam) -> BottomLayer {
        let row_count = out_keys.row_count();
        if out_keys == in_keys && missing.is_empty() {
            let [out_map, in_map] = [0..row_count, 0..row_count].map(RowMap::Run);
            return BottomLayer { out_map, row_count, in_map, missing: RowMap::Run(0..0) };
        }
        let (all, maps) = KeySet::union(&out_keys.range, &[out_keys, in_keys], f64::INFINITY, team);
        let [out_map, in_map] = <[RowMap; 2]>::try_from(maps).expect("one map per set");
        let row = |&key: &u64| all.row(key).expect("the union has the keys of both") as u32;
        BottomLayer {
            out_map,
            row_count: all.row_count(),
            in_map,
            missing: RowMap::of(missing.iter().map(row).collect()),
        }
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
        // A rank alone in a layer exchanges nothing.
        steps.retain(|step| step.layer.members.len() > 1);
        let mut bottom = BottomLayer::new(out_keys, in_keys, missing, team);
        if let Some(last) = steps.last_mut() {
            // Members get their rows directly from the values of the bottom layer.
            let in_map = core::mem::replace(&mut bottom.in_map, RowMap::Run(0..0));
            let operations = ROW_OPERATIONS * last.ins.maps.iter().map(RowMap::len).sum::<usize>();
            let maps = core::mem::take(&mut last.ins.maps);
            last.ins.maps = each(team, operations, maps, |map| map.then(&in_map));
        }
        let (out_count, in_count) = (volumes[0].out_rows, volumes[0].in_rows);
        Routes { steps, out_count, in_count, bottom, volumes }
    }

    /// Return the rows that this rank holds before the first layer and after each layer.
    pub fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    /// Plan this rank's part in a reduction of rows of `row_bytes`, consisting of elements of `element_bytes`.
    ///
    /// [`Buffer::MAIN`] holds a row per contributed key and is only read. [`Buffer::OUTPUT`] receives a row per
    /// requested key. The layers between are in [`Buffer::SCRATCH`]. A requested key that no rank contributes gets
    /// zeros under any operation.
    pub fn plan(&self, row_bytes: usize, element_bytes: usize, op: Op) -> Plan {
        let mut planner = PlanBuilder::new(row_bytes, element_bytes, op);
        let bottom_rows = planner.down(self, Buffer::MAIN);
        planner.up(self, bottom_rows, Buffer::OUTPUT);
        planner.plan
    }

    /// Plan only the way up. [`Buffer::SCRATCH`] starts with the values of the last layer, [`Routes::bottom_row_count`]
    /// rows; the rest is as in [`Routes::plan`].
    pub fn up_plan(&self, row_bytes: usize, element_bytes: usize, op: Op) -> Plan {
        let mut planner = PlanBuilder::new(row_bytes, element_bytes, op);
        let bottom_rows = planner.scratch(self.bottom_row_count());
        planner.up(self, bottom_rows, Buffer::OUTPUT);
        planner.plan
    }

    /// Return the number of rows that this rank holds at the end of the way down.
    pub fn bottom_row_count(&self) -> usize {
        self.bottom.out_map.len()
    }
}
