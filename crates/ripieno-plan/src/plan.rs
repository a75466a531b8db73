//! Plan: the operations of one rank in a collective, as a list over spans.
//!
//! Operations with the same peer and direction happen in list order, because a link is a byte stream. Otherwise an
//! operation may reach a byte as soon as every earlier operation on this byte has passed it.

use crate::rows::Rows;
use crate::span::{Buffer, Span};
use alloc::vec::Vec;

/// Alignment of spans that move to scratch memory: a cache line.
const ALIGNMENT_BYTES: usize = 64;

/// Operations that combine two elements. All are associative up to rounding, and all except [`Op::Function`] are
/// commutative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Addition; integers wrap around.
    Sum,
    /// Multiplication; integers wrap around.
    Prod,
    /// Minimum; NaN if either operand is NaN.
    Min,
    /// Maximum; NaN if either operand is NaN.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// A function of the caller, which need not be commutative: every combination has its operands in rank order. It
    /// has no identity, so no plan fills with it.
    Function,
}

impl Op {
    /// All built-in operations.
    pub const ALL: [Op; 7] = [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::And, Op::Or, Op::Xor];

    /// Return the public name.
    pub fn name(self) -> &'static str {
        match self {
            Op::Sum => "sum",
            Op::Prod => "prod",
            Op::Min => "min",
            Op::Max => "max",
            Op::And => "and",
            Op::Or => "or",
            Op::Xor => "xor",
            Op::Function => "function",
        }
    }

    /// Whether combining a value with itself changes nothing, so that a contribution may arrive more than once.
    pub fn is_idempotent(self) -> bool {
        matches!(self, Op::Min | Op::Max | Op::And | Op::Or)
    }

    /// Whether the operands may be exchanged.
    pub fn is_commutative(self) -> bool {
        self != Op::Function
    }
}

/// The value written by [`Operation::Fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    /// Zeros.
    Zero,
    /// The identity element of an operation.
    Identity(Op),
}

/// One step of a plan. With `rows`, only these rows of a span are processed, in order and packed on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Send a span to a peer.
    Send {
        /// The peer.
        to: usize,
        /// The source.
        span: Span,
        /// Rows of `span`; `None` for all of it.
        rows: Option<Rows>,
    },
    /// Receive bytes from a peer and overwrite a span.
    Receive {
        /// The peer.
        from: usize,
        /// The target.
        span: Span,
    },
    /// Receive bytes from a peer and combine them into a span.
    Reduce {
        /// The peer.
        from: usize,
        /// The operand and target.
        span: Span,
        /// Rows of `span`; `None` for all of it.
        rows: Option<Rows>,
        /// The operation.
        op: Op,
    },
    /// Copy bytes inside this rank.
    Copy {
        /// The source.
        from: Span,
        /// The target, as long as the selected source.
        to: Span,
        /// Rows of `from`; `None` for all of it.
        rows: Option<Rows>,
    },
    /// Combine bytes inside this rank: `to` becomes `to op from`.
    Combine {
        /// The source.
        from: Span,
        /// The operand and target. Its selected part is as long as `from`.
        to: Span,
        /// Rows of `to`; `None` for all of it.
        rows: Option<Rows>,
        /// The operation.
        op: Op,
    },
    /// Set every element of the span, or of its rows, to a constant.
    Fill {
        /// The target, or the span that contains the rows.
        span: Span,
        /// Rows of `span`; `None` for all of it.
        rows: Option<Rows>,
        /// The constant.
        with: Constant,
    },
}

impl Operation {
    /// Return the span that the operation reads and does not change, or that contains its source rows.
    pub fn reads(&self) -> Option<Span> {
        match *self {
            Operation::Send { span, .. } => Some(span),
            Operation::Copy { from, .. } | Operation::Combine { from, .. } => Some(from),
            Operation::Receive { .. } | Operation::Reduce { .. } | Operation::Fill { .. } => None,
        }
    }

