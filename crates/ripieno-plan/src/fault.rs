//! Faults: what the checker finds wrong with the plans of a collective.

use crate::plan::Op;
use crate::span::Span;
use alloc::vec::Vec;
use core::fmt;

/// A fault in a set of plans, and where it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFault {
    /// The rank whose plan shows it.
    pub rank: usize,
    /// The operation of that rank's plan; `None` if the plan as a whole is at fault.
    pub operation: Option<usize>,
    /// The bytes it shows on.
    pub span: Span,
    /// What is wrong.
    pub what: FaultKind,
}

/// What is wrong with a set of plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The operation names a peer that does not exist, or the rank itself.
    NoSuchPeer {
        /// The peer.
        peer: usize,
    },
    /// The peer has no operation that takes these bytes.
    Undelivered {
        /// The receiver.
        to: usize,
    },
    /// The peer has no operation that sends these bytes.
    NeverSent {
        /// The sender.
        from: usize,
    },
    /// The operation receives another number of bytes than the peer, or its own other end, sends.
    SizeMismatch {
        /// The sender.
        from: usize,
        /// The sender's operation.
        send: usize,
        /// How many bytes it sends.
        sent_bytes: usize,
    },
    /// A copy or a combination inside a rank whose source and target share bytes.
    Overlapping,
    /// The operation chooses a row that its span does not have.
    NoSuchRow {
        /// The row.
        row: u32,
        /// How many whole rows the span has.
        row_count: usize,
    },
    /// No rank can go on.
    Deadlock {
        /// The first unfinished operation of every rank that has one: rank, operation.
        blocked: Vec<(usize, usize)>,
    },
    /// Values of different operations were combined, a constant with an operation that it is no identity of, or values
    /// by a function but not in the order of the ranks.
    MixedOperations {
        /// What the operation combines with.
        op: Op,
    },
    /// A promised contribution is not there.
    Missing {
        /// Whose.
        source: usize,
    },
    /// A contribution is there more than once.
    Repeated {
        /// Whose.
        source: usize,
        /// How often.
        count: u32,
    },
    /// A contribution is there that was not promised, or from another place than promised.
    Foreign {
        /// Whose.
        source: usize,
    },
    /// The contributions were combined with another operation than promised, or another constant is there.
    WrongOperation {
        /// With which, or whose identity; `None` if neither.
        found: Option<Op>,
    },
    /// Another rank combined the same contributions in another order, so rounding makes the results differ.
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
        write!(f, "buffer {} bytes {start_bytes}..{}: {}", buffer.0, self.span.end_bytes(), self.what)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::NoSuchPeer { peer } => write!(f, "there is no peer {peer}"),
            FaultKind::Undelivered { to } => write!(f, "rank {to} never takes these bytes"),
            FaultKind::NeverSent { from } => write!(f, "rank {from} never sends these bytes"),
            FaultKind::SizeMismatch { from, send, sent_bytes } => {
                write!(f, "operation {send} of rank {from} sends {sent_bytes} bytes")
            }
            FaultKind::Overlapping => write!(f, "source and target overlap"),
            FaultKind::NoSuchRow { row, row_count } => write!(f, "there is no row {row} among {row_count}"),
            FaultKind::Deadlock { blocked } => write!(f, "deadlock; (rank, operation) that wait: {blocked:?}"),
            FaultKind::MixedOperations { op } => {
                let or = if op.is_commutative() { "" } else { ", or one of ranks that do not come next" };
                write!(f, "{op:?} meets a value combined otherwise, or a constant of another operation{or}")
            }
            FaultKind::Missing { source } => write!(f, "the contribution of rank {source} is missing"),
            FaultKind::Repeated { source, count } => {
                write!(f, "the contribution of rank {source} is there {count} times")
            }
            FaultKind::Foreign { source } => write!(f, "bytes of rank {source} that do not belong here"),
            FaultKind::WrongOperation { found } => write!(f, "combined with {found:?}"),
            FaultKind::DifferentBits { other } => write!(f, "rank {other} combined in another order"),
        }
    }
}

impl core::error::Error for PlanFault {}
