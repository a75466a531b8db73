//! Sparse planner: converts the routes of a rank into a plan, layer by layer.
//!
//! In the `k`-th turn of a layer every rank sends to the member `k` positions after it and receives from the member `k`
//! positions before it. So no two ranks send to the same rank at a time. Each sum has a fixed order: own rows first,
//! then the rows of the preceding members, nearest first. Every region is written before it is read and never written
//! again, so the plan runs over unbuffered links.

use super::routes::{BottomLayer, RouteLayer, Routes};
use super::row_map::RowMap;
use crate::plan::{Constant, Op, Plan};
use crate::rows::Rows;
use crate::span::{Buffer, Span};
use core::ops::Range;

/// A plan under construction.
pub(super) struct PlanBuilder {
    pub(super) plan: Plan,
    row_bytes: usize,
    element_bytes: usize,
    op: Op,
    scratch_bytes: usize,
}

/// Alignment of the regions of the scratch buffer, for vector instructions.
const ALIGNMENT_BYTES: usize = 64;

impl PlanBuilder {
    pub(super) fn new(row_bytes: usize, element_bytes: usize, op: Op) -> PlanBuilder {
        assert!(row_bytes > 0 && row_bytes.is_multiple_of(element_bytes), "a row consists of whole elements");
        PlanBuilder { plan: Plan::new(), row_bytes, element_bytes, op, scratch_bytes: 0 }
    }

    /// Send the rows of `contributed` down. Return the location of the values of the last layer.
    pub(super) fn down(&mut self, routes: &Routes, contributed: Buffer) -> Span {
        let mut current = self.rows(contributed, 0, routes.out_count);
        for RouteLayer { layer, outs, .. } in &routes.steps {
            let above = core::mem::replace(&mut current, self.scratch(outs.row_count));
            self.initialize(self.part(above, &outs.rows[layer.position]), current, &outs.maps[layer.position]);
            for (to, from) in layer.after().zip(layer.before()) {
                self.send(layer.members[to], above, &RowMap::Run(outs.rows[to].clone()));
                self.reduce(layer.members[from], current, &outs.maps[from]);
            }
        }
        current
    }

    /// Send the requested rows of `bottom_rows`, the values of the last layer, up. The rank's own requested rows end in
    /// `requested`.
    pub(super) fn up(&mut self, routes: &Routes, bottom_rows: Span, requested: Buffer) {
        let BottomLayer { out_map, row_count, in_map, missing } = &routes.bottom;
        let mut current = bottom_rows;
        if out_map.len() < *row_count {
            current = self.scratch(*row_count);
            self.initialize(bottom_rows, current, out_map);
        }
        self.clear(current, missing);

        let requested = self.rows(requested, 0, routes.in_count);
        if routes.steps.is_empty() {
            return self.gather(current, in_map, requested);
        }
        for (index, RouteLayer { layer, ins, .. }) in routes.steps.iter().enumerate().rev() {
            let above = match index {
                0 => requested,
                _ => self.scratch(routes.steps[index - 1].ins.row_count),
            };
            self.gather(current, &ins.maps[layer.position], self.part(above, &ins.rows[layer.position]));
            for (to, from) in layer.after().zip(layer.before()) {
                self.send(layer.members[to], current, &ins.maps[to]);
                self.receive(layer.members[from], self.part(above, &ins.rows[from]));
            }
            current = above;
        }
    }

    /// Reserve a region of the scratch buffer.
    pub(super) fn scratch(&mut self, row_count: usize) -> Span {
        let start_bytes = self.scratch_bytes.next_multiple_of(ALIGNMENT_BYTES);
        let region = self.rows(Buffer::SCRATCH, start_bytes, row_count);
        self.scratch_bytes = region.end_bytes();
        region
    }

    fn rows(&self, buffer: Buffer, start_bytes: usize, row_count: usize) -> Span {
        let PlanBuilder { row_bytes, element_bytes, .. } = *self;
        Span { buffer, start_bytes, length_bytes: row_count * row_bytes, element_bytes }
    }

    fn part(&self, region: Span, rows: &Range<usize>) -> Span {
        assert!(rows.end * self.row_bytes <= region.length_bytes, "rows lie in their region");
        self.rows(region.buffer, region.start_bytes + rows.start * self.row_bytes, rows.len())
    }

    fn selected_rows(&self, rows: &alloc::sync::Arc<[u32]>) -> Rows {
        Rows::new(rows.clone(), self.row_bytes)
    }

    /// Initialize `region` with `own` in the rows of `map`, as described at [`super::DownMaps`].
    fn initialize(&mut self, own: Span, region: Span, map: &RowMap) {
        if map.covers(region.length_bytes / self.row_bytes) {
            return self.gather(own, &RowMap::Run(0..map.len()), region);
        }
        self.plan.fill(region, Constant::Identity(self.op));
        match map {
            _ if map.is_empty() => {}
            RowMap::Run(run) => self.plan.combine(own, self.part(region, run), self.op),
            RowMap::Rows(rows) => self.plan.combine_rows(own, region, self.selected_rows(rows), self.op),
        }
    }

    fn send(&mut self, to: usize, region: Span, map: &RowMap) {
        match map {
            _ if map.is_empty() => {}
            RowMap::Run(run) => self.plan.send(to, self.part(region, run)),
            RowMap::Rows(rows) => self.plan.send_rows(to, region, self.selected_rows(rows)),
        }
    }

    fn receive(&mut self, from: usize, part: Span) {
        if part.length_bytes > 0 {
            self.plan.receive(from, part);
        }
    }

    fn reduce(&mut self, from: usize, region: Span, map: &RowMap) {
        match map {
            _ if map.is_empty() => {}
            RowMap::Run(run) => self.plan.reduce(from, self.part(region, run), self.op),
            RowMap::Rows(rows) => self.plan.reduce_rows(from, region, self.selected_rows(rows), self.op),
        }
    }

    fn gather(&mut self, region: Span, map: &RowMap, to: Span) {
        match map {
            _ if map.is_empty() => {}
            RowMap::Run(run) => self.plan.copy(self.part(region, run), to),
            RowMap::Rows(rows) => self.plan.copy_rows(region, self.selected_rows(rows), to),
        }
    }

    fn clear(&mut self, region: Span, map: &RowMap) {
        match map {
            _ if map.is_empty() => {}
            RowMap::Run(run) => self.plan.fill(self.part(region, run), Constant::Zero),
            RowMap::Rows(rows) => self.plan.fill_rows(region, self.selected_rows(rows), Constant::Zero),
        }
    }
}
