//! Brief runs: execute schedules of a few short messages step by step.
//!
//! The cost of a short call is mostly overhead. A brief run visits a link once per step. It moves or compares a message
//! as a whole, and keeps no progress per step or lane. The order of the steps is fixed with the schedule: ready steps
//! precede steps that wait for a peer. If the next message cannot move soon, the run continues as a regular run, which
//! also diagnoses errors.

use super::RunTraffic;
use super::idle::SPIN;
use super::memory;
use super::preamble::{PREAMBLE_BYTES, Preamble};
use super::progress::LaneCursor;
use super::run::ScheduleRun;
use super::schedule::{Lane, LaneSteps, Schedule};
use crate::fabric::{LinkId, LinkInterest};
use ripieno_plan::{Op, Operation, Span};
use std::time::Duration;

/// Maximum message size in bytes. Longer messages cost more than the overhead.
const MESSAGE_BYTES_MAX: usize = 8 << 10;
/// Maximum number of steps. Longer runs are bounded by waiting times.
const STEP_COUNT_MAX: usize = 32;
/// Number of polls for a message by a rank with its own core before the run continues as a regular run. All polls
/// together take a few microseconds.
const POLL_COUNT: u32 = 200;
/// Number of attempts to send a message by a rank with its own core before the run continues as a regular run.
const SEND_COUNT: u32 = 8;
/// Number of spin-loop hints between two attempts, about half a microsecond.
const SEND_PAUSE_COUNT: u32 = 16;
/// Number of times a rank on a shared core yields between two polls before the run continues as a regular run.
const YIELD_COUNT: u32 = 16;
/// Time limit for these yields. The caller may hold locks that other threads wait for until the run becomes a regular
/// run.
const YIELD_TIME: Duration = Duration::from_millis(1);

/// The steps of a brief schedule, in execution order.
#[derive(Clone, Debug)]
pub(super) struct Brief {
    steps: Box<[BriefStep]>,
    pub traffic: RunTraffic,
}

#[derive(Clone, Debug)]
struct BriefStep {
    /// Index in the steps of the schedule.
    index: usize,
    lane: usize,
    operation: BriefOperation,
}

#[derive(Clone, Debug)]
enum BriefOperation {
    Send { to: LinkId, span: Span },
    Receive { from: LinkId, span: Span },
    Reduce { from: LinkId, span: Span },
    Local,
}

impl Brief {
    /// Return the brief form of a schedule if it is short. Each stream must carry exactly one short, nonempty message,
    /// and no other step may take long.
    pub fn of(schedule: &Schedule) -> Option<Brief> {
        let is_single = |lane: &Lane| lane.stream == LaneSteps::Local || lane.steps.len() == 1;
        if schedule.steps.len() > STEP_COUNT_MAX || !schedule.lanes.iter().all(is_single) {
            return None;
        }
        let mut lanes = vec![0; schedule.steps.len()];
        for (lane, known) in schedule.lanes.iter().enumerate() {
            known.steps.iter().for_each(|&index| lanes[index] = lane);
        }
        let mut left: Vec<BriefStep> = Vec::new();
        for (index, step) in schedule.steps.iter().enumerate() {
            let is_short = (1..=MESSAGE_BYTES_MAX).contains(&step.length_bytes);
            let operation =
                BriefOperation::of(&step.operation, schedule.lanes[lanes[index]].stream).filter(|_| is_short)?;
            left.push(BriefStep { index, lane: lanes[index], operation });
        }
        let mut traffic = RunTraffic::default();
        left.iter().for_each(|step| step.count(&mut traffic));
        Some(Brief { steps: in_order(left, schedule), traffic })
    }
}

/// Order the steps such that no step waits for a later one. Steps that wait for a peer come as late as possible.
fn in_order(mut left: Vec<BriefStep>, schedule: &Schedule) -> Box<[BriefStep]> {
    let mut is_passed = vec![false; left.len()];
    let mut ordered = Vec::new();
    while !left.is_empty() {
        let is_ready = |step: &BriefStep| {
            let dependencies = &schedule.dependencies[schedule.steps[step.index].dependencies.clone()];
            dependencies.iter().all(|dependency| is_passed[dependency.on])
        };
        let ready = left.iter().position(|step| is_ready(step) && !step.waits_for_peer());
        let next =
            ready.or_else(|| left.iter().position(is_ready)).expect("the first of a plan's steps waits for none");
        let step = left.remove(next);
        is_passed[step.index] = true;
        ordered.push(step);
    }
    ordered.into()
}

impl BriefOperation {
    /// Return the brief operation for an operation on a stream, or `None` if the operation may take long.
    fn of(operation: &Operation, stream: LaneSteps) -> Option<BriefOperation> {
        Some(match (operation, stream) {
            (&Operation::Send { span, rows: None, .. }, LaneSteps::To(to)) => BriefOperation::Send { to, span },
            (&Operation::Receive { span, .. }, LaneSteps::From(from)) => BriefOperation::Receive { from, span },
            (Operation::Reduce { op: Op::Function, .. } | Operation::Combine { op: Op::Function, .. }, _) => {
                return None;
            }
            (&Operation::Reduce { span, rows: None, .. }, LaneSteps::From(from)) => {
                BriefOperation::Reduce { from, span }
            }
            (
                Operation::Copy { rows: None, .. }
                | Operation::Combine { rows: None, .. }
                | Operation::Fill { rows: None, .. },
                LaneSteps::Local,
            ) => BriefOperation::Local,
            _ => return None,
        })
    }
}

