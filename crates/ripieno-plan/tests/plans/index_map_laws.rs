//! Law of index maps: for random operations of two to five ranks, the checker accepts exactly the results of a direct
//! sequential computation.

use proptest::prelude::*;
use ripieno_plan::check::{check, check_rendezvous};
use ripieno_plan::simulate::{Model, cost_s, segmented};
use ripieno_plan::{Buffer, Constant, FaultKind, Op, Plan, Promise, PromisedSpan, Rows, Span};
use std::collections::BTreeMap;

const ELEMENT_BYTES: usize = 4;
/// Number of elements in each buffer of a rank.
const ELEMENT_COUNT: usize = 8;
/// Buffers with defined contents.
const BUFFERS: [Buffer; 3] = [Buffer::MAIN, Buffer::OUTPUT, Buffer(3)];

/// Elements of a buffer: a run, or rows of one or two elements.
#[derive(Clone, Debug)]
enum ElementSet {
    Run(usize, usize),
    Rows { width: usize, numbers: Vec<u32> },
}

/// One end of a step: rank, buffer number, and elements.
#[derive(Clone, Debug)]
struct StepEnd {
    rank: usize,
    buffer: usize,
    elements: ElementSet,
}

/// A move of elements from one end to the other, or a step that fills the elements of one end. If both ends select
/// rows, they are on different ranks.
#[derive(Clone, Debug)]
enum MoveStep {
    Overwrite { from: StepEnd, to: StepEnd },
    Combine { from: StepEnd, to: StepEnd },
    Fill { at: StepEnd },
}

/// The contributions in an element with their counts: rank, buffer and element of origin. Empty for a constant.
type Contributions = BTreeMap<(usize, usize, usize), usize>;

/// Contributions of all elements, by rank and buffer.
type ElementContents = Vec<Vec<Vec<Contributions>>>;

impl ElementSet {
    fn indices(&self) -> Vec<usize> {
        match self {
            &ElementSet::Run(first, count) => (first..first + count).collect(),
            ElementSet::Rows { width, numbers } => {
                numbers.iter().flat_map(|&row| row as usize * width..(row as usize + 1) * width).collect()
            }
        }
    }

    fn rows(&self) -> Option<Rows> {
        match self {
            ElementSet::Run(..) => None,
            ElementSet::Rows { width, numbers } => Some(Rows::new(numbers.as_slice().into(), width * ELEMENT_BYTES)),
        }
    }
}

impl StepEnd {
    fn span(&self) -> Span {
        let whole = Span::whole(BUFFERS[self.buffer], ELEMENT_COUNT, ELEMENT_BYTES);
        match self.elements {
            ElementSet::Run(first, count) => whole.elements(first, count),
            ElementSet::Rows { .. } => whole,
        }
    }
}

/// Return all ranks' buffers after the steps, executed sequentially.
fn computed(p: usize, steps: &[MoveStep]) -> ElementContents {
    let initial =
        |rank, buffer| (0..ELEMENT_COUNT).map(|element| BTreeMap::from([((rank, buffer, element), 1)])).collect();
    let buffers = |rank| (0..BUFFERS.len()).map(|buffer| initial(rank, buffer)).collect();
    let mut held: ElementContents = (0..p).map(buffers).collect();
    for step in steps {
        match step {
            MoveStep::Fill { at } => {
                at.elements.indices().iter().for_each(|&element| held[at.rank][at.buffer][element].clear());
            }
            MoveStep::Overwrite { from, to } | MoveStep::Combine { from, to } => {
                for (source, target) in from.elements.indices().into_iter().zip(to.elements.indices()) {
                    let moved = held[from.rank][from.buffer][source].clone();
                    let target = &mut held[to.rank][to.buffer][target];
                    match step {
                        MoveStep::Combine { .. } => {
                            moved.into_iter().for_each(|(source, count)| *target.entry(source).or_insert(0) += count);
                        }
                        _ => *target = moved,
                    }
                }
            }
        }
    }
    held
}

/// Return one plan per rank. Each plan performs that rank's part of the steps in order.
fn plans(p: usize, steps: &[MoveStep], op: Op) -> Vec<Plan> {
    let mut plans = vec![Plan::new(); p];
    for step in steps {
        match step {
            MoveStep::Fill { at } => match at.elements.rows() {
                None => plans[at.rank].fill(at.span(), Constant::Identity(op)),
                Some(rows) => plans[at.rank].fill_rows(at.span(), rows, Constant::Identity(op)),
            },
            MoveStep::Overwrite { from, to } if from.rank == to.rank => match from.elements.rows() {
                None => plans[to.rank].copy(from.span(), to.span()),
                Some(rows) => plans[to.rank].copy_rows(from.span(), rows, to.span()),
            },
            MoveStep::Combine { from, to } if from.rank == to.rank => match to.elements.rows() {
                None => plans[to.rank].combine(from.span(), to.span(), op),
                Some(rows) => plans[to.rank].combine_rows(from.span(), to.span(), rows, op),
            },
            MoveStep::Overwrite { from, to } | MoveStep::Combine { from, to } => {
                match from.elements.rows() {
                    None => plans[from.rank].send(to.rank, from.span()),
                    Some(rows) => plans[from.rank].send_rows(to.rank, from.span(), rows),
                }
                match (step, to.elements.rows()) {
                    (MoveStep::Combine { .. }, None) => plans[to.rank].reduce(from.rank, to.span(), op),
                    (MoveStep::Combine { .. }, Some(rows)) => {
                        plans[to.rank].reduce_rows(from.rank, to.span(), rows, op)
                    }
                    _ => plans[to.rank].receive(from.rank, to.span()),
                }
            }
        }
    }
    plans
}