    /// Return the span that the operation changes, or that contains the changed rows.
    pub fn writes(&self) -> Option<Span> {
        match *self {
            Operation::Send { .. } => None,
            Operation::Receive { span, .. } | Operation::Reduce { span, .. } | Operation::Fill { span, .. } => {
                Some(span)
            }
            Operation::Copy { to, .. } | Operation::Combine { to, .. } => Some(to),
        }
    }

    /// Return the selected rows, if the operation selects rows.
    pub fn rows(&self) -> Option<&Rows> {
        match self {
            Operation::Send { rows, .. }
            | Operation::Reduce { rows, .. }
            | Operation::Copy { rows, .. }
            | Operation::Combine { rows, .. }
            | Operation::Fill { rows, .. } => rows.as_ref(),
            Operation::Receive { .. } => None,
        }
    }

    /// Return the number of bytes that the operation processes.
    pub fn length_bytes(&self) -> usize {
        if let Some(rows) = self.rows() {
            return rows.length_bytes();
        }
        match *self {
            Operation::Send { span, .. }
            | Operation::Receive { span, .. }
            | Operation::Reduce { span, .. }
            | Operation::Fill { span, .. } => span.length_bytes,
            Operation::Copy { from, .. } | Operation::Combine { from, .. } => from.length_bytes,
        }
    }

    /// Return the operation with `place` applied to each span.
    fn with_spans(mut self, place: impl Fn(Span) -> Span) -> Operation {
        match &mut self {
            Operation::Send { span, .. }
            | Operation::Receive { span, .. }
            | Operation::Reduce { span, .. }
            | Operation::Fill { span, .. } => *span = place(*span),
            Operation::Copy { from, to, .. } | Operation::Combine { from, to, .. } => {
                (*from, *to) = (place(*from), place(*to));
            }
        }
        self
    }

    /// Whether the operation stays inside the rank.
    pub fn is_local(&self) -> bool {
        matches!(self, Operation::Copy { .. } | Operation::Combine { .. } | Operation::Fill { .. })
    }
}

/// One rank's operations in a collective.
///
/// Planners append operations with the methods named after them, from [`send`](Plan::send) to
/// [`fill_rows`](Plan::fill_rows). [`then`](Plan::then) concatenates plans. Consumers read
/// [`operations`](Plan::operations).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Plan {
    operations: Vec<Operation>,
}

impl Plan {
    /// Create an empty plan.
    pub fn new() -> Plan {
        Plan::default()
    }

