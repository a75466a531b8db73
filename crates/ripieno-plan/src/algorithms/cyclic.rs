//! Runs of chunks around the ring.

use crate::Span;
use alloc::vec::Vec;

/// `count` of the chunks, from chunk `first` on: one span, or two where they go on from the last to the first.
pub(crate) fn spans(chunks: &[Span], first: usize, count: usize) -> Vec<Span> {
    let before_wrap = count.min(chunks.len() - first);
    let runs = [first..first + before_wrap, 0..count - before_wrap];
    runs.into_iter().filter(|run| !run.is_empty()).map(|run| Span::joined(&chunks[run])).collect()
}
