//! Runs of chunks around the ring.

use crate::Span;
use crate::theory::ceil_log2;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// `count` of the chunks, from chunk `first` on: one span, or two where they go on from the last to the first.
pub(crate) fn spans(chunks: &[Span], first: usize, count: usize) -> Vec<Span> {
    let before_wrap = count.min(chunks.len() - first);
    let runs = [first..first + before_wrap, 0..count - before_wrap];
    runs.into_iter().filter(|run| !run.is_empty()).map(|run| Span::joined(&chunks[run])).collect()
}

/// Hops of `times` passes that halve or double runs of chunks. Where `p` is no power of two, the first round may leave
/// some chunks to the next, and where a run wraps around, a second message follows on the link.
pub(crate) fn hops(times: usize, p: usize) -> RangeInclusive<usize> {
    times * p.ilog2() as usize..=times * ceil_log2(p) * if p.is_power_of_two() { 1 } else { 2 }
}

/// Rounds of the same: ranks whose run is one message wait for those that have two.
pub(crate) fn rounds(times: usize, p: usize) -> RangeInclusive<usize> {
    times * ceil_log2(p)..=times * ceil_log2(p) * if p.is_power_of_two() { 1 } else { 3 }
}
