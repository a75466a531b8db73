//! Element type and arrangement of the data of a call.
//!
//! Ranks compare both. The *signature* of a call is a hash of the arrangement, the counts per rank and the order. If
//! ranks differ, the error describes the arrangement as text.

use crate::choice::AlgorithmChoice;
use ripieno_kernels::keyed::hash_string;
use ripieno_run::Element;

/// Type and arrangement of elements.
#[derive(Clone, Copy, Debug)]
pub struct ElementType<'a> {
    /// The type.
    pub element: Element,
    /// The arrangement.
    pub shape: ElementShape<'a>,
}

/// Arrangement of elements.
#[derive(Clone, Copy, Debug)]
pub enum ElementShape<'a> {
    /// One after the other.
    Vector,
    /// An array with this number of entries along each axis.
    Axes(&'a [usize]),
    /// A description by the caller, equal on every rank.
    Described(&'a str),
}

impl From<Element> for ElementType<'_> {
    fn from(element: Element) -> Self {
        ElementType { element, shape: ElementShape::Vector }
    }
}

impl ElementShape<'_> {
    /// Return the hash of the arrangement; 0 for a vector.
    #[inline]
    pub(crate) fn signature(&self) -> u32 {
        match self {
            ElementShape::Vector => 0,
            // A description is UTF-8 and cannot begin with this byte, so no description has the hash input of an array.
            ElementShape::Axes(axes) => axes.iter().fold(hash(&[0xff]), |hashed, axis| {
                hashed.rotate_left(5).wrapping_mul(0x9e37_79b1) ^ hash(&axis.to_le_bytes())
            }),
            ElementShape::Described(text) => hash(text.as_bytes()),
        }
    }

    /// Return the description of the arrangement; empty for a vector.
    pub(crate) fn text(&self) -> String {
        match self {
            ElementShape::Vector => String::new(),
            ElementShape::Axes([length]) => format!("shape ({length},)"),
            ElementShape::Axes(axes) => {
                format!("shape ({})", axes.iter().map(usize::to_string).collect::<Vec<_>>().join(", "))
            }
            ElementShape::Described(text) => text.to_string(),
        }
    }
}

/// Return the signature of a call. `counts` are the counts per rank that all ranks must share.
#[inline]
pub(crate) fn signature(shape: &ElementShape<'_>, counts: &[usize], choice: &AlgorithmChoice) -> u32 {
    let counts_hash = if counts.is_empty() { 0 } else { hash_counts(counts) };
    shape.signature() ^ counts_hash ^ choice.order_hash()
}

/// Return the description of a call's signature.
pub(crate) fn signature_text(shape: &ElementShape<'_>, counts: &[usize], choice: &AlgorithmChoice) -> String {
    let counts = if counts.is_empty() { String::new() } else { format!("counts {counts:?}") };
    let order = choice.order_name();
    [shape.text(), counts, order].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn hash_counts(counts: &[usize]) -> u32 {
    counts.iter().fold(hash(b"counts"), |hashed, count| {
        hashed.rotate_left(5).wrapping_mul(0x9e37_79b1) ^ hash(&count.to_le_bytes())
    })
}

/// Return a hash that is equal on every rank, and never 0.
#[inline]
pub(crate) fn hash(bytes: &[u8]) -> u32 {
    (hash_string(bytes) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_arrangements_have_different_signatures_and_descriptions() {
        let shapes = [
            ElementShape::Vector,
            ElementShape::Axes(&[]),
            ElementShape::Axes(&[0]),
            ElementShape::Axes(&[6]),
            ElementShape::Axes(&[2, 3]),
            ElementShape::Axes(&[3, 2]),
            ElementShape::Axes(&[1, 6]),
            ElementShape::Axes(&[6, 1]),
            ElementShape::Axes(&[2, 3, 1]),
            ElementShape::Described("rows of shape (3, 2)"),
            ElementShape::Described("{'a': float64 of shape (2, 3)}"),
        ];
        for (index, shape) in shapes.iter().enumerate() {
            for other in &shapes[..index] {
                assert_ne!(shape.signature(), other.signature(), "{shape:?} and {other:?}");
                assert_ne!(shape.text(), other.text());
            }
        }
        assert_eq!(shapes.map(|shape| shape.signature() == 0), std::array::from_fn(|index| index == 0));
        assert_eq!(shapes[3].text(), "shape (6,)");
        assert_eq!(shapes[4].text(), "shape (2, 3)");
    }
}
