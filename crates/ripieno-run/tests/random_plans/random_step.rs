//! Random steps of a world, as plans and as a sequential reference.

use ripieno_plan::{Buffer, Constant, Op, Operation, Plan, Rows, Span};
use std::sync::Arc;

/// One step of a world.
#[derive(Clone, Debug)]
pub enum PlanStep {
    Message { from: usize, source: SpanBytes, to: usize, target: SpanBytes, is_reduced: bool },
    Local { rank: usize, source: SpanBytes, target: SpanBytes, is_combined: bool },
    Fill { rank: usize, target: SpanBytes, with: Constant },
}

/// A span, or rows of a span.
#[derive(Clone, Debug)]
pub struct SpanBytes {
    span: Span,
    rows: Option<Rows>,
}

/// The parameters of a world.
#[derive(Clone, Copy, Debug)]
pub struct PlanScale {
    pub rank_count: usize,
    /// The number of replicas of each rank.
    pub replicas: usize,
    pub element_count: usize,
    pub step_count: usize,
    pub link_bytes: usize,
    pub chunk_bytes: usize,
    pub op: Op,
}

/// Operations with identities other than zero, and one with identity zero.
pub const OPS: [Op; 4] = [Op::Sum, Op::Prod, Op::Max, Op::And];

pub const BUFFER_COUNT: usize = 2;

/// The contents of each buffer of each rank.
pub type BufferContents = Vec<Vec<Vec<i32>>>;

/// Return the next number below `below` of the splitmix64 sequence, and advance `state`.
pub fn random(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % below as u64) as usize
}

fn span(seed: &mut u64, scale: PlanScale, element_count: usize) -> Span {
    let buffer = Buffer(random(seed, BUFFER_COUNT) as u16);
    Span::whole(buffer, scale.element_count, 4)
        .elements(random(seed, scale.element_count - element_count + 1), element_count)
}

/// Return rows with `element_count` elements in total, or a span of `element_count` elements.
fn part(seed: &mut u64, scale: PlanScale, element_count: usize) -> SpanBytes {
    let width = 1 + random(seed, 20.min(element_count.max(3)));
    if random(seed, 2) == 0 || !element_count.is_multiple_of(width) {
        return SpanBytes { span: span(seed, scale, element_count), rows: None };
    }
    let mut missing = element_count / width;
    let row_count = missing + random(seed, scale.element_count / width - missing + 1);
    let is_chosen = |&row: &u32| {
        let is_chosen = random(seed, row_count - row as usize) < missing;
        missing -= usize::from(is_chosen);
        is_chosen
    };
    let numbers: Arc<[u32]> = (0..row_count as u32).filter(is_chosen).collect();
    SpanBytes { span: span(seed, scale, row_count * width), rows: Some(Rows::new(numbers, 4 * width)) }
}

pub fn random_step(seed: &mut u64, scale: PlanScale) -> PlanStep {
    let element_count = match random(seed, 4) {
        0 => scale.element_count,
        1 => random(seed, 3.min(scale.element_count)),
        _ => random(seed, scale.element_count + 1),
    };
    let (from, to) = (random(seed, scale.rank_count), random(seed, scale.rank_count));
    let whole = |span| SpanBytes { span, rows: None };
    match (from == to, random(seed, 2) == 0) {
        (true, _) if random(seed, 4) == 0 => {
            let with = [Constant::Zero, Constant::Identity(scale.op)][random(seed, 2)];
            PlanStep::Fill { rank: to, target: part(seed, scale, element_count), with }
        }
        (true, is_combined) => {
            let (first, second) = (part(seed, scale, element_count), whole(span(seed, scale, element_count)));
            let (source, target) = if is_combined { (second, first) } else { (first, second) };
            match source.span.overlaps(&target.span) {
                true => random_step(seed, scale),
                false => PlanStep::Local { rank: from, source, target, is_combined },
            }
        }
        (false, is_reduced) => {
            let source = part(seed, scale, element_count);
            let target =
                if is_reduced { part(seed, scale, element_count) } else { whole(span(seed, scale, element_count)) };
            PlanStep::Message { from, source, to, target, is_reduced }
        }
    }
}