impl BriefStep {
    /// Return whether the step waits for a peer.
    fn waits_for_peer(&self) -> bool {
        matches!(self.operation, BriefOperation::Receive { .. } | BriefOperation::Reduce { .. })
    }

    /// Count the bytes that the step moves between ranks.
    fn count(&self, traffic: &mut RunTraffic) {
        match self.operation {
            BriefOperation::Send { span, .. } => traffic.sent_bytes += span.length_bytes as u64,
            BriefOperation::Receive { span, .. } | BriefOperation::Reduce { span, .. } => {
                traffic.received_bytes += span.length_bytes as u64
            }
            BriefOperation::Local => {}
        }
    }
}

impl ScheduleRun<'_, '_> {
    /// Run a brief schedule as far as possible. Return whether it completed.
    #[inline(always)]
    pub fn run_briefly(&mut self, brief: &Brief) -> bool {
        for (at, step) in brief.steps.iter().enumerate() {
            let has_passed = match step.operation {
                BriefOperation::Send { to, span } => self.send_message(to, span),
                BriefOperation::Receive { from, span } => self.receive_message(from, span, <[u8]>::copy_from_slice),
                BriefOperation::Reduce { from, span } => {
                    let reduction = self.prepared.reduction.expect("a plan that reduces has a reduction");
                    self.receive_message(from, span, reduction.combine)
                }
                BriefOperation::Local => {
                    let step = &self.schedule.steps[step.index];
                    self.pass(&step.operation, 0, step.length_bytes) == step.length_bytes
                }
            };
            if !has_passed {
                self.record_passed(&brief.steps[..at]);
                return false;
            }
        }
        true
    }

    #[inline(always)]
    fn send_message(&mut self, to: LinkId, span: Span) -> bool {
        let has_own_core = self.fabric.has_core_per_rank();
        let Some(link) = self.fabric.existing_link(to) else { return false };
        let preamble = Preamble::new(&self.progress.header, span.length_bytes);
        let bytes = &self.buffers[span.buffer.0 as usize].bytes()[memory::range(span, 0, span.length_bytes)];
        let attempt_count = if has_own_core && link.is_memory() { SEND_COUNT } else { 1 };
        (0..attempt_count).any(|attempt| {
            if attempt > 0 {
                // Pause, because each attempt takes a cache line from the peer. A lagging peer frees space for several
                // messages meanwhile.
                (0..SEND_PAUSE_COUNT).for_each(|_| std::hint::spin_loop());
            }
            link.send_message(&[&preamble.0, bytes])
        })
    }

    #[inline(always)]
    fn receive_message(&mut self, from: LinkId, span: Span, take: fn(&mut [u8], &[u8])) -> bool {
        let length_bytes = PREAMBLE_BYTES + span.length_bytes;
        let poll_count = match self.fabric.has_core_per_rank() {
            true => POLL_COUNT,
            false => {
                self.yield_core(from, length_bytes);
                1
            }
        };
        let Some(link) = self.fabric.existing_link(from) else { return false };
        let preamble = Preamble::new(&self.progress.header, span.length_bytes);
        let message = link.message(length_bytes, poll_count);
        let Some((theirs, bytes)) = message.and_then(|message| message.split_first_chunk()) else { return false };
        if Preamble(*theirs) != preamble {
            return false;
        }
        let into = self.buffers[span.buffer.0 as usize].bytes_mut();
        take(&mut into[memory::range(span, 0, span.length_bytes)], bytes);
        link.end_message(length_bytes);
        true
    }

    /// Yield the core to other ranks for a limited time until a message arrives.
    fn yield_core(&mut self, from: LinkId, length_bytes: usize) {
        let mut since = None;
        for _ in 0..YIELD_COUNT {
            let Some(link) = self.fabric.existing_link(from) else { break };
            if !link.is_memory() || link.message(length_bytes, 1).is_some() {
                break;
            }
            let now = self.fabric.now();
            if now - *since.get_or_insert(now) > YIELD_TIME {
                break;
            }
            self.fabric.yield_now();
        }
        if let Some(since) = since {
            self.record_yields(since, LinkInterest { link: from, readable: true, writable: false });
        }
    }

    /// Record a wait that began at `since`, if it exceeds the threshold for ranks with their own cores.
    fn record_yields(&mut self, since: Duration, interest: LinkInterest) {
        let now = self.fabric.now();
        if now - since >= SPIN {
            self.recorder.begin_wait(self.progress.ticket, &[interest], since);
            self.recorder.end_wait(self.progress.ticket, now);
        }
    }

    /// Record that exactly `steps` have completed, as if each had run in its lane.
    fn record_passed(&mut self, steps: &[BriefStep]) {
        let ScheduleRun { progress, schedule, .. } = self;
        progress.reset(schedule);
        for step in steps {
            progress.passed[step.index] = schedule.steps[step.index].length_bytes;
            let cursor = &mut progress.cursors[step.lane];
            let lane = &schedule.lanes[step.lane];
            *cursor = match lane.stream {
                LaneSteps::To(_) | LaneSteps::From(_) => {
                    LaneCursor { next: 1, preamble_bytes: PREAMBLE_BYTES, ..*cursor }
                }
                LaneSteps::Local => {
                    let has_passed = |&&index: &&usize| progress.passed[index] == schedule.steps[index].length_bytes;
                    LaneCursor { next: lane.steps.iter().take_while(has_passed).count(), ..*cursor }
                }
            };
            step.count(&mut progress.traffic);
        }
    }
}
