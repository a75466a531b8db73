//! A plan: one rank's part in a collective, as a list of operations over spans.
//!
//! Operations to (or from) one peer happen in list order, because a link is a byte stream. Beyond that an operation may
//! advance to a byte as soon as every earlier operation on the same byte has passed it.

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
}

impl Op {
    /// Every operation.
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
        }
    }

    /// Whether combining a value with itself changes nothing, so that a contribution may arrive more than once.
    pub fn is_idempotent(self) -> bool {
        matches!(self, Op::Min | Op::Max | Op::And | Op::Or)
    }
}

/// One step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Bytes of the span flow out.
    Send {
        /// The peer.
        to: usize,
        /// What is read.
        span: Span,
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
        /// How.
        op: Op,
    },
    /// Bytes move inside this rank.
    Copy {
        /// What is read.
        from: Span,
        /// What is written; as long as `from`.
        to: Span,
    },
    /// Bytes inside this rank are combined into others: `to` becomes `to op from`.
    Combine {
        /// What is read.
        from: Span,
        /// What is read and written; as long as `from`.
        to: Span,
        /// How.
        op: Op,
    },
}

impl Operation {
    /// The span that the operation reads but does not change.
    pub fn reads(&self) -> Option<Span> {
        match *self {
            Operation::Send { span, .. } => Some(span),
            Operation::Copy { from, .. } | Operation::Combine { from, .. } => Some(from),
            Operation::Receive { .. } | Operation::Reduce { .. } => None,
        }
    }

    /// The span that the operation changes.
    pub fn writes(&self) -> Option<Span> {
        match *self {
            Operation::Send { .. } => None,
            Operation::Receive { span, .. } | Operation::Reduce { span, .. } => Some(span),
            Operation::Copy { to, .. } | Operation::Combine { to, .. } => Some(to),
        }
    }

    /// How many bytes pass through the operation.
    pub fn length_bytes(&self) -> usize {
        match *self {
            Operation::Send { span, .. } | Operation::Receive { span, .. } | Operation::Reduce { span, .. } => {
                span.length_bytes
            }
            Operation::Copy { from, .. } | Operation::Combine { from, .. } => from.length_bytes,
        }
    }

    /// Whether the operation stays inside the rank.
    pub fn is_local(&self) -> bool {
        matches!(self, Operation::Copy { .. } | Operation::Combine { .. })
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

    /// Bytes of `span` flow to `to`.
    pub fn send(&mut self, to: usize, span: Span) {
        self.operations.push(Operation::Send { to, span });
    }

    /// Bytes from `from` overwrite `span`.
    pub fn receive(&mut self, from: usize, span: Span) {
        self.operations.push(Operation::Receive { from, span });
    }

    /// Bytes from `from` are combined into `span`.
    pub fn reduce(&mut self, from: usize, span: Span, op: Op) {
        self.operations.push(Operation::Reduce { from, span, op });
    }

    /// Bytes of `from` are copied to `to`.
    pub fn copy(&mut self, from: Span, to: Span) {
        assert_eq!(from.length_bytes, to.length_bytes, "a copy keeps the length");
        self.operations.push(Operation::Copy { from, to });
    }

    /// Bytes of `from` are combined into `to`: it becomes `to op from`.
    pub fn combine(&mut self, from: Span, to: Span, op: Op) {
        assert_eq!(from.length_bytes, to.length_bytes, "what is combined is equally long");
        self.operations.push(Operation::Combine { from, to, op });
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
