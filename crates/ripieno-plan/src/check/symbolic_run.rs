//! Symbolic execution of all ranks' plans over links that hold one piece each, or none.
//!
//! Time is counted in messages: a piece arrives one unit after its message could start. A message can start when its
//! bytes are ready and the previous message on the link has arrived.

use super::value::{Contribution, SymbolicValue};
use crate::fault::{FaultKind, PlanFault};
use crate::matching::Dependencies;
use crate::matching::{Matching, all_done, span_of};
use crate::plan::{Operation, Plan};
use crate::span::Span;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

/// Number of visits of ranks between two interrupt checks.
const INTERRUPT_CHECK_VISIT_COUNT: usize = 16;

/// Capacity of a link between two ranks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// One piece that was sent and not yet received.
    OnePiece,
    /// Unbuffered: a piece is sent at the moment it is received.
    Nothing,
}

/// Execution state of all ranks.
pub(crate) struct SymbolicRun<'a> {
    capacity: Capacity,
    plans: &'a [Plan],
    matching: &'a Matching,
    dependencies: Vec<Dependencies>,
    values: Vec<Vec<Rc<SymbolicValue>>>,
    links: Vec<SymbolicLink>,
    /// Number of finished pieces per rank and local operation.
    local_done: Vec<Vec<usize>>,
}

#[derive(Default)]
struct SymbolicLink {
    sent: MessageCursor,
    received: MessageCursor,
    in_flight: Option<(Rc<SymbolicValue>, f64)>,
    /// Arrival times of the previous and the current message.
    previous_at: f64,
    current_at: f64,
}

/// A position in the message sequence of a link.
#[derive(Default)]
struct MessageCursor {
    message: usize,
    piece: usize,
}

impl MessageCursor {
    /// Advance by one piece. Return whether it was the last piece of its message.
    fn advance(&mut self, piece_count: usize) -> bool {
        self.piece += 1;
        let done = self.piece == piece_count;
        if done {
            *self = MessageCursor { message: self.message + 1, piece: 0 };
        }
        done
    }
}