/// Promise the contents of every element of every buffer.
fn promises(held: &ElementContents, op: Op) -> Vec<Promise> {
    let element =
        |buffer: usize, element| Span::whole(BUFFERS[buffer], ELEMENT_COUNT, ELEMENT_BYTES).elements(element, 1);
    let part = |buffer: usize, number: usize, held: &Contributions| {
        let sources = held.keys().map(|&(rank, buffer, number)| (rank, element(buffer, number)));
        PromisedSpan { span: element(buffer, number), sources: sources.collect(), op: Some(op) }
    };
    let promise = |buffers: &Vec<Vec<Contributions>>| {
        let parts = buffers.iter().enumerate().flat_map(|(buffer, elements)| {
            elements.iter().enumerate().map(move |(number, held)| part(buffer, number, held))
        });
        Promise { spans: parts.collect() }
    };
    held.iter().map(promise).collect()
}

fn run(count: usize) -> impl Strategy<Value = ElementSet> {
    (0..=ELEMENT_COUNT - count).prop_map(move |first| ElementSet::Run(first, count))
}

/// Generate a set of `count` elements, an even number: a run, or rows if allowed.
fn elements(count: usize, may_select_rows: bool) -> BoxedStrategy<ElementSet> {
    if !may_select_rows {
        return run(count).boxed();
    }
    let rows = |width: usize| {
        let numbers: Vec<u32> = (0..(ELEMENT_COUNT / width) as u32).collect();
        let selected = prop::sample::subsequence(numbers, count / width);
        selected.prop_map(move |numbers| ElementSet::Rows { width, numbers })
    };
    prop_oneof![1 => run(count), 2 => rows(1), 2 => rows(2)].boxed()
}

fn step(p: usize) -> impl Strategy<Value = MoveStep> {
    let shape = (0..p, 0..p, 0..BUFFERS.len(), 1..BUFFERS.len(), 0..=ELEMENT_COUNT / 2, any::<bool>());
    let transfer = shape.prop_flat_map(|(from, to, buffer, other, pairs, overwrite)| {
        // Inside a rank one end selects rows and the other end is packed, in another buffer.
        let is_local = from == to;
        let target = (buffer + other) % BUFFERS.len();
        let source = elements(2 * pairs, !is_local || overwrite);
        let ends = (source, elements(2 * pairs, !overwrite));
        ends.prop_map(move |(source, selected)| {
            let from = StepEnd { rank: from, buffer, elements: source };
            let to = StepEnd { rank: to, buffer: target, elements: selected };
            if overwrite { MoveStep::Overwrite { from, to } } else { MoveStep::Combine { from, to } }
        })
    });
    let fill = (0..p, 0..BUFFERS.len(), 0..=ELEMENT_COUNT / 2)
        .prop_flat_map(|(rank, buffer, pairs)| {
            elements(2 * pairs, true).prop_map(move |elements| (rank, buffer, elements))
        })
        .prop_map(|(rank, buffer, elements)| MoveStep::Fill { at: StepEnd { rank, buffer, elements } });
    prop_oneof![9 => transfer, 1 => fill]
}

fn worlds() -> impl Strategy<Value = (usize, Vec<MoveStep>)> {
    (2..=5usize).prop_flat_map(|p| (Just(p), prop::collection::vec(step(p), 1..24)))
}

fn op() -> impl Strategy<Value = Op> {
    prop::sample::select(vec![Op::Min, Op::Or, Op::Sum])
}

/// Compare the checker's result for plans that produce `computed` with the promise `expected`. Repeated contributions
/// invalidate a sum. The order of additions on different ranks is not compared here.
fn compare_with_checker(
    plans: &[Plan],
    expected: &ElementContents,
    computed: &ElementContents,
    op: Op,
) -> Result<(), TestCaseError> {
    let promised = |held: &ElementContents| -> Vec<Vec<_>> {
        let elements = held.iter().flatten().flatten();
        elements.map(|contributions| contributions.keys().copied().collect()).collect()
    };
    let repeated =
        computed.iter().flatten().flatten().any(|contributions| contributions.values().any(|&count| count > 1));
    let is_valid = promised(expected) == promised(computed) && (op.is_idempotent() || !repeated);
    let found = check(plans, &promises(expected, op));
    let reordered = matches!(&found, Err(fault) if matches!(fault.kind, FaultKind::DifferentBits { .. }));
    prop_assert!(found.is_ok() == is_valid || is_valid && reordered && !op.is_idempotent(), "{:?}", found);
    Ok(())
}

proptest! {
    #[test]
    fn every_element_equals_the_sequential_result(
        (p, steps) in worlds(),
        op in op(),
        segment_bytes in 0..20usize,
    ) {
        let (plans, computed) = (plans(p, &steps, op), computed(p, &steps));
        compare_with_checker(&plans, &computed, &computed, op)?;
        compare_with_checker(&segmented(&plans, segment_bytes), &computed, &computed, op)?;
        // In step order every message is received at the moment it is sent.
        check_rendezvous(&plans).unwrap();
        cost_s(&plans, &Model::ROUNDS).unwrap();
    }

    #[test]
    fn a_changed_step_is_found_if_and_only_if_it_changes_an_element(
        (p, steps) in worlds(),
        op in op(),
        place in any::<prop::sample::Index>(),
        other in step(2),
    ) {
        let mut changed = steps.clone();
        changed[place.index(steps.len())] = other;
        compare_with_checker(&plans(p, &changed, op), &computed(p, &steps), &computed(p, &changed), op)?;
    }
}
