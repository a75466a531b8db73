//! Schedule: a plan prepared for execution, with the dependencies of each step and the lanes that order the steps.
//!
//! A schedule is created once per plan and is immutable during runs.

use super::access_index::AccessIndex;
use super::brief::Brief;
use super::zero_copy::BUFFERED_BYTES;
use crate::fabric::LinkId;
use crate::reduction::Function;
use ripieno_plan::{Buffer, Constant, Op, Operation, Plan, Rows, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// One rank's plan, ready for any number of runs.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub(super) steps: Vec<ScheduleStep>,
    pub(super) dependencies: Vec<StepDependency>,
    pub(super) lanes: Vec<Lane>,
    /// Minimum size of each buffer in bytes, by number. A run needs one buffer per entry.
    pub(super) buffer_bytes: Vec<usize>,
    pub(super) op: Option<Op>,
    /// Combines rows if the operation is a user function.
    pub(super) function: Option<Function>,
    /// Number of lanes that send rows.
    pub(super) row_lane_count: usize,
    /// Number of ranks that this rank exchanges bytes with.
    pub(super) peer_count: u16,
    /// Whether this rank receives bytes, and reduces none.
    pub(super) only_receives: bool,
    /// Whether every rank has replicas. All replicas of a sender send the same steps, and all replicas of a receiver
    /// get the data.
    pub(super) is_replicated: bool,
    /// The brief form, if the schedule has only a few short messages.
    pub(super) brief: Option<Brief>,
}

/// An operation and the range of its dependencies.
#[derive(Clone, Debug)]
pub(super) struct ScheduleStep {
    pub operation: Operation,
    pub length_bytes: usize,
    pub dependencies: Range<usize>,
    /// In at least one dependency of the step, one of the two steps selects rows from the shared span.
    pub involves_rows: bool,
    /// The step may send its bytes without a copy, and then completes when the receiver has read them.
    pub may_be_zero_copy: bool,
}

/// Bytes `low..high` of the waiting step may pass only after the step `on`. The limit is the progress of `on` plus
/// `shift`, counted from the start of the waiting step. For a step that selects rows from the shared span, positions
/// refer to the span, and only the selected rows count.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepDependency {
    pub on: usize,
    /// Length of the step `on`. The dependency is fulfilled when `on` has processed that many bytes.
    pub length_bytes: usize,
    pub low: usize,
    pub high: usize,
    pub shift: isize,
    /// The waiting step selects its rows from the shared span.
    pub selects_rows: bool,
    /// The earlier step selects its rows from the shared span.
    pub follows_rows: bool,
}

/// Steps that run in order because they share a stream.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub stream: LaneSteps,
    pub steps: Vec<usize>,
    pub length_bytes: usize,
    /// The lanes that deliver the same steps, including this lane.
    pub racing_lanes: Range<usize>,
}

/// The stream shared by the steps of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LaneSteps {
    To(LinkId),
    From(LinkId),
    Local,
}

impl Schedule {
    /// Prepare `plan`. Sends that no later step waits for may be zero-copy.
    pub fn new(plan: &Plan) -> Schedule {
        let operations = plan.operations();
        let mut schedule = Schedule {
            steps: Vec::new(),
            dependencies: Vec::new(),
            lanes: Vec::new(),
            buffer_bytes: Vec::new(),
            op: None,
            function: None,
            row_lane_count: 0,
            peer_count: 0,
            only_receives: false,
            is_replicated: false,
            brief: None,
        };
        let (mut accesses, mut lanes) = (AccessIndex::default(), BTreeMap::new());
        for (index, operation) in operations.iter().enumerate() {
            let first = schedule.dependencies.len();
            schedule.dependencies.extend(dependencies_of(index, operations, &accesses));
            for used in uses(operation) {
                accesses.add(used.span.buffer, used.accessed(), index, used.is_written);
            }
            let dependencies = first..schedule.dependencies.len();
            for dependency in &schedule.dependencies[dependencies.clone()] {
                schedule.steps[dependency.on].may_be_zero_copy = false;
            }
            let among_rows = |dependency: &StepDependency| dependency.selects_rows || dependency.follows_rows;
            schedule.steps.push(ScheduleStep {
                operation: operation.clone(),
                length_bytes: operation.length_bytes(),
                involves_rows: schedule.dependencies[dependencies.clone()].iter().any(among_rows),
                dependencies,
                may_be_zero_copy: can_be_zero_copy(operation),
            });
            schedule.enqueue(index, operation, &mut lanes);
            for used in uses(operation) {
                schedule.grow_buffers(&used);
            }
            if let Operation::Reduce { op, .. }
            | Operation::Combine { op, .. }
            | Operation::Fill { with: Constant::Identity(op), .. } = operation
                && *op != Op::Function
            {
                assert!(schedule.op.is_none_or(|known| known == *op), "a plan has one reduction operation");
                schedule.op = Some(*op);
            }
        }
        schedule.peer_count = schedule.peers().len() as u16;
        let is_reduction = |operation: &Operation| matches!(operation, Operation::Reduce { .. });
        schedule.only_receives = schedule.lanes.iter().any(|lane| matches!(lane.stream, LaneSteps::From(_)))
            && !operations.iter().any(is_reduction);
        schedule.row_lane_count = schedule.lanes.iter().filter(|lane| schedule.sends_rows(lane)).count();
        schedule.brief = Brief::of(&schedule);
        schedule
    }

