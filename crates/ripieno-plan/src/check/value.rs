//! Symbolic values: counted contributions in place of numbers.

use crate::plan::{Constant, Op};
use crate::span::Buffer;
use alloc::vec;
use alloc::vec::Vec;

/// The origin of a contribution: bytes in the initial buffers of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Contribution {
    pub(crate) rank: usize,
    pub(crate) buffer: Buffer,
    pub(crate) start_bytes: usize,
}

/// A multiset of contributions with the operation that combined them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SymbolicValue {
    /// Sorted by origin.
    pub(crate) counts: Vec<(Contribution, u32)>,
    /// The operation that combined the contributions; `None` for a single one.
    ///
    /// A constant has no contributions. Its operation is the operation with this identity; `None` means zero, the
    /// identity of sum, or and xor.
    pub(crate) op: Option<Op>,
    /// Hash of the combination tree, without the order of the two operands of a combination. Equal trees give equal
    /// bits.
    pub(crate) tree: u64,
}

impl SymbolicValue {
    /// Create the initial value at `source`.
    pub(crate) fn initial(source: Contribution) -> SymbolicValue {
        let tree = mix_hash(mix_hash(source.rank as u64, u64::from(source.buffer.0)), source.start_bytes as u64);
        SymbolicValue { counts: vec![(source, 1)], op: None, tree }
    }

    /// Whether this is the initial content of [`Buffer::SCRATCH`], which is undefined.
    pub(crate) fn is_undefined(&self) -> bool {
        matches!(self.counts[..], [(source, _)] if source.buffer == Buffer::SCRATCH)
    }

    /// Create a value without contributions.
    pub(crate) fn constant(constant: Constant) -> SymbolicValue {
        let op = match constant {
            Constant::Zero | Constant::Identity(Op::Sum | Op::Or | Op::Xor) => None,
            Constant::Identity(op) => Some(op),
        };
        SymbolicValue { counts: Vec::new(), op, tree: 0 }
    }

    /// Return the combination of both values, or `None` if it is invalid.
    ///
    /// A combination is invalid in three cases. An operand was combined with another operation. An operand is a
    /// constant, but not the identity of this operation. The operation requires rank order, and the operands violate
    /// it.
    pub(crate) fn combined(&self, other: &SymbolicValue, op: Op) -> Option<SymbolicValue> {
        let fits_any_op = |value: &SymbolicValue| {
            !value.counts.is_empty() || *value == SymbolicValue::constant(Constant::Identity(op))
        };
        let fits = |value: &SymbolicValue| value.op.map_or_else(|| fits_any_op(value), |before| before == op);
        if !fits(self) || !fits(other) || !(op.is_commutative() || self.is_before(other)) {
            return None;
        }
        if self.counts.is_empty() && other.counts.is_empty() {
            return Some(SymbolicValue::constant(Constant::Identity(op)));
        }
        if self.counts.is_empty() || other.counts.is_empty() {
            let value = if self.counts.is_empty() { other } else { self };
            // Combining with an identity changes nothing, except that zero added to -0.0 gives 0.0.
            let tree = if op == Op::Sum { mix_hash(0, value.tree) } else { value.tree };
            return Some(SymbolicValue { tree, ..value.clone() });
        }
        let tree = match op.is_commutative() {
            true => mix_hash(self.tree.min(other.tree), self.tree.max(other.tree)),
            false => mix_hash(self.tree, other.tree),
        };
        Some(SymbolicValue { counts: merge_counts(&self.counts, &other.counts), op: Some(op), tree })
    }

    /// Whether all contributing ranks are lower than the ranks of `other`.
    fn is_before(&self, other: &SymbolicValue) -> bool {
        let ends = (self.counts.last(), other.counts.first());
        matches!(ends, (Some((last, _)), Some((first, _))) if last.rank < first.rank)
    }
}

fn merge_counts(left: &[(Contribution, u32)], right: &[(Contribution, u32)]) -> Vec<(Contribution, u32)> {
    let mut counts = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(&&(l, l_count)), Some(&&(r, r_count))) = (left.peek(), right.peek()) {
        counts.push((l.min(r), l_count * u32::from(l <= r) + r_count * u32::from(r <= l)));
        if l <= r {
            left.next();
        }
        if r <= l {
            right.next();
        }
    }
    counts.extend(left);
    counts.extend(right);
    counts
}

fn mix_hash(left: u64, right: u64) -> u64 {
    let mut hash = left.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ right.wrapping_add(0xd1b5_4a32_d192_ed03);
    hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ (hash >> 29)
}