    /// Append `operation`.
    pub fn push(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    /// Send `span` to `to`.
    pub fn send(&mut self, to: usize, span: Span) {
        self.operations.push(Operation::Send { to, span, rows: None });
    }

    /// Send `rows` of `span` to `to`.
    pub fn send_rows(&mut self, to: usize, span: Span, rows: Rows) {
        self.operations.push(Operation::Send { to, span, rows: Some(rows) });
    }

    /// Receive bytes from `from` and overwrite `span`.
    pub fn receive(&mut self, from: usize, span: Span) {
        self.operations.push(Operation::Receive { from, span });
    }

    /// Receive bytes from `from` and combine them into `span`.
    pub fn reduce(&mut self, from: usize, span: Span, op: Op) {
        self.operations.push(Operation::Reduce { from, span, rows: None, op });
    }

    /// Receive bytes from `from` and combine them into `rows` of `span`.
    pub fn reduce_rows(&mut self, from: usize, span: Span, rows: Rows, op: Op) {
        self.operations.push(Operation::Reduce { from, span, rows: Some(rows), op });
    }

    /// Copy `from` to `to`.
    pub fn copy(&mut self, from: Span, to: Span) {
        assert_eq!(from.length_bytes, to.length_bytes, "a copy keeps the length");
        self.operations.push(Operation::Copy { from, to, rows: None });
    }

    /// Copy `rows` of `from`, packed, to `to`.
    pub fn copy_rows(&mut self, from: Span, rows: Rows, to: Span) {
        assert_eq!(rows.length_bytes(), to.length_bytes, "a copy keeps the length");
        self.operations.push(Operation::Copy { from, to, rows: Some(rows) });
    }

    /// Combine `from` into `to`: `to` becomes `to op from`.
    pub fn combine(&mut self, from: Span, to: Span, op: Op) {
        assert_eq!(from.length_bytes, to.length_bytes, "both operands have the same length");
        self.operations.push(Operation::Combine { from, to, rows: None, op });
    }

    /// Combine the packed rows in `from` into `rows` of `to`.
    pub fn combine_rows(&mut self, from: Span, to: Span, rows: Rows, op: Op) {
        assert_eq!(from.length_bytes, rows.length_bytes(), "both operands have the same length");
        self.operations.push(Operation::Combine { from, to, rows: Some(rows), op });
    }

    /// Set every element of `span` to `with`.
    pub fn fill(&mut self, span: Span, with: Constant) {
        self.operations.push(Operation::Fill { span, rows: None, with });
    }

    /// Set every element of `rows` of `span` to `with`.
    pub fn fill_rows(&mut self, span: Span, rows: Rows, with: Constant) {
        self.operations.push(Operation::Fill { span, rows: Some(rows), with });
    }

    /// Append `next` to this plan. `next` may start on a byte as soon as this plan has finished with it.
    pub fn then(mut self, next: Plan) -> Plan {
        self.operations.extend(next.operations);
        self
    }

    /// Return this plan with every peer `x` renamed to `rename(x)`.
    pub fn with_peers(mut self, rename: impl Fn(usize) -> usize) -> Plan {
        for operation in &mut self.operations {
            if let Operation::Send { to: peer, .. }
            | Operation::Receive { from: peer, .. }
            | Operation::Reduce { from: peer, .. } = operation
            {
                *peer = rename(*peer);
            }
        }
        self
    }

    /// Return this plan for a main buffer that has only `part` of the layout.
    ///
    /// If the plan uses other parts, too, it runs in scratch memory. A part that the plan writes is copied from there
    /// after the last operation, and any other part is copied to there before the first operation.
    pub fn on_part(self, part: Span) -> Plan {
        let is_inside = |span: Span| span.start_bytes >= part.start_bytes && span.end_bytes() <= part.end_bytes();
        let is_on_part = |span: Span| span.buffer != Buffer::MAIN || span.length_bytes == 0 || is_inside(span);
        let own = part.placed(Buffer::MAIN, 0);
        if self.spans().all(is_on_part) {
            return self.with_spans(|span| match span.buffer {
                Buffer::MAIN if span.length_bytes == 0 => own.elements(0, 0),
                Buffer::MAIN => span.placed(Buffer::MAIN, span.start_bytes - part.start_bytes),
                _ => span,
            });
        }
        let ends = self.spans().filter(|span| span.buffer == Buffer::SCRATCH).map(|span| span.end_bytes());
        let first_bytes = ends.max().unwrap_or(0).next_multiple_of(ALIGNMENT_BYTES);
        let in_scratch = |span: Span| match span.buffer {
            Buffer::MAIN => span.placed(Buffer::SCRATCH, first_bytes + span.start_bytes),
            _ => span,
        };
        let is_result = self.operations.iter().filter_map(Operation::writes).any(|span| span.overlaps(&part));
        let (mut moved, mut copy) = (self.with_spans(in_scratch), Plan::new());
        if is_result {
            moved.copy(in_scratch(part), own);
            return moved;
        }
        copy.copy(own, in_scratch(part));
        copy.then(moved)
    }

    fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.operations.iter().flat_map(|operation| operation.reads().into_iter().chain(operation.writes()))
    }

    fn with_spans(self, place: impl Fn(Span) -> Span) -> Plan {
        Plan { operations: self.operations.into_iter().map(|operation| operation.with_spans(&place)).collect() }
    }

    /// Return the operations in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }
}
