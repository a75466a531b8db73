//! A schedule: a plan made ready to run: steps with the bytes they wait for, and the lanes in which they queue.
//!
//! Made once per plan and kept; a run changes nothing in it.

use ripieno_plan::{Buffer, Op, Operation, Plan, Span};
use std::collections::BTreeSet;

/// One rank's plan, ready to run any number of times.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub(super) steps: Vec<Step>,
    pub(super) dependencies: Vec<Dependency>,
    pub(super) lanes: Vec<Lane>,
    /// Bytes that each buffer must have at least, by number; a run takes as many buffers.
    pub(super) buffer_bytes: Vec<usize>,
    pub(super) op: Option<Op>,
    /// How many ranks this one exchanges bytes with.
    pub(super) peer_count: u16,
}

/// An operation and where its dependencies stand.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub operation: Operation,
    pub length_bytes: usize,
    pub dependencies: std::ops::Range<usize>,
    /// It may hold its bytes until the receiver has taken them.
    pub is_lendable: bool,
}

/// Bytes `low..high` of the waiting step may pass only after the step `on` has: it stands at its own progress plus
/// `shift`, counted from the start of the waiting step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dependency {
    pub on: usize,
    pub low: usize,
    pub high: usize,
    pub shift: isize,
}

/// Steps that happen in order because they share a stream.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub stream: Stream,
    pub steps: Vec<usize>,
    pub length_bytes: usize,
}

/// What the steps of a lane share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream {
    To(usize),
    From(usize),
    Local,
}

impl Schedule {
    /// Makes `plan` ready. Sends that no later step waits for may be lent.
    pub fn new(plan: &Plan) -> Schedule {
        let operations = plan.operations();
        let mut schedule = Schedule {
            steps: Vec::new(),
            dependencies: Vec::new(),
            lanes: Vec::new(),
            buffer_bytes: Vec::new(),
            op: None,
            peer_count: 0,
        };
        for (index, operation) in operations.iter().enumerate() {
            assert!(
                operation.rows().is_none() && !matches!(operation, Operation::Fill { .. }),
                "the executor runs no index maps and constants yet"
            );
            let first = schedule.dependencies.len();
            schedule.dependencies.extend(dependencies_of(index, operations));
            let dependencies = first..schedule.dependencies.len();
            for dependency in &schedule.dependencies[dependencies.clone()] {
                schedule.steps[dependency.on].is_lendable = false;
            }
            let (length_bytes, is_lendable) = (operation.length_bytes(), matches!(operation, Operation::Send { .. }));
            schedule.steps.push(Step { operation: operation.clone(), length_bytes, dependencies, is_lendable });
            schedule.enqueue(index, operation);
            for (span, _) in spans(operation) {
                schedule.require(span);
            }
            if let Operation::Reduce { op, .. } | Operation::Combine { op, .. } = operation {
                assert!(schedule.op.is_none_or(|known| known == *op), "a plan reduces by one operation");
                schedule.op = Some(*op);
            }
        }
        schedule.peer_count = schedule.peers().len() as u16;
        schedule
    }

    /// The same schedule, whose sends may all be lent: for plans that run over links that hold nothing.
    pub fn lending(mut self) -> Schedule {
        for step in &mut self.steps {
            step.is_lendable = matches!(step.operation, Operation::Send { .. });
        }
        self
    }

    /// The same schedule, none of whose sends is lent: for runs that end when the links hold what they send.
    pub fn copying(mut self) -> Schedule {
        self.steps.iter_mut().for_each(|step| step.is_lendable = false);
        self
    }

    /// Bytes of [`Buffer::SCRATCH`] that a run needs.
    pub fn scratch_bytes(&self) -> usize {
        self.buffer_bytes.get(Buffer::SCRATCH.0 as usize).copied().unwrap_or(0)
    }

    fn peers(&self) -> BTreeSet<usize> {
        let peer = |lane: &Lane| match lane.stream {
            Stream::To(peer) | Stream::From(peer) => Some(peer),
            Stream::Local => None,
        };
        self.lanes.iter().filter_map(peer).collect()
    }

    fn enqueue(&mut self, index: usize, operation: &Operation) {
        let stream = match *operation {
            Operation::Send { to, .. } => Stream::To(to),
            Operation::Receive { from, .. } | Operation::Reduce { from, .. } => Stream::From(from),
            Operation::Copy { .. } | Operation::Combine { .. } | Operation::Fill { .. } => Stream::Local,
        };
        let known = self.lanes.iter().position(|lane| lane.stream == stream).unwrap_or_else(|| {
            self.lanes.push(Lane { stream, steps: Vec::new(), length_bytes: 0 });
            self.lanes.len() - 1
        });
        self.lanes[known].steps.push(index);
        self.lanes[known].length_bytes += operation.length_bytes();
    }

    fn require(&mut self, span: Span) {
        let Buffer(number) = span.buffer;
        if self.buffer_bytes.len() <= number as usize {
            self.buffer_bytes.resize(number as usize + 1, 0);
        }
        let bytes = &mut self.buffer_bytes[number as usize];
        *bytes = (*bytes).max(span.end_bytes());
    }
}

/// The spans of an operation, and whether it writes them.
fn spans(operation: &Operation) -> impl Iterator<Item = (Span, bool)> {
    let reads = operation.reads().map(|span| (span, false));
    reads.into_iter().chain(operation.writes().map(|span| (span, true)))
}

/// What operation `index` waits for: earlier operations on the same bytes, where one of the two writes.
///
/// The search goes backwards. An earlier writer of all the bytes in question has itself waited for whatever came before
/// it, so nothing behind such a writer is looked at.
fn dependencies_of(index: usize, operations: &[Operation]) -> Vec<Dependency> {
    let mut found = Vec::new();
    for (mine, i_write) in spans(&operations[index]) {
        for (on, earlier) in operations[..index].iter().enumerate().rev() {
            let mut covered = false;
            for (theirs, it_writes) in spans(earlier) {
                if !(i_write || it_writes) || !mine.overlaps(&theirs) {
                    continue;
                }
                let low = mine.start_bytes.max(theirs.start_bytes);
                let high = mine.end_bytes().min(theirs.end_bytes());
                found.push(Dependency {
                    on,
                    low: low - mine.start_bytes,
                    high: high - mine.start_bytes,
                    shift: theirs.start_bytes as isize - mine.start_bytes as isize,
                });
                covered |= it_writes && high - low == mine.length_bytes;
            }
            if covered {
                break;
            }
        }
    }
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
        let schedule = Schedule::new(&plan);
        let waits_for = |step: usize| -> Vec<usize> {
            schedule.dependencies[schedule.steps[step].dependencies.clone()].iter().map(|d| d.on).collect()
        };
        assert_eq!(waits_for(0), []);
        assert_eq!(waits_for(1), [0]);
        assert_eq!(waits_for(2), [1]);
        assert_eq!(waits_for(3), [2, 1]);
    }

    #[test]
    fn two_sends_of_the_same_bytes_do_not_wait_for_each_other() {
        let mut plan = Plan::new();
        plan.send(1, span(0, 10));
        plan.send(2, span(0, 10));
        assert!(Schedule::new(&plan).dependencies.is_empty());
    }
}