    /// Allow zero-copy for all sends. For plans that run over links without buffers. Has no effect with replicas.
    pub fn with_zero_copy(mut self) -> Schedule {
        if self.is_replicated {
            return self;
        }
        for step in &mut self.steps {
            step.may_be_zero_copy = can_be_zero_copy(&step.operation);
        }
        self
    }

    /// Use `function` as the reduction operation.
    pub fn with_function(mut self, function: Function) -> Schedule {
        self.function = Some(function);
        self
    }

    /// Copy all sends. For runs that end when the links hold the sent bytes.
    pub fn without_zero_copy(mut self) -> Schedule {
        self.steps.iter_mut().for_each(|step| step.may_be_zero_copy = false);
        self
    }

    /// Use the message links. A message that fits a link counts as sent when the link holds it.
    pub fn for_message(mut self) -> Schedule {
        for lane in &mut self.lanes {
            match &mut lane.stream {
                LaneSteps::To(link) => *link = LinkId::outbox(link.peer),
                LaneSteps::From(link) => *link = LinkId::inbox(link.peer),
                LaneSteps::Local => {}
            }
        }
        self.brief = if self.is_replicated { None } else { Brief::of(&self) };
        self.steps.iter_mut().for_each(|step| step.may_be_zero_copy &= step.length_bytes > BUFFERED_BYTES);
        self
    }

    /// Return the number of bytes of [`Buffer::SCRATCH`] that a run needs.
    pub fn scratch_bytes(&self) -> usize {
        self.buffer_bytes.get(Buffer::SCRATCH.0 as usize).copied().unwrap_or(0)
    }

    /// Return the receiving peers, each with the number of bytes sent to it.
    pub(super) fn sent(&self) -> impl Iterator<Item = (usize, usize)> {
        self.lanes.iter().filter_map(|lane| match lane.stream {
            LaneSteps::To(link) => Some((link.peer, lane.length_bytes)),
            LaneSteps::From(_) | LaneSteps::Local => None,
        })
    }

    pub(super) fn peers(&self) -> BTreeSet<usize> {
        let peer = |lane: &Lane| match lane.stream {
            LaneSteps::To(link) | LaneSteps::From(link) => Some(link.peer),
            LaneSteps::Local => None,
        };
        self.lanes.iter().filter_map(peer).collect()
    }

    fn sends_rows(&self, lane: &Lane) -> bool {
        let sends_rows = |&step: &usize| matches!(self.steps[step].operation, Operation::Send { rows: Some(_), .. });
        lane.steps.iter().any(sends_rows)
    }

    /// Append step `index` to its lane. `lanes` maps each known stream to its lane number.
    fn enqueue(&mut self, index: usize, operation: &Operation, lanes: &mut BTreeMap<LaneSteps, usize>) {
        let stream = match *operation {
            Operation::Send { to, .. } => LaneSteps::To(LinkId::collectives(to)),
            Operation::Receive { from, .. } | Operation::Reduce { from, .. } => {
                LaneSteps::From(LinkId::collectives(from))
            }
            Operation::Copy { .. } | Operation::Combine { .. } | Operation::Fill { .. } => LaneSteps::Local,
        };
        let known = *lanes.entry(stream).or_insert_with(|| {
            let number = self.lanes.len();
            self.lanes.push(Lane { stream, steps: Vec::new(), length_bytes: 0, racing_lanes: number..number + 1 });
            number
        });
        self.lanes[known].steps.push(index);
        self.lanes[known].length_bytes += operation.length_bytes();
    }

    fn grow_buffers(&mut self, used: &SpanUse) {
        let (Span { buffer: Buffer(number), .. }, accessed) = (used.span, used.accessed());
        assert!(accessed.end <= used.span.end_bytes(), "rows lie within their span");
        if self.buffer_bytes.len() <= number as usize {
            self.buffer_bytes.resize(number as usize + 1, 0);
        }
        let bytes = &mut self.buffer_bytes[number as usize];
        *bytes = (*bytes).max(used.span.end_bytes());
    }
}

/// Return whether the receiver can read the bytes in place. Selected rows have to be gathered first.
fn can_be_zero_copy(operation: &Operation) -> bool {
    matches!(operation, Operation::Send { rows: None, .. })
}

/// A span that an operation uses.
struct SpanUse<'a> {
    span: Span,
    is_written: bool,
    /// The rows that the operation selects in the span, if any.
    rows: Option<&'a Rows>,
}

/// Return the spans that an operation uses.
fn uses(operation: &Operation) -> impl Iterator<Item = SpanUse<'_>> {
    let rows_select_the_source = matches!(operation, Operation::Send { .. } | Operation::Copy { .. });
    let span_use = move |span, is_written| {
        let rows = operation.rows().filter(|_| is_written != rows_select_the_source);
        SpanUse { span, is_written, rows }
    };
    let (reads, writes) = (operation.reads(), operation.writes());
    reads.map(|span| span_use(span, false)).into_iter().chain(writes.map(|span| span_use(span, true)))
}