/// Return the plan of each rank: its part in the steps, in order.
pub fn plans(steps: &[PlanStep], scale: PlanScale) -> Vec<Plan> {
    let (mut plans, op) = (vec![Plan::new(); scale.rank_count], scale.op);
    for random_step in steps {
        match random_step.clone() {
            PlanStep::Message { from, source, to, target, is_reduced } => {
                plans[from].push(Operation::Send { to, span: source.span, rows: source.rows });
                plans[to].push(match is_reduced {
                    true => Operation::Reduce { from, span: target.span, rows: target.rows, op },
                    false => Operation::Receive { from, span: target.span },
                });
            }
            PlanStep::Local { rank, source: SpanBytes { span: from, rows }, target, is_combined: false } => {
                plans[rank].push(Operation::Copy { from, to: target.span, rows });
            }
            PlanStep::Local { rank, source, target: SpanBytes { span: to, rows }, is_combined: true } => {
                plans[rank].push(Operation::Combine { from: source.span, to, rows, op });
            }
            PlanStep::Fill { rank, target: SpanBytes { span, rows }, with } => {
                plans[rank].push(Operation::Fill { span, rows, with });
            }
        }
    }
    plans
}

/// Return the same plan for the checker. The checker treats a fill with zero as no contribution; here zero is a number
/// like others, so each fill becomes the identity.
pub fn without_zeros(plan: &Plan, op: Op) -> Plan {
    let mut same = Plan::new();
    for operation in plan.operations() {
        match *operation {
            Operation::Fill { span, .. } => same.fill(span, Constant::Identity(op)),
            _ => same.push(operation.clone()),
        }
    }
    same
}

/// Return the elements of its buffer that a part contains, in order.
fn elements(part: &SpanBytes) -> Vec<usize> {
    let first = part.span.start_bytes / 4;
    match &part.rows {
        None => (first..first + part.span.element_count()).collect(),
        Some(rows) => {
            let width = rows.row_bytes() / 4;
            let row = |&number: &u32| first + number as usize * width..first + (number as usize + 1) * width;
            rows.numbers().iter().flat_map(row).collect()
        }
    }
}

fn combined(op: Op, a: i32, b: i32) -> i32 {
    match op {
        Op::Sum => a.wrapping_add(b),
        Op::Prod => a.wrapping_mul(b),
        Op::Max => a.max(b),
        Op::And => a & b,
        Op::Min | Op::Or | Op::Xor | Op::Function => unreachable!("OPS has no such operation"),
    }
}

fn constant(with: Constant) -> i32 {
    match with {
        Constant::Zero | Constant::Identity(Op::Sum) => 0,
        Constant::Identity(Op::Prod) => 1,
        Constant::Identity(Op::Max) => i32::MIN,
        Constant::Identity(Op::And) => -1,
        Constant::Identity(Op::Min | Op::Or | Op::Xor | Op::Function) => {
            unreachable!("OPS has no such operation")
        }
    }
}

/// Execute the steps one after the other.
pub fn run_sequentially(steps: &[PlanStep], op: Op, mut state: BufferContents) -> BufferContents {
    for random_step in steps {
        let (from, source, to, target, is_reduced) = match random_step {
            PlanStep::Message { from, source, to, target, is_reduced } => (from, source, to, target, is_reduced),
            PlanStep::Local { rank, source, target, is_combined } => (rank, source, rank, target, is_combined),
            PlanStep::Fill { rank, target, with } => {
                let buffer = &mut state[*rank][target.span.buffer.0 as usize];
                elements(target).iter().for_each(|&i| buffer[i] = constant(*with));
                continue;
            }
        };
        let read = |buffers: &Vec<Vec<i32>>, part: &SpanBytes| -> Vec<i32> {
            elements(part).iter().map(|&i| buffers[part.span.buffer.0 as usize][i]).collect()
        };
        let values = read(&state[*from], source);
        let positions = elements(target);
        assert_eq!(values.len(), positions.len(), "the spans have equal lengths");
        let buffer = &mut state[*to][target.span.buffer.0 as usize];
        for (position, value) in positions.into_iter().zip(values) {
            buffer[position] = if *is_reduced { combined(op, buffer[position], value) } else { value };
        }
    }
    state
}
