//! Links between threads of one process.

use super::doorbell::Bell;
use super::ring::{RingLink, Segment, Side};
use std::io;
use std::sync::Arc;

/// Both ends of a link with rings of at least `capacity_bytes`. `first` wakes the rank that holds the first end.
pub fn pair(capacity_bytes: usize, first: Bell, second: Bell) -> io::Result<(RingLink, RingLink)> {
    let (segment, _) = Segment::create(capacity_bytes)?;
    let segment = Arc::new(segment);
    Ok((RingLink::new(segment.clone(), Side::First, second), RingLink::new(segment, Side::Second, first)))
}