impl SpanUse<'_> {
    /// Return the byte range of the buffer from the first to the last byte that the operation accesses.
    fn accessed(&self) -> Range<usize> {
        let start_bytes = self.span.start_bytes;
        match self.rows.map(|rows| (rows.numbers(), rows.row_bytes())) {
            None => start_bytes..self.span.end_bytes(),
            Some(([], _)) => start_bytes..start_bytes,
            Some(([first, .., last] | [first @ last], row_bytes)) => {
                start_bytes + *first as usize * row_bytes..start_bytes + (*last as usize + 1) * row_bytes
            }
        }
    }
}

/// Return the dependencies of operation `index`: earlier operations on the same bytes, where at least one of the two
/// writes.
///
/// The search goes backwards. An earlier writer of all bytes in question has itself waited for all its predecessors, so
/// the search stops there. A writer that selects rows does not stop it, because it skips the bytes between its rows.
///
/// Cost: `n·log(n)` for a plan of `n` operations, if few of them use the same bytes.
fn dependencies_of(index: usize, operations: &[Operation], accesses: &AccessIndex) -> Vec<StepDependency> {
    let mut found = Vec::new();
    for mine in uses(&operations[index]) {
        let (my_start, my_bytes) = (mine.span.start_bytes, mine.accessed());
        for on in accesses.of(mine.span.buffer, my_bytes.clone(), mine.is_written) {
            let (earlier, mut covered) = (&operations[on], false);
            for theirs in uses(earlier) {
                let their_bytes = theirs.accessed();
                let (low, high) = (my_bytes.start.max(their_bytes.start), my_bytes.end.min(their_bytes.end));
                let is_shared = mine.span.buffer == theirs.span.buffer && low < high;
                if !(mine.is_written || theirs.is_written) || !is_shared {
                    continue;
                }
                found.push(StepDependency {
                    on,
                    length_bytes: earlier.length_bytes(),
                    low: low - my_start,
                    high: high - my_start,
                    shift: theirs.span.start_bytes as isize - my_start as isize,
                    selects_rows: mine.rows.is_some(),
                    follows_rows: theirs.rows.is_some(),
                });
                covered |= theirs.is_written && theirs.rows.is_none() && (low..high) == my_bytes;
            }
            if covered {
                break;
            }
        }
    }
    found.sort_by_key(|dependency| dependency.on);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start_bytes: usize, length_bytes: usize) -> Span {
        Span { buffer: Buffer::MAIN, start_bytes, length_bytes, element_bytes: 1 }
    }

    #[test]
    fn a_step_waits_for_the_last_writer_and_for_readers_since() {
        let mut plan = Plan::new();
        plan.receive(1, span(0, 10));
        plan.reduce(2, span(0, 10), Op::Sum);
        plan.send(3, span(2, 4));
        plan.reduce(4, span(0, 10), Op::Sum);
        assert_eq!(waits(&plan), [vec![], vec![0], vec![1], vec![1, 2]]);
    }

    #[test]
    fn two_sends_of_the_same_bytes_do_not_wait_for_each_other() {
        let mut plan = Plan::new();
        plan.send(1, span(0, 10));
        plan.send(2, span(0, 10));
        assert!(Schedule::new(&plan).dependencies.is_empty());
    }

    /// Return the dependencies of each step of the plan.
    fn waits(plan: &Plan) -> Vec<Vec<usize>> {
        let schedule = Schedule::new(plan);
        let waits =
            |step: &ScheduleStep| schedule.dependencies[step.dependencies.clone()].iter().map(|d| d.on).collect();
        schedule.steps.iter().map(waits).collect()
    }

    #[test]
    fn writes_to_rows_leave_the_bytes_between_them_unchanged() {
        let mut plan = Plan::new();
        plan.receive(1, span(0, 10));
        plan.reduce_rows(2, span(0, 10), Rows::new([0, 9].into(), 1), Op::Sum);
        plan.send(3, span(0, 10));
        assert_eq!(waits(&plan)[2], [0, 1]);
    }

    #[test]
    fn rows_depend_only_on_bytes_from_the_first_to_the_last_row() {
        let mut plan = Plan::new();
        plan.receive(1, span(0, 4));
        plan.receive(1, span(8, 4));
        plan.send_rows(2, span(0, 12), Rows::new([2, 3].into(), 2));
        plan.send_rows(2, span(0, 12), Rows::new([1, 3].into(), 2));
        plan.send_rows(2, span(0, 12), Rows::new([].into(), 2));
        assert_eq!(waits(&plan)[2..], [vec![], vec![0], vec![]]);
    }

    #[test]
    #[should_panic(expected = "rows lie within their span")]
    fn rows_beyond_their_span_are_rejected() {
        let mut plan = Plan::new();
        plan.send_rows(1, span(0, 10), Rows::new([0, 5].into(), 2));
        Schedule::new(&plan);
    }
}
