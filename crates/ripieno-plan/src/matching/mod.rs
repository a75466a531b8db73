//! Matching of a set of plans: the pairs of sends and receives, and the bytes that each operation waits for.
//!
//! The `i`-th send to a peer matches the `i`-th receive or reduce there, and their lengths must be equal. Buffers are
//! cut into pieces (see [`CutPoints`]). An operation passes its pieces in order. It waits at each piece until all
//! conflicting earlier operations of the rank have passed this piece and the pieces since its previous piece.

pub(crate) mod byte_runs;
mod dependency;
mod pieces;

pub(crate) use dependency::Dependencies;

use crate::fault::{FaultKind, PlanFault};
use crate::plan::{Operation, Plan};
use crate::span::Span;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use dependency::{Path, PriorAccesses};
use pieces::CutPoints;

/// All plans of a collective with their matched messages.
pub(crate) struct Matching {
    /// Pieces per rank.
    pub(crate) pieces: Vec<CutPoints>,
    /// Paths per rank and operation.
    pub(crate) steps: Vec<Vec<MatchedStep>>,
    /// All directed pairs of ranks that exchange bytes.
    pub(crate) links: Vec<DirectedLink>,
    /// Per rank: indices of its outgoing links.
    pub(crate) outgoing: Vec<Vec<usize>>,
    /// Per rank: indices of its incoming links.
    pub(crate) incoming: Vec<Vec<usize>>,
    /// Per rank: its local operations.
    pub(crate) locals: Vec<Vec<usize>>,
}

/// Messages from one rank to another, in order. Empty messages are left out.
pub(crate) struct DirectedLink {
    pub(crate) sender: usize,
    pub(crate) receiver: usize,
    pub(crate) messages: Vec<MatchedMessage>,
}

/// A send and its matching receive or reduce.
#[derive(Clone, Copy)]
pub(crate) struct MatchedMessage {
    pub(crate) send: usize,
    pub(crate) receive: usize,
    pub(crate) length_bytes: usize,
}

/// The pieces that an operation passes. If it reads and writes, its stops correspond pairwise; a fill only writes.
#[derive(Default)]
pub(crate) struct MatchedStep {
    pub(crate) reads: Path,
    pub(crate) writes: Path,
}

impl MatchedStep {
    /// Return when a local operation may pass a stop.
    pub(crate) fn ready_at(&self, stop: usize, dependencies: &Dependencies) -> Option<f64> {
        let free_at = self.writes.ready_at(stop, dependencies)?;
        if self.reads.len() == 0 { Some(free_at) } else { Some(free_at.max(self.reads.ready_at(stop, dependencies)?)) }
    }

    /// Pass a stop of a local operation.
    pub(crate) fn pass(&self, stop: usize, dependencies: &mut Dependencies, at: f64) {
        if self.reads.len() > 0 {
            self.reads.pass(stop, dependencies, at);
        }
        self.writes.pass(stop, dependencies, at);
    }
}

impl Matching {
    /// Match one plan per rank. `ends` contains further spans to cut out, with their ranks.
    pub(crate) fn new(plans: &[Plan], ends: impl Iterator<Item = (usize, Span)>) -> Result<Matching, PlanFault> {
        let matching = Matching::new_unless(plans, ends, &|| false)?;
        Ok(matching.expect("no interrupt ends this matching"))
    }

