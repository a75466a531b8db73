//! The pulled exchange: every rank gets the block that each other rank has for it, large ones when it asks for them.
//!
//! Blocks of at most `eager_bytes` are sent at once. Before every larger one lies a byte for its grant: the receiver
//! sends a byte there, and the sender's message is that byte and the block, so it can leave only when the grant has
//! come. The grant of a receiver's `i`-th block is the last byte of its block `i - pulls`, or for the first ones the
//! byte before the block itself: so at most `pulls` of them are on their way to a rank, whatever the others want.
//!
//! Both blocks of a pair belong to the same round (see `rounds`). On every link the small block comes first, then the
//! grant, then the large block: a grant waits for blocks of earlier rounds only, so nothing waits in a circle.
//!
//! Cost: `(p-1)·alpha + n·beta` for `n` bytes to other ranks, and for every pulled block `2·alpha` and a byte each way.
//! Source: Zhang and Qiu, "Clustering social images with MapReduce and high performance collective communication"
//! (Twister), section 5.

use super::rounds::partners;
use crate::{Buffer, Group, Plan, Span};
use alloc::vec::Vec;

/// The blocks of one rank for all others, or from them, one after the other in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeBlocks {
    /// By rank; with the byte before them, where they are pulled.
    spans: Vec<Span>,
    eager_bytes: usize,
}

impl ExchangeBlocks {
    /// Blocks of `lengths_bytes` for, or from, each rank, in `buffer`. Longer ones than `eager_bytes` are pulled. None
    /// is for the rank itself.
    pub fn new(buffer: Buffer, lengths_bytes: &[usize], eager_bytes: usize) -> ExchangeBlocks {
        let mut start_bytes = 0;
        let place = |&length_bytes: &usize| {
            let length_bytes = length_bytes + usize::from(length_bytes > eager_bytes);
            let span = Span { buffer, start_bytes, length_bytes, element_bytes: 1 };
            start_bytes = span.end_bytes();
            span
        };
        ExchangeBlocks { spans: lengths_bytes.iter().map(place).collect(), eager_bytes }
    }

    /// Where the block for, or from, `rank` lies.
    pub fn span(&self, rank: usize) -> Span {
        let span = self.spans[rank];
        let grant_bytes = usize::from(self.is_pulled(rank));
        Span { start_bytes: span.start_bytes + grant_bytes, length_bytes: span.length_bytes - grant_bytes, ..span }
    }

    /// Whether the receiver asks for it.
    pub fn is_pulled(&self, rank: usize) -> bool {
        self.spans[rank].length_bytes > self.eager_bytes
    }

    /// How many ranks there are.
    pub fn rank_count(&self) -> usize {
        self.spans.len()
    }

    /// Bytes of the buffer.
    pub fn total_bytes(&self) -> usize {
        self.spans.last().map_or(0, Span::end_bytes)
    }

    /// The byte before the block of `rank`, which is pulled.
    fn grant(&self, rank: usize) -> Span {
        Span { length_bytes: 1, ..self.spans[rank] }
    }
}

/// This rank's part in a pulled exchange of `out` (for each rank) and `into` (from each rank), with at most `pulls`
/// large blocks on their way to a rank.
pub fn plan(group: &Group, out: &ExchangeBlocks, into: &ExchangeBlocks, pulls: usize) -> Plan {
    let rank = group.rank();
    assert!(pulls > 0, "somebody has to begin");
    assert!([out, into].iter().all(|blocks| blocks.spans[rank].length_bytes == 0), "no link leads to the rank itself");
    let mut plan = Plan::new();
    for peer in partners(rank, group.size()) {
        if !out.is_pulled(peer) {
            plan.send(peer, out.spans[peer]);
        }
        if !into.is_pulled(peer) {
            plan.receive(peer, into.spans[peer]);
        }
    }
    let mut pulled: Vec<Span> = Vec::new();
    for peer in partners(rank, group.size()) {
        if into.is_pulled(peer) {
            let before = pulled.len().checked_sub(pulls).map(|earlier| pulled[earlier]);
            plan.send(peer, before.map_or(into.grant(peer), |before| before.elements(before.length_bytes - 1, 1)));
            pulled.push(into.spans[peer]);
        }
        if out.is_pulled(peer) {
            plan.receive(peer, out.grant(peer));
            plan.send(peer, out.spans[peer]);
        }
        if into.is_pulled(peer) {
            plan.receive(peer, into.spans[peer]);
        }
    }
    plan
}
