//! Cyclic runs of chunks: their spans, and the hops and rounds of algorithms that exchange them.

use crate::Span;
use crate::theory::ceil_log2;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// Return the spans of `count` chunks, starting with chunk `first`: one span, or two if the run wraps around.
pub(crate) fn spans(chunks: &[Span], first: usize, count: usize) -> Vec<Span> {
    let before_wrap = count.min(chunks.len() - first);
    let runs = [first..first + before_wrap, 0..count - before_wrap];
    runs.into_iter().filter(|run| !run.is_empty()).map(|run| Span::joined(&chunks[run])).collect()
}

/// Return the hops of `times` passes that halve or double runs of chunks. If `p` is not a power of two, the first round
/// may leave some chunks to the next round. A run that wraps around also needs a second message on the link.
pub(crate) fn hops(times: usize, p: usize) -> RangeInclusive<usize> {
    times * p.ilog2() as usize..=times * ceil_log2(p) * if p.is_power_of_two() { 1 } else { 2 }
}

/// Return the rounds of these passes: ranks with a run of one message wait for ranks with two.
pub(crate) fn rounds(times: usize, p: usize) -> RangeInclusive<usize> {
    times * ceil_log2(p)..=times * ceil_log2(p) * if p.is_power_of_two() { 1 } else { 3 }
}
