//! Faults that the checker finds in the plans of a collective.

use crate::plan::Op;
use crate::span::Span;
use alloc::vec::Vec;
use core::fmt;

/// A fault in a set of plans, with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFault {
    /// The rank of the faulty plan.
    pub rank: usize,
    /// The operation of the rank's plan, or `None` if the whole plan is faulty.
    pub operation: Option<usize>,
    /// The affected bytes.
    pub span: Span,
    /// The kind of fault.
    pub kind: FaultKind,
}

/// Kinds of faults in a set of plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The operation names a peer that does not exist, or its own rank.
    NoSuchPeer {
        /// The peer.
        peer: usize,
    },
    /// The peer has no operation that receives these bytes.
    Undelivered {
        /// The receiver.
        to: usize,
    },
    /// The peer has no operation that sends these bytes.
    NeverSent {
        /// The sender.
        from: usize,
    },
    /// The operation receives a different number of bytes than its peer sends, or writes a different number than it
    /// reads.
    SizeMismatch {
        /// The sender.
        from: usize,
        /// The sender's operation.
        send: usize,
        /// Number of bytes sent.
        sent_bytes: usize,
    },
    /// A copy or a combination inside a rank has a source and a target that share bytes.
    Overlapping,
    /// The operation selects a row outside of its span.
    NoSuchRow {
        /// The row.
        row: u32,
        /// Number of complete rows in the span.
        row_count: usize,
    },
    /// No rank can continue.
    Deadlock {
        /// The first unfinished operation of every unfinished rank: rank, operation.
        blocked: Vec<(usize, usize)>,
    },
    /// An invalid combination of one of three kinds: values of different operations, a constant that is not the
    /// operation's identity, or operands of a function in the wrong order.
    MixedOperations {
        /// The operation of the faulty step.
        op: Op,
    },
    /// A promised contribution is missing.
    Missing {
        /// The rank that contributes it.
        source: usize,
    },
    /// A contribution occurs more than once.
    Repeated {
        /// The rank that contributes it.
        source: usize,
        /// Number of occurrences.
        count: u32,
    },
    /// A contribution occurs that was not promised, or it comes from another position than promised.
    Foreign {
        /// The rank that contributes it.
        source: usize,
    },
    /// The contributions were combined with another operation than promised, or the constant differs.
    WrongOperation {
        /// The operation found, or the operation that has this identity; `None` if neither exists.
        found: Option<Op>,
    },
    /// Two ranks combined the same contributions in different orders, so rounding makes their results differ.
    DifferentBits {
        /// The other rank.
        other: usize,
    },
}

impl fmt::Display for PlanFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span { buffer, start_bytes, .. } = self.span;
        write!(f, "rank {}, ", self.rank)?;
        if let Some(operation) = self.operation {
            write!(f, "operation {operation}, ")?;
        }
        write!(f, "buffer {} bytes {start_bytes}..{}: {}", buffer.0, self.span.end_bytes(), self.kind)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::NoSuchPeer { peer } => write!(f, "there is no peer {peer}"),
            FaultKind::Undelivered { to } => write!(f, "rank {to} never receives these bytes"),
            FaultKind::NeverSent { from } => write!(f, "rank {from} never sends these bytes"),
            FaultKind::SizeMismatch { from, send, sent_bytes } => {
                write!(f, "operation {send} of rank {from} sends {sent_bytes} bytes")
            }
            FaultKind::Overlapping => write!(f, "source and target overlap"),
            FaultKind::NoSuchRow { row, row_count } => write!(f, "there is no row {row} among {row_count}"),
            FaultKind::Deadlock { blocked } => write!(f, "deadlock; (rank, operation) that wait: {blocked:?}"),
            FaultKind::MixedOperations { op } => {
                let order = if op.is_commutative() { "" } else { ", or the operands are not in rank order" };
                write!(f, "{op:?} is applied to a value or a constant of another operation{order}")
            }
            FaultKind::Missing { source } => write!(f, "the contribution of rank {source} is missing"),
            FaultKind::Repeated { source, count } => {
                write!(f, "the contribution of rank {source} occurs {count} times")
            }
            FaultKind::Foreign { source } => write!(f, "bytes of rank {source} that were not promised"),
            FaultKind::WrongOperation { found } => write!(f, "combined with {found:?}"),
            FaultKind::DifferentBits { other } => write!(f, "rank {other} combined in another order"),
        }
    }
}

impl core::error::Error for PlanFault {}
