//! Pulled exchange: every rank receives a block from each other rank, and requests the large blocks.
//!
//! Blocks of at most `eager_bytes` are sent immediately. The sender reserves one byte, the grant, before each
//! larger block. The receiver sends a byte to this position, and the sender's message consists of this byte and the
//! block. So the sender cannot start the message before the grant has arrived. As grant of its `i`-th large block, the
//! receiver sends the last byte of its block `i - pull_limit`. For the first `pull_limit` blocks it sends the byte
//! before the block itself. So at most `pull_limit` large blocks are in flight to a rank at any time.
//!
//! Both blocks of a pair belong to the same round (see `rounds`). On every link the order is: small block, grant, large
//! block. A grant only waits for blocks of earlier rounds, so no circular wait can occur.
//!
//! Cost: `(p-1)·alpha + n·beta` for `n` bytes to other ranks, and for every pulled block `2·alpha` and a byte each way.
//! Source: Zhang and Qiu, "Clustering social images with MapReduce and high performance collective communication"
//! (Twister), section 5.

use super::rounds::partners;
use crate::{Buffer, Group, Plan, Span};
use alloc::vec::Vec;

/// The blocks that one rank sends to, or receives from, all others, contiguous in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeBlocks {
    /// Spans by rank. The span of a pulled block includes the byte before it.
    spans: Vec<Span>,
    eager_bytes: usize,
}

impl ExchangeBlocks {
    /// Lay out blocks of `lengths_bytes`, one for each rank, in `buffer`. Blocks longer than `eager_bytes` are pulled.
    /// The rank's own block must be empty.
    pub fn new(buffer: Buffer, lengths_bytes: &[usize], eager_bytes: usize) -> ExchangeBlocks {
        let mut start_bytes = 0;
        let span = |&length_bytes: &usize| {
            let length_bytes = length_bytes + usize::from(length_bytes > eager_bytes);
            let span = Span { buffer, start_bytes, length_bytes, element_bytes: 1 };
            start_bytes = span.end_bytes();
            span
        };
        ExchangeBlocks { spans: lengths_bytes.iter().map(span).collect(), eager_bytes }
    }

    /// Return the span of the block for, or from, `rank`.
    pub fn span(&self, rank: usize) -> Span {
        let span = self.spans[rank];
        let grant_bytes = usize::from(self.is_pulled(rank));
        Span { start_bytes: span.start_bytes + grant_bytes, length_bytes: span.length_bytes - grant_bytes, ..span }
    }

    /// Whether the receiver requests this block.
    pub fn is_pulled(&self, rank: usize) -> bool {
        self.spans[rank].length_bytes > self.eager_bytes
    }

    /// Return the number of ranks.
    pub fn rank_count(&self) -> usize {
        self.spans.len()
    }

    /// Return the length of the buffer in bytes.
    pub fn total_bytes(&self) -> usize {
        self.spans.last().map_or(0, Span::end_bytes)
    }

    /// Return the byte before the pulled block of `rank`.
    fn grant(&self, rank: usize) -> Span {
        Span { length_bytes: 1, ..self.spans[rank] }
    }
}

/// Plan this rank's part in a pulled exchange. `out` has a block for each rank and `into` a block from each rank. At
/// most `pull_limit` large blocks are in flight to a rank at a time.
pub fn plan(group: &Group, out: &ExchangeBlocks, into: &ExchangeBlocks, pull_limit: usize) -> Plan {
    let rank = group.rank();
    assert!(pull_limit > 0, "the pull limit is positive");
    assert!([out, into].iter().all(|blocks| blocks.spans[rank].length_bytes == 0), "a rank's own block is empty");
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
            let before = pulled.len().checked_sub(pull_limit).map(|earlier| pulled[earlier]);
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
