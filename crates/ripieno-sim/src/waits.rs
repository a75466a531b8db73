//! Waits: limit the position of an operation by the positions of earlier operations.
//!
//! A position is the number of bytes that have passed through an operation. As in the executor, an operation waits for
//! earlier operations of its rank on the same bytes, and whole segments pass at a time. Bytes in transmission belong to
//! the network, so their memory may be overwritten. An [`OperationWait`] is a linear bound. Until the other
//! operation has reached `release`, the waiting operation may only be as far beyond `at` as the other operation is
//! beyond `threshold`.

use ripieno_plan::{Buffer, Operation, Plan, Span};
use std::collections::BTreeMap;

/// A wait of one operation for another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OperationWait {
    /// The operation that is waited for.
    pub(crate) on: u32,
    /// The waiting operation.
    pub(crate) by: u32,
    /// The operation need not wait before this position.
    pub(crate) at: f64,
    /// The waiting operation continues once the other operation has reached this position.
    pub(crate) threshold: f64,
    /// The wait ends once the other operation has reached this position.
    pub(crate) release: f64,
}

/// Accesses to a piece of a buffer so far.
#[derive(Clone, Debug)]
struct PieceState {
    end_bytes: usize,
    writer: Option<u32>,
    readers: Vec<u32>,
}

/// Pieces of a rank's buffers by start position.
type PieceMap = BTreeMap<(Buffer, usize), PieceState>;

/// Return the waits among the operations of one rank. `number` maps an index in the plan to the operation's number, or
/// `None` if the operation moves no bytes.
pub(crate) fn of_plan(
    plan: &Plan,
    segment_bytes: Option<usize>,
    number: impl Fn(usize) -> Option<u32>,
) -> Vec<OperationWait> {
    let mut pieces = PieceMap::new();
    let mut waits = Vec::new();
    let operations = plan.operations();
    let index_of: BTreeMap<u32, usize> =
        (0..operations.len()).filter_map(|index| number(index).map(|number| (number, index))).collect();
    for (index, operation) in operations.iter().enumerate() {
        let Some(by) = number(index) else { continue };
        let mut conflicts: Vec<(u32, bool, usize, usize)> = Vec::new();
        for (span, writes) in [(operation.reads(), false), (operation.writes(), true)] {
            let Some(span) = span.filter(|span| span.length_bytes > 0) else { continue };
            cut(&mut pieces, span);
            let range = (span.buffer, span.start_bytes)..(span.buffer, span.end_bytes());
            for ((_, start), piece) in pieces.range_mut(range) {
                let readers = piece.readers.iter().filter(|_| writes).copied();
                for on in piece.writer.into_iter().chain(readers).filter(|&on| on != by) {
                    match conflicts
                        .iter_mut()
                        .find(|conflict| conflict.0 == on && conflict.1 == writes && conflict.3 == *start)
                    {
                        Some(before) => before.3 = piece.end_bytes,
                        None => conflicts.push((on, writes, *start, piece.end_bytes)),
                    }
                }
                if writes {
                    (piece.writer, piece.readers) = (Some(by), Vec::new());
                } else {
                    piece.readers.push(by);
                }
            }
        }
        for (on, writes, start, end) in conflicts {
            let ends =
                OverlappingOperations { operation: &operations[index_of[&on]], next: operation, writes, segment_bytes };
            waits.push(ends.wait(on, by, start, end));
        }
    }
    waits
}

/// Split pieces at both ends of `span`, and add pieces for bytes that no operation has accessed.
fn cut(pieces: &mut PieceMap, span: Span) {
    let (buffer, start, end) = (span.buffer, span.start_bytes, span.end_bytes());
    for at in [start, end] {
        if let Some((_, piece)) = pieces.range_mut(..(buffer, at)).next_back().filter(|(key, _)| key.0 == buffer)
            && piece.end_bytes > at
        {
            let rest = piece.clone();
            piece.end_bytes = at;
            pieces.insert((buffer, at), rest);
        }
    }
    let mut next = start;
    let existing: Vec<(usize, usize)> =
        pieces.range((buffer, start)..(buffer, end)).map(|(key, piece)| (key.1, piece.end_bytes)).collect();
    for (from, to) in existing.into_iter().chain([(end, end)]) {
        if next < from {
            pieces.insert((buffer, next), PieceState { end_bytes: from, writer: None, readers: Vec::new() });
        }
        next = to;
    }
}

/// Two operations that access common bytes.
struct OverlappingOperations<'a> {
    operation: &'a Operation,
    next: &'a Operation,
    /// Whether the second operation writes the bytes.
    writes: bool,
    segment_bytes: Option<usize>,
}

