//! Plan checker: executes the plans of all ranks symbolically and verifies the promise of a collective.
//!
//! A value is the multiset of its contributions instead of a number, so a duplicate or a lost contribution is always
//! detected. Every link holds at most one piece, so a plan that passes does not rely on larger buffers. Pieces move in
//! any order that [`Plan`] allows. The result does not depend on the schedule, because operations that conflict on a
//! byte keep their order.

mod promise;
mod symbolic_run;
mod value;

pub use promise::{Promise, PromisedSpan, promises};

use crate::fault::{FaultKind, PlanFault};
use crate::matching::Matching;
use crate::matching::byte_runs;
use crate::plan::{Constant, Op, Operation, Plan};
use crate::span::Span;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use symbolic_run::{Capacity, SymbolicRun};
use value::{Contribution, SymbolicValue};

/// Traffic and rounds of a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Traffic per rank.
    pub ranks: Vec<RankTraffic>,
    /// Length of the longest chain of dependent messages: each message waits for the bytes or the link of the previous
    /// message. A rank may communicate with all others at the same time. The [cost](crate::simulate) does not assume
    /// this.
    pub round_count: usize,
}

/// Traffic of one rank. Messages without bytes do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankTraffic {
    /// Bytes sent.
    pub sent_bytes: usize,
    /// Bytes received.
    pub received_bytes: usize,
    /// Bytes received and combined.
    pub reduced_bytes: usize,
    /// Messages sent.
    pub sent_count: usize,
    /// Messages received.
    pub received_count: usize,
}

/// Execute one plan per rank and verify the final contents of each rank.
pub fn check(plans: &[Plan], promises: &[Promise]) -> Result<Report, PlanFault> {
    let report = check_unless(plans, promises, &|| false)?;
    Ok(report.expect("no interrupt ends this check"))
}

/// Like [`check`], but return `None` soon after `is_interrupted` holds.
pub fn check_unless(
    plans: &[Plan],
    promises: &[Promise],
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Option<Report>, PlanFault> {
    assert_eq!(plans.len(), promises.len(), "every rank has a plan and a promise");
    let promised = promises.iter().enumerate().flat_map(|(rank, promise)| promise.spans.iter().map(move |p| (rank, p)));
    let ends = promised.clone().flat_map(|(rank, part)| part.sources.iter().copied().chain([(rank, part.span)]));
    let Some(matching) = Matching::new_unless(plans, ends, is_interrupted)? else { return Ok(None) };

    let mut run = SymbolicRun::new(plans, &matching, Capacity::OnePiece);
    if !run.finish(is_interrupted)? {
        return Ok(None);
    }
    let mut trees = CombineTrees::new();
    for (rank, part) in promised {
        if is_interrupted() {
            return Ok(None);
        }
        for (piece, value) in run.values_of(rank, part.span) {
            let fault = |kind| PlanFault { rank, operation: last_write(&plans[rank], piece), span: piece, kind };
            check_promised_span(part, piece, value).map_err(fault)?;
            check_combine_tree(rank, value, &mut trees).map_err(fault)?;
        }
    }
    Ok(Some(Report { ranks: traffic(plans, &matching), round_count: run.round_count() }))
}

/// Check that the plans finish over unbuffered links, where a send only transfers bytes that the receiver accepts at
/// that moment.
///
/// For such plans the receiver may read the sender's memory without a copy (zero-copy send).
pub fn check_rendezvous(plans: &[Plan]) -> Result<(), PlanFault> {
    check_rendezvous_unless(plans, &|| false).map(|_| ())
}

/// Like [`check_rendezvous`], but return false soon after `is_interrupted` holds.
pub fn check_rendezvous_unless(plans: &[Plan], is_interrupted: &dyn Fn() -> bool) -> Result<bool, PlanFault> {
    match Matching::new_unless(plans, core::iter::empty(), is_interrupted)? {
        Some(matching) => SymbolicRun::new(plans, &matching, Capacity::Nothing).finish(is_interrupted),
        None => Ok(false),
    }
}

/// The operation and the element size that all operations of a set of plans share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonElements {
    /// The reduction operation; `None` if no operation combines.
    pub op: Option<Op>,
    /// Size of an element in bytes; `None` without operations.
    pub element_bytes: Option<usize>,
}