impl<'a> SymbolicRun<'a> {
    /// Create the state before the first operation of any rank.
    pub(crate) fn new(plans: &'a [Plan], matching: &'a Matching, capacity: Capacity) -> SymbolicRun<'a> {
        let initial = |rank: usize| {
            let pieces = &matching.pieces[rank];
            let source = |span: Span| Contribution { rank, buffer: span.buffer, start_bytes: span.start_bytes };
            (0..pieces.count()).map(|piece| Rc::new(SymbolicValue::initial(source(pieces.span(piece))))).collect()
        };
        SymbolicRun {
            capacity,
            plans,
            matching,
            dependencies: matching.dependencies(),
            values: (0..plans.len()).map(initial).collect(),
            links: matching.links.iter().map(|_| SymbolicLink::default()).collect(),
            local_done: matching.locals.iter().map(|locals| vec![0; locals.len()]).collect(),
        }
    }

    /// Run until every plan has finished or no plan can continue. Return false if `is_interrupted` has ended the run.
    pub(crate) fn finish(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<bool, PlanFault> {
        let mut waiting: VecDeque<usize> = (0..self.plans.len()).collect();
        let mut is_waiting = vec![true; self.plans.len()];
        let mut visit_count = 0;
        while let Some(rank) = waiting.pop_front() {
            visit_count += 1;
            if visit_count % INTERRUPT_CHECK_VISIT_COUNT == 0 && is_interrupted() {
                return Ok(false);
            }
            is_waiting[rank] = false;
            for neighbor in self.progress(rank)? {
                if !is_waiting[neighbor] {
                    is_waiting[neighbor] = true;
                    waiting.push_back(neighbor);
                }
            }
        }
        self.blocked().map(|()| true)
    }

    /// Move all pieces that can move at `rank` and return the ranks that may continue because of them.
    fn progress(&mut self, rank: usize) -> Result<Vec<usize>, PlanFault> {
        let matching = self.matching;
        let mut neighbors = Vec::new();
        let mut moved = true;
        while moved {
            moved = self.local_pieces(rank)?;
            for &link in &matching.incoming[rank] {
                if self.try_receive(link)? {
                    moved = true;
                    neighbors.push(matching.links[link].sender);
                }
            }
            for &link in &matching.outgoing[rank] {
                if self.try_send(link)? {
                    moved = true;
                    neighbors.push(matching.links[link].receiver);
                }
            }
        }
        Ok(neighbors)
    }

    /// Move the next piece of a link at the sender's end, if possible.
    fn try_send(&mut self, link: usize) -> Result<bool, PlanFault> {
        match self.capacity {
            Capacity::OnePiece => self.send_piece(link),
            Capacity::Nothing => Ok(self.is_awaited(link) && self.send_piece(link)? && self.receive_piece(link)?),
        }
    }

    /// Move the next piece of a link at the receiver's end, if possible.
    fn try_receive(&mut self, link: usize) -> Result<bool, PlanFault> {
        match self.capacity {
            Capacity::OnePiece => self.receive_piece(link),
            Capacity::Nothing => self.try_send(link),
        }
    }

    /// Whether the receiver could accept the next piece immediately.
    fn is_awaited(&self, link: usize) -> bool {
        let (matched, sent) = (&self.matching.links[link], &self.links[link].sent);
        matched.messages.get(sent.message).is_some_and(|message| {
            let path = &self.matching.steps[matched.receiver][message.receive].writes;
            path.ready_at(sent.piece, &self.dependencies[matched.receiver]).is_some()
        })
    }

    fn send_piece(&mut self, link: usize) -> Result<bool, PlanFault> {
        let (matched, state) = (&self.matching.links[link], &mut self.links[link]);
        let Some(message) = matched.messages.get(state.sent.message).filter(|_| state.in_flight.is_none()) else {
            return Ok(false);
        };
        let path = &self.matching.steps[matched.sender][message.send].reads;
        let dependencies = &mut self.dependencies[matched.sender];
        let Some(ready_at) = path.ready_at(state.sent.piece, dependencies) else {
            return Ok(false);
        };
        let value = &self.values[matched.sender][path.piece(state.sent.piece)];
        check_initialized(self.plans, matched.sender, message.send, value)?;
        let at = ready_at.max(state.previous_at);
        path.pass(state.sent.piece, dependencies, at);
        state.in_flight = Some((value.clone(), at + 1.0));
        state.current_at = state.current_at.max(at + 1.0);
        if state.sent.advance(path.len()) {
            state.previous_at = state.current_at;
        }
        Ok(true)
    }

    fn receive_piece(&mut self, link: usize) -> Result<bool, PlanFault> {
        let (matched, state) = (&self.matching.links[link], &mut self.links[link]);
        let Some((value, arrives_at)) = &state.in_flight else {
            return Ok(false);
        };
        let (rank, index) = (matched.receiver, matched.messages[state.received.message].receive);
        let path = &self.matching.steps[rank][index].writes;
        let Some(ready_at) = path.ready_at(state.received.piece, &self.dependencies[rank]) else {
            return Ok(false);
        };
        let target = &mut self.values[rank][path.piece(state.received.piece)];
        *target = match self.plans[rank].operations()[index] {
            Operation::Reduce { op, span, .. } => {
                check_initialized(self.plans, rank, index, target)?;
                let fault =
                    || PlanFault { rank, operation: Some(index), span, kind: FaultKind::MixedOperations { op } };
                Rc::new(target.combined(value, op).ok_or_else(fault)?)
            }
            _ => value.clone(),
        };
        path.pass(state.received.piece, &mut self.dependencies[rank], ready_at.max(*arrives_at));
        state.in_flight = None;
        state.received.advance(path.len());
        Ok(true)
    }

    /// Execute the local operations of a rank with ready bytes. Local operations wait for nothing else.
    fn local_pieces(&mut self, rank: usize) -> Result<bool, PlanFault> {
        let (matching, dependencies, values) = (self.matching, &mut self.dependencies[rank], &mut self.values[rank]);
        let mut moved = false;
        for (&index, next) in matching.locals[rank].iter().zip(&mut self.local_done[rank]) {
            let step = &matching.steps[rank][index];
            while *next < step.writes.len() {
                let Some(at) = step.ready_at(*next, dependencies) else {
                    break;
                };
                step.pass(*next, dependencies, at);
                let to = step.writes.piece(*next);
                if step.reads.len() > 0 {
                    check_initialized(self.plans, rank, index, &values[step.reads.piece(*next)])?;
                }
                values[to] = match self.plans[rank].operations()[index] {
                    Operation::Fill { with, .. } => Rc::new(SymbolicValue::constant(with)),
                    Operation::Combine { to: span, op, .. } => {
                        check_initialized(self.plans, rank, index, &values[to])?;
                        let fault = || PlanFault {
                            rank,
                            operation: Some(index),
                            span,
                            kind: FaultKind::MixedOperations { op },
                        };
                        Rc::new(values[to].combined(&values[step.reads.piece(*next)], op).ok_or_else(fault)?)
                    }
                    _ => values[step.reads.piece(*next)].clone(),
                };
                *next += 1;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Iterate over the pieces of `span` on a rank, with the position and value of each.
    pub(crate) fn values_of(&self, rank: usize, span: Span) -> impl Iterator<Item = (Span, &SymbolicValue)> {
        let pieces = &self.matching.pieces[rank];
        pieces.of(span).map(move |piece| (pieces.span(piece), &*self.values[rank][piece]))
    }

    /// Return the length of the longest chain of messages so far.
    pub(crate) fn round_count(&self) -> usize {
        self.links.iter().fold(0.0, |latest: f64, link| latest.max(link.current_at)) as usize
    }

    fn blocked(&self) -> Result<(), PlanFault> {
        let links = self.matching.links.iter().zip(&self.links).flat_map(|(link, state)| {
            let sends = link.messages.get(state.sent.message).map(|message| (link.sender, message.send));
            let receives = link.messages.get(state.received.message).map(|message| (link.receiver, message.receive));
            [sends, receives].into_iter().flatten()
        });
        let locals = self.local_done.iter().enumerate().flat_map(|(rank, done)| {
            let steps = &self.matching.steps[rank];
            let locals = self.matching.locals[rank].iter().zip(done);
            locals.filter(|&(&index, &next)| next < steps[index].writes.len()).map(move |(&index, _)| (rank, index))
        });
        all_done(self.plans, links.chain(locals).collect())
    }
}

/// Check that `value`, which operation `index` of a rank reads, is not the undefined initial content of scratch memory.
fn check_initialized(plans: &[Plan], rank: usize, index: usize, value: &SymbolicValue) -> Result<(), PlanFault> {
    if !value.is_undefined() {
        return Ok(());
    }
    let span = span_of(&plans[rank], index);
    Err(PlanFault { rank, operation: Some(index), span, kind: FaultKind::Uninitialized })
}
