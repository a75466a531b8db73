//! A plan: one rank's part in a collective, as a list of operations over spans.
//!
//! Operations to (or from) one peer happen in list order, because a link is a byte stream. Beyond that an operation may
//! advance to a byte as soon as every earlier operation on the same byte has passed it.

use crate::rows::Rows;
use crate::span::Span;
use alloc::vec::Vec;

/// How two elements become one. All are commutative and associative up to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Addition; wraps around for integers.
    Sum,
    /// Multiplication; wraps around for integers.
    Prod,
    /// The smaller; NaN if either is.
    Min,
    /// The larger; NaN if either is.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// A function of the caller, which need not be commutative: every combination has its operands in the order of the
    /// ranks. It has no identity, so no plan fills by it.
    Function,
}

impl Op {
    /// Every operation that has a meaning of its own.
    pub const ALL: [Op; 7] = [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::And, Op::Or, Op::Xor];

    /// The name that users know.
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

    /// Whether the two operands may change places.
    pub fn is_commutative(self) -> bool {
        self != Op::Function
    }
}

/// What a [`Operation::Fill`] leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    /// Zeros.
    Zero,
    /// What changes nothing that it is combined with.
    Identity(Op),
}

/// One step of a plan. Where it has `rows` they are chosen from a span; what passes through is they alone, one after
/// the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Bytes of the span flow out.
    Send {
        /// The peer.
        to: usize,
        /// What is read.
        span: Span,
        /// Rows of `span`; all of it, if none.
        rows: Option<Rows>,
    },
    /// Bytes flow in and overwrite the span.
    Receive {
        /// The peer.
        from: usize,
        /// What is written.
        span: Span,
    },
    /// Bytes flow in and are combined into the span.
    Reduce {
        /// The peer.
        from: usize,
        /// What is read and written.
        span: Span,
        /// Rows of `span`; all of it, if none.
        rows: Option<Rows>,
        /// How.
        op: Op,
    },
    /// Bytes move inside this rank.
    Copy {
        /// What is read.
        from: Span,
        /// What is written; as long as what is read.
        to: Span,
        /// Rows of `from`; all of it, if none.
        rows: Option<Rows>,
    },
    /// Bytes inside this rank are combined into others: `to` becomes `to op from`.
    Combine {
        /// What is read.
        from: Span,
        /// What is read and written; what of it is, is as long as `from`.
        to: Span,
        /// Rows of `to`; all of it, if none.
        rows: Option<Rows>,
        /// How.
        op: Op,
    },
    /// Every element of the span, or of the rows, becomes a constant, whatever it was.
    Fill {
        /// What is written, or where the rows are chosen from.
        span: Span,
        /// What of it becomes the constant.
        rows: Option<Rows>,
        /// The constant.
        with: Constant,
    },
}

impl Operation {
    /// The span that the operation reads but does not change, or chooses its rows from.
    pub fn reads(&self) -> Option<Span> {
        match *self {
            Operation::Send { span, .. } => Some(span),
            Operation::Copy { from, .. } | Operation::Combine { from, .. } => Some(from),
            Operation::Receive { .. } | Operation::Reduce { .. } | Operation::Fill { .. } => None,
        }
    }

    /// The span that the operation changes, or chooses the rows from that it changes.
    pub fn writes(&self) -> Option<Span> {
        match *self {
            Operation::Send { .. } => None,
            Operation::Receive { span, .. } | Operation::Reduce { span, .. } | Operation::Fill { span, .. } => {
                Some(span)
            }
            Operation::Copy { to, .. } | Operation::Combine { to, .. } => Some(to),
        }
    }

    /// The rows that it sends, reduces, copies, combines or fills, where it chooses.
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

    /// How many bytes pass through the operation.
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

    /// Whether the operation stays inside the rank.
    pub fn is_local(&self) -> bool {
        matches!(self, Operation::Copy { .. } | Operation::Combine { .. } | Operation::Fill { .. })
    }
}

/// One rank's part in a collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    operations: Vec<Operation>,
}

impl Plan {
    /// A plan that does nothing.
    pub fn new() -> Plan {
        Plan::default()
    }

    /// `operation` comes last.
    pub fn push(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    /// Bytes of `span` flow to `to`.
    pub fn send(&mut self, to: usize, span: Span) {
        self.operations.push(Operation::Send { to, span, rows: None });
    }

    /// `rows` of `span` flow to `to`.
    pub fn send_rows(&mut self, to: usize, span: Span, rows: Rows) {
        self.operations.push(Operation::Send { to, span, rows: Some(rows) });
    }

    /// Bytes from `from` overwrite `span`.
    pub fn receive(&mut self, from: usize, span: Span) {
        self.operations.push(Operation::Receive { from, span });
    }

    /// Bytes from `from` are combined into `span`.
    pub fn reduce(&mut self, from: usize, span: Span, op: Op) {
        self.operations.push(Operation::Reduce { from, span, rows: None, op });
    }

    /// Bytes from `from` are combined into `rows` of `span`.
    pub fn reduce_rows(&mut self, from: usize, span: Span, rows: Rows, op: Op) {
        self.operations.push(Operation::Reduce { from, span, rows: Some(rows), op });
    }

    /// Bytes of `from` are copied to `to`.
    pub fn copy(&mut self, from: Span, to: Span) {
        assert_eq!(from.length_bytes, to.length_bytes, "a copy keeps the length");
        self.operations.push(Operation::Copy { from, to, rows: None });
    }

    /// `rows` of `from`, packed, are copied to `to`.
    pub fn copy_rows(&mut self, from: Span, rows: Rows, to: Span) {
        assert_eq!(rows.length_bytes(), to.length_bytes, "a copy keeps the length");
        self.operations.push(Operation::Copy { from, to, rows: Some(rows) });
    }

    /// Bytes of `from` are combined into `to`: it becomes `to op from`.
    pub fn combine(&mut self, from: Span, to: Span, op: Op) {
        assert_eq!(from.length_bytes, to.length_bytes, "what is combined is equally long");
        self.operations.push(Operation::Combine { from, to, rows: None, op });
    }

    /// Bytes of `from`, packed rows, are combined into `rows` of `to`.
    pub fn combine_rows(&mut self, from: Span, to: Span, rows: Rows, op: Op) {
        assert_eq!(from.length_bytes, rows.length_bytes(), "what is combined is equally long");
        self.operations.push(Operation::Combine { from, to, rows: Some(rows), op });
    }

    /// Every element of `span` becomes `with`.
    pub fn fill(&mut self, span: Span, with: Constant) {
        self.operations.push(Operation::Fill { span, rows: None, with });
    }

    /// Every element of `rows` of `span` becomes `with`.
    pub fn fill_rows(&mut self, span: Span, rows: Rows, with: Constant) {
        self.operations.push(Operation::Fill { span, rows: Some(rows), with });
    }

    /// This plan, then `next`; a byte of `next` starts as soon as this plan has left it.
    pub fn then(mut self, next: Plan) -> Plan {
        self.operations.extend(next.operations);
        self
    }

    /// This plan with every peer `x` renamed to `rename(x)`.
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

    /// The operations, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }
}
