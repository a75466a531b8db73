//! Direct interpreter of plans: executes all ranks' operations on single-precision numbers over links of unlimited
//! capacity.

use ripieno_plan::{Buffer, Constant, Op, Operation, Plan, Rows, Span};
use std::collections::{BTreeMap, VecDeque};

/// Buffers MAIN, OUTPUT and SCRATCH of a rank.
pub type RankMemory = [Vec<f32>; 3];

/// Combine two numbers.
pub fn combined(op: Op, a: f32, b: f32) -> f32 {
    match op {
        Op::Sum => a + b,
        Op::Min => a.min(b),
        _ => unreachable!("no test uses this operation"),
    }
}

/// Return the identity element of an operation.
pub fn identity(op: Op) -> f32 {
    match op {
        Op::Sum => 0.0,
        Op::Min => f32::INFINITY,
        _ => unreachable!("no test uses this operation"),
    }
}

/// Run all plans to completion. Output and scratch start as NaN.
pub fn interpreted(plans: &[Plan], memories: &mut [RankMemory]) {
    let mut links: BTreeMap<(usize, usize), VecDeque<Vec<f32>>> = BTreeMap::new();
    let mut next = vec![0; plans.len()];
    while next.iter().zip(plans).any(|(&next, plan)| next < plan.operations().len()) {
        let before = next.clone();
        for (rank, plan) in plans.iter().enumerate() {
            let rest = plan.operations()[next[rank]..].iter();
            next[rank] += rest.take_while(|operation| step(rank, operation, &mut memories[rank], &mut links)).count();
        }
        assert_ne!(before, next, "no rank can continue");
    }
    assert!(links.values().all(VecDeque::is_empty), "every message was received");
}

/// Run an operation if its input is available. Return whether it ran.
fn step(
    rank: usize,
    operation: &Operation,
    memory: &mut RankMemory,
    links: &mut BTreeMap<(usize, usize), VecDeque<Vec<f32>>>,
) -> bool {
    let mut arrived = |from: usize| links.get_mut(&(from, rank)).and_then(VecDeque::pop_front);
    match *operation {
        Operation::Send { to, span, ref rows } => {
            let values = read(memory, span, rows.as_ref());
            links.entry((rank, to)).or_default().push_back(values);
        }
        Operation::Receive { from, span } => {
            let Some(values) = arrived(from) else { return false };
            write(memory, span, None, &values, |_, value| value);
        }
        Operation::Reduce { from, span, ref rows, op } => {
            let Some(values) = arrived(from) else { return false };
            write(memory, span, rows.as_ref(), &values, |before, value| combined(op, before, value));
        }
        Operation::Copy { from, to, ref rows } => {
            let values = read(memory, from, rows.as_ref());
            write(memory, to, None, &values, |_, value| value);
        }
        Operation::Combine { from, to, ref rows, op } => {
            let values = read(memory, from, None);
            write(memory, to, rows.as_ref(), &values, |before, value| combined(op, before, value));
        }
        Operation::Fill { span, ref rows, with } => {
            let value = match with {
                Constant::Zero => 0.0,
                Constant::Identity(op) => identity(op),
            };
            let values = vec![value; operation.length_bytes() / 4];
            write(memory, span, rows.as_ref(), &values, |_, value| value);
        }
    }
    true
}

/// Return the positions of a span, or of rows of it, in its buffer.
fn positions(span: Span, rows: Option<&Rows>) -> Vec<usize> {
    let first = span.start_bytes / 4;
    match rows {
        None => (first..first + span.length_bytes / 4).collect(),
        Some(rows) => {
            let width = rows.row_bytes() / 4;
            let row = |&number: &u32| first + number as usize * width..first + (number as usize + 1) * width;
            rows.numbers().iter().flat_map(row).collect()
        }
    }
}

fn read(memory: &RankMemory, span: Span, rows: Option<&Rows>) -> Vec<f32> {
    positions(span, rows).into_iter().map(|position| memory[span.buffer.0 as usize][position]).collect()
}

fn write(memory: &mut RankMemory, span: Span, rows: Option<&Rows>, values: &[f32], value: impl Fn(f32, f32) -> f32) {
    let (positions, buffer) = (positions(span, rows), &mut memory[span.buffer.0 as usize]);
    assert_eq!(positions.len(), values.len(), "there is one value per element");
    if let Some(last) = positions.last().filter(|&&last| last >= buffer.len() && span.buffer == Buffer::SCRATCH) {
        buffer.resize(last + 1, f32::NAN);
    }
    positions.into_iter().zip(values).for_each(|(position, &new)| buffer[position] = value(buffer[position], new));
}
