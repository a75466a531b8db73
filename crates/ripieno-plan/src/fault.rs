//! Faults that the checker finds in the plans of a collective.

use crate::plan::Op;
use crate::span::Span;
use alloc::format;
use alloc::string::{String, ToString};
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
    /// The operation reads bytes of [`Buffer::SCRATCH`](crate::Buffer::SCRATCH) that no earlier operation has written.
    Uninitialized,
    /// The operation combines by another reduction operation than the first one of all plans.
    OtherOperation {
        /// The first reduction operation.
        first: Op,
    },
    /// The operation has elements of another size than the first one of all plans.
    OtherElements {
        /// Element size of the first operation in bytes.
        first_bytes: usize,
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

impl PlanFault {
    /// Return the operations that wait in a deadlock, one per waiting rank: rank and operation.
    pub fn waiting(&self) -> &[(usize, usize)] {
        if let FaultKind::Deadlock { blocked } = &self.kind { blocked } else { &[] }
    }
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
                write!(f, "{} is applied to a value or a constant of another operation{order}", op.name())
            }
            FaultKind::Uninitialized => write!(f, "it reads scratch memory that no earlier step has written"),
            FaultKind::OtherOperation { first } => write!(f, "the plans already combine by {}", first.name()),
            FaultKind::OtherElements { first_bytes } => {
                write!(f, "the first step of all plans has elements of {first_bytes} bytes")
            }
            FaultKind::Missing { source } => write!(f, "the contribution of rank {source} is missing"),
            FaultKind::Repeated { source, count } => {
                write!(f, "the contribution of rank {source} occurs {count} times")
            }
            FaultKind::Foreign { source } => write!(f, "bytes of rank {source} that were not promised"),
            FaultKind::WrongOperation { found: Some(found) } => write!(f, "combined by {}", found.name()),
            FaultKind::WrongOperation { found: None } => write!(f, "not combined"),
            FaultKind::DifferentBits { other } => write!(f, "rank {other} combined in another order"),
        }
    }
}

impl FaultKind {
    /// Return advice on how to repair the plans.
    pub fn advice(&self) -> String {
        match self {
            FaultKind::NoSuchPeer { .. } => "name another rank that has a plan".to_string(),
            FaultKind::Undelivered { to } => {
                format!("add the matching receive or reduce to the plan of rank {to}, or remove this send")
            }
            FaultKind::NeverSent { from } => {
                format!("add the matching send to the plan of rank {from}, or remove this step")
            }
            FaultKind::SizeMismatch { from, send, .. } => {
                format!("give this step as many elements as step {send} of rank {from}, in the order of the sends")
            }
            FaultKind::Overlapping => "copy through scratch memory".to_string(),
            FaultKind::NoSuchRow { .. } => "select rows within the span".to_string(),
            FaultKind::Deadlock { .. } => {
                "let one of the waiting ranks send bytes that do not depend on bytes that it has yet to receive"
                    .to_string()
            }
            FaultKind::MixedOperations { .. } => {
                "combine the bytes of one result by one operation, and fill with its identity".to_string()
            }
            FaultKind::Uninitialized => "receive, copy or fill these bytes in an earlier step".to_string(),
            FaultKind::OtherOperation { first } => {
                format!("use {} in all steps; run a second set of plans for another operation", first.name())
            }
            FaultKind::OtherElements { .. } => "use spans of elements of one size in all plans".to_string(),
            FaultKind::Missing { source } => {
                format!("send the bytes of rank {source} here, directly or combined by other ranks")
            }
            FaultKind::Repeated { source, .. } => {
                format!("remove all but one of the operations that bring the bytes of rank {source} here")
            }
            FaultKind::Foreign { .. } => {
                "write the result to these bytes; check this span and the span of the matching send".to_string()
            }
            FaultKind::WrongOperation { .. } => "combine by the operation of the collective".to_string(),
            FaultKind::DifferentBits { other } => {
                format!("combine in the same order as rank {other}, or let one rank complete the value and send it")
            }
        }
    }
}

impl core::error::Error for PlanFault {}