impl OverlappingOperations<'_> {
    /// Return the wait of the second operation for the first on the bytes from `start` to `end` of their buffer.
    fn wait(&self, on: u32, by: u32, start: usize, end: usize) -> OperationWait {
        let total_bytes = self.operation.length_bytes();
        if self.operation.rows().is_some() || self.next.rows().is_some() {
            // Rows are packed: the position of a row in the message does not give its position in the span.
            return OperationWait { on, by, at: 0.0, threshold: total_bytes as f64, release: total_bytes as f64 };
        }
        let first = self.span_at(self.operation, start, end);
        let span = if self.writes { self.next.writes() } else { self.next.reads() }
            .expect("the operation accesses these bytes");
        let step = |length: usize| self.segment_bytes.unwrap_or(length).min(length).max(1);
        let (before, after) = (step(total_bytes), step(self.next.length_bytes()));
        let at = (start - span.start_bytes) / after * after;
        // A segment passes when its last byte has passed. Bytes in transmission count as sent.
        let is_sent = matches!(self.operation, Operation::Send { .. });
        let passed = |end: usize| {
            let needed = end - first.start_bytes;
            if is_sent {
                (needed - 1) / before * before
            } else {
                needed.div_ceil(before).saturating_mul(before).min(total_bytes)
            }
        };
        let segment_end = (span.start_bytes + at + after).min(end);
        OperationWait { on, by, at: at as f64, threshold: passed(segment_end) as f64, release: passed(end) as f64 }
    }

    /// Return the span of an earlier operation that contains the bytes from `start` to `end` of the accessed buffer.
    fn span_at(&self, operation: &Operation, start: usize, end: usize) -> Span {
        let buffer = if self.writes { self.next.writes() } else { self.next.reads() }
            .expect("the operation accesses these bytes")
            .buffer;
        let has = |span: &Span| span.buffer == buffer && span.start_bytes <= start && end <= span.end_bytes();
        let written = operation.writes().filter(has);
        written.or_else(|| operation.reads().filter(has)).expect("the operation accesses the piece")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(plan: &Plan, segment_bytes: Option<usize>) -> Vec<(u32, u32, f64, f64, f64)> {
        let all = of_plan(plan, segment_bytes, |index| Some(index as u32));
        all.into_iter().map(|wait| (wait.on, wait.by, wait.at, wait.threshold, wait.release)).collect()
    }

    #[test]
    fn a_relay_waits_for_one_segment_or_for_the_whole_message() {
        let vector = Span::whole(Buffer::MAIN, 100, 1);
        let mut plan = Plan::new();
        plan.receive(0, vector);
        plan.send(2, vector);

        assert_eq!(waits(&plan, Some(32)), [(0, 1, 0.0, 32.0, 100.0)]);
        assert_eq!(waits(&plan, None), [(0, 1, 0.0, 100.0, 100.0)]);
    }

    #[test]
    fn a_send_of_the_second_half_waits_for_the_segments_that_contain_it() {
        let vector = Span::whole(Buffer::MAIN, 100, 1);
        let mut plan = Plan::new();
        plan.receive(0, vector);
        plan.send(2, vector.chunk(1, 2));

        assert_eq!(waits(&plan, Some(32)), [(0, 1, 0.0, 96.0, 100.0)]);
    }

    #[test]
    fn a_send_of_two_received_halves_waits_for_both() {
        let vector = Span::whole(Buffer::MAIN, 128, 1);
        let mut plan = Plan::new();
        plan.receive(0, vector.chunk(0, 2));
        plan.receive(1, vector.chunk(1, 2));
        plan.send(2, vector);

        assert_eq!(waits(&plan, Some(32)), [(0, 2, 0.0, 32.0, 64.0), (1, 2, 64.0, 32.0, 64.0)]);
        assert_eq!(waits(&plan, None), [(0, 2, 0.0, 64.0, 64.0), (1, 2, 0.0, 64.0, 64.0)]);
    }

    #[test]
    fn a_buffer_may_be_overwritten_while_it_is_sent() {
        let vector = Span::whole(Buffer::MAIN, 100, 1);
        let mut plan = Plan::new();
        plan.send(2, vector);
        plan.receive(0, vector);

        assert_eq!(waits(&plan, None), [(0, 1, 0.0, 0.0, 0.0)]);
        assert_eq!(waits(&plan, Some(40)), [(0, 1, 0.0, 0.0, 80.0)]);
    }
}