    /// Like [`Matching::new`], but return `None` soon after `is_interrupted` holds.
    pub(crate) fn new_unless(
        plans: &[Plan],
        ends: impl Iterator<Item = (usize, Span)>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Matching>, PlanFault> {
        let links = match_links(plans)?;
        let Some(pieces) = cut(plans, &links, ends, is_interrupted) else { return Ok(None) };
        let mut all_steps = Vec::with_capacity(plans.len());
        for (plan, pieces) in plans.iter().zip(&pieces) {
            if is_interrupted() {
                return Ok(None);
            }
            all_steps.push(steps(plan, pieces));
        }
        let links_by = |end: fn(&DirectedLink) -> usize| {
            let mut by_rank = vec![Vec::new(); plans.len()];
            links.iter().enumerate().for_each(|(index, link)| by_rank[end(link)].push(index));
            by_rank
        };
        let (outgoing, incoming) = (links_by(|link| link.sender), links_by(|link| link.receiver));
        let (steps, locals) = (all_steps, plans.iter().map(locals).collect());
        Ok(Some(Matching { pieces, steps, outgoing, incoming, locals, links }))
    }

    /// Create the initial dependency state of all ranks.
    pub(crate) fn dependencies(&self) -> Vec<Dependencies> {
        self.pieces.iter().map(|pieces| Dependencies::new(pieces.count())).collect()
    }
}

fn match_links(plans: &[Plan]) -> Result<Vec<DirectedLink>, PlanFault> {
    let mut pairs: BTreeMap<(usize, usize), (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (rank, plan) in plans.iter().enumerate() {
        for (index, operation) in plan.operations().iter().enumerate() {
            check_operation(rank, index, operation)?;
            let (peer, span) = match *operation {
                Operation::Send { to, span, .. } => (to, span),
                Operation::Receive { from, span } | Operation::Reduce { from, span, .. } => (from, span),
                Operation::Copy { .. } | Operation::Combine { .. } | Operation::Fill { .. } => continue,
            };
            if peer >= plans.len() || peer == rank {
                return Err(PlanFault { rank, operation: Some(index), span, kind: FaultKind::NoSuchPeer { peer } });
            }
            match operation {
                Operation::Send { .. } => pairs.entry((rank, peer)).or_default().0.push(index),
                _ => pairs.entry((peer, rank)).or_default().1.push(index),
            }
        }
    }
    pairs.into_iter().map(|((sender, receiver), queues)| link(plans, sender, receiver, &queues.0, &queues.1)).collect()
}

/// Check that an operation is valid by itself.
fn check_operation(rank: usize, index: usize, operation: &Operation) -> Result<(), PlanFault> {
    let fault = |span, kind| Err(PlanFault { rank, operation: Some(index), span, kind });
    if let Some((span, rows)) = byte_runs::selected_rows(operation) {
        let row_count = span.length_bytes / rows.row_bytes();
        if let Some(&row) = rows.numbers().last().filter(|&&row| row as usize >= row_count) {
            return fault(span, FaultKind::NoSuchRow { row, row_count });
        }
    }
    if let (Some(from), Some(to)) = (operation.reads(), operation.writes()) {
        let read_bytes = byte_runs::read(operation).map(|run| run.length_bytes).sum();
        if read_bytes != byte_runs::written(operation).map(|run| run.length_bytes).sum() {
            return fault(to, FaultKind::SizeMismatch { from: rank, send: index, sent_bytes: read_bytes });
        }
        if from.overlaps(&to) {
            return fault(to, FaultKind::Overlapping);
        }
    }
    Ok(())
}

fn link(
    plans: &[Plan],
    sender: usize,
    receiver: usize,
    sends: &[usize],
    receives: &[usize],
) -> Result<DirectedLink, PlanFault> {
    let mut messages = Vec::new();
    for (&send, &receive) in sends.iter().zip(receives) {
        let sent_bytes = plans[sender].operations()[send].length_bytes();
        if sent_bytes != plans[receiver].operations()[receive].length_bytes() {
            let span = span_of(&plans[receiver], receive);
            let kind = FaultKind::SizeMismatch { from: sender, send, sent_bytes };
            return Err(PlanFault { rank: receiver, operation: Some(receive), span, kind });
        }
        if sent_bytes > 0 {
            messages.push(MatchedMessage { send, receive, length_bytes: sent_bytes });
        }
    }
    if let Some(&send) = sends.get(receives.len()) {
        let span = span_of(&plans[sender], send);
        return Err(PlanFault {
            rank: sender,
            operation: Some(send),
            span,
            kind: FaultKind::Undelivered { to: receiver },
        });
    }
    if let Some(&receive) = receives.get(sends.len()) {
        let span = span_of(&plans[receiver], receive);
        return Err(PlanFault {
            rank: receiver,
            operation: Some(receive),
            span,
            kind: FaultKind::NeverSent { from: sender },
        });
    }
    Ok(DirectedLink { sender, receiver, messages })
}

/// Return the span that an operation reads, or else the span that it writes.
pub(crate) fn span_of(plan: &Plan, operation: usize) -> Span {
    let operation = &plan.operations()[operation];
    operation.reads().or(operation.writes()).expect("an operation reads or writes a span")
}

/// Check that no operation is left. Unfinished operations wait for each other: a deadlock.
pub(crate) fn all_done(plans: &[Plan], mut unfinished: Vec<(usize, usize)>) -> Result<(), PlanFault> {
    unfinished.sort_unstable();
    unfinished.dedup_by_key(|(rank, _)| *rank);
    let Some(&(rank, index)) = unfinished.first() else {
        return Ok(());
    };
    let span = span_of(&plans[rank], index);
    Err(PlanFault { rank, operation: Some(index), span, kind: FaultKind::Deadlock { blocked: unfinished } })
}

fn locals(plan: &Plan) -> Vec<usize> {
    (0..plan.operations().len()).filter(|&index| plan.operations()[index].is_local()).collect()
}

/// Number of byte movements between two interrupt checks.
const INTERRUPT_CHECK_MOVE_COUNT: usize = 1 << 13;

/// Cut the buffers of all ranks at the ends of all spans. Return `None` if the caller interrupts it.
fn cut(
    plans: &[Plan],
    links: &[DirectedLink],
    ends: impl Iterator<Item = (usize, Span)>,
    is_interrupted: &dyn Fn() -> bool,
) -> Option<Vec<CutPoints>> {
    let runs_of = |operation| byte_runs::read(operation).chain(byte_runs::written(operation));
    let mut spans: Vec<Vec<Span>> =
        plans.iter().map(|plan| plan.operations().iter().flat_map(runs_of).collect()).collect();
    let moves = moves(plans, links);
    // Without rows, the moved runs equal the spans of the operations.
    let has_rows = plans.iter().flat_map(Plan::operations).any(|operation| operation.rows().is_some());
    let moved_runs = moves.iter().flatten().copied().filter(|_| has_rows);
    moved_runs.chain(ends).for_each(|(rank, span)| spans[rank].push(span));
    let mut pieces: Vec<CutPoints> = spans.into_iter().map(|spans| CutPoints::at(spans.into_iter())).collect();

    // Copy the cuts on one side of a message or local operation to the other side until nothing changes.
    let mut changed = true;
    while changed {
        changed = false;
        for (index, &[(here, span), (there, target)]) in moves.iter().enumerate() {
            if index % INTERRUPT_CHECK_MOVE_COUNT == 0 && is_interrupted() {
                return None;
            }
            let missing_there = pieces[here].missing_in(span, &pieces[there], target);
            changed |= pieces[there].add(missing_there);
            let missing_here = pieces[there].missing_in(target, &pieces[here], span);
            changed |= pieces[here].add(missing_here);
        }
    }
    Some(pieces)
}

/// Return the byte movements: rank and run at both ends.
fn moves(plans: &[Plan], links: &[DirectedLink]) -> Vec<[(usize, Span); 2]> {
    let between = |sender: usize, send: usize, receiver: usize, receive: usize| {
        let ends = (&plans[sender].operations()[send], &plans[receiver].operations()[receive]);
        let pairs = byte_runs::pairs(byte_runs::read(ends.0), byte_runs::written(ends.1));
        pairs.map(move |(from, to)| [(sender, from), (receiver, to)])
    };
    let sent = links.iter().flat_map(|link| {
        let messages = link.messages.iter();
        messages.flat_map(move |message| between(link.sender, message.send, link.receiver, message.receive))
    });
    let local = (0..plans.len())
        .flat_map(|rank| locals(&plans[rank]).into_iter().flat_map(move |local| between(rank, local, rank, local)));
    sent.chain(local).collect()
}

fn steps(plan: &Plan, pieces: &CutPoints) -> Vec<MatchedStep> {
    let mut before = vec![(0, 0); pieces.count()];
    let step = |operation: &Operation| MatchedStep {
        reads: path(pieces, byte_runs::read(operation), Path::reading(), &mut before),
        writes: path(pieces, byte_runs::written(operation), Path::writing(), &mut before),
    };
    plan.operations().iter().map(step).collect()
}

/// Create the path along the byte runs of a span.
fn path(pieces: &CutPoints, runs: impl Iterator<Item = Span>, mut path: Path, before: &mut [PriorAccesses]) -> Path {
    let mut end = None;
    for run in runs {
        let pieces = pieces.of(run);
        path.push_gaps(end.unwrap_or(pieces.start)..pieces.start, before);
        end = Some(pieces.end);
        path.push_stops(pieces, before);
    }
    path
}
