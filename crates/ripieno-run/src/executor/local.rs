//! Local lane: the steps inside the rank. They share no stream, so no step queues behind another.

use super::SEGMENT_BYTES;
use super::memory;
use super::rows;
use super::run::ScheduleRun;
use super::visit::limit;
use ripieno_plan::{Constant, Op, Operation};

impl ScheduleRun<'_, '_> {
    /// Advance each ready local step by at most one segment.
    pub fn local(&mut self, lane: usize) -> bool {
        let (schedule, mut moved) = (self.schedule, false);
        // At least one row, because a function only takes whole rows.
        let segment_bytes = schedule.function.as_ref().map_or(0, |function| function.row_bytes).max(SEGMENT_BYTES);
        let steps = &schedule.lanes[lane].steps;
        for &index in &steps[self.progress.cursors[lane].next..] {
            let done = self.progress.passed[index];
            let end = limit(schedule, &self.progress.passed, index).min(done + segment_bytes);
            if end > done {
                self.progress.passed[index] = self.pass(&schedule.steps[index].operation, done, end);
            }
            moved |= self.progress.passed[index] > done;
        }
        let is_done = |&&index: &&usize| self.progress.passed[index] == schedule.steps[index].length_bytes;
        let done_count = steps[self.progress.cursors[lane].next..].iter().take_while(is_done).count();
        self.progress.cursors[lane].next += done_count;
        moved || done_count > 0
    }

    /// Advance a local operation from byte `done` to `end`. Where elements must not be split, stop before a partial
    /// element. Return the new position.
    pub fn pass(&mut self, operation: &Operation, done: usize, end: usize) -> usize {
        match *operation {
            Operation::Copy { from, to, rows: None } => {
                memory::copy(self.buffers, from, to, done, end);
                end
            }
            Operation::Copy { from, to, rows: Some(ref rows) } => {
                let (table, packed) = memory::source_and_target(self.buffers, from, to);
                rows::gather(&mut packed[done..end], table, rows, done);
                end
            }
            Operation::Combine { from, to, op: Op::Function, .. } => {
                let function = self.schedule.function.as_ref().expect("a plan that combines by a function has one");
                // A function call costs more than the work on one row, so each call processes at least a segment, or
                // the rest.
                let is_little = end - done < SEGMENT_BYTES.max(function.row_bytes) && end < from.length_bytes;
                let whole_end = if is_little { done } else { end - end % function.row_bytes };
                let (source, target) = memory::source_and_target(self.buffers, from, to);
                let is_combined =
                    whole_end > done && function.combine(&mut target[done..whole_end], &source[done..whole_end]);
                if is_combined { whole_end } else { done }
            }
            Operation::Combine { from, to, ref rows, .. } => {
                let reduction = self.prepared.reduction.expect("a plan that combines has a reduction");
                let whole_end = memory::round_down(end, reduction.element_bytes);
                let (source, target) = memory::source_and_target(self.buffers, from, to);
                match rows {
                    None => (reduction.combine)(&mut target[done..whole_end], &source[done..whole_end]),
                    Some(rows) => rows::combine(target, &source[done..whole_end], rows, done, reduction),
                }
                whole_end
            }
            Operation::Fill { span, ref rows, with } => {
                let (fill, end): (fn(&mut [u8]), usize) = match with {
                    Constant::Zero => (|bytes| bytes.fill(0), end),
                    Constant::Identity(_) => {
                        let reduction =
                            self.prepared.reduction.expect("a plan that fills by an operation has a reduction");
                        (reduction.fill, memory::round_down(end, reduction.element_bytes))
                    }
                };
                let buffer = self.buffers[span.buffer.0 as usize].bytes_mut();
                let target = &mut buffer[memory::range(span, 0, span.length_bytes)];
                match rows {
                    None => fill(&mut target[done..end]),
                    Some(rows) => rows::fill(target, rows, done, end, fill),
                }
                end
            }
            Operation::Send { .. } | Operation::Receive { .. } | Operation::Reduce { .. } => {
                unreachable!("the local lane holds only steps inside the rank")
            }
        }
    }
}