/// Check that all plans combine by the same operation and have elements of the same size, as a call requires.
pub fn check_common_elements(plans: &[Plan]) -> Result<CommonElements, PlanFault> {
    let mut common = CommonElements { op: None, element_bytes: None };
    for (rank, plan) in plans.iter().enumerate() {
        for (index, operation) in plan.operations().iter().enumerate() {
            let fault = |span, kind| PlanFault { rank, operation: Some(index), span, kind };
            for span in operation.reads().into_iter().chain(operation.writes()) {
                let first_bytes = *common.element_bytes.get_or_insert(span.element_bytes);
                if span.element_bytes != first_bytes {
                    return Err(fault(span, FaultKind::OtherElements { first_bytes }));
                }
            }
            if let Operation::Reduce { op, span, .. }
            | Operation::Combine { op, to: span, .. }
            | Operation::Fill { with: Constant::Identity(op), span, .. } = *operation
            {
                let first = *common.op.get_or_insert(op);
                if op != first {
                    return Err(fault(span, FaultKind::OtherOperation { first }));
                }
            }
        }
    }
    Ok(common)
}

/// The combination tree of each combined piece, and the first rank that ended with it. A piece is identified by its
/// first contribution and the number of contributions.
type CombineTrees = BTreeMap<(Contribution, usize), (u64, usize)>;

/// Check that `value` equals the value that `part` promises for its `piece`.
fn check_promised_span(part: &PromisedSpan, piece: Span, value: &SymbolicValue) -> Result<(), FaultKind> {
    let offset_bytes = piece.start_bytes - part.span.start_bytes;
    let source = |&(rank, span): &(usize, Span)| {
        assert_eq!(span.length_bytes, part.span.length_bytes, "a promised source has the length of its span");
        Contribution { rank, buffer: span.buffer, start_bytes: span.start_bytes + offset_bytes }
    };
    let mut promised: Vec<Contribution> = part.sources.iter().map(source).collect();
    promised.sort_unstable();

    let counts = &value.counts;
    let is_complete = counts.iter().map(|(source, _)| source).eq(&promised);
    let position = |source: &Contribution| counts.binary_search_by_key(source, |&(source, _)| source).ok();
    if !is_complete && let Some((foreign, _)) = counts.iter().find(|(it, _)| promised.binary_search(it).is_err()) {
        return Err(FaultKind::Foreign { source: foreign.rank });
    }
    if !is_complete && let Some(missing) = promised.iter().find(|source| position(source).is_none()) {
        return Err(FaultKind::Missing { source: missing.rank });
    }
    let once = !value.op.is_some_and(Op::is_idempotent);
    if let Some(&(source, count)) = counts.iter().find(|&&(_, count)| once && count > 1) {
        return Err(FaultKind::Repeated { source: source.rank, count });
    }
    let op = match promised.len() {
        0 => SymbolicValue::constant(part.op.map_or(Constant::Zero, Constant::Identity)).op,
        1 => value.op,
        _ => part.op,
    };
    if value.op == op { Ok(()) } else { Err(FaultKind::WrongOperation { found: value.op }) }
}

/// Check that all ranks with the same contributions combined them in the same order, if rounding depends on the order.
fn check_combine_tree(rank: usize, value: &SymbolicValue, trees: &mut CombineTrees) -> Result<(), FaultKind> {
    let Some(&(first, _)) = value.counts.first().filter(|_| !value.op.is_none_or(Op::is_idempotent)) else {
        return Ok(());
    };
    let &mut (tree, other) = trees.entry((first, value.counts.len())).or_insert((value.tree, rank));
    if tree == value.tree { Ok(()) } else { Err(FaultKind::DifferentBits { other }) }
}

fn last_write(plan: &Plan, piece: Span) -> Option<usize> {
    plan.operations().iter().rposition(|operation| byte_runs::written(operation).any(|span| span.overlaps(&piece)))
}

fn traffic(plans: &[Plan], matching: &Matching) -> Vec<RankTraffic> {
    let mut ranks = vec![RankTraffic::default(); plans.len()];
    for link in &matching.links {
        for message in &link.messages {
            let sender = &mut ranks[link.sender];
            sender.sent_bytes += message.length_bytes;
            sender.sent_count += 1;
            let receiver = &mut ranks[link.receiver];
            receiver.received_bytes += message.length_bytes;
            receiver.received_count += 1;
            if matches!(plans[link.receiver].operations()[message.receive], Operation::Reduce { .. }) {
                receiver.reduced_bytes += message.length_bytes;
            }
        }
    }
    ranks
}
