//! Pieces: sections of a rank's buffers that no operation of any rank divides further.

use crate::span::{Buffer, Span};
use alloc::vec::Vec;
use core::ops::Range;

/// The cut points of one rank's buffers. Piece `i` extends from point `i` to point `i + 1`.
#[derive(Debug)]
pub(crate) struct CutPoints {
    points: Vec<(Buffer, usize)>,
}

impl CutPoints {
    /// Cut at both ends of every span.
    pub(crate) fn at(spans: impl Iterator<Item = Span>) -> CutPoints {
        let ends = |span: Span| [(span.buffer, span.start_bytes), (span.buffer, span.end_bytes())];
        let mut points: Vec<_> = spans.filter(|span| span.length_bytes > 0).flat_map(ends).collect();
        // Spans mostly arrive in ascending order; a stable sort merges such runs.
        points.sort();
        points.dedup();
        CutPoints { points }
    }

    /// Return the number of piece indices.
    pub(crate) fn count(&self) -> usize {
        self.points.len()
    }

    /// Return the pieces of a span. The buffers must be cut at both of its ends.
    pub(crate) fn of(&self, span: Span) -> Range<usize> {
        if span.length_bytes == 0 {
            return 0..0;
        }
        self.position(span.buffer, span.start_bytes)..self.position(span.buffer, span.end_bytes())
    }

    /// Return the span of a piece.
    pub(crate) fn span(&self, piece: usize) -> Span {
        let (buffer, start_bytes) = self.points[piece];
        let end_bytes = self.points.get(piece + 1).filter(|next| next.0 == buffer).map_or(start_bytes, |next| next.1);
        Span { buffer, start_bytes, length_bytes: end_bytes - start_bytes, element_bytes: 1 }
    }

    /// Return the cut points that must be added to `other` to move the bytes of `span` to `target` piece by piece.
    pub(crate) fn missing_in(&self, span: Span, other: &CutPoints, target: Span) -> Vec<(Buffer, usize)> {
        let Range { start, end } = self.of(span);
        self.points[start..end]
            .iter()
            .skip(1)
            .map(|point| (target.buffer, target.start_bytes + point.1 - span.start_bytes))
            .filter(|point| other.points.binary_search(point).is_err())
            .collect()
    }

    /// Add points. Return whether there were any.
    pub(crate) fn add(&mut self, points: Vec<(Buffer, usize)>) -> bool {
        if points.is_empty() {
            return false;
        }
        self.points.extend(points);
        self.points.sort();
        self.points.dedup();
        true
    }

    fn position(&self, buffer: Buffer, at_bytes: usize) -> usize {
        self.points.partition_point(|point| *point < (buffer, at_bytes))
    }
}
