//! Spans: byte ranges of numbered buffers, the operands of all operations.

/// The number of a buffer. A collective and its caller agree on the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buffer(pub u16);

impl Buffer {
    /// The buffer that a collective modifies in place.
    pub const MAIN: Buffer = Buffer(0);
    /// The second buffer of collectives with separate input and output (alltoall).
    pub const OUTPUT: Buffer = Buffer(1);
    /// Scratch memory of a plan, with undefined contents. A run provides as many bytes as the plan's spans need.
    pub const SCRATCH: Buffer = Buffer(2);
}

/// `length_bytes` bytes of `buffer`, starting at `start_bytes`. They consist of elements of `element_bytes`, which are
/// never divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The buffer.
    pub buffer: Buffer,
    /// Offset of the first byte.
    pub start_bytes: usize,
    /// Length; a multiple of `element_bytes`.
    pub length_bytes: usize,
    /// Size of an element.
    pub element_bytes: usize,
}

impl Span {
    /// Create the span of a whole buffer with `element_count` elements.
    pub fn whole(buffer: Buffer, element_count: usize, element_bytes: usize) -> Span {
        Span { buffer, start_bytes: 0, length_bytes: element_count * element_bytes, element_bytes }
    }

    /// Return the offset after the last byte.
    pub fn end_bytes(&self) -> usize {
        self.start_bytes + self.length_bytes
    }

    /// Return a span of this length in `buffer`, starting at `start_bytes`.
    pub fn placed(&self, buffer: Buffer, start_bytes: usize) -> Span {
        Span { buffer, start_bytes, ..*self }
    }

    /// Return the number of elements.
    pub fn element_count(&self) -> usize {
        self.length_bytes / self.element_bytes
    }

    /// Return the span of `element_count` elements, starting with element `first`.
    pub fn elements(&self, first: usize, element_count: usize) -> Span {
        assert!(first + element_count <= self.element_count(), "the elements lie within the span");
        Span {
            start_bytes: self.start_bytes + first * self.element_bytes,
            length_bytes: element_count * self.element_bytes,
            ..*self
        }
    }

    /// Return chunk `index` of `count`. Sizes differ by at most one element, and larger chunks are first.
    pub fn chunk(&self, index: usize, count: usize) -> Span {
        let (base, larger) = (self.element_count() / count, self.element_count() % count);
        let first = index * base + index.min(larger);
        self.elements(first, base + usize::from(index < larger))
    }

    /// Return all `count` chunks in order.
    pub fn chunks(&self, count: usize) -> alloc::vec::Vec<Span> {
        (0..count).map(|index| self.chunk(index, count)).collect()
    }

    /// Return consecutive spans with the given element counts, from the start of this span.
    pub fn split(&self, element_counts: &[usize]) -> alloc::vec::Vec<Span> {
        let mut first = 0;
        element_counts
            .iter()
            .map(|&count| {
                let part = self.elements(first, count);
                first += count;
                part
            })
            .collect()
    }

    /// Join consecutive spans into one.
    pub fn joined(spans: &[Span]) -> Span {
        let (first, last) = (spans[0], spans[spans.len() - 1]);
        assert!(first.buffer == last.buffer && first.start_bytes <= last.start_bytes, "joined spans are consecutive");
        Span { length_bytes: last.end_bytes() - first.start_bytes, ..first }
    }

    /// Whether the two spans share a byte.
    pub fn overlaps(&self, other: &Span) -> bool {
        self.buffer == other.buffer && self.start_bytes < other.end_bytes() && other.start_bytes < self.end_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_span_without_gaps_and_divide_no_element() {
        for count in 1..=9 {
            for elements in 0..40 {
                let span = Span::whole(Buffer::MAIN, elements, 4);
                let chunks = span.chunks(count);
                let mut next = 0;
                for chunk in &chunks {
                    assert_eq!(chunk.start_bytes, next);
                    assert_eq!(chunk.length_bytes % 4, 0);
                    next = chunk.end_bytes();
                }
                assert_eq!(next, span.end_bytes());
            }
        }
    }
}
